//! Connections to a control plane: by TCP, or through the API server of a cluster.

use crate::error::CliError;
use clap::Args;
use std::fmt::Debug;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Byte stream of a connection.
pub trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// Future of a connection.
pub type Dialing<'a> = Pin<Box<dyn Future<Output = Result<Box<dyn Socket>, CliError>> + Send + 'a>>;

/// Method to connect to a control plane.
pub trait Dial: Debug + Send + Sync {
    /// Connects. The caller sets a deadline.
    ///
    /// # Errors
    /// On a failure, with a hint.
    fn dial(&self) -> Dialing<'_>;

    /// Address for error messages, such as `127.0.0.1:15014`.
    fn name(&self) -> String;

    /// `Host` header of requests, which the admin server checks.
    fn host(&self) -> String;
}

/// Dials a TCP address, `HOST:PORT`.
#[derive(Debug)]
pub(crate) struct Tcp(String);

impl Tcp {
    /// Parses `HOST:PORT` or a URL.
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
                    "is `pilotfish serve` running there? --kube asks the one in the cluster of your \
                     kubeconfig",
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
    /// True if one of the flags is set.
    fn is_meant(&self) -> bool {
        self.kube
            || self.kubeconfig.is_some()
            || self.context.is_some()
            || self.pilotfish_namespace.is_some()
            || self.pod.is_some()
    }

    /// Dialer for the cluster, if one of the flags is set.
    pub(crate) fn dial(&self) -> Option<Arc<dyn Dial>> {
        if !self.is_meant() {
            return None;
        }
        Some(CLUSTERS.get().map_or_else(|| Arc::new(Nowhere) as Arc<dyn Dial>, |clusters| clusters(self)))
    }
}

/// Constructor of the dialer for a cluster.
type Reach = fn(&InCluster) -> Arc<dyn Dial>;

/// Constructor from the binary, since this crate has no Kubernetes client. Set once at start.
static CLUSTERS: OnceLock<Reach> = OnceLock::new();

/// Registers the constructor of the dialer for clusters, once, before commands run.
pub fn reach_clusters_by(clusters: fn(&InCluster) -> Arc<dyn Dial>) {
    // A second call would register the same one.
    let _ = CLUSTERS.set(clusters);
}

/// Dialer of a program without a Kubernetes client: always fails.
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
