//! The certificate authority of the mesh.

use super::check::Check;
use super::parse;
use clap::Args;
use pilotfish_ca::Lifetimes;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

const CA: &str = "--ca";
const SIGNER: &str = "--ca-signer";
const SIGNER_ROOTS: &str = "--ca-signer-roots";

#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[command(next_help_heading = "Certificate authority")]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct CaArgs {
    /// Signs workload certificates for Istio's agents on --secure-xds-address: with a root that Pilotfish
    /// creates and keeps in --data-dir (self-signed), with the Secret `cacerts` of the root namespace, or
    /// else `istio-ca-secret`, created if it is missing (secret), or with the key and certificates in a
    /// folder: ca-cert.pem, ca-key.pem, cert-chain.pem and root-cert.pem, or tls.crt, tls.key and ca.crt.
    /// Folder and Secrets are reloaded on change [default: off]
    #[arg(long, env = "PILOTFISH_CA", value_name = "off|self-signed|secret|files=DIR")]
    pub(crate) ca: Option<String>,
    /// Has workload certificates signed by a signer of the cluster, in place of --ca: the signerName of
    /// CertificateSigningRequests, as clusterissuers.cert-manager.io/mesh. Needs --kubernetes
    #[arg(long, env = "PILOTFISH_CA_SIGNER", value_name = "NAME")]
    pub(crate) ca_signer: Option<String>,
    /// Roots of that signer in PEM, which its certificates are checked against and clients trust; reloaded on
    /// change
    #[arg(long, env = "PILOTFISH_CA_SIGNER_ROOTS", value_name = "FILE")]
    pub(crate) ca_signer_roots: Option<PathBuf>,
    /// Validity of workload certificates where the client requests none [default: 24h]
    #[arg(long, env = "PILOTFISH_WORKLOAD_CERT_TTL", value_name = "DURATION")]
    pub(crate) workload_cert_ttl: Option<String>,
    /// Longest validity of workload certificates that a client may request [default: 2160h]
    #[arg(long, env = "PILOTFISH_MAX_WORKLOAD_CERT_TTL", value_name = "DURATION")]
    pub(crate) max_workload_cert_ttl: Option<String>,
}

/// The certificate authority of the mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CaSettings {
    pub(crate) source: CaSource,
    pub(crate) lifetimes: Lifetimes,
}

/// Source of the authority's key and certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CaSource {
    /// Created on first start and kept in this folder.
    SelfSigned(PathBuf),
    /// Files in this folder.
    Files(PathBuf),
    /// The Secret `cacerts` of the root namespace, or else `istio-ca-secret`, created if it is missing.
    Secret,
    /// A signer of the cluster.
    Signer {
        name: String,
        /// File with its roots.
        roots: PathBuf,
    },
}

impl CaArgs {
    /// True if there is an authority.
    pub(super) fn is_wanted(&self) -> bool {
        self.signs_own() || self.ca_signer.is_some()
    }

    /// True if this process has the key, and signs its own certificate.
    pub(super) fn signs_own(&self) -> bool {
        self.ca.as_deref().is_some_and(|text| text != "off")
    }

    /// True if the authority is kept below `--data-dir`.
    pub(super) fn is_kept(&self) -> bool {
        self.ca.as_deref() == Some("self-signed")
    }

