//! Conversion of a product's names to host names and labels that DNS and Kubernetes allow.

use pilotfish_model::Hostname;
use std::collections::BTreeMap;

/// Length limit of a label of a host name, of a key and of a value, in bytes.
const LONGEST: usize = 63;
/// Limit on the number of labels of a service or instance.
const MAX_LABELS: usize = 64;

/// Converts a text to a host name. In a text that is none, capitals become lower case, characters that DNS
/// does not allow become `-`, and labels are cut at 63 bytes. `None` if nothing is left.
#[must_use]
pub fn hostname(text: &str) -> Option<Hostname> {
    if let Ok(known) = Hostname::parse(text) {
        return Some(known);
    }
    let labels = text.split('.').enumerate().map(|(index, label)| match label {
        "*" if index == 0 => label.to_owned(),
        _ => dns_label(label),
    });
    let labels: Vec<String> = labels.filter(|label| !label.is_empty()).collect();
    Hostname::parse(&labels.join(".")).ok()
}

fn dns_label(text: &str) -> String {
    let known = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c.to_ascii_lowercase() } else { '-' };
    let replaced: String = text.chars().map(known).collect();
    let cut: String = replaced.trim_matches('-').chars().take(LONGEST).collect();
    cut.trim_end_matches('-').to_owned()
}

/// Converts labels to those that Kubernetes allows; returns them with the number of dropped ones. Dropped are
/// labels whose key cannot be converted, whose value is not a label value (a URL, for example, by which no
/// subset can select), duplicates of a converted key, and labels beyond the limit.
pub(super) fn labels(given: BTreeMap<String, String>) -> (BTreeMap<String, String>, usize) {
    let mut kept = BTreeMap::new();
    let total = given.len();
    for (key, value) in given {
        let Some(new) = label_key(&key) else { continue };
        let is_value = value.is_empty() || is_qualified(&value);
        let is_second = new != key && kept.contains_key(&new);
        if is_value && !is_second && (kept.len() < MAX_LABELS || kept.contains_key(&new)) {
            kept.insert(new, value);
        }
    }
    let left_out = total - kept.len();
    (kept, left_out)
}

/// Converts a text to the key of a label.
fn label_key(text: &str) -> Option<String> {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect();
    let end = |c: char| !c.is_ascii_alphanumeric();
    let name: String = name.trim_matches(end).chars().take(LONGEST).collect();
    let name = name.trim_end_matches(end);
    if name.is_empty() {
        return None;
    }
    let Some(prefix) = prefix else { return Some(name.to_owned()) };
    let is_domain = prefix.len() <= 253 && !prefix.contains('_') && Hostname::parse(prefix).is_ok();
    let is_small = prefix.bytes().all(|c| !c.is_ascii_uppercase());
    Some(if is_domain && is_small { format!("{prefix}/{name}") } else { name.to_owned() })
}

fn is_qualified(text: &str) -> bool {
    let known = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    let end = |c: char| c.is_ascii_alphanumeric();
    (1..=LONGEST).contains(&text.len())
        && text.bytes().all(known)
        && text.starts_with(end)
        && text.ends_with(end)
}

/// Quotes and shortens a text of the product for a message.
pub(super) fn short(text: &str) -> String {
    let cut: String = text.chars().take(LONGEST).collect();
    format!("{cut:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_made_of_what_products_call_services() {
        let long = "x".repeat(70);
        for (text, want) in [
            ("web.service.consul", Some("web.service.consul")),
            ("Web_API.service.consul", Some("web_api.service.consul")),
            ("org.acme.Orders:1.0@@group", Some("org.acme.orders-1.0--group")),
            ("--a--..b.", Some("a.b")),
            ("grüße.nacos", Some("gr--e.nacos")),
            (&long, Some(&long[..63])),
            ("*.wild.example", Some("*.wild.example")),
            ("a*b", Some("a-b")),
            ("", None),
            ("...", None),
            ("::", None),
        ] {
            assert_eq!(hostname(text).as_ref().map(Hostname::as_str), want, "{text}");
        }
        assert_eq!(hostname(&"a.".repeat(200)), None, "too long for DNS");
    }

    #[test]
    fn labels_are_made_of_metadata() {
        let long = "v".repeat(64);
        let given = [
            ("version", "v1"),
            ("a key", "1"),
            ("a_key", "2"),
            ("Example.com/x", "3"),
            ("example.com/y", ""),
            ("url", "http://x/y"),
            ("long", &long),
            ("???", "1"),
        ];
        let given = given.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let (kept, left_out) = labels(given);
        let kept: Vec<String> = kept.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(kept, ["a_key=2", "example.com/y=", "version=v1", "x=3"]);
        assert_eq!(left_out, 4, "the second of a_key, url, long, ???");
        let many = (0..100).map(|n| (format!("k{n}"), String::new())).collect();
        let (kept, left_out) = labels(many);
        assert_eq!((kept.len(), left_out), (MAX_LABELS, 36));
    }
}
