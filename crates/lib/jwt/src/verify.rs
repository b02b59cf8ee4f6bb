//! Verification of one token against the rule and the keys of its issuer.

use crate::keys::{Algorithm, KeySet};
use crate::rules::Rule;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Maximum size of a token in bytes.
pub(crate) const LONGEST: usize = 16 << 10;
/// Tolerated difference between the clocks of this machine and of issuers.
const SKEW: Duration = Duration::from_secs(300);

/// Service account of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub namespace: String,
    pub name: String,
    /// Expiry of the token.
    pub expires: SystemTime,
}

/// Reason for refusing a token. No message holds a part of it, but for the issuer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The text has not the form of a signed token.
    #[error("it is no signed JWT of at most {LONGEST} bytes")]
    Form,
    /// No rule names the issuer.
    #[error("no rule names its issuer {0:?}")]
    Issuer(String),
    /// The signature algorithm is not accepted.
    #[error("its algorithm is none of RS256, PS256, ES256 (also with 384, and RSA with 512) and EdDSA")]
    Algorithm,
    /// The header has extensions that must be understood.
    #[error("its header has critical extensions")]
    Critical,
    /// The issuer has no key of that id.
    #[error("its issuer has no key of that id")]
    Key,
    /// No key of the issuer made the signature.
    #[error("its signature is not of the issuer")]
    Signature,
    /// The token has ended.
    #[error("it has expired")]
    Expired,
    /// The token has not begun.
    #[error("it is not valid yet")]
    NotYet,
    /// The token is for others.
    #[error("it is not for {0}")]
    Audience(String),
    /// The rule cannot map the claims.
    #[error("{0}")]
    Claims(String),
    /// The keys of the issuer have not been read yet.
    #[error("the keys of its issuer have not been read yet")]
    NoKeys,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

/// Registered claims. A wrong type is an error, and no absence.
#[derive(Deserialize)]
struct Registered {
    iss: String,
    aud: Option<Audience>,
    exp: f64,
    nbf: Option<f64>,
}

/// Parts of a token that is not verified.
pub(crate) struct Parsed<'a> {
    header: Header,
    registered: Registered,
    claims: Value,
    /// Bytes that are signed.
    message: &'a [u8],
    signature: Vec<u8>,
}

impl<'a> Parsed<'a> {
    /// Parses the compact form (RFC 7515, section 3.1).
    pub(crate) fn of(token: &'a str) -> Result<Self, Refused> {
        if token.len() > LONGEST {
            return Err(Refused::Form);
        }
        let (message, signature) = token.rsplit_once('.').ok_or(Refused::Form)?;
        let (header, payload) = message.split_once('.').ok_or(Refused::Form)?;
        let claims: Value = json(payload)?;
        let registered = Registered::deserialize(&claims).map_err(|_| Refused::Form)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| Refused::Form)?;
        Ok(Self { header: json(header)?, registered, claims, message: message.as_bytes(), signature })
    }

    pub(crate) fn issuer(&self) -> &str {
        &self.registered.iss
    }

    pub(crate) fn kid(&self) -> Option<&str> {
        self.header.kid.as_deref()
    }

    /// Verifies the signature, then the claims.
    pub(crate) fn verify(&self, rule: &Rule, keys: &KeySet, now: SystemTime) -> Result<Account, Refused> {
        let Header { alg, kid, crit } = &self.header;
        let algorithm: Algorithm =
            serde_json::from_value(alg.as_str().into()).map_err(|_| Refused::Algorithm)?;
        if crit.is_some() {
            return Err(Refused::Critical);
        }
        if kid.as_deref().is_some_and(|kid| !keys.has(kid)) {
            return Err(Refused::Key);
        }
        if !keys.verifies(kid.as_deref(), algorithm, self.message, &self.signature) {
            return Err(Refused::Signature);
        }
        let expires = self.check_time(now)?;
        let named = match &self.registered.aud {
            None => &[],
            Some(Audience::One(name)) => std::slice::from_ref(name),
            Some(Audience::Several(names)) => names,
        };
        if !named.iter().any(|name| rule.audiences.contains(name)) {
            return Err(Refused::Audience(rule.audiences.join(" or ")));
        }
        let (namespace, name) = rule.account(&self.claims).map_err(Refused::Claims)?;
        Ok(Account { namespace, name, expires })
    }

    /// Returns the expiry.
    fn check_time(&self, now: SystemTime) -> Result<SystemTime, Refused> {
        let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (exp, nbf) = (self.registered.exp, self.registered.nbf);
        if exp <= seconds.saturating_sub(SKEW).as_secs_f64() {
            return Err(Refused::Expired);
        }
        if nbf.is_some_and(|nbf| nbf > (seconds + SKEW).as_secs_f64()) {
            return Err(Refused::NotYet);
        }
        // The skew counts here, too: otherwise streams of a token that has just expired would end at once.
        let end = Duration::try_from_secs_f64(exp).ok().and_then(|exp| exp.checked_add(SKEW));
        end.and_then(|end| UNIX_EPOCH.checked_add(end)).ok_or(Refused::Form)
    }
}

