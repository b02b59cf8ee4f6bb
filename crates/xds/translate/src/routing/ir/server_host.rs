//! Hosts of servers, which may be restricted to VirtualServices of one namespace.

use pilotfish_model::{Hostname, Namespace};

/// A host of a server: `host`, `*/host`, `./host` or `namespace/host`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ServerHost {
    /// The namespace whose VirtualServices may serve it; `None` for all.
    pub namespace: Option<Namespace>,
    pub host: Hostname,
}

impl ServerHost {
    /// Parses a host; `own` replaces `.`. Returns `None` for an invalid host name.
    #[must_use]
    pub(crate) fn parse(written: &str, own: &Namespace) -> Option<Self> {
        let (namespace, host) = match written.split_once('/') {
            None | Some(("*", _)) => (None, written.rsplit('/').next().unwrap_or(written)),
            Some((".", host)) => (Some(own.clone()), host),
            Some((namespace, host)) => (Some(namespace.into()), host),
        };
        Some(Self { namespace, host: Hostname::parse(host).ok()? })
    }

    /// Returns true if VirtualServices of the namespace may serve the host.
    #[must_use]
    pub(crate) fn is_for(&self, namespace: &Namespace) -> bool {
        self.namespace.as_ref().is_none_or(|own| own == namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_read_off_hosts() {
        let own = "shop".into();
        let read = |text| ServerHost::parse(text, &own).map(|host| (host.namespace, host.host.to_string()));
        assert_eq!(read("a.com"), Some((None, "a.com".to_owned())));
        assert_eq!(read("*/a.com"), Some((None, "a.com".to_owned())));
        assert_eq!(read("./a.com"), Some((Some("shop".into()), "a.com".to_owned())));
        assert_eq!(read("blog/*"), Some((Some("blog".into()), "*".to_owned())));
        assert_eq!(read("a b"), None);
    }
}
