//! Pairs of every type of key, by table. The certificates of the recorded cases are X.509 version 1, those of
//! `testdata` version 3.

use super::{AuthoritiesIn, KeyPairIn, Unusable, pair};
use crate::credentials::KeyPair;
use crate::testing::{credentials, evaluate, world};
use pilotfish_model::Kind;

const P256: (&str, &str) = (include_str!("../testdata/p256.crt"), include_str!("../testdata/p256.key"));
const P521: (&str, &str) = (include_str!("../testdata/p521.crt"), include_str!("../testdata/p521.key"));
const ED25519: (&str, &str) =
    (include_str!("../testdata/ed25519.crt"), include_str!("../testdata/ed25519.key"));
const RSA_2048: (&str, &str) =
    (include_str!("../testdata/rsa2048.crt"), include_str!("../testdata/rsa2048.key"));
const RSA_1024: (&str, &str) =
    (include_str!("../testdata/rsa1024.crt"), include_str!("../testdata/rsa1024.key"));

#[test]
fn a_pair_belongs_together() {
    let body = |text: &str| text.replace("CERTIFICATE", "PUBLIC KEY");
    let chain = |first: &str, second: &str| format!("a comment\n{first}\n{second}");
    for (name, chain, key, expected) in [
        ("SEC1 behind EC PARAMETERS", P256.0.to_owned(), P256.1, Ok(())),
        ("PKCS #8", ED25519.0.to_owned(), ED25519.1, Ok(())),
        ("PKCS #1", RSA_2048.0.to_owned(), RSA_2048.1, Ok(())),
        ("a curve that ring does not know", P521.0.to_owned(), P521.1, Ok(())),
        ("the first of a chain counts", chain(P256.0, RSA_2048.0), P256.1, Ok(())),
        ("the second of a chain does not", chain(RSA_2048.0, P256.0), P256.1, Err(Unusable::Mismatch)),
        ("another type", P256.0.to_owned(), RSA_2048.1, Err(Unusable::Mismatch)),
        ("another curve", P256.0.to_owned(), P521.1, Err(Unusable::NoKey)),
        ("a key that Envoy refuses", RSA_1024.0.to_owned(), RSA_1024.1, Err(Unusable::NoKey)),
        ("the key in place of the certificate", P256.1.to_owned(), P256.1, Err(Unusable::NotPem)),
        ("the certificate in place of the key", P256.0.to_owned(), P256.0, Err(Unusable::NoKey)),
        ("no certificate", body(P256.0), P256.1, Err(Unusable::NotPem)),
        ("a piece of one", P256.0.replace("MII", "MIA"), P256.1, Err(Unusable::NotX509)),
        ("text", "not a certificate".to_owned(), P256.1, Err(Unusable::NotPem)),
    ] {
        let found = pair(KeyPair { chain: chain.as_bytes(), key: key.as_bytes() });
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn secrets_of_recorded_gateways_are_judged_as_istiod_does() {
    let world = world(credentials());
    for (name, expected) in [
        ("quay-cert", Ok(())),
        ("quay-rsa", Ok(())),
        ("quay-other", Ok(())),
        ("generic", Ok(())),
        ("mixed-up", Err(Unusable::Mismatch)),
        // Not PEM: it is refused when it is read.
        ("garbled", Err(Unusable::Absent)),
        ("crew-secret", Err(Unusable::NoKeyPair)),
        ("nobody", Err(Unusable::Absent)),
    ] {
        let query = KeyPairIn { namespace: "edge".into(), name: name.into() };
        assert_eq!(*evaluate(&world, &query), expected, "{name}");
    }
    for (kind, name, expected) in [
        (Kind::ConfigMap, "crew-ca", Ok(())),
        (Kind::ConfigMap, "odd-key", Err(Unusable::NoAuthorities)),
        (Kind::ConfigMap, "garbled", Err(Unusable::NotPem)),
        (Kind::ConfigMap, "crew-secret", Err(Unusable::Absent)),
        (Kind::Secret, "crew-secret", Ok(())),
        (Kind::Secret, "quay-cert", Err(Unusable::NoAuthorities)),
        (Kind::Secret, "crew-ca", Err(Unusable::Absent)),
    ] {
        let query = AuthoritiesIn { kind, namespace: "edge".into(), name: name.into() };
        assert_eq!(*evaluate(&world, &query), expected, "{kind} {name}");
    }
}
