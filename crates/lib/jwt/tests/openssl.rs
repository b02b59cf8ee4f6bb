//! Tokens that OpenSSL has signed with keys of RSA and P-384.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails this way")]

use pilotfish_jwt::{Issuers, JwtRules, Refused};
use serde_json::{Value, json};
use std::time::SystemTime;

fn issuers(jwks: &Value) -> Issuers {
    let rule = json!({"issuer": "https://issuer.test", "audiences": ["mesh"], "jwks": jwks.to_string()});
    Issuers::new(JwtRules::parse(&json!({"jwtRules": [rule]}).to_string()).unwrap())
}

#[test]
fn signatures_of_each_algorithm_are_verified() {
    let file: Value = serde_json::from_str(include_str!("openssl.json")).unwrap();
    let all = issuers(&file["jwks"]);
    let tokens = file["tokens"].as_object().unwrap();
    assert_eq!(tokens.len(), 7);
    for (name, token) in tokens {
        let token = token.as_str().unwrap();
        let account = all.verify(token, SystemTime::now()).unwrap();
        assert_eq!((account.namespace.as_str(), account.name.as_str()), ("shop", "web"), "{name}");
        let (message, _) = token.rsplit_once('.').unwrap();
        for (other, signed) in tokens.iter().filter(|(other, _)| *other != name) {
            let (_, signature) = signed.as_str().unwrap().rsplit_once('.').unwrap();
            let found = all.verify(&format!("{message}.{signature}"), SystemTime::now());
            assert_eq!(found, Err(Refused::Signature), "{name} with the signature of {other}");
        }
    }
}

#[test]
fn key_for_one_algorithm_or_for_encryption_verifies_no_other() {
    let file: Value = serde_json::from_str(include_str!("openssl.json")).unwrap();
    let verify = |name: &str, field: &str, value: &str| {
        let mut jwks = file["jwks"].clone();
        jwks["keys"][0][field] = value.into();
        issuers(&jwks).verify(file["tokens"][name].as_str().unwrap(), SystemTime::now()).err()
    };
    assert_eq!(verify("RS256", "alg", "RS256"), None);
    assert_eq!(verify("PS256", "alg", "RS256"), Some(Refused::Signature));
    assert_eq!(verify("RS256", "use", "sig"), None);
    // Left out, as are keys for algorithms that are not known here.
    assert_eq!(verify("RS256", "use", "enc"), Some(Refused::Key));
    assert_eq!(verify("RS256", "alg", "RSA-OAEP"), Some(Refused::Key));
}