    /// `None` where the authority is off, or something is wrong with it. `data` is the folder of
    /// `--data-dir`.
    pub(super) fn check(
        self,
        has_tls: bool,
        reads_cluster: bool,
        data: Option<PathBuf>,
        check: &mut Check,
    ) -> Option<CaSettings> {
        if !self.is_wanted() {
            let ttls = [
                ("--workload-cert-ttl", &self.workload_cert_ttl),
                ("--max-workload-cert-ttl", &self.max_workload_cert_ttl),
            ];
            if let Some(roots) = &self.ca_signer_roots {
                check.wrong(SIGNER_ROOTS, &roots.to_string_lossy(), "there is no --ca-signer");
            }
            for (flag, text) in ttls.into_iter().filter_map(|(flag, text)| Some((flag, text.as_ref()?))) {
                check.wrong(flag, text, "there is no certificate authority without --ca");
            }
            return None;
        }
        let lifetimes = self.lifetimes(check);
        let (flag, text) = match (&self.ca_signer, &self.ca) {
            (Some(name), _) => (SIGNER, name),
            (None, Some(text)) => (CA, text),
            (None, None) => return None,
        };
        if !has_tls {
            check.wrong(flag, text, "it needs --secure-xds-address, where certificates are requested");
        }
        let source = match &self.ca_signer {
            Some(name) => self.signer(name, reads_cluster, check)?,
            None => source(text, reads_cluster, data, check)?,
        };
        Some(CaSettings { source, lifetimes })
    }

    fn signer(&self, name: &str, reads_cluster: bool, check: &mut Check) -> Option<CaSource> {
        if self.signs_own() {
            check.wrong(SIGNER, name, "either --ca signs, or a signer");
        }
        if !reads_cluster {
            check.wrong(SIGNER, name, "without --kubernetes there is no cluster with the signer");
        }
        if name.split_once('/').is_none_or(|(domain, name)| !domain.contains('.') || name.is_empty()) {
            check.wrong(SIGNER, name, "not DOMAIN/NAME, as in clusterissuers.cert-manager.io/mesh");
        }
        let Some(roots) = self.ca_signer_roots.clone() else {
            check.wrong(SIGNER, name, "it needs --ca-signer-roots: certificates are checked against them");
            return None;
        };
        check.exists(SIGNER_ROOTS, &roots);
        Some(CaSource::Signer { name: name.to_owned(), roots })
    }

    fn lifetimes(&self, check: &mut Check) -> Lifetimes {
        let mut lifetimes = Lifetimes::default();
        let mut read = |flag: &str, text: &Option<String>, value: &mut std::time::Duration| {
            let parsed = check.parse(flag, text.as_deref(), |text| match parse::duration(text)? {
                short if short.as_secs() < 60 => Err("not a duration of at least 1m, as in 24h".into()),
                enough => Ok(enough),
            });
            *value = parsed.unwrap_or(*value);
        };
        read("--max-workload-cert-ttl", &self.max_workload_cert_ttl, &mut lifetimes.max);
        read("--workload-cert-ttl", &self.workload_cert_ttl, &mut lifetimes.default);
        if lifetimes.default > lifetimes.max {
            check.mistake("--workload-cert-ttl: it is longer than --max-workload-cert-ttl");
        }
        lifetimes
    }
}

