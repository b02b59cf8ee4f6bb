//! Names and numbers of the network: host names, addresses, ports, labels.

use crate::path::Path;
use crate::problem::Checker;
use crate::yaml::shorten;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Prefix of Unix domain sockets among addresses.
pub(in crate::validate) const UNIX: &str = "unix://";

/// Quotes a text, shortened for a message.
pub(in crate::validate) fn quoted(text: &str) -> String {
    format!("{:?}", shorten(text))
}

/// True if the text is a DNS label. As in Istio, upper case is allowed.
pub(in crate::validate) fn is_dns_label(text: &str) -> bool {
    let known = |c: u8| c.is_ascii_alphanumeric() || c == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(known)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

pub(in crate::validate) fn is_ip(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

/// Returns why the text is no sequence of DNS labels.
fn labels_problem(text: &str) -> Option<String> {
    let labels = text.strip_suffix('.').unwrap_or(text);
    let last = labels.rsplit('.').next().unwrap_or_default();
    if !last.is_empty() && last.bytes().all(|c| c.is_ascii_digit()) {
        return Some(format!("its last part {} has digits alone", quoted(last)));
    }
    let wrong = labels.split('.').find(|label| !is_dns_label(label))?;
    Some(format!("{} is not a DNS label", quoted(wrong)))
}

fn length_problem(text: &str) -> Option<String> {
    match text.len() {
        0 => Some("it is empty".to_owned()),
        1..=255 => None,
        length => Some(format!("it has {length} characters, at most 255 are allowed")),
    }
}

/// Returns why the text is no DNS name.
pub(in crate::validate) fn fqdn_problem(text: &str) -> Option<String> {
    length_problem(text).or_else(|| labels_problem(text))
}

/// Returns why the text is no DNS name, optionally with a wildcard as or in the first label: `*`,
/// `*.example.com`, `*-a.com`.
pub(in crate::validate) fn wildcard_problem(text: &str) -> Option<String> {
    if let Some(problem) = length_problem(text) {
        return Some(problem);
    }
    let (first, rest) = text.split_once('.').map_or((text, None), |(first, rest)| (first, Some(rest)));
    let label = first.strip_prefix('*').map(|label| label.strip_prefix('-').unwrap_or(label));
    if first != "*" && !is_dns_label(label.unwrap_or(first)) {
        return Some(format!("{} is not a DNS label or a wildcard", quoted(first)));
    }
    rest.and_then(labels_problem)
}

/// Checks a DNS name without wildcard.
pub(in crate::validate) fn fqdn(text: &str, at: &Path<'_>, checker: &mut Checker) {
    if let Some(why) = fqdn_problem(text) {
        checker.error(at, format!("{} is not a host name: {why}", quoted(text)));
    }
}

/// Checks a DNS name, optionally with a wildcard in front. Returns true if it is one.
pub(in crate::validate) fn wildcard_host(text: &str, at: &Path<'_>, checker: &mut Checker) -> bool {
    let problem = wildcard_problem(text);
    if let Some(why) = &problem {
        checker.error(at, format!("{} is not a host name: {why}", quoted(text)));
    }
    problem.is_none()
}

/// True if `*` replaces only a part of the first label.
pub(in crate::validate) fn is_partial_wildcard(host: &str) -> bool {
    host.contains('*') && host != "*" && !host.starts_with("*.")
}

/// Host names, and the names that their wildcards cover. The cost of a lookup is independent of their number.
#[derive(Default)]
pub(in crate::validate) struct HostSet<'a> {
    exact: BTreeSet<&'a str>,
    /// Texts after the `*` of wildcards.
    suffixes: BTreeSet<&'a str>,
}

impl<'a> HostSet<'a> {
    /// Adds a host. Returns false if the set has it already.
    pub(in crate::validate) fn insert(&mut self, host: &'a str) -> bool {
        match host.strip_prefix('*') {
            Some(suffix) => self.suffixes.insert(suffix),
            None => self.exact.insert(host),
        }
    }

    /// True if the set has every name that `host` matches.
    pub(in crate::validate) fn covers(&self, host: &str) -> bool {
        let own = host.strip_prefix('*').is_some_and(|suffix| self.suffixes.contains(suffix));
        own || self.exact.contains(host) || self.wider(host).is_some()
    }

    /// Returns the text after the `*` of a wildcard in the set, other than `host` itself, that covers `host`.
    pub(in crate::validate) fn wider(&self, host: &str) -> Option<&'a str> {
        let body = host.strip_prefix('*').unwrap_or(host);
        // A wildcard is not wider than itself: only shorter suffixes count.
        let from = usize::from(body.len() < host.len());
        let ends = body.char_indices().map(|(start, _)| start).chain([body.len()]).skip(from);
        ends.filter_map(|start| self.suffixes.get(body.get(start..)?).copied()).next()
    }
}

