//! xDS over TLS, and who its clients are.

use super::check::Check;
use super::parse;
use clap::Args;
use pilotfish_node::injection::AUDIENCE;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[command(next_help_heading = "xDS over TLS")]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct TlsArgs {
    /// Listen address of xDS with TLS, usually on port 15012, where proxies authenticate by a certificate or
    /// a token of their service account; without it there is no such port
    #[arg(long, env = "PILOTFISH_SECURE_XDS_ADDRESS", value_name = "HOST:PORT")]
    pub(crate) secure_xds_address: Option<String>,
    /// The certificate of that address, a chain in PEM; reloaded on change [default: one that --ca
    /// signs, else that of the webhooks]
    #[arg(long, env = "PILOTFISH_TLS_CERT_FILE", value_name = "FILE")]
    pub(crate) tls_cert_file: Option<PathBuf>,
    /// Its key in PEM; reloaded on change
    #[arg(long, env = "PILOTFISH_TLS_KEY_FILE", value_name = "FILE")]
    pub(crate) tls_key_file: Option<PathBuf>,
    /// CAs of proxies' certificates in PEM, reloaded on change; may repeat. Pilotfish trusts the SPIFFE ID in
    /// any certificate that these CAs issued
    #[arg(long = "ca-cert-file", env = "PILOTFISH_CA_CERT_FILE", value_name = "FILE", value_delimiter = ',')]
    pub(crate) ca_cert_files: Vec<PathBuf>,
    /// Audiences for tokens of proxies: a token must have one of them; needs --kubernetes [default: istio-ca]
    #[arg(long, env = "PILOTFISH_TOKEN_AUDIENCES", value_name = "AUDIENCE", value_delimiter = ',')]
    pub(crate) token_audiences: Vec<String>,
    /// Issuers of JWTs (YAML) that proxies, clients of registration, and of the admin API with --admin-rules,
    /// prove their identity by: audiences, keys, and the claims that are namespace and service account;
    /// reloaded on change
    #[arg(long, env = "PILOTFISH_JWT_RULES", value_name = "FILE")]
    pub(crate) jwt_rules: Option<PathBuf>,
}

/// Listener for xDS with TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsSettings {
    pub(crate) address: SocketAddr,
    /// The certificate that the server shows.
    pub(crate) certificate: CertificateSource,
    /// Files with the CAs of proxies' certificates.
    pub(crate) authorities: Vec<PathBuf>,
    /// Audiences of which proxies' tokens must have one.
    pub(crate) audiences: Vec<String>,
}

/// Source of a server's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CertificateSource {
    /// Files, reloaded on change.
    Files {
        /// File with the certificate chain in PEM.
        certificate: PathBuf,
        key: PathBuf,
    },
    /// The one that the webhooks keep for themselves.
    Webhooks,
    /// Certificate signed by Pilotfish's own certificate authority.
    Authority,
}

impl TlsArgs {
    /// `None` where TLS is not asked for, or is asked for without a certificate.
    pub(super) fn check(
        self,
        reads_cluster: bool,
        kept: Option<CertificateSource>,
        check: &mut Check,
    ) -> Option<TlsSettings> {
        const ADDRESS: &str = "--secure-xds-address";
        let files = [("--tls-cert-file", &self.tls_cert_file), ("--tls-key-file", &self.tls_key_file)];
        let authorities = self.ca_cert_files.iter().map(|path| ("--ca-cert-file", path));
        let named = files.iter().filter_map(|(flag, path)| Some((*flag, path.as_ref()?))).chain(authorities);
        let Some(address) = &self.secure_xds_address else {
            for (flag, path) in named {
                check.wrong(flag, &path.to_string_lossy(), "there is no TLS without --secure-xds-address");
            }
            return None;
        };
        for (flag, path) in named {
            check.exists(flag, path);
        }
        let certificate = self.certificate(address, kept, check);
        if self.ca_cert_files.is_empty() && !reads_cluster && self.jwt_rules.is_none() {
            let why = "it needs --ca-cert-file (client certificates), --kubernetes or --jwt-rules (tokens)";
            check.wrong(ADDRESS, address, why);
        }
        let address = check.parse(ADDRESS, Some(address), parse::address);
        let (certificate, address) = (certificate?, address?);
        let mut audiences = self.token_audiences;
        if audiences.is_empty() {
            audiences.push(AUDIENCE.to_owned());
        }
        Some(TlsSettings { address, certificate, authorities: self.ca_cert_files, audiences })
    }

