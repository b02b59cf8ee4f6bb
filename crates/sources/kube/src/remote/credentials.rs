//! Kubeconfigs for reading a cluster from another one: with the token of a service account and the
//! certificate authority inline, as `istioctl create-remote-secret` writes them.

use crate::client::{Client, of_config, reason};
use crate::request::within;
use crate::service_account_token::request_token;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::config::{Cluster, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Api, Config};
use pilotfish_runtime::{error_chain, read_regular_file};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Timeout of one request.
const ANSWER: Duration = Duration::from_secs(10);
/// Time limit for the token controller to fill a new Secret.
const FILLED: Duration = Duration::from_secs(10);
/// Polling interval while the Secret has no token.
const LOOK: Duration = Duration::from_millis(250);

/// Cluster and service account of the credentials.
#[derive(Clone, Debug)]
pub struct CredentialSettings {
    /// Kubeconfig for connecting to the cluster; by default `$KUBECONFIG` or `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// Context in that kubeconfig; by default the current one.
    pub context: Option<String>,
    /// Id of the cluster, for the names in the new kubeconfig.
    pub cluster: String,
    /// Namespace of the service account.
    pub namespace: String,
    /// Name of the service account.
    pub service_account: String,
    /// Address of the API server in the new kubeconfig; by default that of the old one.
    pub server: Option<String>,
    /// Lifetime of a requested token. Without it, the token of the Secret `SERVICE_ACCOUNT-token` is used,
    /// which does not expire.
    pub expires: Option<Duration>,
}

/// Failure to obtain credentials.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The kubeconfig cannot be used.
    #[error("kubeconfig: {0}")]
    Kubeconfig(String),
    /// A request to the API server failed.
    #[error("{what} in the cluster at {server}: {reason}")]
    Request {
        /// Requested object, for the message.
        what: String,
        /// Address of the API server.
        server: String,
        reason: String,
    },
    /// Neither Secret nor kubeconfig has the certificate authority of the API server.
    #[error("neither the Secret nor the kubeconfig has the certificate authority of {0}")]
    NoAuthority(String),
}

/// Cluster of the kubeconfig, with a client for it.
struct Target {
    client: Client,
    cluster: Cluster,
    server: String,
}

/// Requests the credentials of a service account from a cluster, as a kubeconfig.
///
/// # Errors
/// When the cluster cannot be reached, or has no such account or token.
pub async fn remote_kubeconfig(settings: &CredentialSettings) -> Result<Value, CredentialError> {
    let target = target(settings).await?;
    let (token, authority) = match settings.expires {
        Some(expires) => (requested(settings, &target, expires).await?, None),
        None => stored(settings, &target).await?,
    };
    let authority = match authority {
        Some(authority) => authority,
        None => authority_of(&target.cluster)?
            .ok_or_else(|| CredentialError::NoAuthority(target.server.clone()))?,
    };
    let server = settings.server.as_ref().unwrap_or(&target.server);
    Ok(render(&settings.cluster, server, &target.cluster, &authority, &token))
}

fn render(name: &str, server: &str, known: &Cluster, authority: &str, token: &str) -> Value {
    let mut cluster = json!({"server": server, "certificate-authority-data": authority});
    if let Some(name) = &known.tls_server_name {
        cluster["tls-server-name"] = json!(name);
    }
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "users": [{"name": name, "user": {"token": token}}],
    })
}

