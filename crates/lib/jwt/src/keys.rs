//! Public keys of an issuer (JWK sets, RFC 7517).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};
use serde::Deserialize;

/// Maximum number of keys in a set: a token without `kid` may be compared with all of one type.
const MOST: usize = 64;

/// Signature algorithms with a public key (RFC 7518, RFC 8037), without `none` and those with a shared key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[allow(clippy::upper_case_acronyms, reason = "names of RFC 7518")]
pub(crate) enum Algorithm {
    RS256,
    RS384,
    RS512,
    PS256,
    PS384,
    PS512,
    ES256,
    ES384,
    #[serde(rename = "EdDSA")]
    EdDsa,
}

/// A public key, in the form that `ring` takes.
#[derive(Clone, Debug)]
enum Material {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// Uncompressed point.
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Clone, Debug)]
struct Key {
    kid: Option<String>,
    /// The only algorithm of this key, if the set says so.
    algorithm: Option<Algorithm>,
    material: Material,
}

/// Keys of an issuer.
#[derive(Clone, Debug, Default)]
pub struct KeySet(Vec<Key>);

#[derive(Deserialize)]
struct File {
    keys: Vec<serde_json::Value>,
}

/// A key as written; which fields there are depends on its type.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// Parses a set (JSON). Keys of unknown types, for encryption, and shared ones are left out.
    ///
    /// # Errors
    /// If it is no set, has too many keys, or none that can be used.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let file: File = serde_json::from_slice(text).map_err(|error| format!("no JWK set: {error}"))?;
        if file.keys.len() > MOST {
            return Err(format!("{} keys: at most {MOST} are allowed", file.keys.len()));
        }
        let keys: Vec<Key> = file.keys.into_iter().filter_map(key).collect();
        if keys.is_empty() {
            return Err("no key for signatures that can be used: RSA, P-256, P-384 and Ed25519".to_owned());
        }
        Ok(Self(keys))
    }

    /// True if there is a key of this id.
    pub(crate) fn has(&self, kid: &str) -> bool {
        self.0.iter().any(|key| key.kid.as_deref() == Some(kid))
    }

    /// True if a key of this id, or any key without one, verifies the signature.
    pub(crate) fn verifies(
        &self,
        kid: Option<&str>,
        algorithm: Algorithm,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        let is_meant = |key: &&Key| {
            kid.is_none_or(|kid| key.kid.as_deref() == Some(kid))
                && key.algorithm.is_none_or(|only| only == algorithm)
        };
        self.0.iter().filter(is_meant).any(|key| key.material.verifies(algorithm, message, signature))
    }
}

impl Material {
    fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        use Algorithm::{ES256, ES384, EdDsa};
        let plain = |algorithm: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(algorithm, key).verify(message, signature).is_ok()
        };
        match (self, algorithm) {
            (Self::Rsa { n, e }, algorithm) => rsa(algorithm).is_some_and(|parameters| {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature).is_ok()
            }),
            (Self::P256(point), ES256) => plain(&ECDSA_P256_SHA256_FIXED, point),
            (Self::P384(point), ES384) => plain(&ECDSA_P384_SHA384_FIXED, point),
            (Self::Ed25519(key), EdDsa) => plain(&ED25519, key),
            _ => false,
        }
    }
}

fn rsa(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    match algorithm {
        Algorithm::RS256 => Some(&RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Some(&RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Some(&RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Some(&RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Some(&RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Some(&RSA_PSS_2048_8192_SHA512),
        Algorithm::ES256 | Algorithm::ES384 | Algorithm::EdDsa => None,
    }
}

/// Returns a key that can be used.
fn key(value: serde_json::Value) -> Option<Key> {
    let jwk: Jwk = serde_json::from_value(value).ok()?;
    if jwk.usage.as_deref().is_some_and(|usage| usage != "sig") {
        return None;
    }
    let algorithm = match jwk.alg {
        // A key with an unknown algorithm is not used with another one.
        Some(name) => Some(serde_json::from_value(name.into()).ok()?),
        None => None,
    };
    let bytes = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_deref()?).ok();
    let point = |size: usize| {
        let (x, y) = (bytes(&jwk.x)?, bytes(&jwk.y)?);
        (x.len() == size && y.len() == size).then(|| [&[4], x.as_slice(), y.as_slice()].concat())
    };
    let material = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
        ("RSA", None) => Material::Rsa { n: bytes(&jwk.n)?, e: bytes(&jwk.e)? },
        ("EC", Some("P-256")) => Material::P256(point(32)?),
        ("EC", Some("P-384")) => Material::P384(point(48)?),
        ("OKP", Some("Ed25519")) => Material::Ed25519(bytes(&jwk.x).filter(|key| key.len() == 32)?),
        _ => return None,
    };
    Some(Key { kid: jwk.kid, algorithm, material })
}
