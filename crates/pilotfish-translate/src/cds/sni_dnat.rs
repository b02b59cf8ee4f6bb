//! Gateways that route mutual TLS by SNI without ending it: between networks, endpoints are reached through them.

use crate::{Cx, Query};
use pilotfish_config::networking::{Gateway, ServerTlsMode};
use pilotfish_model::{Labels, label_subset};
use std::collections::BTreeMap;

/// Whether a router with these labels is such a gateway.
pub(super) fn is_used_by(cx: &Cx<'_>, labels: &Labels) -> bool {
    cx.get(&AutoPassthrough).iter().any(|selector| label_subset(selector, labels))
}

/// The selectors of Gateways with a server of mode AUTO_PASSTHROUGH.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AutoPassthrough;

impl Query for AutoPassthrough {
    type Output = Vec<BTreeMap<String, String>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let passes = |gateway: &Gateway| {
            let modes = gateway.servers.iter().filter_map(|server| server.tls.as_ref());
            modes.into_iter().any(|tls| tls.mode == ServerTlsMode::AutoPassthrough)
        };
        cx.objects::<Gateway>().filter(|gateway| passes(gateway)).map(|g| g.selector.clone()).collect()
    }
}
