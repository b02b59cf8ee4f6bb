//! Addresses for hosts of ServiceEntries without one, computed from the names, so that all replicas agree
//! without stored state.
//!
//! Istio's scheme for DNS capture: a name hashes to one of 256 * 254 places, double hashing resolves
//! collisions, and the place becomes an address of the reserved range 240.240.0.0/16 (never with 0 or 255 at
//! the end), with an IPv6 twin.

use pilotfish_model::ServiceKey;
use std::collections::BTreeMap;
use std::sync::Arc;

const PLACES: u32 = 256 * 254;
/// Prime below the number of places, from which the step of the double hashing is derived.
const STEP_PRIME: u32 = 65011;

/// IPv4 and IPv6 address of a host.
pub(super) type AddressPair = [Arc<str>; 2];

/// Number of an address in the reserved range, from 1; `None` if all are taken.
type Number = Option<u32>;

/// Hosts that take an address, with their addresses. Of colliding hosts, older ones take their place first,
/// then those that sort first.
#[derive(Clone, Default)]
pub(super) struct Allocation {
    created: BTreeMap<ServiceKey, i64>,
    numbers: BTreeMap<(i64, ServiceKey), Number>,
    /// True if hosts have changed since the numbers were computed.
    is_stale: bool,
}

impl Allocation {
    /// Sets the creation time of a host that takes an address; `None` removes it.
    pub(super) fn set(&mut self, key: &ServiceKey, created: Option<i64>) {
        let old = match created {
            Some(created) => self.created.insert(key.clone(), created),
            None => self.created.remove(key),
        };
        if old == created {
            return;
        }
        self.is_stale = true;
        if let Some(old) = old {
            self.numbers.remove(&(old, key.clone()));
        }
        if let Some(created) = created {
            self.numbers.insert((created, key.clone()), None);
        }
    }

    /// Computes the addresses again if hosts have changed: each may depend on all names. Returns the hosts
    /// with another address.
    pub(super) fn settle(&mut self) -> Vec<ServiceKey> {
        if !std::mem::take(&mut self.is_stale) {
            return Vec::new();
        }
        let new = allocate(self.numbers.keys().map(|(_, key)| hash(key)));
        let pairs = self.numbers.iter_mut().zip(new);
        let differing = pairs.filter(|((_, known), new)| *known != new);
        differing
            .map(|(((_, key), known), new)| {
                *known = new;
                key.clone()
            })
            .collect()
    }

    /// Returns the addresses of a host.
    pub(super) fn address(&self, key: &ServiceKey) -> Option<AddressPair> {
        let created = *self.created.get(key)?;
        self.numbers.get(&(created, key.clone())).copied().flatten().map(addresses)
    }
}

/// Returns the hash of a host's name, `<namespace>/<host>`.
fn hash(key: &ServiceKey) -> u32 {
    let parts = [key.namespace.as_str(), "/", key.hostname.as_str()];
    fnv1a(parts.into_iter().flat_map(str::bytes))
}

/// Allocates a number for each hash. Colliding hashes take places in the given order.
fn allocate(hashes: impl Iterator<Item = u32>) -> Vec<Number> {
    let mut names: Vec<Option<usize>> = vec![None; PLACES as usize];
    let mut numbers: Vec<Number> = Vec::new();
    for hash in hashes {
        if numbers.len() < names.len() {
            let place = free_place(hash, |place| names[place as usize].is_some());
            names[place as usize] = Some(numbers.len());
        }
        numbers.push(None);
    }
    // An occupied place whose address would end in 0 shifts itself and all later ones by one.
    let mut moved = 0;
    for (number, name) in (1..).zip(names) {
        let Some(of_name) = name.and_then(|name| numbers.get_mut(name)) else { continue };
        if (number + moved) % 255 == 0 {
            moved += 1;
        }
        *of_name = Some(number + moved);
    }
    numbers
}

fn addresses(number: u32) -> AddressPair {
    let (third, fourth) = (number / 255, number % 255);
    let v4 = format!("240.240.{third}.{fourth}");
    let v6 = if third == 0 {
        format!("2001:2::f0f0:{fourth:x}")
    } else {
        format!("2001:2::f0f0:{third:x}{fourth:x}")
    };
    [v4.into(), v6.into()]
}

