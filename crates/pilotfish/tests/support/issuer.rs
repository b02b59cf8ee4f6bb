//! Issuer of JWTs (`https://ci.test`).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{KeyPair, PublicKeyData, SigningKey};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An issuer's key.
pub(crate) struct Ed25519(KeyPair);

impl Ed25519 {
    pub(crate) fn new() -> Self {
        Self(KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("ring makes such keys"))
    }

    pub(crate) fn jwks(&self) -> String {
        let x = URL_SAFE_NO_PAD.encode(self.0.der_bytes());
        format!(r#"{{"keys": [{{"kty": "OKP", "crv": "Ed25519", "kid": "k1", "x": "{x}"}}]}}"#)
    }

    /// A token of a project for an audience, valid for some minutes.
    pub(crate) fn token(&self, project: &str, audience: &str) -> String {
        let end = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is right")
            + Duration::from_secs(600);
        let claims = format!(
            r#"{{"iss": "https://ci.test", "aud": "{audience}", "exp": {}, "project": "{project}"}}"#,
            end.as_secs()
        );
        let header = URL_SAFE_NO_PAD.encode(r#"{"alg": "EdDSA", "kid": "k1"}"#);
        let message = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims));
        let signature = self.0.sign(message.as_bytes()).expect("the key signs");
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}