async fn target(settings: &CredentialSettings) -> Result<Target, CredentialError> {
    let fail = |error: &dyn std::error::Error| CredentialError::Kubeconfig(error_chain(error));
    let file = match &settings.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let file = file.map_err(|error| unread(settings.kubeconfig.as_deref(), &error))?;
    let name = settings.context.as_ref().or(file.current_context.as_ref()).cloned().unwrap_or_default();
    let context =
        file.contexts.iter().find(|context| context.name == name).and_then(|named| named.context.as_ref());
    let context =
        context.ok_or_else(|| CredentialError::Kubeconfig(format!("there is no context {name:?}")))?;
    let cluster = file.clusters.iter().find(|cluster| cluster.name == context.cluster);
    let cluster = cluster.and_then(|named| named.cluster.clone()).unwrap_or_default();
    let server = cluster.server.clone().unwrap_or_default();
    let options = KubeConfigOptions { context: Some(name), ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(file, &options).await;
    let config = config.map_err(|error| CredentialError::Kubeconfig(reason(&error)))?;
    let client = of_config(config).map_err(|error| fail(&error))?;
    Ok(Target { client, cluster, server })
}

fn unread(path: Option<&Path>, error: &KubeconfigError) -> CredentialError {
    let path = match (path, error) {
        (Some(path), _) => path.display().to_string(),
        (None, KubeconfigError::ReadConfig(_, path)) => path.display().to_string(),
        (None, _) => "$KUBECONFIG or ~/.kube/config".to_owned(),
    };
    CredentialError::Kubeconfig(format!("{path}: {}", reason(error)))
}

/// Size limit of a file with certificate authorities.
const AUTHORITY_BYTES: u64 = 1 << 20;

/// Returns the certificate authority of a kubeconfig in base64.
fn authority_of(cluster: &Cluster) -> Result<Option<String>, CredentialError> {
    if let Some(data) = cluster.certificate_authority_data.clone().filter(|data| !data.is_empty()) {
        return Ok(Some(data));
    }
    let Some(path) = cluster.certificate_authority.as_ref().filter(|path| !path.is_empty()) else {
        return Ok(None);
    };
    let bytes = read_regular_file(Path::new(path), AUTHORITY_BYTES)
        .map_err(|error| CredentialError::Kubeconfig(format!("{path}: {error}")))?;
    Ok(Some(base64(&ByteString(bytes))))
}

/// Encodes bytes in base64, as the Kubernetes API does.
fn base64(bytes: &ByteString) -> String {
    match json!(bytes) {
        Value::String(text) => text,
        _ => String::new(),
    }
}

/// Requests a token with a limited lifetime.
async fn requested(
    settings: &CredentialSettings,
    target: &Target,
    expires: Duration,
) -> Result<String, CredentialError> {
    let CredentialSettings { namespace, service_account, .. } = settings;
    let fail = |reason: String| CredentialError::Request {
        what: format!("a token of the service account {namespace}/{service_account}"),
        server: target.server.clone(),
        reason,
    };
    let answer = request_token(&target.client, namespace, service_account, &[], expires).await;
    answer.map_err(|error| fail(error.to_string()))
}

/// Reads the token of the Secret, and the certificate authority beside it.
async fn stored(
    settings: &CredentialSettings,
    target: &Target,
) -> Result<(String, Option<String>), CredentialError> {
    let name = format!("{}-token", settings.service_account);
    let fail = |reason: String| CredentialError::Request {
        what: format!("the Secret {}/{name}", settings.namespace),
        server: target.server.clone(),
        reason,
    };
    let secrets: Api<Secret> = Api::namespaced(target.client.clone(), &settings.namespace);
    let began = Instant::now();
    loop {
        let secret = within(ANSWER, secrets.get(&name)).await.map_err(|error| fail(error.to_string()))?;
        let mut data = secret.data.unwrap_or_default();
        if let Some(ByteString(token)) = data.remove("token") {
            let token = String::from_utf8(token).map_err(|_| fail("its token is no text".into()))?;
            return Ok((token, data.get("ca.crt").map(base64)));
        }
        if began.elapsed() > FILLED {
            let what = "it has no token yet; the controller-manager of the cluster writes it (`--expires \
                        720h` asks for another)";
            return Err(fail(what.into()));
        }
        // The controller of the cluster fills it a moment after it was made.
        sleep(LOOK).await;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails this way")]
mod tests {
    use super::*;
    use crate::remote::{InsecureOptions, kubeconfig};

    #[test]
    fn what_is_written_is_what_is_read() {
        let known = Cluster { tls_server_name: Some("api".into()), ..Cluster::default() };
        let written = render("west", "https://west:6443", &known, "YQ==", "t");
        let read = kubeconfig::read(written.to_string().as_bytes(), &InsecureOptions::default()).unwrap();
        assert_eq!(read.current_context.as_deref(), Some("west"));
        let cluster = read.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://west:6443"));
        assert_eq!(cluster.tls_server_name.as_deref(), Some("api"));
        assert_eq!(cluster.certificate_authority_data.as_deref(), Some("YQ=="));
    }

    #[test]
    fn the_authority_is_in_the_text_or_in_a_file() {
        let of = |cluster: Cluster| authority_of(&cluster).map_err(|error| error.to_string());
        let data = Cluster { certificate_authority_data: Some("YQ==".into()), ..Cluster::default() };
        assert_eq!(of(data).unwrap().unwrap(), "YQ==");
        let missing = Cluster { certificate_authority: Some("/nowhere/ca".into()), ..Cluster::default() };
        assert!(of(missing).unwrap_err().starts_with("kubeconfig: /nowhere/ca: "));
        assert_eq!(of(Cluster::default()).unwrap(), None);
    }
}