/// Checks an IP address.
pub(in crate::validate) fn ip(text: &str, at: &Path<'_>, checker: &mut Checker) {
    if !is_ip(text) {
        checker.error(at, format!("{} is not an IP address", quoted(text)));
    }
}

/// Checks an IP address, or a block of addresses such as `10.0.0.0/8`.
pub(in crate::validate) fn ip_or_cidr(text: &str, at: &Path<'_>, checker: &mut Checker) {
    let valid = if text.contains('/') { text.parse::<IpNet>().is_ok() } else { is_ip(text) };
    if !valid {
        checker.error(at, format!("{} is not an IP address or a CIDR block", quoted(text)));
    }
}

/// Checks an IP address or a DNS name.
pub(in crate::validate) fn ip_or_fqdn(text: &str, at: &Path<'_>, checker: &mut Checker) {
    if !is_ip(text) && fqdn_problem(text).is_some() {
        checker.error(at, format!("{} is not an IP address or a host name", quoted(text)));
    }
}

/// Checks the path of a Unix domain socket without `unix://`: absolute, or `@name` for an abstract one.
pub(in crate::validate) fn socket_path(path: &str, at: &Path<'_>, checker: &mut Checker) {
    /// `sun_path` has 108 bytes, with the terminating NUL.
    const LONGEST: usize = 107;
    let file = path.starts_with('/') && !path.ends_with('/');
    if !file && !path.starts_with('@') {
        checker.error(at, format!("{} is not the absolute path of a socket", quoted(path)));
    } else if path.len() > LONGEST {
        checker.error(at, format!("the path of a socket has at most {LONGEST} characters"));
    }
}

/// Checks `host:port`, where the host is a DNS name or an IP address.
pub(in crate::validate) fn host_port(text: &str, at: &Path<'_>, checker: &mut Checker) {
    let good = split_host_port(text).is_some_and(|(host, number)| {
        let number = number.parse().unwrap_or_default();
        is_port(number) && (is_ip(host) || fqdn_problem(host).is_none())
    });
    if !good {
        checker.error(at, format!("{} is not an address like host:15012", quoted(text)));
    }
}

/// Splits `host:port` or `[address]:port`.
pub(in crate::validate) fn split_host_port(text: &str) -> Option<(&str, &str)> {
    let (host, port) = text.rsplit_once(':')?;
    match host.strip_prefix('[') {
        Some(host) => Some((host.strip_suffix(']')?, port)),
        None => (!host.contains(':')).then_some((host, port)),
    }
}

/// True if the number is a valid port.
pub(in crate::validate) fn is_port(number: i64) -> bool {
    (1..=65_535).contains(&number)
}

/// Checks a port number.
pub(in crate::validate) fn port(number: impl Into<i64>, at: &Path<'_>, checker: &mut Checker) {
    let number = number.into();
    if !is_port(number) {
        checker.error(at, format!("{number} is not a port, must be 1 to 65535"));
    }
}

/// Checks the name of a port.
pub(in crate::validate) fn port_name(name: &str, at: &Path<'_>, checker: &mut Checker) {
    if name.is_empty() {
        checker.error(at, "must be set");
    } else if !is_dns_label(name) {
        checker.error(at, format!("{} is not a port name: {LABEL_RULE}", quoted(name)));
    }
}

/// Checks the name of a subset.
pub(in crate::validate) fn subset_name(name: &str, at: &Path<'_>, checker: &mut Checker) {
    if name.is_empty() {
        checker.error(at, "must be set");
    } else if !is_dns_label(name) {
        checker.error(at, format!("{} is not a subset name: {LABEL_RULE}", quoted(name)));
    }
}

/// Rule for DNS labels, for messages.
pub(in crate::validate) const LABEL_RULE: &str = "1 to 63 letters, digits and '-', not '-' at the ends";

/// Checks Kubernetes labels: keys with an optional DNS prefix, values of up to 63 characters.
pub(in crate::validate) fn labels<'a, T: AsRef<str> + 'a>(
    labels: impl IntoIterator<Item = (&'a T, &'a T)>,
    at: &Path<'_>,
    checker: &mut Checker,
) {
    for (key, value) in labels {
        let (key, value) = (key.as_ref(), value.as_ref());
        let at = at.key(key);
        if !is_label_key(key) {
            checker.error(&at, format!("{} is not the key of a label", quoted(key)));
        }
        if !value.is_empty() && !is_qualified(value) {
            checker.error(&at, format!("{} is not the value of a label", quoted(value)));
        }
    }
}

