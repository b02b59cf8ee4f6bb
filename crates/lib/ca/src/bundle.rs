//! Bundles of roots.

use crate::BundleError;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::time::Duration;

/// Use of keys that verify certificates (SPIFFE Trust Domain and Bundle, section 4.2.2).
const X509_SVID: &str = "x509-svid";
/// Known types of keys; those of others are ignored (section 4.2.1).
const KEY_TYPES: [&str; 3] = ["EC", "RSA", "OKP"];
/// Maximum number of authorities of a trust domain: each is sent to all proxies.
const MOST: usize = 64;

/// Authorities of a trust domain, as its bundle endpoint publishes them (SPIFFE Trust Domain and Bundle).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpiffeBundle {
    /// Roots in PEM; empty if all are revoked (section 4.1.3).
    pub roots: String,
    /// Interval at which the bundle should be read again, if it has one.
    pub refresh_hint: Option<Duration>,
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<Key>,
    spiffe_refresh_hint: Option<u64>,
}

#[derive(Deserialize)]
struct Key {
    #[serde(default)]
    kty: String,
    #[serde(rename = "use", default)]
    usage: String,
    #[serde(default)]
    x5c: Vec<String>,
}

impl SpiffeBundle {
    /// Parses a bundle (JSON). Keys for other uses than certificates, or of unknown types, are left out.
    ///
    /// # Errors
    /// When it is malformed, or has too many authorities.
    pub fn parse(text: &[u8]) -> Result<Self, BundleError> {
        let Document { keys, spiffe_refresh_hint } =
            serde_json::from_slice(text).map_err(|_| BundleError::Form)?;
        let mut certificates = Vec::new();
        let is_authority = |key: &Key| key.usage == X509_SVID && KEY_TYPES.contains(&key.kty.as_str());
        for (index, key) in keys.iter().enumerate().filter(|(_, key)| is_authority(key)) {
            let [der] = key.x5c.as_slice() else { return Err(BundleError::Certificate(index)) };
            let is_base64 = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'/' | b'=');
            if !der.bytes().all(is_base64) {
                return Err(BundleError::Certificate(index));
            }
            certificates
                .push((index, format!("-----BEGIN CERTIFICATE-----\n{der}\n-----END CERTIFICATE-----\n")));
        }
        if certificates.len() > MOST {
            return Err(BundleError::TooMany { found: certificates.len(), limit: MOST });
        }
        let (roots, unusable) = join_roots(certificates.iter().map(|(_, pem)| pem.as_str()));
        let unusable = unusable.first().and_then(|position| certificates.get(*position));
        match unusable {
            Some((index, _)) => Err(BundleError::Certificate(*index)),
            None => Ok(Self { roots, refresh_hint: spiffe_refresh_hint.map(Duration::from_secs) }),
        }
    }
}

/// Joins texts of certificates in PEM, each certificate once, in their order. Also returns the positions of
/// texts without certificates or with malformed ones, which are left out.
#[must_use]
pub fn join_roots<'a>(texts: impl IntoIterator<Item = &'a str>) -> (String, Vec<usize>) {
    let (mut joined, mut unusable) = (String::new(), Vec::new());
    let mut seen = BTreeSet::new();
    for (position, text) in texts.into_iter().enumerate() {
        let sections = pem::parse_many(text).unwrap_or_default();
        let is_certificate = |section: &pem::Pem| {
            section.tag() == "CERTIFICATE"
                && webpki::anchor_from_trusted_cert(&section.contents().into()).is_ok()
        };
        if sections.is_empty() || !sections.iter().all(is_certificate) {
            unusable.push(position);
            continue;
        }
        for section in sections {
            let section = pem::Pem::new("CERTIFICATE", section.contents());
            if seen.insert(section.contents().to_vec()) {
                let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
                joined.push_str(&pem::encode_config(&section, config));
            }
        }
    }
    (joined, unusable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SelfSigned;
    use serde_json::{Value, json};
    use std::time::SystemTime;

    #[test]
    fn roots_are_those_of_the_keys_for_certificates() {
        let now = SystemTime::now();
        let roots = [(); 2].map(|()| SelfSigned::create(now).unwrap().certificate);
        let base64 = |pem: &str| pem.lines().filter(|line| !line.starts_with('-')).collect::<String>();
        let key = |usage: &str, x5c: Value| json!({"kty": "EC", "use": usage, "x5c": x5c});
        let [one, other] = [&roots[0], &roots[1]].map(|pem| key(X509_SVID, json!([base64(pem)])));
        let jwt = json!({"kty": "EC", "use": "jwt-svid", "kid": "a"});
        let twice = key(X509_SVID, json!([base64(&roots[0]), base64(&roots[1])]));
        let bundle = json!({"keys": [one, jwt, other], "spiffe_sequence": 7, "spiffe_refresh_hint": 600});
        let read = SpiffeBundle::parse(bundle.to_string().as_bytes()).unwrap();
        assert_eq!(read.roots, roots.concat());
        assert_eq!(read.refresh_hint, Some(Duration::from_secs(600)));
        let unknown = json!({"kty": "new", "use": X509_SVID});
        for keys in [json!([]), json!([jwt, unknown])] {
            let read = SpiffeBundle::parse(json!({"keys": keys}).to_string().as_bytes()).unwrap();
            assert_eq!(read.roots, "", "all are revoked: {keys}");
        }
        let many: Vec<_> = (0..=MOST).map(|_| one.clone()).collect();
        for (bundle, error) in [
            (json!({"keys": many}), BundleError::TooMany { found: MOST + 1, limit: MOST }),
            (json!({"keys": [jwt, twice]}), BundleError::Certificate(1)),
            (json!({"keys": [one, key(X509_SVID, json!([]))]}), BundleError::Certificate(1)),
            (json!({"keys": [key(X509_SVID, json!(["AAAA"]))]}), BundleError::Certificate(0)),
            (json!({"keys": [one, key(X509_SVID, json!(["-----BEGIN"]))]}), BundleError::Certificate(1)),
            (json!({"keys": {}}), BundleError::Form),
            (json!([]), BundleError::Form),
        ] {
            assert_eq!(SpiffeBundle::parse(bundle.to_string().as_bytes()), Err(error), "{bundle}");
        }
        assert_eq!(SpiffeBundle::parse(b"<html>"), Err(BundleError::Form));
    }
}