fn json<T: DeserializeOwned>(part: &str) -> Result<T, Refused> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| Refused::Form)?;
    serde_json::from_slice(&bytes).map_err(|_| Refused::Form)
}

#[cfg(test)]
mod tests {
    use crate::{Issuers, JwtRules, Refused};
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
    use serde_json::{Value, json};
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    const NOW: u64 = 1_800_000_000;

    /// An issuer with one key.
    struct Signer(EcdsaKeyPair);

    impl Signer {
        fn new() -> Self {
            let random = SystemRandom::new();
            let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
            let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
            Self(EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).unwrap())
        }

        fn jwk(&self, kid: &str) -> Value {
            let point = self.0.public_key().as_ref();
            let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..]));
            json!({"kty": "EC", "crv": "P-256", "kid": kid, "use": "sig", "x": x, "y": y})
        }

        fn token(&self, header: &Value, claims: &Value) -> String {
            let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
            let message = format!("{}.{}", part(header), part(claims));
            let signature = self.0.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
            format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
        }
    }

    fn issuers(keys: &[Value]) -> Issuers {
        let jwks = json!({"keys": keys}).to_string();
        let rule = json!({"issuer": "https://issuer.test", "audiences": ["mesh", "other"], "jwks": jwks});
        Issuers::new(JwtRules::parse(&json!({"jwtRules": [rule]}).to_string()).unwrap())
    }

    fn claims() -> Value {
        json!({
            "iss": "https://issuer.test", "aud": ["mesh"], "exp": NOW + 600, "nbf": NOW - 60,
            "kubernetes.io": {"namespace": "shop", "serviceaccount": {"name": "web"}},
        })
    }

    /// Claims with another value; `null` removes it.
    fn with(name: &str, value: Value) -> Value {
        let mut claims = claims();
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value,
        }
        claims
    }

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(NOW)
    }

    #[test]
    fn claims_decide_beyond_the_signature() {
        let signer = Signer::new();
        let issuers = issuers(&[signer.jwk("a")]);
        let header = json!({"alg": "ES256", "kid": "a"});
        let audience = || Some(Refused::Audience("mesh or other".into()));
        for (claims, refused) in [
            (claims(), None),
            (with("aud", json!("other")), None),
            (with("aud", json!(["x", "other"])), None),
            (with("aud", json!("x")), audience()),
            (with("aud", Value::Null), audience()),
            (with("aud", json!(7)), Some(Refused::Form)),
            // Five minutes of skew.
            (with("exp", json!(NOW - 299)), None),
            (with("exp", json!(NOW - 300)), Some(Refused::Expired)),
            (with("exp", json!(-1)), Some(Refused::Expired)),
            (with("exp", json!(1e300)), Some(Refused::Form)),
            (with("exp", json!("2100")), Some(Refused::Form)),
            (with("exp", Value::Null), Some(Refused::Form)),
            (with("nbf", json!(NOW + 300)), None),
            (with("nbf", json!(NOW + 301)), Some(Refused::NotYet)),
            (with("nbf", json!("0")), Some(Refused::Form)),
            (with("nbf", Value::Null), None),
            (with("iss", json!("https://other.test")), Some(Refused::Issuer("https://other.test".into()))),
            (
                with("iss", json!("https://issuer.test/")),
                Some(Refused::Issuer("https://issuer.test/".into())),
            ),
            (
                with("kubernetes.io", Value::Null),
                Some(Refused::Claims("the claim kubernetes.io.namespace is not a name".into())),
            ),
        ] {
            let found = issuers.verify(&signer.token(&header, &claims), now());
            assert_eq!(found.as_ref().err(), refused.as_ref(), "{claims}");
        }
        let account = issuers.verify(&signer.token(&header, &claims()), now()).unwrap();
        assert_eq!((account.namespace.as_str(), account.name.as_str()), ("shop", "web"));
        assert_eq!(account.expires, now() + Duration::from_secs(900));
    }

    #[test]
    fn only_signatures_of_the_issuers_keys_count() {
        let (signer, other) = (Signer::new(), Signer::new());
        let issuers = issuers(&[signer.jwk("a"), other.jwk("b")]);
        for (by, header, refused) in [
            (&signer, json!({"alg": "ES256", "kid": "a"}), None),
            (&signer, json!({"alg": "ES256"}), None),
            (&other, json!({"alg": "ES256", "kid": "b"}), None),
            (&other, json!({"alg": "ES256", "kid": "a"}), Some(Refused::Signature)),
            (&signer, json!({"alg": "ES256", "kid": "c"}), Some(Refused::Key)),
            (&signer, json!({"alg": "ES384", "kid": "a"}), Some(Refused::Signature)),
            (&signer, json!({"alg": "RS256", "kid": "a"}), Some(Refused::Signature)),
            (&signer, json!({"alg": "none"}), Some(Refused::Algorithm)),
            (&signer, json!({"alg": "None", "kid": "a"}), Some(Refused::Algorithm)),
            (&signer, json!({"alg": "HS256", "kid": "a"}), Some(Refused::Algorithm)),
            (&signer, json!({"alg": "es256", "kid": "a"}), Some(Refused::Algorithm)),
            (&signer, json!({"kid": "a"}), Some(Refused::Form)),
            (&signer, json!({"alg": "ES256", "kid": "a", "crit": ["b64"]}), Some(Refused::Critical)),
            // A key in the token itself is none of the issuer's.
            (&Signer::new(), json!({"alg": "ES256", "jwk": signer.jwk("a")}), Some(Refused::Signature)),
        ] {
            let found = issuers.verify(&by.token(&header, &claims()), now());
            assert_eq!(found.err(), refused, "{header}");
        }
    }

    #[test]
    fn key_of_an_issuer_signs_for_no_other_issuer() {
        let signers: Vec<_> = (0..64).map(|_| Signer::new()).collect();
        let rules = signers.iter().enumerate().map(|(number, signer)| {
            // All key ids are the same, and issuers begin with the names of others.
            let jwks = json!({"keys": [signer.jwk("a")]}).to_string();
            json!({"issuer": "https://issuer.test".repeat(number + 1), "audiences": ["mesh"], "jwks": jwks})
        });
        let rules = json!({"jwtRules": rules.collect::<Vec<_>>()}).to_string();
        let issuers = Issuers::new(JwtRules::parse(&rules).unwrap());
        let header = json!({"alg": "ES256", "kid": "a"});
        for (number, signer) in signers.iter().enumerate() {
            let of = |number: usize| with("iss", json!("https://issuer.test".repeat(number + 1)));
            assert!(issuers.verify(&signer.token(&header, &of(number)), now()).is_ok());
            let other = signer.token(&header, &of((number + 1) % signers.len()));
            assert_eq!(issuers.verify(&other, now()), Err(Refused::Signature));
        }
        let unknown = signers[0].token(&header, &with("iss", json!("https://issuer.test".repeat(65))));
        assert!(matches!(issuers.verify(&unknown, now()), Err(Refused::Issuer(shown)) if shown.len() == 100));
    }

    #[test]
    fn shared_key_is_no_key_even_if_it_is_public() {
        let signer = Signer::new();
        let issuers = issuers(&[signer.jwk("a")]);
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(&json!({"alg": "HS256", "kid": "a"})), part(&claims()));
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, signer.0.public_key().as_ref());
        let tag = ring::hmac::sign(&key, message.as_bytes());
        let token = format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag));
        assert_eq!(issuers.verify(&token, now()), Err(Refused::Algorithm));
        let only_shared = json!({"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}).to_string();
        assert!(crate::KeySet::parse(only_shared.as_bytes()).is_err());
    }

    #[test]
    fn malformed_and_huge_tokens_are_refused() {
        let signer = Signer::new();
        let issuers = issuers(&[signer.jwk("a")]);
        let header = json!({"alg": "ES256", "kid": "a"});
        let good = signer.token(&header, &claims());
        let huge = signer.token(&header, &with("x", json!("x".repeat(16 << 10))));
        let unsigned = good.rsplit_once('.').unwrap().0;
        for (token, refused) in [
            (String::new(), Refused::Form),
            ("a".into(), Refused::Form),
            ("a.b.c".into(), Refused::Form),
            ("e30.e30.".into(), Refused::Form),
            (format!("{good}.x"), Refused::Form),
            (format!("{good}="), Refused::Form),
            (huge, Refused::Form),
            (format!("{unsigned}."), Refused::Signature),
            (format!("{unsigned}.AAAA"), Refused::Signature),
            (unsigned.to_owned(), Refused::Form),
        ] {
            assert_eq!(issuers.verify(&token, now()), Err(refused), "{}", token.len());
        }
        let mut changed = good.into_bytes();
        let at = changed.iter().position(|byte| *byte == b'.').unwrap() + 4;
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        assert!(issuers.verify(&String::from_utf8(changed).unwrap(), now()).is_err());
    }
}
