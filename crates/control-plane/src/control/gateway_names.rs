//! Resolution of gateways between networks that are host names: Envoy accepts only addresses in load
//! assignments.
//!
//! ```text
//! gateways of registries ─▶ names ─ due ─▶ lookup at the rim ─ answer ─▶ addresses ─▶ gateways of the world
//! ```
//!
//! A state machine without IO; the time is an argument. A name is looked up again after [`REFRESH`], after a
//! failure with backoff. While lookups fail, the last good addresses stay: no failure and no empty answer
//! removes one.

use pilotfish_model::{Hostname, NetworkGateway};
use pilotfish_runtime::{Backoff, BackoffPolicy, DeadlineQueue, Jitter};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time to live of addresses, istiod's maximum. The system's resolver does not return the TTL of records.
pub(crate) const REFRESH: Duration = Duration::from_secs(30);

/// Backoff after a failed lookup.
const RETRY: BackoffPolicy = BackoffPolicy::new(Duration::from_secs(1), REFRESH);

/// Maximum time that readiness waits for the first lookups.
const FIRST_ANSWERS: Duration = Duration::from_secs(5);

/// Maximum number of names that are resolved: each costs a lookup every 30 s.
const MOST_NAMES: usize = 256;

/// Maximum number of addresses of one name that become gateways: the lowest ones.
const MOST_ADDRESSES: usize = 32;

/// Result of a lookup: addresses, or the reason of the failure.
pub type LookupResult = Result<Vec<IpAddr>, String>;

/// Names of gateways, with their addresses and due lookups.
#[derive(Clone)]
pub(super) struct GatewayNames {
    names: BTreeMap<Arc<str>, Name>,
    /// Time of the next lookup of each name, except for names with a lookup in progress.
    due: DeadlineQueue<Arc<str>, Instant>,
    jitter: Jitter,
    /// True while readiness waits for first lookups; `patience` is the deadline, set by the first name.
    waits: bool,
    patience: Option<Instant>,
    /// Number of names beyond [`MOST_NAMES`], which are left out.
    beyond: usize,
}

#[derive(Clone)]
struct Name {
    addresses: Vec<IpAddr>,
    backoff: Backoff,
    /// True if a lookup of the name has ended.
    is_tried: bool,
    /// Reason of the last failed lookup.
    failure: Option<String>,
}

/// Effect of a lookup's result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answered {
    /// The addresses are different.
    Changed,
    /// The addresses are unchanged.
    Same,
    /// The name is no longer used.
    Unknown,
}

impl GatewayNames {
    /// A resolver without names.
    pub(super) fn new(jitter: Jitter) -> Self {
        let due = DeadlineQueue::default();
        Self { names: BTreeMap::new(), due, jitter, waits: true, patience: None, beyond: 0 }
    }

    /// Sets the gateways whose names are resolved.
    pub(super) fn want(&mut self, gateways: &[NetworkGateway], now: Instant) {
        let all: BTreeSet<&Arc<str>> = gateways
            .iter()
            .filter(|gateway| is_name(&gateway.address))
            .map(|gateway| &gateway.address)
            .collect();
        self.beyond = all.len().saturating_sub(MOST_NAMES);
        let wanted: BTreeSet<&Arc<str>> = all.into_iter().take(MOST_NAMES).collect();
        self.names.retain(|name, _| wanted.contains(name));
        let gone: Vec<Arc<str>> =
            self.due.iter().map(|(name, _)| name.clone()).filter(|name| !wanted.contains(name)).collect();
        for name in gone {
            self.due.remove(&name);
        }
        for name in wanted {
            if !self.names.contains_key(name) {
                let backoff = Backoff::new(RETRY, self.jitter.fork(name));
                let new = Name { addresses: Vec::new(), backoff, is_tried: false, failure: None };
                self.names.insert(name.clone(), new);
                self.due.set(name.clone(), now);
                if self.waits {
                    self.patience.get_or_insert(now + FIRST_ANSWERS);
                }
            }
        }
    }

