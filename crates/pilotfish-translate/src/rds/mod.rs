//! Route configurations (RDS).

use crate::scope::Scope;
use crate::{Batch, Cx, Proxy, Unit};

/// The facets of a proxy that its route configurations may depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RouteView {
    /// Which services it sees.
    pub scope: Scope,
}

impl RouteView {
    /// The view of a proxy; `None` when it is not served this type.
    #[allow(clippy::unnecessary_wraps)]
    pub fn of(cx: &Cx<'_>, proxy: &Proxy) -> Option<Self> {
        Some(Self { scope: Scope::of(cx, proxy) })
    }

    /// Generates one unit.
    #[must_use]
    pub fn generate(&self, _cx: &Cx<'_>, _unit: &Unit) -> Batch {
        Batch::default()
    }
}
