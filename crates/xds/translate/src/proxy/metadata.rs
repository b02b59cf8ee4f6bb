//! The metadata of a node: the values that are read, and what all others are equal to.
//!
//! A node may hold half a MiB of metadata, and every stream has one. Few keys are read by name. Any other key
//! can only be compared, where an EnvoyFilter names it with a value (`match.proxy.metadata`), and for that a
//! hash does. A client that constructs two values with one hash gains nothing: it could send the other value.

use std::hash::Hash;
use xxhash_rust::xxh3::xxh3_64;

/// The keys that are read by name, in order.
const READ: [&str; 30] = [
    "APP_CONTAINERS",
    "AUTO_REGISTER_GROUP",
    "CLUSTER_ID",
    "DNS_AUTO_ALLOCATE",
    "DNS_CAPTURE",
    "DNS_PROXY_ADDR",
    "DUAL_STACK",
    "ENABLE_HBONE",
    "ENABLE_SELF_DISCOVERY",
    "ENVOY_PROMETHEUS_PORT",
    "ENVOY_STATUS_PORT",
    "HTTP10",
    "HTTP_PROXY_PORT",
    "IDLE_TIMEOUT",
    "INBOUND_LISTENER_EXACT_BALANCE",
    "ISTIO_VERSION",
    "MESH_ID",
    "NAMESPACE",
    "NODE_NAME",
    "OUTBOUND_LISTENER_EXACT_BALANCE",
    "REQUESTED_NETWORK_VIEW",
    "SERVICE_ACCOUNT",
    "TLS_CLIENT_CERT_CHAIN",
    "TLS_CLIENT_KEY",
    "TLS_CLIENT_ROOT_CERT",
    "UNPRIVILEGED_POD",
    "WORKLOAD_ENTRY",
    "WORKLOAD_NAME",
    "credential",
    "file-credential",
];

/// The metadata whose value is a text, number or bool, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Metadata {
    /// Those of [`READ`] that are there, in its order.
    read: Box<[(&'static str, Box<str>)]>,
    /// Hashes of the others, of the key and of the value, in order.
    others: Box<[(u64, u64)]>,
}

impl Metadata {
    /// The value of a key that is read by name; empty when it is not there.
    pub(super) fn get(&self, key: &str) -> &str {
        debug_assert!(
            READ.binary_search(&key).is_ok(),
            "{key} is not kept: add it to the keys that are read"
        );
        let place = self.read.binary_search_by_key(&key, |(known, _)| *known);
        place.ok().and_then(|place| self.read.get(place)).map_or("", |(_, value)| value)
    }

    /// True if a key, of whatever name, has that value. An absent key has the empty value.
    pub(super) fn has(&self, key: &str, value: &str) -> bool {
        if READ.binary_search(&key).is_ok() {
            return self.get(key) == value;
        }
        let hash = xxh3_64(key.as_bytes());
        let place = self.others.binary_search_by_key(&hash, |(known, _)| *known);
        match place.ok().and_then(|place| self.others.get(place)) {
            Some((_, known)) => *known == xxh3_64(value.as_bytes()),
            None => value.is_empty(),
        }
    }

    /// Bytes that it takes beside itself.
    pub(super) fn weight(&self) -> usize {
        let texts: usize = self.read.iter().map(|(_, value)| value.len()).sum();
        texts + size_of_val(&*self.read) + size_of_val(&*self.others)
    }
}

impl<K: AsRef<str>, V: AsRef<str> + Into<Box<str>>> FromIterator<(K, V)> for Metadata {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(fields: T) -> Self {
        let (mut read, mut others) = (Vec::new(), Vec::new());
        for (key, value) in fields {
            match READ.binary_search(&key.as_ref()).ok().and_then(|place| READ.get(place)) {
                Some(key) => read.push((*key, value.into())),
                None => others.push((xxh3_64(key.as_ref().as_bytes()), xxh3_64(value.as_ref().as_bytes()))),
            }
        }
        read.sort_unstable();
        others.sort_unstable();
        Self { read: read.into(), others: others.into() }
    }
}

impl<K: AsRef<str>, V: AsRef<str> + Into<Box<str>>, const N: usize> From<[(K, V); N]> for Metadata {
    fn from(fields: [(K, V); N]) -> Self {
        fields.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_that_are_read_are_in_order() {
        assert!(READ.is_sorted());
    }

    #[test]
    fn what_is_read_is_kept_and_the_rest_can_be_compared() {
        let long = "x".repeat(100_000);
        let of_team =
            |team| Metadata::from([("TEAM", team), ("MESH_ID", "m"), ("LONG", long.as_str()), ("EMPTY", "")]);
        let metadata = of_team("blue");
        assert_eq!((metadata.get("MESH_ID"), metadata.get("HTTP10")), ("m", ""));
        for (key, value, expected) in [
            ("MESH_ID", "m", true),
            ("MESH_ID", "n", false),
            ("HTTP10", "", true),
            ("TEAM", "blue", true),
            ("TEAM", "red", false),
            ("TEAM", "", false),
            ("LONG", &long, true),
            ("LONG", &long[1..], false),
            ("EMPTY", "", true),
            ("NONE", "", true),
            ("NONE", "x", false),
        ] {
            assert_eq!(metadata.has(key, value), expected, "{key}");
        }
        assert!(metadata.weight() < 200, "{} bytes", metadata.weight());
        assert_ne!(metadata, of_team("red"));
    }
}