    /// Removes and returns the names to look up now. Each is due again only after its answer.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Arc<str>> {
        std::iter::from_fn(|| self.due.pop_due(now)).collect()
    }

    /// Time of the next action without an answer.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.next().into_iter().chain(self.patience).min()
    }

    /// True if every name was looked up once, or the wait of readiness is over.
    pub(super) fn is_settled(&mut self, now: Instant) -> bool {
        if self.patience.is_some_and(|until| until <= now) {
            self.stop_waiting();
        }
        !self.waits || self.names.values().all(|name| name.is_tried)
    }

    /// Ends the wait of readiness for first lookups.
    pub(super) fn stop_waiting(&mut self) {
        self.waits = false;
        self.patience = None;
    }

    /// Applies the result of a lookup.
    pub(super) fn answer(&mut self, name: &Arc<str>, result: LookupResult, now: Instant) -> Answered {
        let Some(known) = self.names.get_mut(name) else { return Answered::Unknown };
        known.is_tried = true;
        let result = result.and_then(|addresses| {
            let addresses: BTreeSet<IpAddr> = addresses.into_iter().collect();
            let addresses: Vec<IpAddr> = addresses.into_iter().take(MOST_ADDRESSES).collect();
            if addresses.is_empty() { Err("it has no addresses".to_owned()) } else { Ok(addresses) }
        });
        match result {
            Ok(addresses) => {
                known.backoff.reset();
                self.due.set(name.clone(), now + REFRESH);
                if known.failure.take().is_some() {
                    tracing::info!(gateway = %name, "the name of the gateway between networks is resolved");
                }
                let before = std::mem::replace(&mut known.addresses, addresses);
                if before == known.addresses { Answered::Same } else { Answered::Changed }
            }
            Err(reason) => {
                self.due.set(name.clone(), now + known.backoff.wait());
                // Each try fails again: the log has the first one, /ready the newest reason.
                if known.failure.replace(reason.clone()).is_none() {
                    let in_force = in_force(&known.addresses);
                    tracing::warn!(
                        gateway = %name, %reason,
                        "the name of a gateway between networks cannot be resolved; {in_force}"
                    );
                }
                Answered::Same
            }
        }
    }

    /// Returns the gateways with the addresses of their names. Those without addresses yet are unchanged.
    pub(super) fn resolve(&self, gateways: &[NetworkGateway]) -> Arc<[NetworkGateway]> {
        let mut out = BTreeSet::new();
        for gateway in gateways {
            let addresses = self.names.get(&gateway.address).map_or(&[][..], |name| &name.addresses);
            if addresses.is_empty() {
                out.insert(gateway.clone());
            }
            out.extend(
                addresses
                    .iter()
                    .map(|address| NetworkGateway { address: address.to_string().into(), ..gateway.clone() }),
            );
        }
        out.into_iter().collect()
    }

    /// Problems of names that cannot be resolved, one sentence each.
    pub(super) fn problems(&self) -> Vec<String> {
        let failing = self.names.iter().filter_map(|(name, known)| {
            let reason = known.failure.as_ref()?;
            let in_force = in_force(&known.addresses);
            Some(format!("gateway between networks {name}: cannot be resolved ({reason}); {in_force}"))
        });
        let beyond = (self.beyond > 0).then(|| {
            format!(
                "{} gateways between networks are left out: at most {MOST_NAMES} names are resolved",
                self.beyond
            )
        });
        failing.chain(beyond).collect()
    }
}

fn in_force(addresses: &[IpAddr]) -> &'static str {
    if addresses.is_empty() { "the gateway is left out" } else { "its last addresses stay in force" }
}

