//! Cluster of istiod's proxies: their Pods, and tokens of their service accounts.

use crate::dial::InCluster;
use crate::error::CliError;
use serde_json::Value;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Lifetime of a token: the shortest that an API server grants.
pub const TOKEN_LIFETIME: Duration = Duration::from_mins(10);

/// Future of an answer of the cluster.
pub type ClusterAnswer<'a, T> = Pin<Box<dyn Future<Output = Result<T, CliError>> + Send + 'a>>;

/// Cluster of proxies. The binary has its client.
pub trait ProxyCluster: Send + Sync {
    /// Calls a function with each Pod.
    fn pods<'a>(&'a self, each: &'a mut (dyn FnMut(&Value) + Send)) -> ClusterAnswer<'a, ()>;

    /// Requests a token of a service account that istiod accepts, of [`TOKEN_LIFETIME`].
    fn token<'a>(&'a self, namespace: &'a str, account: &'a str) -> ClusterAnswer<'a, String>;
}

/// Constructor from the binary, since this crate has no Kubernetes client.
type Open = fn(InCluster) -> ClusterAnswer<'static, Arc<dyn ProxyCluster>>;

/// Set once at start.
static CLUSTERS: OnceLock<Open> = OnceLock::new();

/// Registers the constructor of clusters of proxies, once, before commands run.
pub fn open_proxy_clusters_by(open: Open) {
    // A second call would register the same one.
    let _ = CLUSTERS.set(open);
}

/// Opens the cluster of the flags.
pub(super) async fn open(cluster: &InCluster) -> Result<Arc<dyn ProxyCluster>, CliError> {
    let open = CLUSTERS.get().ok_or_else(|| CliError::new("this program has no client of Kubernetes"))?;
    open(cluster.clone()).await
}

/// Namespace and name of a service account.
type Account = (String, String);

/// Tokens of service accounts. Each is requested once, and again after half of its lifetime.
pub(super) struct Tokens {
    cluster: Arc<dyn ProxyCluster>,
    known: Mutex<BTreeMap<Account, (Instant, Arc<str>)>>,
}

impl Tokens {
    pub(super) fn of(cluster: Arc<dyn ProxyCluster>) -> Self {
        Self { cluster, known: Mutex::default() }
    }

    /// Token of the service account of a node.
    ///
    /// # Errors
    /// If its metadata has none, or the cluster refuses.
    pub(super) async fn token(&self, node: &Value) -> Result<Arc<str>, String> {
        let text = |name: &str| {
            let value = node.get("metadata").and_then(|metadata| metadata.get(name));
            let value = value.and_then(Value::as_str).filter(|value| !value.is_empty());
            value.map(str::to_owned).ok_or_else(|| format!("its metadata has no {name}"))
        };
        let account = (text("NAMESPACE")?, text("SERVICE_ACCOUNT")?);
        // Held while the cluster is asked, so that proxies of one account make one request.
        let mut known = self.known.lock().await;
        let is_fresh = |(at, _): &&(Instant, Arc<str>)| at.elapsed() < TOKEN_LIFETIME / 2;
        if let Some((_, token)) = known.get(&account).filter(is_fresh) {
            return Ok(token.clone());
        }
        let asked = self.cluster.token(&account.0, &account.1).await;
        let token: Arc<str> = asked.map_err(|error| error.message().to_owned())?.into();
        known.insert(account, (Instant::now(), token.clone()));
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Cluster that counts its tokens.
    #[derive(Default)]
    struct Counting(std::sync::Mutex<Vec<String>>);

    impl ProxyCluster for Counting {
        fn pods<'a>(&'a self, _: &'a mut (dyn FnMut(&Value) + Send)) -> ClusterAnswer<'a, ()> {
            Box::pin(std::future::ready(Ok(())))
        }

        fn token<'a>(&'a self, namespace: &'a str, account: &'a str) -> ClusterAnswer<'a, String> {
            let mut asked = self.0.lock().unwrap();
            asked.push(format!("{namespace}/{account}"));
            let answer =
                if account == "none" { Err(CliError::new("403")) } else { Ok(asked.len().to_string()) };
            Box::pin(std::future::ready(answer))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_serves_all_proxies_of_its_account_for_half_of_its_life() {
        let cluster = Arc::new(Counting::default());
        let tokens = Tokens::of(cluster.clone());
        let node = |account: &str| json!({"metadata": {"NAMESPACE": "shop", "SERVICE_ACCOUNT": account}});
        for (account, expected) in [("web", "1"), ("web", "1"), ("db", "2"), ("web", "1")] {
            assert_eq!(&*tokens.token(&node(account)).await.unwrap(), expected, "{account}");
        }
        tokio::time::advance(TOKEN_LIFETIME / 2).await;
        assert_eq!(&*tokens.token(&node("web")).await.unwrap(), "3");
        assert!(tokens.token(&node("none")).await.unwrap_err().contains("403"));
        assert!(tokens.token(&json!({})).await.unwrap_err().contains("NAMESPACE"));
        assert_eq!(*cluster.0.lock().unwrap(), ["shop/web", "shop/db", "shop/web", "shop/none"]);
    }
}
