//! Allocation of addresses for hosts of ServiceEntries without one, written into the status of each entry.
//! Without IO.
//!
//! Addresses in a status are respected, whichever replica wrote them: so the next leader continues where the
//! last one ended, and istiod's allocations are taken over. Only hosts without an address receive one, the
//! next free one in ascending order, so that a released address is not reused at once. If two hosts have the
//! same address, the older entry keeps it; addresses in the `spec` of an entry are never reassigned.
//!
//! Nothing is allocated before all entries are known.

#[cfg(test)]
mod tests;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use pilotfish_config::networking::ServiceEntry;
use pilotfish_config::status::HostAddress;
use pilotfish_model::{Hostname, Object, ObjectKey, Typed};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Ranges of allocated addresses. The defaults are Istio's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRanges {
    pub v4: Ipv4Net,
    pub v6: Ipv6Net,
}

impl Default for AddressRanges {
    fn default() -> Self {
        Self {
            v4: Ipv4Net::new_assert(Ipv4Addr::new(240, 240, 0, 0), 16),
            v6: Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0), 48),
        }
    }
}

impl AddressRanges {
    /// Parses a range for each family, such as `10.0.0.0/8`; `None` if it is malformed, or has no room for
    /// two addresses.
    #[must_use]
    pub fn parse(v4: &str, v6: &str) -> Option<Self> {
        let (v4, v6): (Ipv4Net, Ipv6Net) = (v4.parse().ok()?, v6.parse().ok()?);
        (v4.prefix_len() <= 30 && v6.prefix_len() <= 126).then(|| Self { v4: v4.trunc(), v6: v6.trunc() })
    }
}

/// Addresses of one family, except for the first one of the range.
#[derive(Debug)]
struct Pool {
    first: IpAddr,
    last: IpAddr,
    /// Start of the next search for a free address.
    next: IpAddr,
    /// Number of used addresses.
    used: u128,
}

impl Pool {
    fn new(network: IpNet) -> Self {
        let first = after(network.network());
        Self { first, last: network.broadcast().max(first), next: first, used: 0 }
    }

    fn has(&self, address: IpAddr) -> bool {
        (self.first..=self.last).contains(&address)
    }

    fn has_room(&self) -> bool {
        self.used <= number(self.last) - number(self.first)
    }

    /// Takes the next free address.
    fn take(&mut self, uses: &BTreeMap<IpAddr, Use>) -> Option<IpAddr> {
        if !self.has_room() {
            return None;
        }
        let mut address = self.next;
        while uses.contains_key(&address) {
            address = self.following(address);
        }
        self.next = self.following(address);
        Some(address)
    }

    fn following(&self, address: IpAddr) -> IpAddr {
        if address >= self.last { self.first } else { after(address) }
    }

    /// Continues after the highest used address: the last leader may just have released lower ones.
    fn go_on(&mut self, uses: &BTreeMap<IpAddr, Use>) {
        if let Some((last, _)) = uses.range(self.first..=self.last).next_back() {
            self.next = self.following(*last);
        }
    }
}

fn after(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits().saturating_add(1)).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits().saturating_add(1)).into(),
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// Order of entries by age, the oldest first.
type Rank = (i64, ObjectKey);

/// Users of an address.
#[derive(Debug, Default)]
struct Use {
    /// Hosts that claim it; that of the oldest entry has it.
    claims: BTreeSet<(Rank, Hostname)>,
    /// Number of entries whose `spec` has it.
    typed: usize,
    /// Number of statuses that have it now: it is allocated to no other host before they are written.
    stored: usize,
}

/// Address claimed by a host.
#[derive(Clone, Debug, PartialEq)]
struct Claim {
    host: Hostname,
    address: IpAddr,
    /// Notation in the status.
    written: HostAddress,
}

impl Claim {
    fn is_instead_of(&self, other: &Self) -> bool {
        self.host == other.host && self.address.is_ipv4() == other.address.is_ipv4()
    }
}

#[derive(Debug, Default)]
struct Entry {
    created: i64,
    /// Hosts that need addresses, as written; `None` if the object cannot be read: its status is not changed.
    hosts: Option<Vec<(Hostname, String)>>,
    typed: Vec<IpAddr>,
    stored: Vec<HostAddress>,
    claims: Vec<Claim>,
    /// Addresses that were last written.
    sent: Option<Vec<HostAddress>>,
}

/// State of all addresses, as described in the module.
pub(super) struct Allocator {
    pools: [Pool; 2],
    entries: BTreeMap<ObjectKey, Entry>,
    uses: BTreeMap<IpAddr, Use>,
    dirty: BTreeSet<Rank>,
    /// Entries with a host without a free address.
    starving: BTreeSet<Rank>,
    listed: bool,
}

