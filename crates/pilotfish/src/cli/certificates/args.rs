//! Flags of `pilotfish certificates`.

use super::client::{AuthorityClient, Proof};
use anyhow::{Result, bail};
use clap::Args;
use pilotfish_cli::parse_duration;
use pilotfish_connect::{Scheme, Target};
use pilotfish_identity::WorkloadId;
use std::path::PathBuf;
use std::time::Duration;

const SCHEMES: &[Scheme] = &[Scheme { name: "https", port: 15012, is_tls: true }];

/// Obtains the certificate of a workload, and renews it.
#[derive(Args, Clone, Debug)]
pub(crate) struct Certificates {
    /// Folder for cert-chain.pem, key.pem and root-cert.pem; created if it is missing
    #[arg(long, value_name = "DIR")]
    pub(super) output_dir: PathBuf,
    /// Secure xDS port of Pilotfish (with --ca) or istiod; several, with commas, are tried in turn
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:15012")]
    pub(super) xds_address: String,
    /// The authorities of its certificate in PEM [default: those of the system]
    #[arg(long, value_name = "FILE", visible_alias = "root-file")]
    pub(super) xds_ca_file: Option<PathBuf>,
    /// The token that proves the identity, as that of a service account; read again for each request
    #[arg(long, value_name = "FILE", visible_alias = "token-file")]
    pub(super) xds_token_file: Option<PathBuf>,
    /// Or the certificate that proves it. With a token as well, the certificate counts once its file exists:
    /// with that of --output-dir, only the first request needs a token
    #[arg(long, value_name = "FILE", requires = "xds_key_file")]
    pub(super) xds_cert_file: Option<PathBuf>,
    /// Its key in PEM
    #[arg(long, value_name = "FILE", requires = "xds_cert_file")]
    pub(super) xds_key_file: Option<PathBuf>,
    /// Cluster whose API server checks the token
    #[arg(long, default_value = "Kubernetes")]
    pub(super) cluster_id: String,
    /// The identity that the certificate has to have, spiffe://DOMAIN/ns/NAMESPACE/sa/ACCOUNT [default: the
    /// one that is proven]
    #[arg(long, value_name = "ID")]
    pub(super) identity: Option<String>,
    /// The requested validity [default: the server's]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(super) ttl: Option<Duration>,
    /// Obtains one certificate and ends
    #[arg(long)]
    pub(super) once: bool,
}

impl Certificates {
    /// Returns the client for the authority.
    ///
    /// # Errors
    /// When a flag cannot be used.
    pub(super) fn client(&self) -> Result<AuthorityClient> {
        let target = Target::parse(&self.xds_address, SCHEMES);
        let target = target.map_err(|reason| anyhow::anyhow!("--xds-address: {reason}"))?;
        if !target.path.is_empty() {
            bail!("--xds-address {:?}: not HOST:PORT", self.xds_address);
        }
        let certificate = self.xds_cert_file.clone().zip(self.xds_key_file.clone());
        if certificate.is_none() && self.xds_token_file.is_none() {
            bail!("name a proof of the identity: --xds-token-file, or --xds-cert-file and --xds-key-file");
        }
        if let Some(identity) = &self.identity
            && WorkloadId::parse(identity).is_none()
        {
            bail!("--identity {identity:?}: not spiffe://DOMAIN/ns/NAMESPACE/sa/ACCOUNT");
        }
        let seconds = self.ttl.map_or(0, |ttl| i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX));
        if self.ttl.is_some() && seconds == 0 {
            bail!("--ttl: it is shorter than a second");
        }
        Ok(AuthorityClient {
            servers: target.servers,
            ca: self.xds_ca_file.clone(),
            proof: Proof { token: self.xds_token_file.clone(), certificate },
            cluster: self.cluster_id.clone(),
            identity: self.identity.clone(),
            seconds,
        })
    }
}
