//! Tokens of clients by name, from a file of a listener. Only their digests are kept.

use pilotfish_identity::{Authenticator, Call, Proof, Unproven};
use serde::Deserialize;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// The SHA-256 digest of a token.
pub type Digest = [u8; 32];

/// Name of the authentication method of tokens that a file lists.
pub const TOKEN: &str = "token";

/// Minimum length of a token in bytes: shorter ones can be guessed.
const SHORTEST: usize = 16;
/// Prefix of the identities of tokens.
const PREFIX: &str = "token/";
/// Maximum number of tokens in a file.
const MOST: usize = 10_000;

/// Tokens by their digests, each with the identity `token/NAME` of its client.
#[derive(Debug, Default)]
pub struct NamedTokens(HashMap<Digest, Arc<str>>);

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

impl NamedTokens {
    /// Parses the tokens of a file (YAML).
    ///
    /// # Errors
    /// With an entry or line and the mistake; never with a token.
    pub fn parse(text: &str) -> Result<Self, String> {
        // The parser's message could contain a token.
        let file: File = serde_saphyr::from_str(text).map_err(|error| match error.location() {
            Some(at) => {
                format!("line {}: `tokens` has to be a list of name and token or sha256", at.line())
            }
            None => "`tokens` has to be a list of name and token or sha256".to_owned(),
        })?;
        if file.tokens.len() > MOST {
            return Err(format!("{} tokens: at most {MOST} are allowed", file.tokens.len()));
        }
        let mut tokens = HashMap::new();
        for (index, entry) in file.tokens.iter().enumerate() {
            let at = |message: &str| format!("tokens[{index}]: {message}");
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
            let identity: Arc<str> = format!("{PREFIX}{}", entry.name).into();
            if tokens.insert(digest, identity.clone()).is_some_and(|other| other != identity) {
                return Err(at("the same token has another name already"));
            }
        }
        Ok(Self(tokens))
    }

    /// Returns the identity of a token's client.
    #[must_use]
    pub fn identity(&self, digest: &Digest) -> Option<&Arc<str>> {
        self.0.get(digest)
    }
}

/// Authenticator by tokens; the function returns the identity of a token's client.
pub struct TokenAuthenticator<F>(pub F);

impl<F: Fn(&Digest) -> Option<Arc<str>> + Send + Sync + 'static> Authenticator for TokenAuthenticator<F> {
    fn name(&self) -> &'static str {
        TOKEN
    }

    fn authenticate<'a>(
        &'a self,
        call: &'a Call,
    ) -> Pin<Box<dyn Future<Output = Result<Proof, Unproven>> + Send + 'a>> {
        let known = call.metadata("authorization").and_then(bearer).map(digest);
        let identity = known.and_then(|digest| (self.0)(&digest));
        let answer = identity.map(|identity| vec![identity.to_string()].into());
        Box::pin(async { answer.ok_or_else(|| "no such token".into()) })
    }
}

/// Returns the bearer token of an `authorization` header.
#[must_use]
pub fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Returns the digest of a token.
#[must_use]
pub fn digest(token: &str) -> Digest {
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
        let tokens = NamedTokens::parse(&text).unwrap();
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
            let error = NamedTokens::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_token_follows_the_scheme() {
        for (header, token) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Basic abc", None),
            ("Bearer", None),
            ("abc", None),
            ("Bearer ", Some("")),
        ] {
            assert_eq!(bearer(header), token, "{header:?}");
        }
    }
}
