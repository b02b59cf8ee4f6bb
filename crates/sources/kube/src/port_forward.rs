//! Connections to a port of a Pod through the API server, as with `kubectl port-forward`. They arrive in the
//! Pod from its loopback address, with the rights of a local client.

use crate::client::Client;
use crate::request::RequestError;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Portforwarder};
use kube::{Api, ResourceExt};
use pilotfish_runtime::one_line;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

/// Limit on the number of Pods that are listed.
const PODS: u32 = 500;

/// Selection of a Pod and of one of its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedPod {
    pub namespace: String,
    /// Label selector of the Pods.
    pub labels: String,
    /// Name of the Pod; by default the first ready one by name.
    pub name: Option<String>,
    /// Name of the container port.
    pub port_name: String,
    /// Port number, if no container port has that name.
    pub port: u16,
}

/// Reason why there is no connection to a Pod.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The API server did not answer, or refused.
    #[error("{what}: {error}")]
    Request {
        /// Requested object, for the message.
        what: String,
        error: RequestError,
    },
    /// No Pod has the labels.
    #[error("no Pod in namespace {namespace} has {labels}")]
    NoPod { namespace: String, labels: String },
    /// No Pod is ready.
    #[error("no Pod with {labels} in namespace {namespace} is ready; there are {names}")]
    NotReady {
        namespace: String,
        labels: String,
        /// Names of the Pods with the labels, none of which is ready.
        names: String,
    },
    /// No Pod has the name.
    #[error("no Pod {name:?} in namespace {namespace} has {labels}; there are {names}")]
    Unknown {
        namespace: String,
        labels: String,
        name: String,
        /// Names of the Pods with the labels.
        names: String,
    },
}

/// A Pod that was chosen.
#[derive(Clone)]
pub struct ForwardedPod {
    api: Api<Pod>,
    name: String,
    port: u16,
    others: usize,
}

impl fmt::Debug for ForwardedPod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ForwardedPod({}:{})", self.name, self.port)
    }
}

impl ForwardedPod {
    /// Chooses a Pod.
    ///
    /// # Errors
    /// When there is no such Pod, or none is ready. A Pod that is selected by name need not be ready: its
    /// state may be the reason for connecting.
    pub async fn choose(client: Client, wanted: &WantedPod) -> Result<Self, ForwardError> {
        let WantedPod { namespace, labels, .. } = wanted;
        let api: Api<Pod> = Api::namespaced(client, namespace);
        let query = ListParams::default().labels(labels).limit(PODS);
        let list = api.list(&query).await.map_err(|error| ForwardError::Request {
            what: format!("the Pods of namespace {namespace} with {labels}"),
            error: error.into(),
        })?;
        let mut pods = list.items;
        pods.sort_by_cached_key(ResourceExt::name_any);
        let names = || pods.iter().map(ResourceExt::name_any).collect::<Vec<_>>().join(", ");
        let (namespace, labels) = (namespace.clone(), labels.clone());
        if pods.is_empty() {
            return Err(ForwardError::NoPod { namespace, labels });
        }
        let ready = pods.iter().filter(|pod| is_ready(pod));
        let (chosen, others) = match &wanted.name {
            Some(name) => {
                let pod = pods.iter().find(|pod| pod.name_any() == *name);
                let unknown =
                    || ForwardError::Unknown { namespace, labels, name: name.clone(), names: names() };
                (pod.ok_or_else(unknown)?, 0)
            }
            None => {
                let count = ready.clone().count();
                let unready = || ForwardError::NotReady { namespace, labels, names: names() };
                (ready.clone().next().ok_or_else(unready)?, count - 1)
            }
        };
        let (name, port) = (chosen.name_any(), port_of(chosen, wanted));
        Ok(Self { api, name, port, others })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of other ready Pods with the labels.
    #[must_use]
    pub fn others(&self) -> usize {
        self.others
    }

    /// Connects to the port of the Pod.
    ///
    /// # Errors
    /// When the API server refuses, or cannot reach the Pod.
    pub async fn connect(&self) -> Result<Forwarded, ForwardError> {
        let failed = |error: RequestError| ForwardError::Request {
            what: format!("port {} of Pod {}", self.port, self.name),
            error,
        };
        let forwarder = self.api.portforward(&self.name, &[self.port]).await;
        let mut forwarder = forwarder.map_err(|error| failed(error.into()))?;
        let stream = forwarder.take_stream(self.port);
        let stream = stream.ok_or_else(|| failed(RequestError::rejected("it was not forwarded")))?;
        let error = forwarder.take_error(self.port).map(|error| Box::pin(error) as Failing);
        Ok(Forwarded { stream, error, forwarder })
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    pod.metadata.deletion_timestamp.is_none() && ready.any(|condition| condition.status == "True")
}

fn port_of(pod: &Pod, wanted: &WantedPod) -> u16 {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let named = ports.find(|port| port.name.as_deref() == Some(&wanted.port_name));
    named.and_then(|port| u16::try_from(port.container_port).ok()).unwrap_or(wanted.port)
}

/// Error message of the kubelet, if the connection to the port fails.
type Failing = Pin<Box<dyn Future<Output = Option<String>> + Send>>;

/// Connection to the port of a Pod. An error message of the kubelet becomes the error of a read.
pub struct Forwarded {
    stream: DuplexStream,
    error: Option<Failing>,
    forwarder: Portforwarder,
}

impl fmt::Debug for Forwarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Forwarded")
    }
}

impl Drop for Forwarded {
    fn drop(&mut self) {
        self.forwarder.abort();
    }
}

impl AsyncRead for Forwarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if buffer.filled().len() > before || buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        // End of the stream: the kubelet has sent an error, or the Pod has closed the connection.
        let error = self.error.as_mut().map(|error| error.as_mut().poll(context));
        if let Some(Poll::Ready(said)) = error {
            self.error = None;
            if let Some(text) = said {
                return Poll::Ready(Err(io::Error::other(one_line(&text))));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Forwarded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
