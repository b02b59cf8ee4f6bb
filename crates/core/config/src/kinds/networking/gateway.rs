//! Gateway: ports, hosts and TLS of gateway workloads.

use crate::kinds::message::{enumeration, kind, message};
use std::collections::BTreeMap;

kind!(Gateway = Gateway;);

message! {
/// Servers of the gateway workloads that the selector names.
pub struct Gateway {
    pub servers: Vec<Server>,
    pub selector: BTreeMap<String, String>,
}

/// A port with the hosts that are served on it.
pub struct Server {
    pub port: Option<Port>,
    pub bind: String,
    pub hosts: Vec<String>,
    pub tls: Option<ServerTlsSettings>,
    pub default_endpoint: String,
    pub name: String,
    /// True for the closed form of a server that cannot be used: it refuses connections.
    #[serde(skip)]
    pub closed: bool,
}

pub struct Port {
    pub number: u32,
    pub protocol: String,
    pub name: String,
    /// Removed from the API of gateways; a ServiceEntry's ports have it.
    pub target_port: u32,
}

/// TLS of a server.
pub struct ServerTlsSettings {
    pub https_redirect: bool,
    pub mode: ServerTlsMode,
    pub server_certificate: String,
    pub private_key: String,
    pub ca_certificates: String,
    pub ca_crl: String,
    pub credential_name: String,
    pub credential_names: Vec<String>,
    pub ca_cert_credential_name: String,
    pub tls_certificates: Vec<TlsCertificate>,
    pub subject_alt_names: Vec<String>,
    pub verify_certificate_spki: Vec<String>,
    pub verify_certificate_hash: Vec<String>,
    pub min_protocol_version: TlsProtocol,
    pub max_protocol_version: TlsProtocol,
    pub cipher_suites: Vec<String>,
    /// Curves of the key exchange, by preference; of Istio 1.32.
    pub ecdh_curves: Vec<String>,
    /// Protocols offered by ALPN in place of the usual ones; of Istio 1.32.
    pub alpn_protocols: Vec<String>,
    /// True if client certificates of any authority are accepted, where the mode requests one.
    pub insecure_skip_verify: Option<bool>,
}

/// Files of a certificate.
pub struct TlsCertificate {
    pub server_certificate: String,
    pub private_key: String,
    pub ca_certificates: String,
}
}

enumeration! {
/// The TLS settings of a server.
pub enum ServerTlsMode {
    #[default]
    Passthrough,
    Simple,
    Mutual,
    AutoPassthrough,
    IstioMutual,
    OptionalMutual,
}

/// A version of TLS.
pub enum TlsProtocol {
    #[default]
    TlsAuto,
    #[serde(rename = "TLSV1_0")]
    TlsV1_0,
    #[serde(rename = "TLSV1_1")]
    TlsV1_1,
    #[serde(rename = "TLSV1_2")]
    TlsV1_2,
    #[serde(rename = "TLSV1_3")]
    TlsV1_3,
}
}

/// Curves of key exchanges that Envoy supports.
pub const ECDH_CURVES: [&str; 6] = ["P-224", "P-256", "P-384", "P-521", "X25519", "X25519MLKEM768"];

/// Cipher names (OpenSSL) that Istio forwards to Envoy.
pub const CIPHER_SUITES: [&str; 22] = [
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-CHACHA20-POLY1305",
    "ECDHE-PSK-CHACHA20-POLY1305",
    "ECDHE-ECDSA-AES128-SHA",
    "ECDHE-RSA-AES128-SHA",
    "ECDHE-PSK-AES128-CBC-SHA",
    "ECDHE-ECDSA-AES256-SHA",
    "ECDHE-RSA-AES256-SHA",
    "ECDHE-PSK-AES256-CBC-SHA",
    "AES128-GCM-SHA256",
    "AES256-GCM-SHA384",
    "AES128-SHA",
    "PSK-AES128-CBC-SHA",
    "AES256-SHA",
    "PSK-AES256-CBC-SHA",
    "DES-CBC3-SHA",
    "[ECDHE-ECDSA-AES128-GCM-SHA256|ECDHE-ECDSA-CHACHA20-POLY1305]",
    "[ECDHE-RSA-AES128-GCM-SHA256|ECDHE-RSA-CHACHA20-POLY1305]",
];

impl ServerTlsSettings {
    /// Curves of `ecdhCurves` that Envoy knows, in their order and once each. Others would make it refuse
    /// the listener.
    #[must_use]
    pub fn known_ecdh_curves(&self) -> Vec<String> {
        known(&self.ecdh_curves, &ECDH_CURVES)
    }

    /// Ciphers of `cipherSuites` that Envoy knows, in their order and once each. Others would make it
    /// refuse the listener.
    #[must_use]
    pub fn known_cipher_suites(&self) -> Vec<String> {
        known(&self.cipher_suites, &CIPHER_SUITES)
    }
}

fn known(written: &[String], known: &[&str]) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for name in written {
        if known.contains(&name.as_str()) && !out.contains(name) {
            out.push(name.clone());
        }
    }
    out
}