/// Returns the source that `--ca` names; `None` if it is wrong.
fn source(text: &str, reads_cluster: bool, data: Option<PathBuf>, check: &mut Check) -> Option<CaSource> {
    if let Some(folder) = text.strip_prefix("files=") {
        if let Err(error) = std::fs::metadata(folder) {
            check.wrong(CA, text, &error.to_string());
        }
        return Some(CaSource::Files(folder.into()));
    }
    match text {
        "self-signed" => {
            if data.is_none() {
                check.mistake(
                    "--data-dir: name a folder for the certificate authority; there is no home folder",
                );
            }
            Some(CaSource::SelfSigned(data?))
        }
        "secret" => {
            if !reads_cluster {
                check.wrong(CA, text, "without --kubernetes there is no cluster with the Secret");
            }
            Some(CaSource::Secret)
        }
        _ => {
            check.wrong(CA, text, "neither off, self-signed, secret nor files=DIR");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{RegistrationArgs, ServeArgs, SourceArgs, TlsArgs};
    use super::*;
    use pilotfish_registry::RegistryTable;
    use std::time::Duration;

    fn check(ca: CaArgs, address: Option<&str>) -> Result<Option<CaSettings>, String> {
        let args = ServeArgs {
            ca,
            sources: SourceArgs { paths: vec![".".into()], ..SourceArgs::default() },
            registration: RegistrationArgs { data_dir: Some("data".into()), ..RegistrationArgs::default() },
            tls: TlsArgs {
                secure_xds_address: address.map(str::to_owned),
                ca_cert_files: address.map(|_| "Cargo.toml".into()).into_iter().collect(),
                ..TlsArgs::default()
            },
            ..ServeArgs::default()
        };
        args.check(RegistryTable::default()).map(|all| all.ca).map_err(|mistakes| mistakes.to_string())
    }

    fn on(text: &str) -> CaArgs {
        CaArgs { ca: Some(text.into()), ..CaArgs::default() }
    }

    const SECURE: Option<&str> = Some("127.0.0.1:0");

    #[test]
    fn one_flag_is_all_that_an_authority_needs() {
        assert_eq!(check(CaArgs::default(), None).unwrap(), None);
        assert_eq!(check(on("off"), None).unwrap(), None);
        let settings = check(on("self-signed"), SECURE).unwrap().unwrap();
        assert_eq!(settings.source, CaSource::SelfSigned("data".into()));
        assert_eq!(settings.lifetimes, Lifetimes::default());
        let settings = check(on("files=src"), SECURE).unwrap().unwrap();
        assert_eq!(settings.source, CaSource::Files("src".into()));
    }

    #[test]
    fn lifetimes_have_settings() {
        let ttl = |default: &str, max: &str| {
            let ttls = (Some(default.to_owned()), Some(max.to_owned()));
            check(
                CaArgs { workload_cert_ttl: ttls.0, max_workload_cert_ttl: ttls.1, ..on("self-signed") },
                SECURE,
            )
        };
        let hours = |n: u64| Duration::from_secs(n * 3600);
        let settings = ttl("1h", "2h").unwrap().unwrap();
        assert_eq!(settings.lifetimes, Lifetimes { default: hours(1), max: hours(2) });
        for (default, max, expected) in [
            ("3h", "2h", "longer than --max-workload-cert-ttl"),
            ("0s", "2h", "--workload-cert-ttl \"0s\""),
            ("1h", "soon", "--max-workload-cert-ttl \"soon\""),
        ] {
            let error = ttl(default, max).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn signer_needs_a_cluster_and_its_roots() {
        let with = |name: &str, roots: Option<&str>, ca: Option<&str>| CaArgs {
            ca: ca.map(str::to_owned),
            ca_signer: Some(name.into()),
            ca_signer_roots: roots.map(PathBuf::from),
            ..CaArgs::default()
        };
        let good = "clusterissuers.cert-manager.io/mesh";
        let file = Some("Cargo.toml");
        for (args, expected) in [
            (with(good, file, None), "without --kubernetes there is no cluster with the signer"),
            (with(good, None, None), "it needs --ca-signer-roots"),
            (with(good, Some("nowhere"), None), "--ca-signer-roots \"nowhere\""),
            (with(good, file, Some("self-signed")), "either --ca signs, or a signer"),
            (with("mesh", file, None), "not DOMAIN/NAME"),
            (CaArgs { ca_signer: None, ..with(good, file, None) }, "there is no --ca-signer"),
        ] {
            let error = check(args, SECURE).unwrap_err();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        let unused = CaArgs { workload_cert_ttl: Some("1h".into()), ..CaArgs::default() };
        for (args, address, expected) in [
            (on("self-signed"), None, "--ca \"self-signed\": it needs --secure-xds-address"),
            (on("vault"), SECURE, "--ca \"vault\": neither off, self-signed, secret nor files=DIR"),
            (on("secret"), SECURE, "--ca \"secret\": without --kubernetes there is no cluster"),
            (on("files=nowhere"), SECURE, "--ca \"files=nowhere\": No such file"),
            (unused, None, "there is no certificate authority without --ca"),
        ] {
            let error = check(args, address).unwrap_err();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}
