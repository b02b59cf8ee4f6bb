//! Ways to a control plane: by TCP, or through the API server of a cluster.

use crate::error::CliError;
use clap::Args;
use std::fmt::Debug;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A connection.
pub trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// A connection that is being made.
pub type Dialing<'a> = Pin<Box<dyn Future<Output = Result<Box<dyn Socket>, CliError>> + Send + 'a>>;

/// A way to a control plane.
pub trait Dial: Debug + Send + Sync {
    /// Makes a connection. The caller has a deadline.
    ///
    /// # Errors
    /// When there is none, with what to do about it.
    fn dial(&self) -> Dialing<'_>;

    /// What is at the other end, for errors: `127.0.0.1:15014`.
    fn name(&self) -> String;

    /// The `Host` of requests: the admin server expects one that leads to itself.
    fn host(&self) -> String;
}

/// By TCP.
#[derive(Debug)]
pub(crate) struct Tcp(String);

impl Tcp {
    /// To `HOST:PORT`, which may be written as a URL.
    pub(crate) fn to(address: &str) -> Arc<dyn Dial> {
        let address = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
        Arc::new(Self(address.to_owned()))
    }
}

impl Dial for Tcp {
    fn dial(&self) -> Dialing<'_> {
        Box::pin(async move {
            let stream = TcpStream::connect(&self.0).await.map_err(|error| {
                CliError::new(format!("cannot connect to {}: {error}", self.0)).hint(
                    "is `pilotfish serve` running there? --kube asks the one in the cluster of your kubeconfig",
                )
            })?;
            Ok(Box::new(stream) as Box<dyn Socket>)
        })
    }

    fn name(&self) -> String {
        self.0.clone()
    }

    fn host(&self) -> String {
        self.0.clone()
    }
}

/// The flags by which a Pod of a cluster is asked, in the place of an address.
#[derive(Args, Clone, Debug, Default)]
pub struct InCluster {
    /// Asks a Pod of Pilotfish in the cluster of the kubeconfig, through its API server
    #[arg(long)]
    pub kube: bool,
    /// The kubeconfig; implies --kube [default: $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context in it; implies --kube [default: the current one]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// The namespace of Pilotfish in the cluster; implies --kube [default: istio-system]
    #[arg(long, value_name = "NAMESPACE")]
    pub pilotfish_namespace: Option<String>,
    /// The Pod, where Pilotfish has several; implies --kube [default: the first that is ready]
    #[arg(long, value_name = "NAME")]
    pub pod: Option<String>,
}

impl InCluster {
    /// Whether a cluster is meant.
    fn is_meant(&self) -> bool {
        self.kube
            || self.kubeconfig.is_some()
            || self.context.is_some()
            || self.pilotfish_namespace.is_some()
            || self.pod.is_some()
    }

    /// The way there, where a cluster is meant.
    pub(crate) fn dial(&self) -> Option<Arc<dyn Dial>> {
        if !self.is_meant() {
            return None;
        }
        Some(CLUSTERS.get().map_or_else(|| Arc::new(Nowhere) as Arc<dyn Dial>, |clusters| clusters(self)))
    }
}

/// The way into a cluster.
type Reach = fn(&InCluster) -> Arc<dyn Dial>;

/// How clusters are reached: this crate has no client of Kubernetes. Set once, as what a program is made of does not change.
static CLUSTERS: OnceLock<Reach> = OnceLock::new();

/// Says how clusters are reached, once, before commands run.
pub fn reach_clusters_by(clusters: fn(&InCluster) -> Arc<dyn Dial>) {
    // A second call would say the same.
    let _ = CLUSTERS.set(clusters);
}

/// Clusters of a program without a client of Kubernetes.
#[derive(Debug)]
struct Nowhere;

impl Dial for Nowhere {
    fn dial(&self) -> Dialing<'_> {
        let error = CliError::new("this program has no client of Kubernetes")
            .hint("kubectl port-forward, and --admin-address 127.0.0.1:15014");
        Box::pin(std::future::ready(Err(error)))
    }

    fn name(&self) -> String {
        "the cluster".to_owned()
    }

    fn host(&self) -> String {
        "localhost".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        cluster: InCluster,
    }

    #[test]
    fn any_flag_of_a_cluster_means_one() {
        let is_meant = |words: &[&str]| {
            Line::parse_from([&["pilotfish"], words].concat()).cluster.dial().map(|dial| dial.name())
        };
        assert_eq!(is_meant(&[]), None);
        for words in [
            &["--kube"][..],
            &["--kubeconfig", "f"],
            &["--context", "c"],
            &["--pilotfish-namespace", "n"],
            &["--pod", "p"],
        ] {
            assert!(is_meant(words).is_some(), "{words:?}");
        }
    }
}
