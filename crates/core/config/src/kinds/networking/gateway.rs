//! Gateway: what a gateway workload listens on.

use crate::kinds::message::{enumeration, kind, message};
use std::collections::BTreeMap;

kind!(Gateway = Gateway;);

message! {
/// Servers of the gateway workloads that the selector names.
pub struct Gateway {
    pub servers: Vec<Server>,
    pub selector: BTreeMap<String, String>,
}

/// One port with the hosts that are served on it.
pub struct Server {
    pub port: Option<Port>,
    pub bind: String,
    pub hosts: Vec<String>,
    pub tls: Option<ServerTlsSettings>,
    pub default_endpoint: String,
    pub name: String,
    /// Set on what stands in for a server that cannot be used: it refuses connections.
    #[serde(skip)]
    pub closed: bool,
}

/// A port that is listened on.
pub struct Port {
    pub number: u32,
    pub protocol: String,
    pub name: String,
    /// Removed from the API for gateways; a ServiceEntry has its own.
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
    /// Clients' certificates of any authority are taken, where the mode asks for one.
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

/// The ciphers of a server that Istio hands on to Envoy, in OpenSSL's names.
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
    /// The ciphers of `cipherSuites` that Envoy knows, in their order and once each. Others would make it
    /// refuse the listener.
    #[must_use]
    pub fn known_cipher_suites(&self) -> Vec<String> {
        let mut out: Vec<String> = Vec::new();
        for suite in &self.cipher_suites {
            if CIPHER_SUITES.contains(&suite.as_str()) && !out.contains(suite) {
                out.push(suite.clone());
            }
        }
        out
    }
}
