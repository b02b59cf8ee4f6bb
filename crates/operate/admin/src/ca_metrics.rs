//! Metrics of the certificate authority, under istiod's names: all zero if it is off.

use crate::catalogue::Catalogue;
use prometheus::{Gauge, IntCounter, IntCounterVec, IntGauge};
use std::time::{SystemTime, UNIX_EPOCH};

/// Metrics of the certificate authority.
pub struct CaMetrics {
    /// Number of received certificate requests.
    pub requests: IntCounter,
    /// Clients that proved no identity, or not the one that they requested.
    pub authentication_failures: IntCounter,
    /// Certificate requests that cannot be parsed.
    pub request_errors: IntCounter,
    /// Certificates that were not signed, by error: `CSR_ERROR`, `TTL_ERROR`, `CERT_GEN_ERROR`,
    /// `CA_NOT_READY`.
    pub sign_errors: IntCounterVec,
    /// Number of issued certificates.
    pub signed: IntCounter,
    /// 1 while the files of the authority are invalid and older ones stay in force.
    pub files_refused: IntGauge,
    /// Trust bundles (`spiffeBundleUrl`) that cannot be read.
    pub bundles_failing: IntGauge,
    root: Expiry,
    chain: Expiry,
}

/// Expiry of a certificate, as a time and as the time until then.
struct Expiry {
    timestamp: Gauge,
    seconds: Gauge,
}

impl Expiry {
    fn new(r: &Catalogue, name: &str, of: &str) -> Result<Self, prometheus::Error> {
        let gauge =
            |form: &str, help: String| r.float(&format!("citadel_server_{name}_expiry_{form}"), &help);
        Ok(Self {
            timestamp: gauge("timestamp", format!("Unix time at which {of} expires"))?,
            seconds: gauge("seconds", format!("Seconds until {of} expires"))?,
        })
    }

    fn set(&self, at: SystemTime, now: SystemTime) {
        self.timestamp.set(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
        self.seconds.set(at.duration_since(now).unwrap_or_default().as_secs_f64());
    }
}

impl CaMetrics {
    pub(crate) fn new(r: &Catalogue) -> Result<Self, prometheus::Error> {
        Ok(Self {
            requests: r.counter("citadel_server_csr_count", "Certificate requests")?,
            authentication_failures: r.counter(
                "citadel_server_authentication_failure_count",
                "Certificate requests of clients that did not prove the identity",
            )?,
            request_errors: r.counter(
                "citadel_server_csr_parsing_err_count",
                "Certificate requests that cannot be parsed or have another signature or type of key",
            )?,
            sign_errors: r.counters(
                "citadel_server_csr_sign_err_count",
                "Certificates that were not signed, by error",
                &["error"],
            )?,
            signed: r
                .counter("citadel_server_success_cert_issuance_count", "Workload certificates signed")?,
            files_refused: r.gauge(
                "pilotfish_ca_files_refused",
                "1 while files of the CA cannot be used and those before stay in force",
            )?,
            bundles_failing: r.gauge(
                "pilotfish_ca_bundles_failing",
                "SPIFFE bundles (spiffeBundleUrl of MeshConfig) that cannot be read",
            )?,
            root: Expiry::new(r, "root_cert", "the root certificate of the CA")?,
            chain: Expiry::new(r, "cert_chain", "the certificate of the CA")?,
        })
    }

    /// Sets the expiry of the root, and of the certificate that signs.
    pub fn set_expiry(&self, root: SystemTime, chain: SystemTime, now: SystemTime) {
        self.root.set(root, now);
        self.chain.set(chain, now);
    }
}
