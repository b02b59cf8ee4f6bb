//! Labels, metadata and other texts.

use crate::limits::{MAX_ID_BYTES, MAX_LABELS, MAX_METADATA, MAX_METADATA_BYTES};
use crate::{TextMap, Violations};
use pilotfish_model::Hostname;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum length of a label's name and of its value in bytes, as in Kubernetes.
const LABEL_BYTES: usize = 63;
/// Maximum length of the prefix of a label's key in bytes.
const PREFIX_BYTES: usize = 253;

/// Validates labels by the rules of Kubernetes: they become endpoint labels, headers and subset names.
pub(super) fn labels(given: BTreeMap<String, String>, wrong: &mut Violations) -> TextMap {
    if given.len() > MAX_LABELS {
        wrong.add("labels", format!("{} labels are more than {MAX_LABELS}", given.len()));
        return TextMap::default();
    }
    for (key, value) in &given {
        if let Err(message) = label_key(key) {
            wrong.add(format!("labels[{}]", short(key)), message);
        } else if !value.is_empty() && !is_qualified(value) {
            let message = format!("{} is no value of a label: {QUALIFIED}; use metadata", short(value));
            wrong.add(format!("labels[{}]", short(key)), message);
        }
    }
    shared(given)
}

/// True for the key and value of a valid label.
#[must_use]
pub fn is_label(key: &str, value: &str) -> bool {
    label_key(key).is_ok() && (value.is_empty() || is_qualified(value))
}

/// Validates metadata: any text without control characters.
pub(super) fn metadata(given: BTreeMap<String, String>, wrong: &mut Violations) -> TextMap {
    let bytes: usize = given.iter().map(|(key, value)| key.len() + value.len()).sum();
    if given.len() > MAX_METADATA {
        wrong.add("metadata", format!("{} entries are more than {MAX_METADATA}", given.len()));
        return TextMap::default();
    }
    if bytes > MAX_METADATA_BYTES {
        wrong.add("metadata", format!("{bytes} bytes are more than {MAX_METADATA_BYTES}"));
        return TextMap::default();
    }
    for (key, value) in &given {
        let field = || format!("metadata[{}]", short(key));
        if key.is_empty() || key.len() > MAX_ID_BYTES || !key.bytes().all(|c| c.is_ascii_graphic()) {
            wrong.add(field(), format!("the key is not 1 to {MAX_ID_BYTES} visible ASCII characters"));
        }
        if let Err(message) = printable(value, MAX_METADATA_BYTES) {
            wrong.add(field(), message);
        }
    }
    shared(given)
}

/// Validates a network name by the rules of Istio's label `topology.istio.io/network`.
pub(super) fn name(field: &str, text: String, wrong: &mut Violations) -> Arc<str> {
    if !text.is_empty() && !is_qualified(&text) {
        wrong.add(field, format!("{} is no name: {QUALIFIED}", short(&text)));
    }
    text.into()
}

/// Validates a service account: a DNS name in lower case, as in Kubernetes.
pub(super) fn service_account(text: String, wrong: &mut Violations) -> Arc<str> {
    let is_name = Hostname::parse(&text).is_ok_and(|host| host.as_str() == text && !host.is_wildcard());
    if !text.is_empty() && (!is_name || text.contains('_') || text.len() > PREFIX_BYTES) {
        let message = format!(
            "{} is no name of a service account: small letters, digits, dashes and dots",
            short(&text)
        );
        wrong.add("service_account", message);
    }
    text.into()
}

/// Checks that a text has at most `most` bytes and no control characters.
pub(super) fn printable(text: &str, most: usize) -> Result<(), String> {
    if text.len() > most {
        return Err(format!("{} bytes are more than {most}", text.len()));
    }
    match text.chars().find(|c| c.is_control()) {
        Some(c) => Err(format!("holds the control character U+{:04X}", u32::from(c))),
        None => Ok(()),
    }
}

/// Shortens a client's text for a message.
pub(super) fn short(text: &str) -> String {
    let cut: String = text.chars().take(LABEL_BYTES).collect();
    format!("{cut:?}")
}

fn label_key(key: &str) -> Result<(), String> {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let is_domain = |text: &str| {
        let is_name = Hostname::parse(text).is_ok_and(|host| host.as_str() == text && !host.is_wildcard());
        is_name && !text.contains('_') && text.len() <= PREFIX_BYTES
    };
    if prefix.is_some_and(|prefix| !is_domain(prefix)) {
        return Err("the part of the key before the slash is no DNS name of small letters".to_owned());
    }
    if is_qualified(name) { Ok(()) } else { Err(format!("the key is no name: {QUALIFIED}")) }
}

const QUALIFIED: &str = "at most 63 letters, digits and -_. that begin and end with a letter or digit";

fn is_qualified(text: &str) -> bool {
    let known = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    let end = |c: char| c.is_ascii_alphanumeric();
    (1..=LABEL_BYTES).contains(&text.len())
        && text.bytes().all(known)
        && text.starts_with(end)
        && text.ends_with(end)
}

fn shared(given: BTreeMap<String, String>) -> TextMap {
    given.into_iter().collect()
}
