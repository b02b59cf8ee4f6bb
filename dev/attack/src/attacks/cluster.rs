//! API servers that lose their data and are restored.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use pilotfish_testkit::real::{ApiServerFault, fetch};
use tokio::net::TcpStream;

use super::http1::{ask, json};
use crate::own::until;
use crate::{Attack, Cluster, Counts, Deadline, Tally, Target};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "cluster-emptied",
        what: "An API server that answers 410 to every watch and has nothing in its lists, and then has \
            everything again",
        run: |target, deadline| emptied(target, deadline).boxed(),
    },
    Attack {
        name: "cluster-restored",
        what: "An API server whose etcd was restored from a backup without most services: its versions are \
            lower than before",
        run: |target, deadline| restored(target, deadline).boxed(),
    },
];

pub(super) const NONE: &str = "there is no API server";
/// Namespace of the services.
const NAMESPACE: &str = "lost";
/// Numbers of the services; none is a prefix of another.
const SERVICES: std::ops::Range<usize> = 10..30;
/// A service that is moved during the outage, and one that is removed.
const MOVED: usize = 10;
const REMOVED: usize = 11;
/// Time during which losses are observed; shorter than the wait of the guard.
const HELD: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(100);
/// Decrease of resource versions by the restoration: more than the writes of the attack.
const LOWERED: u64 = 100_000;

/// Address of a service's endpoint in a version of it.
fn address(service: usize, version: usize) -> String {
    format!("10.66.{}.{service}", 10 + version % 90)
}

fn service(number: usize) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: s-{number}, namespace: {NAMESPACE}}}\n\
         spec: {{ports: [{{name: http, port: 80}}]}}\n---\n"
    )
}

fn slice(number: usize, version: usize) -> String {
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{name: s-{number}, namespace: {NAMESPACE}, labels: {{kubernetes.io/service-name: \
         s-{number}}}}}\naddressType: IPv4\nports: [{{name: http, port: 8080}}]\n\
         endpoints: [{{addresses: [{}], conditions: {{ready: true}}}}]\n---\n",
        address(number, version)
    )
}

fn everything() -> String {
    SERVICES.map(|number| service(number) + &slice(number, 0)).collect()
}

/// The cluster, and the control plane's view of it.
struct View<'a> {
    target: &'a Target,
    cluster: &'a Cluster,
}

impl View<'_> {
    /// Checks that the endpoints of that version are, or are not, in force.
    async fn check(&self, services: impl Iterator<Item = usize>, version: usize, there: bool) -> Result<()> {
        let page = format!("http://{}/debug/endpointz?host={NAMESPACE}.svc", self.target.admin);
        let page = fetch(&page).await.map_err(anyhow::Error::msg)?;
        for service in services {
            let address = address(service, version);
            let state = if there { "missing" } else { "there" };
            ensure!(page.contains(&address) == there, "the endpoint {address} of s-{service} is {state}");
        }
        Ok(())
    }

    /// Creates all services and waits until they are in force.
    async fn prepare(&self) -> Result<()> {
        self.cluster.server.apply_many(&everything()).await;
        until("services of the cluster", || self.check(SERVICES, 0, true)).await
    }

    /// Checks that the guard holds back a loss of the cluster, or none.
    async fn holds(&self, expected: bool) -> Result<()> {
        let metrics = format!("http://{}/metrics", self.target.admin);
        let metrics = fetch(&metrics).await.map_err(anyhow::Error::msg)?;
        let held = "pilotfish_registry_guard_held{registry=\"cluster Kubernetes\"} 1";
        let holds = metrics.lines().any(|line| line == held);
        ensure!(holds == expected, "the guard holds {} back", if holds { "something" } else { "nothing" });
        Ok(())
    }

    /// Accepts the loss like an operator, unless it is already confirmed. Waits until it is over.
    async fn accept(&self) -> Result<()> {
        let request = json("POST", "/api/v1/guard", r#"{"source":"cluster Kubernetes"}"#);
        let socket = TcpStream::connect(self.target.admin).await.context("cannot connect")?;
        let status = ask(socket, &request).await?;
        ensure!(matches!(status, 200 | 404), "the loss cannot be accepted: {status}");
        until("a second list", || self.holds(false)).await
    }

    /// Checks for a while that these services stay in force.
    async fn stay(&self, services: impl Iterator<Item = usize> + Clone, deadline: Deadline) -> Result<()> {
        let (end, mut is_first) = (Deadline::after(HELD.min(deadline.left())), true);
        while is_first || !end.passed() {
            self.check(services.clone(), 0, true).await.context("services were taken away")?;
            tokio::time::sleep(PAUSE).await;
            is_first = false;
        }
        Ok(())
    }
}

/// Guard that restores the cluster's original state, also after a cancellation.
struct Restored<'a>(&'a Cluster);

impl Drop for Restored<'_> {
    fn drop(&mut self) {
        self.0.proxy.set(ApiServerFault::None);
    }
}

/// Services except for the moved one.
fn unmoved() -> impl Iterator<Item = usize> + Clone {
    SERVICES.filter(|service| *service != MOVED)
}

async fn emptied(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let Some(cluster) = &target.cluster else { return Ok(Tally::skipped(NONE)) };
    let (counts, view) = (Counts::new(), View { target: &target, cluster });
    let fault = Restored(cluster);
    view.prepare().await?;
    cluster.proxy.set(ApiServerFault::Emptied);
    counts.sent(0);
    cluster.server.delete(&service(REMOVED)).await;
    cluster.server.apply(&slice(MOVED, 1)).await;
    until("an empty list", || view.holds(true)).await?;
    counts.refused("the guard holds the loss back");
    view.stay(SERVICES, deadline).await?;
    drop(fault);
    view.accept().await?;
    until("a service that was moved meanwhile", || view.check([MOVED].into_iter(), 1, true)).await?;
    until("a service that was removed meanwhile", || view.check([REMOVED].into_iter(), 0, false)).await?;
    view.check(unmoved().filter(|service| *service != REMOVED), 0, true).await?;
    counts.answered();
    cluster.server.clear(&everything()).await;
    Ok(counts.tally())
}

async fn restored(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let Some(cluster) = &target.cluster else { return Ok(Tally::skipped(NONE)) };
    let (counts, view) = (Counts::new(), View { target: &target, cluster });
    let fault = Restored(cluster);
    view.prepare().await?;
    cluster.proxy.set(ApiServerFault::Status(503, None));
    cluster.server.delete_all("Service", NAMESPACE).await;
    cluster.server.apply(&(service(MOVED) + &slice(MOVED, 1))).await;
    cluster.proxy.lower_versions(LOWERED);
    drop(fault);
    counts.sent(0);
    until("a service of the backup", || view.check([MOVED].into_iter(), 1, true)).await?;
    until("a list without most services", || view.holds(true)).await?;
    counts.refused("the guard holds the loss back");
    view.stay(unmoved(), deadline).await?;
    view.accept().await?;
    until("services that the backup does not have", || view.check(unmoved(), 0, false)).await?;
    // Checks that the control plane follows the cluster afterwards.
    cluster.server.apply(&slice(MOVED, 2)).await;
    until("a change after the restoration", || view.check([MOVED].into_iter(), 2, true)).await?;
    counts.answered();
    cluster.server.clear(&everything()).await;
    Ok(counts.tally())
}
