//! Listeners (LDS).

use crate::scope::Scope;
use crate::{Batch, Cx, Proxy, ProxyKind, Unit};

/// The facets of a proxy that its listeners may depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListenerView {
    /// Which services it sees.
    pub scope: Scope,
}

impl ListenerView {
    /// The view of a proxy; `None` when it is not served this type.
    #[allow(clippy::unnecessary_wraps)]
    pub fn of(cx: &Cx<'_>, proxy: &Proxy) -> Option<Self> {
        Some(Self { scope: Scope::of(cx, proxy) })
    }

    /// The units of the whole set; `None` for clients that ask by name.
    #[must_use]
    pub fn units(&self, _cx: &Cx<'_>) -> Option<Vec<Unit>> {
        (self.scope.kind != ProxyKind::Grpc).then(|| vec![Unit::Static])
    }

    /// Generates one unit.
    #[must_use]
    pub fn generate(&self, _cx: &Cx<'_>, _unit: &Unit) -> Batch {
        Batch::default()
    }
}
