//! Connections of client commands to a Pod of Pilotfish in a cluster.

use parking_lot::Mutex;
use pilotfish_cli::{CliError, Dial, Dialing, InCluster, Socket};
use pilotfish_kube::client::of_context;
use pilotfish_kube::{ForwardError, ForwardedPod, WantedPod};
use std::io::Write;
use std::sync::Arc;

/// Label of Pilotfish's Pods, name of their admin port and its default, as in `deploy/`.
const LABEL: &str = "app.kubernetes.io/name=pilotfish";
const PORT_NAME: &str = "http-monitoring";
const PORT: u16 = 15014;
/// Default namespace of the Pods.
const NAMESPACE: &str = "istio-system";

/// Dialer for a Pod, which is chosen once, because replicas know different proxies.
#[derive(Debug)]
struct Pods {
    cluster: InCluster,
    chosen: Mutex<Option<ForwardedPod>>,
}

/// Returns the dialer for the flags.
#[must_use]
pub fn dial(cluster: &InCluster) -> Arc<dyn Dial> {
    Arc::new(Pods { cluster: cluster.clone(), chosen: Mutex::default() })
}

impl Pods {
    fn wanted(&self) -> WantedPod {
        WantedPod {
            namespace: self.cluster.pilotfish_namespace.clone().unwrap_or_else(|| NAMESPACE.to_owned()),
            labels: LABEL.to_owned(),
            name: self.cluster.pod.clone(),
            port_name: PORT_NAME.to_owned(),
            port: PORT,
        }
    }

    async fn choose(&self) -> Result<ForwardedPod, CliError> {
        let (file, context) = (self.cluster.kubeconfig.as_deref(), self.cluster.context.as_deref());
        let client = of_context(file, context).await.map_err(|error| {
            CliError::new(error.to_string())
                .hint("--kubeconfig names a file, --context a context in it: kubectl config get-contexts")
        })?;
        let pod = ForwardedPod::choose(client, &self.wanted()).await.map_err(|error| explained(&error))?;
        if pod.others() > 0 {
            // Only a note beside the answer, so a closed stderr is ignored.
            let _ = writeln!(
                std::io::stderr(),
                "note: asking {}, one of {} Pods that are ready; each knows the proxies that are connected \
                 to it (--pod)",
                pod.name(),
                pod.others() + 1
            );
        }
        Ok(pod)
    }
}

impl Dial for Pods {
    fn dial(&self) -> Dialing<'_> {
        Box::pin(async move {
            let known = self.chosen.lock().clone();
            let pod = match known {
                Some(pod) => pod,
                None => self.choose().await?,
            };
            let socket = pod.connect().await.inspect_err(|_| {
                // The Pod may have been deleted, so the next request chooses again.
                *self.chosen.lock() = None;
            });
            let socket = socket.map_err(|error| explained(&error))?;
            *self.chosen.lock() = Some(pod);
            Ok(Box::new(socket) as Box<dyn Socket>)
        })
    }

    fn name(&self) -> String {
        let wanted = self.wanted();
        let chosen = self.chosen.lock().as_ref().map(|pod| pod.name().to_owned());
        match chosen.or(wanted.name) {
            Some(name) => format!("Pod {}/{name}", wanted.namespace),
            None => format!("Pilotfish in namespace {}", wanted.namespace),
        }
    }

    fn host(&self) -> String {
        format!("localhost:{PORT}")
    }
}

fn explained(error: &ForwardError) -> CliError {
    let hint = match error {
        ForwardError::Request { error, .. } if error.status == Some(403) => {
            "it takes the rights to list pods, and to get and create pods/portforward, in that namespace"
        }
        ForwardError::Request { error, .. } if error.status.is_some() => {
            "kubectl port-forward goes the same way: does it get through?"
        }
        ForwardError::Request { .. } => "is this the cluster? --context names another one",
        ForwardError::NoPod { .. } => "--pilotfish-namespace names the namespace that Pilotfish is in",
        ForwardError::NotReady { .. } => "--pod asks one that is not ready",
        ForwardError::Unknown { .. } => "--pod is one of these, or left out",
    };
    CliError::new(error.to_string()).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_found_as_they_are_deployed() {
        let deployment = include_str!("../../../../deploy/kubernetes/deployment.yaml");
        let (name, value) = LABEL.split_once('=').unwrap();
        assert!(deployment.contains(&format!("{name}: {value}")), "{LABEL}");
        assert!(deployment.contains(&format!("{{name: {PORT_NAME}, containerPort: {PORT}}}")), "{PORT_NAME}");
        assert!(deployment.contains(&format!("namespace: {NAMESPACE}")), "{NAMESPACE}");
    }
}
