//! `pilotfish remote-secret`: the Secret that makes a cluster a remote cluster of another one.

use anyhow::{Result, bail};
use clap::Args;
use pilotfish_kube::remote::{CredentialError, CredentialSettings, remote_kubeconfig};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;

/// Prints a Secret with a kubeconfig.
#[derive(Args, Clone, Debug)]
pub struct RemoteSecret {
    /// The id of the cluster: the CLUSTER_ID of its proxies
    #[arg(long, value_name = "ID")]
    name: String,
    /// The kubeconfig with which the cluster is asked [default: $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context in it [default: the current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Address at which Pilotfish reaches the API server [default: that of the kubeconfig]
    #[arg(long, value_name = "https://HOST:PORT")]
    server: Option<String>,
    /// The namespace of the service account there, and of the Secret here
    #[arg(long, value_name = "NS", default_value = "istio-system")]
    namespace: String,
    /// The service account whose token is used
    #[arg(long, value_name = "NAME", default_value = "pilotfish-reader")]
    service_account: String,
    /// A token that ends after this time; give a new one sooner. Without it the token of the Secret
    /// SERVICE-ACCOUNT-token is used, which does not end
    #[arg(long, value_name = "DURATION")]
    expires: Option<String>,
}

impl RemoteSecret {
    /// Reads the credentials from the cluster and writes the Secret to `out`.
    ///
    /// # Errors
    /// When the cluster cannot be reached, or `out` cannot be written.
    pub async fn run(&self, out: &mut impl Write) -> Result<()> {
        self.check()?;
        let expires = match &self.expires {
            Some(text) => match pilotfish_duration::parse(text) {
                Ok(duration) => Some(duration),
                Err(error) => bail!("--expires {text:?}: {error}"),
            },
            None => None,
        };
        let settings = CredentialSettings {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            cluster: self.name.clone(),
            namespace: self.namespace.clone(),
            service_account: self.service_account.clone(),
            server: self.server.clone(),
            expires,
        };
        let kubeconfig = match remote_kubeconfig(&settings).await {
            Ok(kubeconfig) => kubeconfig,
            Err(error) => bail!("{error}\nhint: {}", hint(&error)),
        };
        self.warn(&kubeconfig);
        let secret = self.secret(&serde_saphyr::to_string(&kubeconfig)?);
        writeln!(out, "{}", serde_saphyr::to_string(&secret)?.trim_end())?;
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let is_key = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if self.name.is_empty() || self.name.len() > 200 || !self.name.chars().all(is_key) {
            bail!(
                "--name {:?}: not the id of a cluster: 1 to 200 letters, digits, '-', '_' and '.'",
                self.name
            );
        }
        Ok(())
    }

    /// Warns on stderr of settings that are probably mistakes.
    fn warn(&self, kubeconfig: &Value) {
        let server = kubeconfig["clusters"][0]["cluster"]["server"].as_str().unwrap_or_default();
        let host = server.split("://").nth(1).unwrap_or(server);
        if ["127.", "localhost", "[::1]"].iter().any(|local| host.starts_with(local)) {
            // A closed stderr is ignored.
            let _ = writeln!(
                std::io::stderr(),
                "warning: {server} is this machine; where Pilotfish runs elsewhere, name the API server with \
                 --server"
            );
        }
    }

    fn secret(&self, kubeconfig: &str) -> Value {
        // Ids may have characters that names of objects may not.
        let name: String = self.name.to_ascii_lowercase().replace(['_', '.'], "-");
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": format!("istio-remote-secret-{}", name.trim_matches('-')),
                "namespace": self.namespace,
                "labels": {"istio/multiCluster": "true"},
                "annotations": {"networking.istio.io/cluster": self.name},
            },
            "stringData": {self.name.clone(): kubeconfig},
        })
    }
}

/// Returns advice for an error.
fn hint(error: &CredentialError) -> &'static str {
    match error {
        CredentialError::Kubeconfig(_) => {
            "--kubeconfig names the file and --context the context in it; `kubectl config get-contexts` \
             lists them"
        }
        CredentialError::Request { .. } => {
            "the account is made by: kubectl apply -f deploy/remote-cluster/rbac.yaml"
        }
        CredentialError::NoAuthority(_) => "the kubeconfig needs certificate-authority-data for that cluster",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote_secret(name: &str) -> RemoteSecret {
        RemoteSecret {
            name: name.into(),
            kubeconfig: None,
            context: None,
            server: None,
            namespace: "istio-system".into(),
            service_account: "pilotfish-reader".into(),
            expires: None,
        }
    }

    #[test]
    fn the_hint_is_about_what_is_wrong() {
        assert!(hint(&CredentialError::Kubeconfig("there is no context".into())).contains("--context"));
        let failed = CredentialError::Request {
            what: "the ServiceAccount".into(),
            server: "https://127.0.0.1".into(),
            reason: "not found".into(),
        };
        assert!(hint(&failed).contains("rbac.yaml"));
    }

    #[test]
    fn ids_become_keys_and_names() {
        let secret = remote_secret("West_1.eu").secret("text");
        assert_eq!(secret["metadata"]["name"], "istio-remote-secret-west-1-eu");
        assert_eq!(secret["stringData"]["West_1.eu"], "text");
        assert_eq!(secret["metadata"]["labels"]["istio/multiCluster"], "true");
        assert!(remote_secret("west").check().is_ok());
        for wrong in ["", "a/b", "a b", &"a".repeat(201)] {
            assert!(remote_secret(wrong).check().is_err(), "{wrong}");
        }
    }
}
