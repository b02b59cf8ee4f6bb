//! Cluster of istiod's proxies, for `pilotfish compare --pods` and `--mint-tokens`.

use pilotfish_cli::{CliError, ClusterAnswer, InCluster, ProxyCluster, TOKEN_LIFETIME};
use pilotfish_kube::client::{Client, of_context};
use pilotfish_kube::request::RequestError;
use pilotfish_kube::{each_pod, request_token};
use pilotfish_node::injection::AUDIENCE;
use serde_json::Value;
use std::sync::Arc;

/// Client of a cluster.
struct Cluster(Client);

/// Opens the cluster of the flags.
#[must_use]
pub fn open(flags: InCluster) -> ClusterAnswer<'static, Arc<dyn ProxyCluster>> {
    Box::pin(async move {
        let client = of_context(flags.kubeconfig.as_deref(), flags.context.as_deref()).await;
        let client = client.map_err(|error| {
            CliError::new(error.to_string())
                .hint("--kubeconfig names a file, --context a context in it: kubectl config get-contexts")
        })?;
        Ok(Arc::new(Cluster(client)) as Arc<dyn ProxyCluster>)
    })
}

impl ProxyCluster for Cluster {
    fn pods<'a>(&'a self, each: &'a mut (dyn FnMut(&Value) + Send)) -> ClusterAnswer<'a, ()> {
        Box::pin(async move {
            let mut unreadable = None;
            let mut add = |pod| match serde_json::to_value(pod) {
                Ok(pod) => each(&pod),
                Err(error) => unreadable = Some(error),
            };
            let listed = each_pod(self.0.clone(), &mut add).await;
            listed.map_err(|error| explained("the Pods of the cluster", &error, "list pods"))?;
            unreadable.map_or(Ok(()), |error| Err(CliError::new(format!("a Pod of the cluster: {error}"))))
        })
    }

    fn token<'a>(&'a self, namespace: &'a str, account: &'a str) -> ClusterAnswer<'a, String> {
        Box::pin(async move {
            let token = request_token(&self.0, namespace, account, &[AUDIENCE], TOKEN_LIFETIME).await;
            let what = format!("service account {namespace}/{account}");
            token.map_err(|error| explained(&what, &error, "create serviceaccounts/token"))
        })
    }
}

fn explained(what: &str, error: &RequestError, right: &str) -> CliError {
    match error.status {
        Some(403) => CliError::new(format!("{what}: {error}; it takes the right to {right}")),
        Some(_) => CliError::new(format!("{what}: {error}")),
        None => {
            let hint = "is this the cluster? --context names another one";
            CliError::new(format!("{what}: {error}")).hint(hint)
        }
    }
}