/// True if the text is a valid label key: `app`, `app.kubernetes.io/name`.
pub(in crate::validate) fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => {
            prefix.len() <= 253 && prefix.split('.').all(is_dns_label) && is_qualified(name)
        }
        None => is_qualified(key),
    }
}

fn is_qualified(text: &str) -> bool {
    let known = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    let end = |c: char| c.is_ascii_alphanumeric();
    (1..=63).contains(&text.len()) && text.bytes().all(known) && text.starts_with(end) && text.ends_with(end)
}

/// Checks every item of a list.
pub(in crate::validate) fn each<T>(
    items: &[T],
    at: &Path<'_>,
    checker: &mut Checker,
    check: impl Fn(&T, &Path<'_>, &mut Checker),
) {
    for (index, item) in items.iter().enumerate() {
        check(item, &at.index(index), checker);
    }
}

/// Warns of every item with the key of an earlier item.
pub(in crate::validate) fn warn_duplicates<T, K: Ord>(
    items: &[T],
    at: &Path<'_>,
    fields: [&str; 2],
    checker: &mut Checker,
    key: impl Fn(&T) -> Option<K>,
) {
    let mut seen = BTreeMap::new();
    for (index, item) in items.iter().enumerate() {
        let Some(key) = key(item) else { continue };
        let first = *seen.entry(key).or_insert(index);
        if first != index {
            let (item, [outer, inner]) = (at.index(index), fields);
            let outer = item.field(outer);
            let place = if inner.is_empty() { outer } else { outer.field(inner) };
            checker.warning(&place, format!("is the same as that of item {first}, only one has an effect"));
        }
    }
}

/// Reports every item with the key of an earlier item.
pub(in crate::validate) fn unique<'a, T, K: Ord>(
    items: &'a [T],
    at: &Path<'_>,
    field: &str,
    checker: &mut Checker,
    key: impl Fn(&'a T) -> Option<K>,
) {
    let mut seen = BTreeMap::new();
    for (index, item) in items.iter().enumerate() {
        let Some(key) = key(item) else { continue };
        let first = *seen.entry(key).or_insert(index);
        if first == index {
            continue;
        }
        let item = at.index(index);
        let place = if field.is_empty() { item } else { item.field(field) };
        checker.error(&place, format!("is the same as that of item {first}, must be unique"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_are_distinguished_from_other_text() {
        for good in ["a", "a.b", "A-1.example.com", "example.com.", "*", "*.com", "*-a.b", "*a.b"] {
            assert_eq!(wildcard_problem(good), None, "{good}");
        }
        let long = "a".repeat(64);
        for wrong in ["", ".", "a..b", "-a.b", "a_b", "a.*.b", "**.a", "1.2.3.4", "a.1", "a b", &long] {
            assert!(wildcard_problem(wrong).is_some(), "{wrong}");
        }
        assert!(fqdn_problem("*.com").is_some());
        assert!(fqdn_problem(&format!("{}com", "a.".repeat(200))).is_some());
    }

    #[test]
    fn a_wildcard_covers_narrower_names() {
        for (wide, narrow, expected) in [
            ("*", "a.b", true),
            ("*", "*", true),
            ("*.b", "a.b", true),
            ("*.b", "*.a.b", true),
            ("*.a.b", "*.b", false),
            ("a.b", "a.b", true),
            ("a.b", "*.b", false),
            ("*.b", "b", false),
        ] {
            let mut set = HostSet::default();
            assert!(set.insert(wide));
            assert!(!set.insert(wide));
            assert_eq!(set.covers(narrow), expected, "{wide} {narrow}");
            assert_eq!(set.wider(narrow).is_some(), expected && wide != narrow, "{wide} {narrow}");
        }
    }

    #[test]
    fn host_and_port_are_split() {
        assert_eq!(split_host_port("a.b:80"), Some(("a.b", "80")));
        assert_eq!(split_host_port("[::1]:80"), Some(("::1", "80")));
        assert_eq!(split_host_port(":80"), Some(("", "80")));
        for wrong in ["a", "::1:80", "[::1:80", "[::1]"] {
            assert_eq!(split_host_port(wrong), None, "{wrong}");
        }
    }
}
