//! Addresses for hosts of ServiceEntries without one, computed from the names, so that all replicas agree
//! without stored state.
//!
//! Istio's scheme for DNS capture: a name hashes to one of 256 * 254 places, double hashing resolves
//! collisions, and the place becomes an address of the reserved range 240.240.0.0/16 (never with 0 or 255 at
//! the end), with an IPv6 twin.

use std::sync::Arc;

const PLACES: u32 = 256 * 254;
/// Prime below the number of places, from which the step of the double hashing is derived.
const STEP_PRIME: u32 = 65011;

/// IPv4 and IPv6 address of a host.
pub(crate) type AddressPair = [Arc<str>; 2];

/// Allocates a pair of addresses for each name (`<namespace>/<host>`). Colliding names take places in the
/// given order, so pass them sorted; a repeated name has one pair. `None` if all places are taken.
#[must_use]
pub(crate) fn allocate<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<(&'a str, Option<AddressPair>)> {
    let mut taken: std::collections::BTreeMap<u32, usize> = std::collections::BTreeMap::new();
    let mut known: std::collections::HashMap<&str, ()> = std::collections::HashMap::new();
    let mut result: Vec<(&str, Option<AddressPair>)> = Vec::new();
    for name in names {
        if known.insert(name, ()).is_some() {
            continue;
        }
        if taken.len() < PLACES as usize {
            taken.insert(free_place(name, |place| taken.contains_key(&place)), result.len());
        }
        result.push((name, None));
    }
    // Places are counted from 1; an occupied place that would end in 0 shifts itself and all later ones by
    // one.
    let mut moved = 0;
    for (place, index) in taken {
        if (place + 1 + moved) % 255 == 0 {
            moved += 1;
        }
        let count = place + 1 + moved;
        if let Some((_, pair)) = result.get_mut(index) {
            *pair = Some(addresses(count / 255, count % 255));
        }
    }
    result
}

fn addresses(third: u32, fourth: u32) -> AddressPair {
    let v4 = format!("240.240.{third}.{fourth}");
    let v6 = if third == 0 {
        format!("2001:2::f0f0:{fourth:x}")
    } else {
        format!("2001:2::f0f0:{third:x}{fourth:x}")
    };
    [v4.into(), v6.into()]
}

/// Returns a free place for a name, if there is one.
fn free_place(name: &str, taken: impl Fn(u32) -> bool) -> u32 {
    let hash = fnv1a(name.as_bytes());
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
fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> Vec<String> {
        allocate(names.iter().copied())
            .into_iter()
            .map(|(_, pair)| pair.map_or_else(String::new, |[v4, _]| v4.to_string()))
            .collect()
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
        let pairs = allocate(["/foo.com"]);
        assert_eq!(pairs[0].1.as_ref().map(|pair| &*pair[1]), Some("2001:2::f0f0:e351"));
    }

    #[test]
    fn colliding_names_take_different_places() {
        assert_eq!(of(&["/a17061.example.com", "/a44155.example.com"]), ["240.240.25.11", "240.240.31.17"]);
    }

    #[test]
    fn a_name_given_twice_has_one_pair() {
        assert_eq!(allocate(["/a.com", "/a.com"]).len(), 1);
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