impl Allocator {
    pub(super) fn new(ranges: AddressRanges) -> Self {
        Self {
            pools: [Pool::new(ranges.v4.into()), Pool::new(ranges.v6.into())],
            entries: BTreeMap::new(),
            uses: BTreeMap::new(),
            dirty: BTreeSet::new(),
            starving: BTreeSet::new(),
            listed: false,
        }
    }

    /// Called once all entries are known.
    pub(super) fn listed(&mut self) {
        if !std::mem::replace(&mut self.listed, true) {
            let Self { pools, uses, .. } = self;
            pools.iter_mut().for_each(|pool| pool.go_on(uses));
        }
    }

    /// Called when the API server no longer serves the kind. If it is served again, its entries have to be
    /// listed first.
    pub(super) fn vanished(&mut self) {
        self.listed = false;
    }

    /// Handles an entry of the API server; `object` is `None` if it cannot be read.
    pub(super) fn stored(&mut self, key: &ObjectKey, object: Option<&Object>, status: &Value) {
        let before = self.entries.remove(key).unwrap_or_default();
        self.release(key, &before);
        let stored = HostAddress::stored(status);
        let (created, hosts, typed) = match object.and_then(Object::typed::<ServiceEntry>) {
            Some(entry) => (entry.meta().created, Some(hosts(&entry)), typed(&entry)),
            None => (before.created, None, before.typed),
        };
        // A changed stored status is respected. It is unchanged until one of our writes is stored.
        let (first, second) = match stored == before.stored {
            true => (before.claims, claims(&stored)),
            false => (claims(&stored), before.claims),
        };
        let mut claims = first;
        let more: Vec<_> =
            second.into_iter().filter(|claim| !claims.iter().any(|had| had.is_instead_of(claim))).collect();
        claims.extend(more);
        if let Some(hosts) = &hosts {
            claims.retain(|claim| hosts.iter().any(|(host, _)| *host == claim.host));
        }
        let entry = Entry { created, hosts, typed, stored, claims, sent: before.sent };
        self.register(key, &entry);
        self.dirty.insert((created, key.clone()));
        self.entries.insert(key.clone(), entry);
    }

    /// Handles the removal of an entry.
    pub(super) fn gone(&mut self, key: &ObjectKey) {
        if let Some(entry) = self.entries.remove(key) {
            self.release(key, &entry);
            let rank = (entry.created, key.clone());
            self.dirty.remove(&rank);
            self.starving.remove(&rank);
        }
    }

    /// Addresses to write, for entries whose addresses differ from those written before.
    pub(super) fn settle(&mut self) -> Vec<(ObjectKey, Vec<HostAddress>)> {
        let mut out = Vec::new();
        if !self.listed {
            return out;
        }
        if !self.starving.is_empty() && self.pools.iter().all(Pool::has_room) {
            self.dirty.append(&mut self.starving);
        }
        while let Some((_, key)) = self.dirty.pop_first() {
            if let Some(addresses) = self.resolve(&key) {
                out.push((key, addresses));
            }
        }
        out
    }

    /// Releases addresses of other hosts and allocates missing ones; returns the addresses if they changed.
    fn resolve(&mut self, key: &ObjectKey) -> Option<Vec<HostAddress>> {
        let mut entry = self.entries.remove(key)?;
        let addresses = entry.hosts.clone().map(|hosts| {
            let rank = (entry.created, key.clone());
            let claims = std::mem::take(&mut entry.claims);
            let mut kept = Vec::new();
            for claim in claims {
                if self.is_owner(&rank, &claim) {
                    kept.push(claim);
                } else {
                    tracing::info!(object = %key, host = %claim.host, address = %claim.address,
                        "address belongs to another host; allocating a new one");
                    self.unclaim(&rank, &claim);
                }
            }
            for (host, text) in &hosts {
                entry.claims.extend(kept.iter().filter(|claim| claim.host == *host).cloned());
                self.complete(&rank, host, text, &mut entry.claims);
            }
            entry.claims.iter().map(|claim| claim.written.clone()).collect::<Vec<_>>()
        });
        let was_empty = entry.sent.is_none() && entry.stored.is_empty();
        let news = addresses.filter(|addresses| {
            entry.sent.as_ref() != Some(addresses) && !(was_empty && addresses.is_empty())
        });
        if news.is_some() {
            entry.sent.clone_from(&news);
        }
        self.entries.insert(key.clone(), entry);
        news
    }

    fn is_owner(&self, rank: &Rank, claim: &Claim) -> bool {
        let owner = self.uses.get(&claim.address).filter(|uses| uses.typed == 0);
        let owner = owner.and_then(|uses| uses.claims.first());
        owner.is_some_and(|(owner, host)| owner == rank && *host == claim.host)
    }

