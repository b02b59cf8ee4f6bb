//! Telemetry: which Telemetry objects apply to a proxy, and the access logs, metrics and traces that they
//! configure.
//!
//! ```text
//! Telemetry of the root namespace ─▶ of the proxy's namespace ─▶ those that select the proxy
//! ```
//! Later ones override earlier ones. Of several objects for a whole namespace, the oldest is used.

pub(crate) mod access_log;
mod format;
pub(crate) mod metrics;
pub(crate) mod tracing;

use crate::engine::{Cx, Query};
use crate::policy::attachment::{Policy, concerns};
use pilotfish_config::telemetry::Telemetry;
use pilotfish_model::{LabelMap, Namespace, Typed};

/// Returns the Telemetry objects for proxies of a namespace with these labels; later ones override earlier
/// ones.
#[must_use]
pub(crate) fn applicable(cx: &Cx<'_>, namespace: &Namespace, labels: &LabelMap) -> Vec<Typed<Telemetry>> {
    let root: Namespace = cx.mesh().root_namespace.as_str().into();
    let mut found: Vec<Typed<Telemetry>> =
        cx.get(&TelemetriesIn(root.clone())).whole.iter().cloned().collect();
    let own = cx.get(&TelemetriesIn(namespace.clone()));
    if *namespace != root {
        found.extend(own.whole.iter().cloned());
    }
    // If several select the proxy, the oldest one is used.
    let selecting = own.selecting.iter().find(|telemetry| concerns(telemetry, namespace, labels));
    found.extend(selecting.cloned());
    found
}

/// The Telemetry objects of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct TelemetriesIn(Namespace);

#[derive(Debug, Default, PartialEq)]
struct Telemetries {
    /// The object for all proxies of the namespace.
    whole: Option<Typed<Telemetry>>,
    /// Objects with selectors or target references, the oldest first.
    selecting: Vec<Typed<Telemetry>>,
}

impl Query for TelemetriesIn {
    type Output = Telemetries;

    fn compute(&self, cx: &Cx<'_>) -> Telemetries {
        let mut objects = cx.objects_in::<Telemetry>(&self.0);
        objects.sort_by(|a, b| a.meta().precedence().cmp(&b.meta().precedence()));
        let mut out = Telemetries::default();
        for object in objects {
            let selects = object.selector.as_ref().is_some_and(|selector| !selector.match_labels.is_empty());
            if selects || object.is_attached() {
                out.selecting.push(object);
            } else {
                out.whole.get_or_insert(object);
            }
        }
        out
    }
}
