//! Connections to a control plane: by TCP, or through the API server of a cluster.

use crate::error::CliError;
use clap::Args;
use std::fmt::Debug;
use std::net::IpAddr;
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

    /// True if nobody on the way can read a request.
    fn is_private(&self) -> bool {
        true
    }
}

/// Files of a TLS client.
#[derive(Clone, Debug, Default)]
pub struct TlsFiles {
    /// Authorities of the server's certificate; without them, those of the system.
    pub ca: Option<PathBuf>,
    /// Certificate and key of the client.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Returns the dialer of `HOST:PORT` or a URL; `https://` means TLS with these files.
pub(crate) fn dialer(address: &str, files: TlsFiles) -> Arc<dyn Dial> {
    match (address.strip_prefix("https://"), TLS.get()) {
        (Some(address), Some(tls)) => tls(address.trim_end_matches('/'), files),
        (Some(_), None) => Arc::new(Nowhere("this program has no TLS")),
        (None, _) => Arc::new(Tcp::to(address)),
    }
}

/// Dials a TCP address, `HOST:PORT`.
#[derive(Debug)]
struct Tcp(String);

impl Tcp {
    fn to(address: &str) -> Self {
        Self(address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/').to_owned())
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

    fn is_private(&self) -> bool {
        let host = self.0.rsplit_once(':').map_or(self.0.as_str(), |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_loopback = |ip: IpAddr| ip.to_canonical().is_loopback();
        host.parse().is_ok_and(is_loopback) || host.eq_ignore_ascii_case("localhost")
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
        Some(CLUSTERS.get().map_or_else(
            || Arc::new(Nowhere("this program has no client of Kubernetes")) as Arc<dyn Dial>,
            |clusters| clusters(self),
        ))
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

/// Constructor of a dialer with TLS, for `HOST:PORT`.
type Secure = fn(&str, TlsFiles) -> Arc<dyn Dial>;

/// Constructor from the binary, since this crate has no TLS. Set once at start.
static TLS: OnceLock<Secure> = OnceLock::new();

/// Registers the constructor of the dialer with TLS, once, before commands run.
pub fn dial_tls_by(secure: fn(&str, TlsFiles) -> Arc<dyn Dial>) {
    // A second call would register the same one.
    let _ = TLS.set(secure);
}

/// Dialer of a program without a client for the address: always fails, with this message.
#[derive(Debug)]
struct Nowhere(&'static str);

impl Dial for Nowhere {
    fn dial(&self) -> Dialing<'_> {
        let error = CliError::new(self.0).hint("kubectl port-forward, and --admin-address 127.0.0.1:15014");
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
    fn tokens_are_sent_where_nobody_can_read_them() {
        for (address, is_private) in [
            ("127.0.0.1:15014", true),
            ("http://localhost:15014/", true),
            ("[::1]:15014", true),
            ("10.0.0.1:15014", false),
            ("http://pilotfish.istio-system:15014", false),
        ] {
            assert_eq!(Tcp::to(address).is_private(), is_private, "{address}");
        }
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
