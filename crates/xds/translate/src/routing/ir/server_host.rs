//! Hosts of servers, which may be restricted to VirtualServices of one namespace.

use pilotfish_model::{Hostname, Namespace};
use std::sync::Arc;

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

/// Hosts of a server or VirtualService as written. istiod compares those of both with their capital letters,
/// though it sends their domains in small letters. Empty if no host has capitals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WrittenHosts(Arc<[Box<str>]>);

impl WrittenHosts {
    /// Keeps hosts if one of them has capitals. A namespace before `/` is left out.
    #[must_use]
    pub(crate) fn of<T: AsRef<str>>(hosts: impl IntoIterator<Item = T>) -> Self {
        let plain = |host: T| host.as_ref().rsplit('/').next().unwrap_or_default().into();
        let hosts: Vec<Box<str>> = hosts.into_iter().map(plain).collect();
        let has_capitals = hosts.iter().any(|host| host.bytes().any(|byte| byte.is_ascii_uppercase()));
        if has_capitals { Self(hosts.into()) } else { Self::default() }
    }

    /// Spellings of one of the hosts.
    fn spellings<'a>(&'a self, host: &'a Hostname) -> impl Iterator<Item = &'a str> + Clone {
        let written = self.0.iter().map(|written| &**written);
        let own = written.filter(|written| written.trim_end_matches('.').eq_ignore_ascii_case(host.as_str()));
        own.chain(self.0.is_empty().then_some(host.as_str()))
    }

    /// True if two hosts that match regardless of case also match as written.
    #[must_use]
    pub(crate) fn agree(&self, own: &Hostname, others: &Self, other: &Hostname) -> bool {
        if self.0.is_empty() && others.0.is_empty() {
            return true;
        }
        let mut pairs =
            self.spellings(own).flat_map(|own| others.spellings(other).map(move |other| (own, other)));
        pairs.any(|(own, other)| has_same_end(own, other))
    }
}

/// True if the shorter of two hosts, without a `*`, ends the other one letter by letter.
fn has_same_end(a: &str, b: &str) -> bool {
    let letters = |host: &'_ str| -> Vec<u8> {
        host.trim_end_matches('.').trim_start_matches('*').bytes().rev().collect()
    };
    letters(a).into_iter().zip(letters(b)).all(|(a, b)| a == b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capitals_of_servers_and_rules_agree_as_written() {
        for (server, rule, expected) in [
            ("*.example.net", "Upper.Example.NET", false),
            ("*.example.net", "Upper.example.net", true),
            ("*", "Upper.Example.NET", true),
            ("shop/*", "Upper.Example.NET", true),
            ("*.YARD.example", "shop.yard.example", false),
            ("*.YARD.example", "Shop.YARD.example", true),
            ("Shop.example", "shop.example", false),
            ("*/Shop.example", "Shop.example", true),
            ("Shop.example", "*.Example", false),
            ("Shop.example", "*.example", true),
            ("*.Example", "*.yard.example", false),
            ("shop.example", "shop.example", true),
        ] {
            let host = |text: &str| ServerHost::parse(text, &"edge".into()).unwrap().host;
            let written = |text: &str| WrittenHosts::of([text]);
            assert!(host(server).matches(&host(rule)), "{server} {rule}");
            let agree = written(server).agree(&host(server), &written(rule), &host(rule));
            assert_eq!(agree, expected, "{server} {rule}");
        }
    }

    #[test]
    fn one_of_several_spellings_suffices() {
        let written = WrittenHosts::of(["SHOP.example", "shop.example"]);
        let host = Hostname::parse("shop.example").unwrap();
        assert!(written.agree(&host, &WrittenHosts::default(), &host));
    }

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
