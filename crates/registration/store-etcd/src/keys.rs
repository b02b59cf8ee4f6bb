//! Layout of the keys below the prefix.

use pilotfish_registration::InstanceKey;

/// Layout of the keys.
///
/// | Key | Value |
/// |---|---|
/// | `PREFIX/instances/NAMESPACE/SERVICE/ID` | the record, in JSON |
/// | `PREFIX/leases/NAMESPACE/SERVICE/ID` | empty; attached to the lease of the instance |
/// | `PREFIX/stores/NAME` | empty; attached to the session of an open store |
/// | `PREFIX/quota` | empty; see [`Keys::quota`] |
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    prefix: String,
}

/// Meaning of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// Key of a record.
    Record(InstanceKey),
    /// Key of an instance's lease.
    Lease(InstanceKey),
    /// Key of an open store.
    Store(String),
}

const INSTANCES: &str = "instances/";
const LEASES: &str = "leases/";
const STORES: &str = "stores/";

impl Keys {
    /// Keys below a prefix; a trailing slash is optional.
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: format!("{}/", prefix.trim_end_matches('/')) }
    }

    /// Common prefix of all keys.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn record(&self, key: &InstanceKey) -> Vec<u8> {
        format!("{}{INSTANCES}{key}", self.prefix).into_bytes()
    }

    pub(crate) fn lease(&self, key: &InstanceKey) -> Vec<u8> {
        format!("{}{LEASES}{key}", self.prefix).into_bytes()
    }

    pub(crate) fn store(&self, name: &str) -> Vec<u8> {
        format!("{}{STORES}{name}", self.prefix).into_bytes()
    }

    /// Key written along with records: etcd checks its quota only for writes that are not in nested
    /// transactions.
    pub(crate) fn quota(&self) -> Vec<u8> {
        format!("{}quota", self.prefix).into_bytes()
    }

    /// Parses a key; returns `None` if it is not part of the layout.
    pub(crate) fn name(&self, key: &[u8]) -> Option<Name> {
        let rest = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        if let Some(rest) = rest.strip_prefix(INSTANCES) {
            return instance(rest).map(Name::Record);
        }
        if let Some(rest) = rest.strip_prefix(LEASES) {
            return instance(rest).map(Name::Lease);
        }
        rest.strip_prefix(STORES).map(|name| Name::Store(name.to_owned()))
    }
}

fn instance(text: &str) -> Option<InstanceKey> {
    let mut parts = text.split('/');
    let (namespace, service, id) = (parts.next()?, parts.next()?, parts.next()?);
    let is_whole = parts.next().is_none() && ![namespace, service, id].contains(&"");
    is_whole.then(|| InstanceKey::new(namespace, service, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_are_written() {
        let keys = Keys::new("/pilotfish/");
        let key = InstanceKey::new("default", "web.example.com", "a@1:2");
        assert_eq!(
            String::from_utf8(keys.record(&key)).unwrap(),
            "/pilotfish/instances/default/web.example.com/a@1:2"
        );
        assert_eq!(keys.name(&keys.record(&key)), Some(Name::Record(key.clone())));
        assert_eq!(keys.name(&keys.lease(&key)), Some(Name::Lease(key)));
        assert_eq!(keys.name(&keys.store("x")), Some(Name::Store("x".into())));
        assert_eq!(Keys::new("/pilotfish"), keys);
        for other in [
            "/pilotfish/instances/default/web",
            "/pilotfish/instances/default//a",
            "/pilotfish/instances/a/b/c/d",
            "/pilotfish/other/a/b/c",
            "/pilotfish-2/instances/a/b/c",
        ] {
            assert_eq!(keys.name(other.as_bytes()), None, "{other}");
        }
        assert_eq!(keys.name(b"/pilotfish/instances/a/b/\xff"), None);
    }
}
