//! Secrets of remote clusters with kubeconfigs that connect elsewhere or run programs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use pilotfish_testkit::real::fetch;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::cluster::NONE;
use crate::own::until;
use crate::{Attack, Cluster, Counts, Deadline, Tally, Target};

pub(super) const ATTACKS: &[Attack] = &[Attack {
    name: "remote-kubeconfigs",
    what: "Kubeconfigs of remote clusters with http, a proxy, providers of tokens, and programs to run",
    run: |target, deadline| kubeconfigs(target, deadline).boxed(),
}];

const PAUSE: Duration = Duration::from_millis(100);
/// Parts of the expected problems.
const PROBLEMS: [&str; 6] = [
    "a server without https",
    "proxy-url",
    "auth-provider \\\"gcp\\\"",
    "auth-provider \\\"oidc\\\"",
    "exec of user",
    "insecure-skip-tls-verify",
];

/// A port that counts its connections.
struct Listener {
    port: u16,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Listener {
    async fn start() -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no port")?;
        let (port, connections) = (listener.local_addr()?.port(), Arc::new(AtomicUsize::new(0)));
        let count = connections.clone();
        let task = tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Ok(Self { port, connections, task })
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A kubeconfig with that cluster and user.
fn kubeconfig(cluster: &Value, user: &Value) -> String {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": cluster}], "users": [{"name": "u", "user": user}],
    });
    config.to_string()
}

/// A Secret with kubeconfigs by cluster.
fn secret(name: &str, clusters: &Value) -> String {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": clusters,
        "metadata": {"name": name, "namespace": "istio-system", "labels": {"istio/multiCluster": "true"}},
    });
    secret.to_string()
}

/// Kubeconfigs that would each connect to the port or create the file, if they were used.
fn dangerous(port: u16, made: &Path) -> String {
    let (http, https) = (format!("http://127.0.0.1:{port}"), format!("https://127.0.0.1:{port}"));
    let (server, token) = (json!({"server": https}), json!({"token": "t"}));
    let gcp = json!({"cmd-path": "touch", "cmd-args": made, "token-key": "{.x}", "expiry-key": "{.y}"});
    let oidc = json!({"idp-issuer-url": http, "client-id": "c", "refresh-token": "r", "id-token": "a.b.c"});
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": [made],
        "interactiveMode": "Never",
    });
    let provider = |name: &str, config: Value| json!({"auth-provider": {"name": name, "config": config}});
    let clusters = json!({
        "http": kubeconfig(&json!({"server": http}), &token),
        "proxy": kubeconfig(&json!({"server": https, "proxy-url": http}), &token),
        "gcp": kubeconfig(&server, &provider("gcp", gcp)),
        "oidc": kubeconfig(&server, &provider("oidc", oidc)),
        "exec": kubeconfig(&server, &json!({"exec": exec})),
        "unchecked": kubeconfig(&json!({"server": https, "insecure-skip-tls-verify": true}), &token),
    });
    secret("dangerous", &clusters)
}

async fn kubeconfigs(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let Some(cluster) = &target.cluster else { return Ok(Tally::skipped(NONE)) };
    let counts = Counts::new();
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let (bad, good) = (Listener::start().await?, Listener::start().await?);
    let made = folder.path().join("made");
    let dangerous = dangerous(bad.port, &made);
    // Its connections show that Secrets have been read.
    let server = json!({"server": format!("https://127.0.0.1:{}", good.port)});
    let harmless = secret("harmless", &json!({"harmless": kubeconfig(&server, &json!({"token": "t"}))}));
    for secret in [&dangerous, &harmless] {
        cluster.server.apply(secret).await;
        counts.sent(secret.len());
    }
    let refused = is_refused(&target, &good).await;
    let unused = async {
        loop {
            ensure!(bad.connections() == 0, "a dangerous kubeconfig is used: its port has a connection");
            ensure!(!made.exists(), "a program of a kubeconfig was run");
            if deadline.passed() {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    let unused = unused.await;
    remove(cluster, &[dangerous, harmless]).await;
    refused?;
    unused?;
    counts.answered();
    PROBLEMS.iter().for_each(|problem| counts.refused(problem));
    Ok(counts.tally())
}

/// Checks that only the harmless cluster is connected to, and that each of the others has a problem.
async fn is_refused(target: &Target, good: &Listener) -> Result<()> {
    until("a connection to the harmless cluster", || async {
        ensure!(good.connections() > 0, "its port has no connection");
        Ok(())
    })
    .await?;
    let page = format!("http://{}/debug/problemz", target.admin);
    until("problems of the kubeconfigs", || async {
        let page = fetch(&page).await.map_err(anyhow::Error::msg)?;
        match PROBLEMS.iter().find(|problem| !page.contains(**problem)) {
            Some(missing) => anyhow::bail!("no problem {missing:?} in {page}"),
            None => Ok(()),
        }
    })
    .await
}

async fn remove(cluster: &Cluster, secrets: &[String]) {
    for secret in secrets {
        cluster.server.delete(secret).await;
    }
}
