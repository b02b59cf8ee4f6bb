//! TLS settings of clients and of servers.

use crate::networking::{
    CIPHER_SUITES, ClientTlsMode, ClientTlsSettings, ECDH_CURVES, ServerTlsMode, ServerTlsSettings,
    TlsProtocol,
};
use crate::path::Path;
use crate::problem::Checker;
use crate::validate::fields::names::{each, quoted};
use crate::validate::fields::values::at_most_one;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use std::collections::BTreeSet;

/// Checks TLS settings towards a host.
pub(in crate::validate) fn client(tls: &ClientTlsSettings, at: &Path<'_>, checker: &mut Checker) {
    /// Envoy's limit, in bytes.
    const LONGEST_SNI: usize = 255;
    let required = |field: &str, value: &str, checker: &mut Checker| {
        if value.is_empty() {
            checker.warning(&at.field(field), "is not set, mode MUTUAL needs it, or credentialName instead");
        }
    };
    if tls.sni.len() > LONGEST_SNI {
        checker.error(
            &at.field("sni"),
            format!("has {} characters, at most {LONGEST_SNI} are allowed", tls.sni.len()),
        );
    }
    let by_name = matches!(tls.mode, ClientTlsMode::Simple | ClientTlsMode::Mutual);
    if !by_name && !tls.ca_cert_credential_name.is_empty() {
        let message = "has no effect, as the mode is neither SIMPLE nor MUTUAL";
        checker.warning(&at.field("caCertCredentialName"), message);
    }
    if tls.insecure_skip_verify == Some(true) && by_name {
        let mut others = vec![
            ("caCertificates", !tls.ca_certificates.is_empty()),
            ("subjectAltNames", !tls.subject_alt_names.is_empty()),
            ("caCertCredentialName", !tls.ca_cert_credential_name.is_empty()),
        ];
        if tls.mode == ClientTlsMode::Simple {
            others.push(("credentialName", !tls.credential_name.is_empty()));
        }
        warn_set(&others, "has no effect beside insecureSkipVerify", at, checker);
    }
    if by_name && !tls.credential_name.is_empty() {
        let files = [
            ("clientCertificate", !tls.client_certificate.is_empty()),
            ("privateKey", !tls.private_key.is_empty()),
            ("caCertificates", !tls.ca_certificates.is_empty()),
            ("caCrl", !tls.ca_crl.is_empty()),
        ];
        return warn_set(&files, "has no effect beside credentialName", at, checker);
    }
    if tls.mode == ClientTlsMode::Mutual {
        required("clientCertificate", &tls.client_certificate, checker);
        required("privateKey", &tls.private_key, checker);
    }
}

fn warn_set(fields: &[(&str, bool)], message: &str, at: &Path<'_>, checker: &mut Checker) {
    for (field, _) in fields.iter().filter(|(_, set)| *set) {
        checker.warning(&at.field(field), message);
    }
}

/// Checks TLS settings of a server on a gateway or a sidecar.
pub(super) fn server(tls: &ServerTlsSettings, at: &Path<'_>, checker: &mut Checker) {
    use ServerTlsMode as Mode;
    versions_and_ciphers(tls, at, checker);
    protocols(tls, at, checker);
    names(tls, at, checker);
    hashes(tls, at, checker);
    let certificates = [
        ("serverCertificate", !tls.server_certificate.is_empty()),
        ("privateKey", !tls.private_key.is_empty()),
        ("caCertificates", !tls.ca_certificates.is_empty()),
        ("credentialName", !tls.credential_name.is_empty()),
        ("credentialNames", !tls.credential_names.is_empty()),
        ("tlsCertificates", !tls.tls_certificates.is_empty()),
    ];
    match tls.mode {
        Mode::IstioMutual => {
            warn_set(&certificates, "has no effect for mode ISTIO_MUTUAL", at, checker);
        }
        Mode::Passthrough | Mode::AutoPassthrough => {
            warn_set(&certificates, "has no effect, as the mode does not end TLS", at, checker);
        }
        Mode::Simple | Mode::Mutual | Mode::OptionalMutual => terminating(tls, at, checker),
    }
}