/// True if the address is a host name to look up. Text that is neither an address nor a name is left out
/// here; validation reports it.
fn is_name(address: &str) -> bool {
    address.parse::<IpAddr>().is_err() && Hostname::parse(address).is_ok_and(|name| !name.is_wildcard())
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(100);

    fn gateway(network: &str, address: &str) -> NetworkGateway {
        NetworkGateway {
            network: network.into(),
            cluster: "".into(),
            address: address.into(),
            port: 15443,
            hbone_port: 0,
            service_account: "".into(),
        }
    }

    fn ips(texts: &[&str]) -> LookupResult {
        Ok(texts.iter().map(|text| text.parse().unwrap()).collect())
    }

    /// The machine on a clock that only this moves.
    struct Case {
        machine: GatewayNames,
        gateways: Vec<NetworkGateway>,
        now: Instant,
    }

    impl Case {
        fn new(gateways: &[(&str, &str)]) -> Self {
            let mut machine = GatewayNames::new(Jitter::seeded(1));
            let gateways: Vec<_> =
                gateways.iter().map(|(network, address)| gateway(network, address)).collect();
            let now = Instant::now() + START;
            machine.want(&gateways, now);
            Self { machine, gateways, now }
        }

        fn due(&mut self) -> Vec<String> {
            self.machine.take_due(self.now).iter().map(ToString::to_string).collect()
        }

        fn answer(&mut self, name: &str, result: LookupResult) -> Answered {
            self.machine.answer(&name.into(), result, self.now)
        }

        fn gateways(&self) -> Vec<String> {
            let all = self.machine.resolve(&self.gateways);
            all.iter().map(|gateway| format!("{} {}", gateway.network, gateway.address)).collect()
        }

        /// Goes to the next time at which something is due; how long that is.
        fn wait(&mut self) -> Duration {
            let next = self.machine.next().expect("something is due");
            let waited = next.saturating_duration_since(self.now);
            self.now = next.max(self.now);
            waited
        }
    }

    #[test]
    fn names_become_all_of_their_addresses_and_addresses_are_left_alone() {
        let mut case =
            Case::new(&[("a", "gw.example.com"), ("b", "gw.example.com"), ("a", "192.0.2.9"), ("c", "*.x")]);
        assert_eq!(case.due(), ["gw.example.com"]);
        assert_eq!(case.gateways(), ["a 192.0.2.9", "a gw.example.com", "b gw.example.com", "c *.x"]);
        assert_eq!(
            case.answer("gw.example.com", ips(&["2001:db8::1", "192.0.2.2", "192.0.2.2"])),
            Answered::Changed
        );
        let resolved =
            ["a 192.0.2.2", "a 192.0.2.9", "a 2001:db8::1", "b 192.0.2.2", "b 2001:db8::1", "c *.x"];
        assert_eq!(case.gateways(), resolved);
        // While it is looked up it is not due.
        assert_eq!(case.due(), [""; 0]);
        assert!(case.machine.is_settled(case.now));
        case.machine.stop_waiting();
        assert_eq!(case.wait(), REFRESH);
        assert_eq!(case.due(), ["gw.example.com"]);
        assert_eq!(case.answer("gw.example.com", ips(&["192.0.2.2", "2001:db8::1"])), Answered::Same);
    }

    #[test]
    fn a_failure_and_an_empty_answer_take_nothing_away() {
        let mut case = Case::new(&[("a", "gw.example.com")]);
        case.due();
        assert_eq!(case.answer("gw.example.com", Err("no such host".into())), Answered::Same);
        assert_eq!(case.gateways(), ["a gw.example.com"]);
        assert_eq!(
            case.machine.problems(),
            [
                "gateway between networks gw.example.com: cannot be resolved (no such host); the gateway is left out"
            ]
        );
        assert!(case.machine.is_settled(case.now));
        case.machine.stop_waiting();
        assert!(case.wait() <= Duration::from_secs(1));
        case.due();
        assert_eq!(case.answer("gw.example.com", ips(&["192.0.2.2"])), Answered::Changed);
        assert_eq!(case.machine.problems(), [""; 0]);
        for failure in [Err("timed out".into()), ips(&[])] {
            case.wait();
            assert_eq!(case.due(), ["gw.example.com"]);
            assert_eq!(case.answer("gw.example.com", failure), Answered::Same);
            assert_eq!(case.gateways(), ["a 192.0.2.2"]);
        }
        assert_eq!(
            case.machine.problems(),
            [
                "gateway between networks gw.example.com: cannot be resolved (it has no addresses); its last addresses stay in force"
            ]
        );
    }

    #[test]
    fn failures_are_tried_again_ever_more_slowly() {
        let mut case = Case::new(&[("a", "gw.example.com")]);
        case.due();
        case.machine.stop_waiting();
        let waits: Vec<Duration> = (0..8)
            .map(|_| {
                case.answer("gw.example.com", Err("no".into()));
                let waited = case.wait();
                case.due();
                waited
            })
            .collect();
        assert!(waits.iter().all(|wait| *wait <= REFRESH), "{waits:?}");
        assert!(waits.last().is_some_and(|last| *last >= REFRESH / 2), "{waits:?}");
    }

    #[test]
    fn readiness_waits_for_first_answers_but_not_for_ever() {
        let mut case = Case::new(&[("a", "gw.example.com"), ("b", "other.example.com")]);
        case.due();
        case.answer("gw.example.com", ips(&["192.0.2.2"]));
        assert!(!case.machine.is_settled(case.now));
        assert_eq!(case.wait(), FIRST_ANSWERS);
        assert!(case.machine.is_settled(case.now));
        // What comes later is not waited for.
        let more = [gateway("c", "late.example.com")];
        case.machine.want(&more, case.now);
        assert!(case.machine.is_settled(case.now));
        assert_eq!(case.machine.next(), Some(case.now), "it is looked up");
        let mut without = Case::new(&[("a", "192.0.2.1")]);
        assert!(without.machine.is_settled(without.now));
        assert_eq!(without.machine.next(), None);
    }

    #[test]
    fn names_that_are_gone_are_forgotten() {
        let mut case = Case::new(&[("a", "gw.example.com"), ("a", "other.example.com")]);
        assert_eq!(case.due().len(), 2);
        case.answer("other.example.com", ips(&["192.0.2.3"]));
        case.gateways.remove(1);
        let gateways = case.gateways.clone();
        case.machine.want(&gateways, case.now);
        case.now += REFRESH;
        assert_eq!(case.due(), [""; 0], "one is gone, the other is not answered yet");
        assert_eq!(case.answer("other.example.com", ips(&["192.0.2.4"])), Answered::Unknown);
        assert_eq!(case.gateways(), ["a gw.example.com"]);
    }

    #[test]
    fn names_and_addresses_have_a_limit() {
        let names: Vec<String> = (0..MOST_NAMES + 3).map(|n| format!("gw-{n:04}.example.com")).collect();
        let gateways: Vec<(&str, &str)> = names.iter().map(|name| ("a", name.as_str())).collect();
        let mut case = Case::new(&gateways);
        assert_eq!(case.due().len(), MOST_NAMES);
        assert!(case.machine.problems()[0].starts_with("3 gateways"), "{:?}", case.machine.problems());
        let many = (0..100).map(|n| IpAddr::from([192, 0, 2, n])).collect();
        case.answer("gw-0000.example.com", Ok(many));
        assert_eq!(case.gateways().len(), MOST_NAMES + 3 - 1 + MOST_ADDRESSES);
    }
}
