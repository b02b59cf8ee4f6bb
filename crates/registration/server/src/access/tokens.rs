//! Tokens of clients. Only their digests are kept.

use super::AccessError;
use crate::identity::Digest;
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::Arc;

/// Minimum length of a token in bytes: shorter ones can be guessed.
const SHORTEST: usize = 16;
/// Maximum number of tokens in a file.
const MOST: usize = 10_000;

/// Tokens by their digests, each with the name of its client.
#[derive(Debug, Default)]
pub(crate) struct Tokens(HashMap<Digest, Arc<str>>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    tokens: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    token: Option<String>,
    sha256: Option<String>,
}

impl Tokens {
    /// Parses the tokens of a file (YAML). Errors name an entry and never contain a token.
    pub(super) fn parse(text: &str) -> Result<Self, AccessError> {
        // The parser's message could contain a token.
        let file: File = serde_saphyr::from_str(text).map_err(|error| match error.location() {
            Some(at) => AccessError::invalid(format!(
                "line {}: `tokens` has to be a list of name and token or sha256",
                at.line()
            )),
            None => AccessError::invalid("`tokens` has to be a list of name and token or sha256"),
        })?;
        if file.tokens.len() > MOST {
            return Err(AccessError::invalid(format!(
                "{} tokens: at most {MOST} are allowed",
                file.tokens.len()
            )));
        }
        let mut tokens = HashMap::new();
        for (index, entry) in file.tokens.iter().enumerate() {
            let at = |message: &str| AccessError::invalid(format!("tokens[{index}]: {message}"));
            let known = |c: u8| c.is_ascii_alphanumeric() || b"-._@".contains(&c);
            if entry.name.is_empty() || entry.name.len() > 128 || !entry.name.bytes().all(known) {
                return Err(at("`name` has to be 1 to 128 letters, digits and -._@"));
            }
            let digest = match (&entry.token, &entry.sha256) {
                (Some(token), None) if token.len() < SHORTEST => {
                    return Err(at("a token has at least 16 bytes"));
                }
                (Some(token), None) => digest(token),
                (None, Some(hex)) => {
                    parse_hex(hex).ok_or_else(|| at("`sha256` has to be 64 hexadecimal digits"))?
                }
                _ => return Err(at("it needs either `token` or `sha256`")),
            };
            let identity: Arc<str> = format!("token/{}", entry.name).into();
            if tokens.insert(digest, identity.clone()).is_some_and(|other| other != identity) {
                return Err(at("the same token has another name already"));
            }
        }
        Ok(Self(tokens))
    }

    /// Returns the identity of a token's client.
    pub(crate) fn identity(&self, digest: &Digest) -> Option<&Arc<str>> {
        self.0.get(digest)
    }
}

/// Returns the digest of a token.
pub(crate) fn digest(token: &str) -> Digest {
    let digest = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
    let mut bytes = Digest::default();
    bytes.copy_from_slice(digest.as_ref());
    bytes
}

fn parse_hex(text: &str) -> Option<Digest> {
    let mut digest = Digest::default();
    if text.len() != 2 * digest.len() || !text.is_ascii() {
        return None;
    }
    for (index, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_names_and_may_be_given_by_digest() {
        let hex: String = digest("another token of hers").iter().map(|byte| format!("{byte:02x}")).collect();
        let text = format!(
            "tokens:\n- name: a\n  token: 0123456789abcdef\n- name: a\n  token: 0123456789abcdeX\n- name: b\n  sha256: {hex}\n"
        );
        let tokens = Tokens::parse(&text).unwrap();
        let of = |token: &str| tokens.identity(&digest(token)).map(|name| name.to_string());
        assert_eq!(of("0123456789abcdef").as_deref(), Some("token/a"));
        assert_eq!(of("0123456789abcdeX").as_deref(), Some("token/a"), "two while it is rotated");
        assert_eq!(of("another token of hers").as_deref(), Some("token/b"));
        assert_eq!(of("0123456789abcdeY"), None);
    }

    #[test]
    fn bad_files_are_refused_without_telling_tokens() {
        for (text, part) in [
            ("tokens:\n- name: a\n  token: short-secret\n", "tokens[0]: a token has at least 16 bytes"),
            ("tokens:\n- name: a\n", "either `token` or `sha256`"),
            ("tokens:\n- name: a\n  token: 0123456789abcdef\n  sha256: aa\n", "either `token` or `sha256`"),
            ("tokens:\n- name: a\n  sha256: aa\n", "64 hexadecimal digits"),
            ("tokens:\n- name: a/b\n  token: 0123456789abcdef\n", "`name` has to be"),
            (
                "tokens:\n- name: a\n  token: 0123456789abcdef\n- name: b\n  token: 0123456789abcdef\n",
                "another name already",
            ),
            ("tokens: secret-secret-secret\n", "has to be a list"),
            ("- secret-secret-secret\n", "has to be a list"),
            ("tokens:\n- name: a\n  secret-secret-secret: b\n", "has to be a list"),
        ] {
            let error = Tokens::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