/// Returns a free place for a hash, if there is one.
fn free_place(hash: u32, taken: impl Fn(u32) -> bool) -> u32 {
    let first = hash % PLACES;
    if !taken(first) {
        return first;
    }
    let step = STEP_PRIME - hash % STEP_PRIME;
    // The sum wraps and is reduced modulo one less than the number of places, as in Istio, to get the same
    // addresses. Because of the wrapping, one round may miss places, so there are several rounds before any
    // free place is taken.
    let mut probes = (1..16 * PLACES).map(|i| hash.wrapping_add(i.wrapping_mul(step)) % (PLACES - 1));
    probes.find(|place| !taken(*place)).or_else(|| (0..PLACES).find(|place| !taken(*place))).unwrap_or(first)
}

/// Computes the 32-bit FNV-1a hash.
fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u32 {
    bytes.into_iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_model::Hostname;

    fn of(names: &[&str]) -> Vec<String> {
        allocate(names.iter().map(|name| fnv1a(name.bytes())))
            .into_iter()
            .map(|number| number.map_or_else(String::new, |number| addresses(number)[0].to_string()))
            .collect()
    }

    fn key(namespace: &str, host: &str) -> ServiceKey {
        ServiceKey { hostname: Hostname::parse(host).unwrap(), namespace: namespace.into() }
    }

    fn shown(allocation: &Allocation, key: &ServiceKey) -> Option<String> {
        allocation.address(key).map(|[v4, _]| v4.to_string())
    }

    #[test]
    fn known_names_get_the_addresses_that_istio_gives_them() {
        let table = [
            ("/foo.com", "240.240.227.81"),
            ("a/a.example.com", "240.240.134.206"),
            ("b/a.example.com", "240.240.41.100"),
            ("/a17061.example.com", "240.240.25.11"),
            ("/a.com", "240.240.109.8"),
            ("/c.com", "240.240.234.51"),
            ("/e.com", "240.240.85.60"),
            ("/g.com", "240.240.23.172"),
            ("/i.com", "240.240.15.2"),
            ("/k.com", "240.240.160.161"),
            ("/l.com", "240.240.42.96"),
            ("/n.com", "240.240.121.61"),
            ("/o.com", "240.240.122.71"),
        ];
        for (name, want) in table {
            assert_eq!(of(&[name]), [want], "{name}");
        }
        let numbers = allocate([fnv1a("/foo.com".bytes())].into_iter());
        assert_eq!(&*addresses(numbers[0].unwrap())[1], "2001:2::f0f0:e351");
    }

    #[test]
    fn colliding_names_take_different_places() {
        let place = &of(&["n/h841.com"])[0];
        assert_eq!(of(&["n/h78.com"]), [place.as_str()]);
        let both = of(&["n/h78.com", "n/h841.com"]);
        assert_eq!(both[0], *place);
        assert_ne!(both[1], *place);
    }

    #[test]
    fn older_of_two_colliding_hosts_has_the_place_and_the_other_one_follows_it() {
        let [first, second] = ["h78.com", "h841.com"].map(|host| key("n", host));
        let mut allocation = Allocation::default();
        allocation.set(&first, Some(2));
        assert_eq!(allocation.settle(), vec![first.clone()]);
        let place = shown(&allocation, &first);
        assert!(place.is_some());
        allocation.set(&second, Some(1));
        assert_eq!(allocation.settle(), [second.clone(), first.clone()], "the older one takes the place");
        assert_eq!(shown(&allocation, &second), place);
        assert_ne!(shown(&allocation, &first), place);
        allocation.set(&second, Some(1));
        assert!(allocation.settle().is_empty(), "nothing differs");
        allocation.set(&second, None);
        assert_eq!(allocation.settle(), vec![first.clone()]);
        assert_eq!((shown(&allocation, &second), shown(&allocation, &first)), (None, place));
    }

    #[test]
    fn every_place_can_be_taken_and_all_addresses_differ() {
        let names: Vec<String> = (0..PLACES).map(|i| format!("/foo{i}.com")).collect();
        let given = of(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let distinct: std::collections::BTreeSet<_> = given.iter().collect();
        assert_eq!(distinct.len(), names.len());
        assert_eq!(given.last().map(String::as_str), Some("240.240.10.222"));
        let ends = given.iter().filter(|address| address.ends_with(".0") || address.ends_with(".255"));
        assert_eq!(ends.count(), 0);
        assert!(given.contains(&"240.240.255.254".to_owned()));
    }

    #[test]
    fn nothing_is_left_when_all_places_are_taken() {
        let names: Vec<String> = (0..=PLACES).map(|i| format!("/foo{i}.com")).collect();
        assert_eq!(of(&names.iter().map(String::as_str).collect::<Vec<_>>()).last(), Some(&String::new()));
    }
}
