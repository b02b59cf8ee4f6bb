//! Client of one cluster's API server.

pub use kube::Client;
use kube::Config;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use pilotfish_runtime::RegularFile;
use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tower::BoxError;
use tower::util::MapErrLayer;

/// Timeout for connecting to an API server.
const CONNECT: Duration = Duration::from_secs(5);

/// Cluster and credentials of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientSettings {
    /// Path of a kubeconfig. By default the service account of the Pod, and outside of Pods `$KUBECONFIG` or
    /// `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
}

/// The cluster cannot be reached with these settings.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig cannot be read.
    #[error("kubeconfig {path}: {}", reason(.error))]
    Kubeconfig { path: String, error: Box<kube::config::KubeconfigError> },
    /// There is neither a kubeconfig nor a service account.
    #[error(
        "no cluster: {}; name one with --kubeconfig FILE, or run in a Pod with a service account",
        no_kubeconfig(.0)
    )]
    NoCluster(Box<kube::config::InferConfigError>),
    /// The settings are not valid for a client.
    #[error("no client for the cluster: {0}")]
    Client(Box<kube::Error>),
}

/// Describes why no kubeconfig is used. A missing service account is not mentioned: outside of Pods that is
/// normal.
fn no_kubeconfig(error: &kube::config::InferConfigError) -> String {
    match error.source().and_then(|cause| cause.downcast_ref()) {
        Some(KubeconfigError::ReadConfig(io, path)) if io.kind() == std::io::ErrorKind::NotFound => {
            format!("there is no kubeconfig {}", path.display())
        }
        Some(KubeconfigError::ReadConfig(io, path)) => format!("kubeconfig {}: {io}", path.display()),
        Some(KubeconfigError::FindPath) => {
            "there is no kubeconfig: neither $KUBECONFIG nor $HOME is set".to_owned()
        }
        Some(other) => format!("kubeconfig: {}", reason(other)),
        None => error.to_string(),
    }
}

/// Describes why a kubeconfig cannot be used, without its path.
pub(crate) fn reason(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(io, _) => io.to_string(),
        KubeconfigError::CurrentContextNotSet => "it has no current context".to_owned(),
        KubeconfigError::LoadContext(name) => format!("it has no context {name:?}"),
        KubeconfigError::LoadClusterOfContext(name) => format!("it has no cluster {name:?}"),
        KubeconfigError::MissingClusterUrl => "its cluster has no server".to_owned(),
        other => other.to_string(),
    }
}

/// Makes a client. Nothing is sent yet.
///
/// # Errors
/// When the settings are wrong.
pub async fn connect(settings: &ClientSettings) -> Result<Client, ClientError> {
    let config = match &settings.kubeconfig {
        Some(path) => from_file(path).await?,
        None => Config::infer().await.map_err(|error| ClientError::NoCluster(Box::new(error)))?,
    };
    of_config(config)
}

/// Makes a client of a configuration, with the timeouts that hold for every cluster.
///
/// # Errors
/// When the configuration is not valid for a client.
pub fn of_config(mut config: Config) -> Result<Client, ClientError> {
    config.connect_timeout = Some(CONNECT);
    // Watches may be silent for minutes and have their own timeout.
    config.read_timeout = None;
    // Callers decide when to retry, and report the failure. The client's own retries would hide it: 15 of
    // them, over minutes, and for as long as `Retry-After` demands.
    config.default_retry = false;
    let url = config.cluster_url.to_string();
    let url = url.trim_end_matches('/').to_owned();
    let builder = ClientBuilder::try_from(config).map_err(|error| ClientError::Client(Box::new(error)))?;
    let named = MapErrLayer::new(move |error: BoxError| NoAnswer { url: url.clone(), error });
    Ok(builder.with_layer(&named).build())
}

/// Failure to get an answer, with the server's URL: with several clusters, "connection refused" alone does
/// not name the server.
#[derive(Debug)]
struct NoAnswer {
    url: String,
    error: BoxError,
}

impl fmt::Display for NoAnswer {
    /// Writes URL and root cause, without the messages of the client's layers ("client error (Connect)").
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cause: &dyn Error = &*self.error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        write!(f, "{}: {cause}", self.url)
    }
}

impl Error for NoAnswer {}

/// Makes a client for a command-line tool, of a kubeconfig (by default `$KUBECONFIG` or `~/.kube/config`) and
/// a context in it (by default the current one). Nothing is sent yet.
///
/// # Errors
/// When the settings are wrong.
pub async fn of_context(path: Option<&Path>, context: Option<&str>) -> Result<Client, ClientError> {
    let shown =
        || path.map_or_else(|| "$KUBECONFIG or ~/.kube/config".to_owned(), |path| path.display().to_string());
    let fail = |error| ClientError::Kubeconfig { path: shown(), error: Box::new(error) };
    if path.is_none() && context.is_none() {
        return connect(&ClientSettings::default()).await;
    }
    let file = path.map_or_else(Kubeconfig::read, Kubeconfig::read_from).map_err(fail)?;
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    of_config(Config::from_custom_kubeconfig(file, &options).await.map_err(fail)?)
}

async fn from_file(path: &Path) -> Result<Config, ClientError> {
    let fail = |error| ClientError::Kubeconfig { path: path.display().to_string(), error: Box::new(error) };
    let opened =
        RegularFile::open(path).map_err(|error| KubeconfigError::ReadConfig(error.into(), path.to_owned()));
    opened.map_err(fail)?;
    let file = Kubeconfig::read_from(path).map_err(fail)?;
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::RequestError;

    #[tokio::test]
    async fn a_kubeconfig_that_cannot_be_used_is_named_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        for (content, reason) in [
            (None, "No such file or directory (os error 2)"),
            (Some("{}"), "it has no current context"),
            (Some("current-context: c"), "it has no context \"c\""),
            (
                Some("{current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}]}"),
                "it has no cluster \"k\"",
            ),
        ] {
            if let Some(content) = content {
                std::fs::write(&file, content).unwrap();
            }
            let expected = format!("kubeconfig {}: {reason}", file.display());
            let Err(error) = of_context(Some(&file), None).await else { panic!("{reason}") };
            assert_eq!(error.to_string(), expected);
            let settings = ClientSettings { kubeconfig: Some(file.clone()) };
            let Err(error) = connect(&settings).await else { panic!("{reason}") };
            assert_eq!(error.to_string(), expected);
        }
    }

    #[tokio::test]
    async fn a_server_that_is_down_is_named() {
        // Nothing listens on the port of a listener that is gone.
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let client = of_config(Config::new(format!("http://{gone}/").parse().unwrap())).unwrap();
        let error = RequestError::from(client.apiserver_version().await.unwrap_err());
        let message = error.to_string();
        assert!(message.starts_with(&format!("http://{gone}: ")), "{message}");
        assert!(message.contains("refused") && !message.contains("client error"), "{message}");
        assert!(error.class.is_transient());
    }
}
