//! Refusals of connected proxies, for `/ready` and for the status of the control plane.

use super::AdminState;
use super::proxies::{REFUSALS, add_objects, proxy};
use parking_lot::Mutex;
use pilotfish_api::counted;
use pilotfish_api::v1::Refusal;
use pilotfish_control_plane::likely_causes;
use pilotfish_xds::ConnectionStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Lifetime of cached refusals.
const FRESH: Duration = Duration::from_secs(1);

/// Cache of the refusals, because any client can request `/ready` as often as it likes.
#[derive(Default)]
pub struct Refusals(Mutex<Option<(Instant, Arc<Refused>)>>);

/// Refusals of connected proxies.
#[derive(Debug, Default)]
pub(super) struct Refused {
    /// Refusals of the first [`REFUSALS`] proxies.
    pub(super) list: Vec<Refusal>,
    /// Number of further proxies with refusals.
    pub(super) more: usize,
}

impl Refused {
    /// Returns a line for each refusal.
    pub(super) fn lines(&self) -> Vec<String> {
        let line = |refusal: &Refusal| format!("{} {}", refusal.proxy, in_words(refusal));
        let mut lines: Vec<String> = self.list.iter().map(line).collect();
        if self.more > 0 {
            lines.push(self.of_more());
        }
        lines
    }

    /// Returns a line for the further proxies.
    pub(super) fn of_more(&self) -> String {
        let refuse = if self.more == 1 { "refuses" } else { "refuse" };
        format!("{} {refuse} something", counted(self.more, "more proxy"))
    }
}

/// Formats a refusal: `refuses listeners: no such filter, made by EnvoyFilter shop/bad`.
pub(super) fn in_words(refusal: &Refusal) -> String {
    let made_by = match likely_causes::in_words(&refusal.made_by) {
        none if none.is_empty() => none,
        words => format!(", made by {words}"),
    };
    format!("refuses {}: {}{made_by}", refusal.resource_type, refusal.reason)
}

/// Returns the refusals of connected proxies, at most a second old.
pub(super) fn refused(state: &AdminState) -> Arc<Refused> {
    // The lock is held during the computation, so that concurrent requests share it.
    let mut known = state.refusals.0.lock();
    match &*known {
        Some((at, refused)) if at.elapsed() < FRESH => refused.clone(),
        _ => {
            let refused = Arc::new(refused_now(state));
            *known = Some((Instant::now(), refused.clone()));
            refused
        }
    }
}

fn refused_now(state: &AdminState) -> Refused {
    // Probes arrive every second, so subscriptions are copied only if some proxy refuses a response.
    let count = state.fanout.progress().iter().filter(|client| client.refuses).count();
    if count == 0 {
        return Refused::default();
    }
    let (current, connections) = state.fanout.acknowledgements();
    let refuses = |connection: &&ConnectionStatus| connection.types.values().any(|ty| ty.rejection.is_some());
    let snapshot = state.translator.snapshot();
    let mut list = Vec::new();
    for connection in connections.iter().filter(refuses).take(REFUSALS) {
        let mut proxy = proxy(connection, current);
        add_objects(&mut proxy, connection, &snapshot, &state.shared);
        for ty in proxy.types {
            let Some(rejection) = ty.rejection else { continue };
            list.push(Refusal {
                proxy: proxy.name.clone(),
                resource_type: ty.name,
                since: rejection.at,
                reason: rejection.reason,
                made_by: rejection.made_by,
            });
        }
    }
    Refused { list, more: count.saturating_sub(REFUSALS) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_the_most_suspect_object_and_counts_the_others() {
        let refusal = Refusal {
            proxy: "web-0.shop".into(),
            resource_type: "listeners".into(),
            reason: "no such filter".into(),
            made_by: ["EnvoyFilter shop/bad", "Service shop/a", "Service shop/b"].map(str::to_owned).into(),
            ..Refusal::default()
        };
        let unknown = Refusal { made_by: Vec::new(), ..refusal.clone() };
        let refused = Refused { list: vec![refusal, unknown], more: 3 };
        assert_eq!(
            refused.lines(),
            [
                "web-0.shop refuses listeners: no such filter, made by EnvoyFilter shop/bad and 2 others",
                "web-0.shop refuses listeners: no such filter",
                "3 more proxies refuse something"
            ]
        );
    }
}
