//! Drafts of listeners, in which services with the same address and port are merged.
//!
//! HTTP services share a chain, because routes distinguish their hosts. HTTP and TCP share a listener that
//! detects the protocol. TCP services share a listener if SNI or address range distinguish their connections;
//! otherwise the first one takes precedence.

use super::binding::ListenerBinding;
use super::chain::{Chain, Conditions};
use pilotfish_model::Origin;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Protocol handling of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Http,
    Tcp,
    Sniffed,
}

/// Draft of a listener.
#[derive(Clone, Debug)]
pub(super) struct ListenerDraft {
    kind: Kind,
    /// Addresses, the primary one first.
    pub(super) binds: Vec<Arc<str>>,
    /// The port; 0 for a Unix socket.
    pub(super) port: u32,
    /// True if it binds the port, instead of taking redirected connections.
    pub(super) bind_to_port: bool,
    /// True if it exists only for endpoints at its address.
    direct: bool,
    pub(super) chains: Vec<Chain>,
    /// Index of the first chain with given conditions, for the first `placed` chains.
    places: BTreeMap<Conditions, usize>,
    placed: usize,
    pub(super) provenance: Vec<Origin>,
    /// True if later egress listeners must not change it.
    locked: bool,
}

impl ListenerDraft {
    fn new(binding: &ListenerBinding, kind: Kind, chains: Vec<Chain>) -> Self {
        Self {
            kind,
            binds: binding.binds.clone(),
            port: binding.port.number,
            bind_to_port: binding.bind_to_port,
            direct: binding.direct,
            chains,
            places: BTreeMap::new(),
            placed: 0,
            provenance: vec![binding.service.provenance.clone()],
            locked: false,
        }
    }

    /// Returns the address of the endpoint, if the listener is for one endpoint.
    pub(super) fn endpoint(&self) -> Option<IpAddr> {
        self.binds.first().filter(|_| self.direct)?.parse().ok()
    }

    /// Returns the index of the first chain with these conditions.
    fn place(&mut self, conditions: &Conditions) -> Option<usize> {
        for (place, chain) in self.chains.iter().enumerate().skip(self.placed) {
            self.places.entry(chain.conditions()).or_insert(place);
        }
        self.placed = self.chains.len();
        self.places.get(conditions).copied()
    }

    fn replace(&mut self, chains: Vec<Chain>) {
        (self.chains, self.places, self.placed) = (chains, BTreeMap::new(), 0);
    }

    /// Adds the chains whose conditions no existing chain has.
    fn merge(&mut self, binding: &ListenerBinding, chains: Vec<Chain>) {
        for chain in chains {
            let provenance = binding.service.provenance.clone();
            let held = self.place(&chain.conditions());
            match held.and_then(|place| self.chains.get_mut(place)) {
                None => self.chains.push(chain),
                // Dubbo calls are matched by their interface, so they come before a stream that would match
                // all of them.
                Some(held) if held.calls.is_empty() && !chain.calls.is_empty() => *held = chain,
                Some(held) if !chain.calls.is_empty() => held.calls.extend(chain.calls),
                Some(_) => continue,
            }
            self.provenance.push(provenance);
        }
    }
}

/// The listeners of one port by their primary address.
#[derive(Debug, Default)]
pub(super) struct ListenerDrafts(BTreeMap<Arc<str>, ListenerDraft>);

impl ListenerDrafts {
    /// Locks all listeners against further changes.
    pub(super) fn lock(&mut self) {
        self.0.values_mut().for_each(|entry| entry.locked = true);
    }

    /// Adds an HTTP service. Builds its chain only if the listener has none yet.
    pub(super) fn add_http(&mut self, binding: &ListenerBinding, chain: impl FnOnce() -> Chain) {
        let Some(entry) = self.0.get_mut(binding.bind()) else {
            self.insert(binding, Kind::Http, vec![chain()]);
            return;
        };
        if entry.locked {
            return;
        }
        entry.direct &= binding.direct;
        entry.provenance.push(binding.service.provenance.clone());
        if entry.kind == Kind::Tcp {
            entry.kind = Kind::Sniffed;
            entry.chains.push(Chain { http: true, ..chain() });
        }
    }

    /// Adds the chains of a TCP service.
    pub(super) fn add_tcp(&mut self, binding: &ListenerBinding, chains: Vec<Chain>) {
        let Some(entry) = self.0.get_mut(binding.bind()) else {
            self.insert(binding, Kind::Tcp, chains);
            return;
        };
        if entry.locked {
            return;
        }
        entry.direct &= binding.direct;
        if entry.kind == Kind::Http {
            entry.kind = Kind::Sniffed;
            let http = std::mem::take(&mut entry.chains);
            entry.provenance.push(binding.service.provenance.clone());
            let http = http.into_iter().map(|chain| Chain { http: true, ..chain });
            entry.replace(chains.into_iter().chain(http).collect());
        } else {
            entry.merge(binding, chains);
        }
    }

    /// Adds the chains of a service without a declared protocol.
    pub(super) fn add_sniffed(&mut self, binding: &ListenerBinding, http: Chain, streams: Vec<Chain>) {
        let chains = || std::iter::once(http).chain(streams).collect();
        let Some(entry) = self.0.get_mut(binding.bind()) else {
            self.insert(binding, Kind::Sniffed, chains());
            return;
        };
        if entry.locked {
            return;
        }
        entry.direct &= binding.direct;
        if entry.kind == Kind::Http {
            entry.provenance.push(binding.service.provenance.clone());
            entry.replace(chains());
        } else {
            entry.merge(binding, chains());
        }
        entry.kind = Kind::Sniffed;
    }

    fn insert(&mut self, binding: &ListenerBinding, kind: Kind, chains: Vec<Chain>) {
        let Some(bind) = binding.binds.first() else { return };
        self.0.insert(bind.clone(), ListenerDraft::new(binding, kind, chains));
    }
}

impl IntoIterator for ListenerDrafts {
    type Item = ListenerDraft;
    type IntoIter = std::collections::btree_map::IntoValues<Arc<str>, ListenerDraft>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_values()
    }
}