    /// Allocates an address of each family that the host lacks.
    fn complete(&mut self, rank: &Rank, host: &Hostname, text: &str, claims: &mut Vec<Claim>) {
        for index in 0..self.pools.len() {
            let Some(pool) = self.pools.get_mut(index) else { continue };
            let is_v4 = pool.first.is_ipv4();
            if claims.iter().any(|claim| claim.host == *host && claim.address.is_ipv4() == is_v4) {
                continue;
            }
            let Some(address) = pool.take(&self.uses) else {
                tracing::error!(object = %rank.1, %host, from = %pool.first, to = %pool.last,
                    "address range exhausted; the host has no address until one is released");
                self.starving.insert(rank.clone());
                continue;
            };
            let written = HostAddress { host: text.to_owned(), value: address.to_string() };
            let claim = Claim { host: host.clone(), address, written };
            self.claim(rank, &claim);
            claims.push(claim);
        }
    }

    fn register(&mut self, key: &ObjectKey, entry: &Entry) {
        let rank = (entry.created, key.clone());
        for claim in &entry.claims {
            self.claim(&rank, claim);
        }
        for address in &entry.typed {
            self.using(*address).typed += 1;
            self.contest(*address);
        }
        for address in stored_addresses(entry) {
            self.using(address).stored += 1;
        }
    }

    fn release(&mut self, key: &ObjectKey, entry: &Entry) {
        let rank = (entry.created, key.clone());
        for claim in &entry.claims {
            self.unclaim(&rank, claim);
        }
        for address in &entry.typed {
            self.no_longer(*address, |uses| uses.typed = uses.typed.saturating_sub(1));
        }
        for address in stored_addresses(entry) {
            self.no_longer(address, |uses| uses.stored = uses.stored.saturating_sub(1));
        }
    }

    fn claim(&mut self, rank: &Rank, claim: &Claim) {
        self.using(claim.address).claims.insert((rank.clone(), claim.host.clone()));
        self.contest(claim.address);
    }

    fn unclaim(&mut self, rank: &Rank, claim: &Claim) {
        let claimant = (rank.clone(), claim.host.clone());
        self.no_longer(claim.address, |uses| {
            uses.claims.remove(&claimant);
        });
    }

    /// Rechecks all claims of an address whose owner may have changed.
    fn contest(&mut self, address: IpAddr) {
        let Some(uses) = self.uses.get(&address) else { return };
        if uses.claims.len() > 1 || uses.typed > 0 {
            self.dirty.extend(uses.claims.iter().map(|(rank, _)| rank.clone()));
        }
    }

    fn using(&mut self, address: IpAddr) -> &mut Use {
        let Self { pools, uses, .. } = self;
        uses.entry(address).or_insert_with(|| {
            pools.iter_mut().filter(|pool| pool.has(address)).for_each(|pool| pool.used += 1);
            Use::default()
        })
    }

    fn no_longer(&mut self, address: IpAddr, end: impl FnOnce(&mut Use)) {
        let Some(uses) = self.uses.get_mut(&address) else { return };
        end(uses);
        if uses.claims.is_empty() && uses.typed == 0 && uses.stored == 0 {
            self.uses.remove(&address);
            self.pools.iter_mut().filter(|pool| pool.has(address)).for_each(|pool| pool.used -= 1);
        }
    }
}

/// Hosts of an entry that need addresses, without duplicates.
fn hosts(entry: &Typed<ServiceEntry>) -> Vec<(Hostname, String)> {
    let mut hosts: Vec<(Hostname, String)> = Vec::new();
    let mut known = BTreeSet::new();
    for text in &entry.hosts {
        let Ok(host) = Hostname::parse(text) else { continue };
        if entry.takes_addresses(&entry.meta().labels, &host) && known.insert(host.clone()) {
            hosts.push((host, text.clone()));
        }
    }
    hosts
}

/// Single addresses in the `spec` of an entry. Ranges are ignored: proxies match the narrowest one.
fn typed(entry: &ServiceEntry) -> Vec<IpAddr> {
    let single = |text: &String| {
        let range = text.parse::<IpNet>().ok();
        let only = range.filter(|range| range.prefix_len() == range.max_prefix_len());
        text.parse().ok().or(only.map(|range| range.addr()))
    };
    entry.addresses.iter().filter_map(single).collect()
}

/// Addresses of a status, without duplicates.
fn claims(stored: &[HostAddress]) -> Vec<Claim> {
    let mut claims: Vec<Claim> = Vec::new();
    for written in stored {
        let (Ok(host), Ok(address)) = (Hostname::parse(&written.host), written.value.parse()) else {
            continue;
        };
        if !claims.iter().any(|claim| claim.host == host && claim.address == address) {
            claims.push(Claim { host, address, written: written.clone() });
        }
    }
    claims
}

fn stored_addresses(entry: &Entry) -> impl Iterator<Item = IpAddr> {
    entry.stored.iter().filter_map(|address| address.value.parse().ok())
}
