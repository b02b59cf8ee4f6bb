//! Listeners in the making: what happens when several services want the same address and port.
//!
//! HTTP joins HTTP, since routes distinguish hosts. HTTP and TCP become one listener that sniffs. TCP joins TCP where the
//! connections can be distinguished by SNI or address range; otherwise the first one has it.

use super::binding::ListenerBinding;
use super::chain::{Chain, Conditions};
use pilotfish_model::Origin;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// What a listener is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Http,
    Tcp,
    Sniffed,
}

/// One listener in the making.
#[derive(Clone, Debug)]
pub(super) struct ListenerDraft {
    kind: Kind,
    /// Addresses, the primary one first.
    pub(super) binds: Vec<Arc<str>>,
    /// The port; 0 for a Unix socket.
    pub(super) port: u32,
    /// Whether it really binds the port.
    pub(super) bind_to_port: bool,
    /// Whether it is there only for endpoints at its address.
    direct: bool,
    pub(super) chains: Vec<Chain>,
    /// The first chain of each conditions, for so many of the chains.
    places: BTreeMap<Conditions, usize>,
    placed: usize,
    /// What made it.
    pub(super) provenance: Vec<Origin>,
    /// Whether egress listeners that come later leave it alone.
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

    /// The endpoint that it is for, where it is for one.
    pub(super) fn endpoint(&self) -> Option<IpAddr> {
        self.binds.first().filter(|_| self.direct)?.parse().ok()
    }

    /// Where the first chain with these conditions is.
    fn place(&mut self, conditions: &Conditions) -> Option<usize> {
        for (place, chain) in self.chains.iter().enumerate().skip(self.placed) {
            self.places.entry(chain.conditions()).or_insert(place);
        }
        self.placed = self.chains.len();
        self.places.get(conditions).copied()
    }

    /// Has these chains from now on.
    fn replace(&mut self, chains: Vec<Chain>) {
        (self.chains, self.places, self.placed) = (chains, BTreeMap::new(), 0);
    }

    /// Adds those chains that match other connections than the chains that are there.
    fn merge(&mut self, binding: &ListenerBinding, chains: Vec<Chain>) {
        for chain in chains {
            let provenance = binding.service.provenance.clone();
            let held = self.place(&chain.conditions());
            match held.and_then(|place| self.chains.get_mut(place)) {
                None => self.chains.push(chain),
                // Calls of Dubbo are told apart by their interface, so they go before a stream that would take all of them.
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
    /// From now on what is there stays as it is.
    pub(super) fn lock(&mut self) {
        self.0.values_mut().for_each(|entry| entry.locked = true);
    }

    /// Adds an HTTP service. Its chain is built only where there is none yet.
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

    /// Adds the chains of a service whose protocol is not declared.
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