    /// Returns the files that are named, else the certificate that Pilotfish keeps.
    fn certificate(
        &self,
        address: &str,
        kept: Option<CertificateSource>,
        check: &mut Check,
    ) -> Option<CertificateSource> {
        let certificate = ("--tls-cert-file", self.tls_cert_file.as_deref());
        let named = check.certificate(certificate, ("--tls-key-file", self.tls_key_file.as_deref())).ok()?;
        let certificate = named.or(kept);
        if certificate.is_none() {
            let why = "it needs --tls-cert-file and --tls-key-file, or --ca or --webhook-address, \
                which keep a certificate";
            check.wrong("--secure-xds-address", address, why);
        }
        certificate
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ServeArgs, SourceArgs, WebhookArgs};
    use super::*;
    use pilotfish_registry::RegistryTable;

    /// An existing file.
    fn some_file() -> Option<PathBuf> {
        Some("Cargo.toml".into())
    }

    fn given() -> TlsArgs {
        TlsArgs {
            secure_xds_address: Some("127.0.0.1:0".into()),
            tls_cert_file: some_file(),
            tls_key_file: some_file(),
            ca_cert_files: some_file().into_iter().collect(),
            ..TlsArgs::default()
        }
    }

    fn args(tls: TlsArgs) -> ServeArgs {
        let sources = SourceArgs { paths: vec![".".into()], ..SourceArgs::default() };
        ServeArgs { tls, sources, ..ServeArgs::default() }
    }

    #[test]
    fn tls_needs_a_certificate_and_a_way_to_authenticate_clients() {
        let tls = args(given()).check(RegistryTable::default()).unwrap().tls.unwrap();
        assert_eq!(tls.audiences, ["istio-ca"]);
        let kept = ServeArgs {
            sources: SourceArgs { kubernetes: true, ..SourceArgs::default() },
            webhooks: WebhookArgs { webhook_address: Some("127.0.0.1:0".into()), ..WebhookArgs::default() },
            ..args(TlsArgs {
                tls_cert_file: None,
                tls_key_file: None,
                ca_cert_files: Vec::new(),
                token_audiences: vec!["a".into(), "b".into()],
                ..given()
            })
        };
        let tls = kept.check(RegistryTable::default()).unwrap().tls.unwrap();
        assert_eq!((tls.certificate, tls.audiences.len()), (CertificateSource::Webhooks, 2));
        for (wrong, expected) in [
            (TlsArgs { tls_key_file: None, ..given() }, "it needs --tls-key-file"),
            (TlsArgs { tls_cert_file: None, ..given() }, "it needs --tls-cert-file"),
            (TlsArgs { tls_cert_file: None, tls_key_file: None, ..given() }, "it needs --tls-cert-file"),
            (TlsArgs { ca_cert_files: Vec::new(), ..given() }, "it needs --ca-cert-file"),
            (
                TlsArgs { ca_cert_files: vec!["nowhere.pem".into()], ..given() },
                "--ca-cert-file \"nowhere.pem\"",
            ),
            (TlsArgs { secure_xds_address: Some("nowhere".into()), ..given() }, "not HOST:PORT"),
        ] {
            let mistakes = args(wrong).check(RegistryTable::default()).unwrap_err();
            assert_eq!(mistakes.lines.len(), 1, "{mistakes}");
            assert!(mistakes.lines[0].contains(expected), "{mistakes}");
        }
        let nothing = TlsArgs { secure_xds_address: Some("nowhere".into()), ..TlsArgs::default() };
        let all = args(nothing).check(RegistryTable::default()).unwrap_err();
        for (line, expected) in all.lines.iter().zip(["--tls-cert-file", "--ca-cert-file", "not HOST:PORT"]) {
            assert!(line.contains(expected), "{all}");
        }
        assert_eq!(all.lines.len(), 3, "all at once: {all}");
        let without = TlsArgs { secure_xds_address: None, ..given() };
        assert_eq!(
            args(without).check(RegistryTable::default()).unwrap_err().lines.len(),
            3,
            "each of the files is reported"
        );
    }
}
