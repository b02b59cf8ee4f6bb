//! Gateways whose Deployment and Service are made for them: follows the worlds and returns all of them when
//! one differs.
//!
//! Like that of statuses, its memo is separate from the one that serves proxies.

use crate::engine::TranslationSettings;
use crate::engine::memo::Memo;
use crate::routing::gateway_api::ManagedGateways;
use pilotfish_config::gateway_api::ManagedGateway;
use pilotfish_config::status::Controllers;
use pilotfish_model::{ChangeSet, ObjectKey, World};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Gateways by key.
type Gateways = Arc<BTreeMap<ObjectKey, Arc<ManagedGateway>>>;

/// Computes managed gateways, see the module's description.
pub struct GatewayTranslator {
    memo: Memo,
    query: ManagedGateways,
    known: Option<Gateways>,
}

impl GatewayTranslator {
    /// Starts with an empty world, for the Gateways of these controllers.
    #[must_use]
    pub fn new(settings: impl Into<TranslationSettings>, controllers: Controllers) -> Self {
        let memo = Memo::with_settings(settings.into());
        Self { memo, query: ManagedGateways { controllers }, known: None }
    }

    /// Advances to a world that differs by `changes` from the previous one. Returns all gateways if one of
    /// them differs, and for the first world.
    pub fn advance(&mut self, world: Arc<World>, changes: &ChangeSet) -> Option<Gateways> {
        let (current, _) = self.memo.advance(world, changes);
        let (gateways, node) = self.memo.get(&current, &self.query);
        // A root is not swept.
        self.memo.set_root(node);
        drop(current);
        let is_known = self.known.as_ref().is_some_and(|known| Arc::ptr_eq(known, &gateways));
        self.known = Some(gateways.clone());
        self.memo.sweep_if_due();
        (!is_known).then_some(gateways)
    }
}
