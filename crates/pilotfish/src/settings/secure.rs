//! What was written of xDS over TLS.

use super::{Check, Written};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The audience of the tokens that Istio's agents and injected sidecars have.
pub(crate) const AUDIENCE: &str = "istio-ca";

/// How proxies connect over TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecureSettings {
    /// Where.
    pub address: SocketAddr,
    /// The certificate that is shown.
    pub certificate: CertificateSource,
    /// Files with the authorities of proxies' certificates.
    pub authorities: Vec<PathBuf>,
    /// Whom proxies' tokens must be for.
    pub audiences: Vec<String>,
}

/// Where a server's certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// Files, read again when they change.
    Files {
        /// The chain.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
    },
    /// The one that the webhooks keep for themselves.
    Webhooks,
}

impl Check {
    /// xDS over TLS, where it is asked for.
    pub(super) fn secure(&mut self, written: &Written) -> Option<SecureSettings> {
        let files = [("--tls-cert-file", &written.tls_cert_file), ("--tls-key-file", &written.tls_key_file)];
        let authorities = written.ca_cert_files.iter().map(|path| ("--ca-cert-file", path));
        let named = files.iter().filter_map(|(name, path)| Some((*name, path.as_ref()?))).chain(authorities);
        let Some(address) = &written.secure_xds_address else {
            for (name, path) in named {
                self.wrong(name, &path.to_string_lossy(), "there is no TLS without --secure-xds-address");
            }
            return None;
        };
        for (name, path) in named {
            self.exists(name, path);
        }
        let certificate = self.certificate(written, address)?;
        let mut audiences = written.token_audiences.clone();
        if audiences.is_empty() {
            audiences.push(AUDIENCE.to_owned());
        }
        if written.ca_cert_files.is_empty() && !written.kubernetes {
            let hint = "nobody could prove who he is: name the authorities of proxies' certificates with --ca-cert-file, or a \
                        cluster that knows their tokens with --kubernetes";
            self.wrong("--secure-xds-address", address, hint);
        }
        Some(SecureSettings {
            address: self.address("--secure-xds-address", Some(address.clone()), ""),
            certificate,
            authorities: written.ca_cert_files.clone(),
            audiences,
        })
    }

    fn certificate(&mut self, written: &Written, address: &str) -> Option<CertificateSource> {
        match (&written.tls_cert_file, &written.tls_key_file) {
            (Some(certificate), Some(key)) => {
                Some(CertificateSource::Files { certificate: certificate.clone(), key: key.clone() })
            }
            (None, None) if written.webhook_address.is_some() => Some(CertificateSource::Webhooks),
            (None, None) => {
                let hint = "there is no certificate to show: name --tls-cert-file and --tls-key-file, or --webhook-address, which \
                            keeps a certificate";
                self.wrong("--secure-xds-address", address, hint);
                None
            }
            (Some(certificate), None) => {
                self.wrong("--tls-cert-file", &certificate.to_string_lossy(), "and where is --tls-key-file?");
                None
            }
            (None, Some(key)) => {
                self.wrong("--tls-key-file", &key.to_string_lossy(), "and where is --tls-cert-file?");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An existing file.
    fn some_file() -> Option<PathBuf> {
        Some("Cargo.toml".into())
    }

    fn written() -> Written {
        Written {
            paths: vec![".".into()],
            secure_xds_address: Some("127.0.0.1:0".into()),
            tls_cert_file: some_file(),
            tls_key_file: some_file(),
            ca_cert_files: some_file().into_iter().collect(),
            ..Written::default()
        }
    }

    #[test]
    fn tls_needs_a_certificate_and_somebody_who_can_prove_himself() {
        let secure = written().check().unwrap().secure.unwrap();
        assert_eq!(secure.audiences, ["istio-ca"]);
        let kept = Written {
            kubernetes: true,
            webhook_address: Some("127.0.0.1:0".into()),
            tls_cert_file: None,
            tls_key_file: None,
            ca_cert_files: Vec::new(),
            token_audiences: vec!["a".into(), "b".into()],
            ..written()
        };
        let secure = kept.check().unwrap().secure.unwrap();
        assert_eq!((secure.certificate, secure.audiences.len()), (CertificateSource::Webhooks, 2));
        for (wrong, told) in [
            (Written { tls_key_file: None, ..written() }, "where is --tls-key-file"),
            (Written { tls_cert_file: None, ..written() }, "where is --tls-cert-file"),
            (Written { tls_cert_file: None, tls_key_file: None, ..written() }, "no certificate to show"),
            (Written { ca_cert_files: Vec::new(), ..written() }, "nobody could prove"),
            (
                Written { ca_cert_files: vec!["nowhere.pem".into()], ..written() },
                "--ca-cert-file \"nowhere.pem\"",
            ),
            (Written { secure_xds_address: Some("nowhere".into()), ..written() }, "not HOST:PORT"),
        ] {
            let mistakes = wrong.check().unwrap_err();
            assert_eq!(mistakes.0.len(), 1, "{mistakes}");
            assert!(mistakes.0[0].contains(told), "{mistakes}");
        }
        let without = Written { secure_xds_address: None, ..written() };
        assert_eq!(without.check().unwrap_err().0.len(), 3, "each of the files is told");
    }
}