fn terminating(tls: &ServerTlsSettings, at: &Path<'_>, checker: &mut Checker) {
    let by_name = !tls.credential_name.is_empty() || !tls.credential_names.is_empty();
    if !tls.ca_crl.is_empty() {
        if by_name {
            checker.warning(&at.field("caCrl"), "has no effect beside credentialName, whose secret has it");
        } else if tls.mode == ServerTlsMode::Simple {
            checker.warning(&at.field("caCrl"), "has no effect for mode SIMPLE");
        }
    }
    if by_name {
        return;
    }
    let required = |field: &str, value: &str, at: &Path<'_>, checker: &mut Checker| {
        if value.is_empty() {
            checker.error(&at.field(field), "must be set for this mode, or credentialName instead");
        }
    };
    if tls.tls_certificates.is_empty() {
        required("serverCertificate", &tls.server_certificate, at, checker);
        required("privateKey", &tls.private_key, at, checker);
    }
    each(&tls.tls_certificates, &at.field("tlsCertificates"), checker, |files, at, checker| {
        required("serverCertificate", &files.server_certificate, at, checker);
        required("privateKey", &files.private_key, at, checker);
    });
    let one_has_ca = tls.tls_certificates.iter().any(|files| !files.ca_certificates.is_empty());
    if tls.mode != ServerTlsMode::Simple && !one_has_ca {
        required("caCertificates", &tls.ca_certificates, at, checker);
    }
}

/// Checks SHA-256 hashes of certificates and keys.
fn hashes(tls: &ServerTlsSettings, at: &Path<'_>, checker: &mut Checker) {
    each(&tls.verify_certificate_hash, &at.field("verifyCertificateHash"), checker, |hash, at, checker| {
        let plain = hash.len() == 64 && hash.bytes().all(|c| c.is_ascii_hexdigit());
        let pairs =
            || hash.split(':').all(|pair| pair.len() == 2 && pair.bytes().all(|c| c.is_ascii_hexdigit()));
        if !(plain || hash.len() == 95 && pairs()) {
            checker.error(at, format!("{} is not a SHA-256 hash, 64 hexadecimal digits", quoted(hash)));
        }
    });
    each(&tls.verify_certificate_spki, &at.field("verifyCertificateSpki"), checker, |hash, at, checker| {
        let is_hash = BASE64.decode(hash).is_ok_and(|bytes| bytes.len() == 32);
        if !is_hash {
            checker.error(at, format!("{} is not a SHA-256 hash in base64", quoted(hash)));
        }
    });
}

fn protocols(tls: &ServerTlsSettings, at: &Path<'_>, checker: &mut Checker) {
    each(&tls.ecdh_curves, &at.field("ecdhCurves"), checker, |curve, at, checker| {
        if !ECDH_CURVES.contains(&curve.as_str()) {
            checker.warning(at, format!("{} is not a curve that Envoy knows, it is ignored", quoted(curve)));
        }
    });
    // Envoy reads the list as one text with commas.
    let is_name = |name: &str| {
        (1..=255).contains(&name.len()) && name.bytes().all(|c| c.is_ascii_graphic() && c != b',')
    };
    each(&tls.alpn_protocols, &at.field("alpnProtocols"), checker, |protocol, at, checker| {
        if !is_name(protocol) {
            checker.error(at, format!("{} is not the name of a protocol", quoted(protocol)));
        }
    });
}

fn names(tls: &ServerTlsSettings, at: &Path<'_>, checker: &mut Checker) {
    const MOST: usize = 2;
    let set = [
        ("credentialName", !tls.credential_name.is_empty()),
        ("credentialNames", !tls.credential_names.is_empty()),
        ("tlsCertificates", !tls.tls_certificates.is_empty()),
    ];
    at_most_one(&set, at, checker);
    let counts =
        [("credentialNames", tls.credential_names.len()), ("tlsCertificates", tls.tls_certificates.len())];
    for (field, count) in counts {
        if count > MOST {
            checker.error(&at.field(field), format!("has {count} items, at most {MOST} are allowed"));
        }
    }
}

fn versions_and_ciphers(tls: &ServerTlsSettings, at: &Path<'_>, checker: &mut Checker) {
    let (least, most) = (tls.min_protocol_version, tls.max_protocol_version);
    if matches!(least, TlsProtocol::TlsV1_0 | TlsProtocol::TlsV1_1) && tls.cipher_suites.is_empty() {
        let message = "is below TLS 1.2, whose ciphers are not among the defaults, set cipherSuites as well";
        checker.warning(&at.field("minProtocolVersion"), message);
    }
    if most != TlsProtocol::TlsAuto && least > most {
        checker.warning(&at.field("minProtocolVersion"), "is above maxProtocolVersion, nothing can connect");
    }
    let mut seen = BTreeSet::new();
    each(&tls.cipher_suites, &at.field("cipherSuites"), checker, |suite, at, checker| {
        if !CIPHER_SUITES.contains(&suite.as_str()) {
            checker.warning(at, format!("{} is not a cipher that Envoy knows, it is ignored", quoted(suite)));
        }
    });
    for (index, suite) in tls.cipher_suites.iter().enumerate() {
        if !seen.insert(suite) {
            checker.warning(&at.field("cipherSuites").index(index), "is there twice");
        }
    }
}
