//! A real API server that misbehaves in every way, with streams connected and traffic flowing: nothing that was there is
//! taken away, every fault is visible, and afterwards everything is as after a fresh start.

mod support;

use pilotfish_testkit::real::{
    ApiServer, Envoy, EnvoyOptions, Fault, FaultProxy, Load, Pilotfish, eventually, get,
};
use std::time::Duration;
use support::kube::{
    addresses, catalog, cluster, endpoints, entries, has_addresses, launch, serve, service, slice,
};
use support::{CATALOG, Shop};

const QUIET: &str = "quiet.shop.svc.cluster.local";

/// A cluster behind a proxy, a Pilotfish on it, an Envoy with a load.
struct Scene {
    server: ApiServer,
    proxy: FaultProxy,
    pilotfish: Pilotfish,
    shop: Shop,
    _envoy: Envoy,
    load: Load,
    /// How many endpoints the quiet service has; each change makes it one more.
    quiet: usize,
}

impl Scene {
    async fn start() -> Option<Self> {
        let server = cluster().await?;
        let shop = Shop::start().await;
        let objects =
            [catalog(&shop), entries(&shop, &[0, 1]), service("quiet"), "---\n".into(), slice("quiet", 1)];
        server.apply(&objects.concat()).await;
        let proxy = FaultProxy::start(&server).await;
        let pilotfish = serve(&proxy.kubeconfig()).await;
        let envoy = Envoy::start(&pilotfish, &EnvoyOptions::sidecar("delta")).await?;
        eventually("the catalog is reached", || get(shop.port, CATALOG, &[])).await;
        let load = Load::start(shop.port, CATALOG);
        Some(Self { server, proxy, pilotfish, shop, _envoy: envoy, load, quiet: 1 })
    }

    /// Changes the cluster, past every fault of the proxy.
    async fn change(&mut self) {
        self.quiet += 1;
        self.server.apply(&slice("quiet", self.quiet)).await;
    }

    /// The change has arrived.
    async fn arrived(&self, act: &str) {
        eventually(&format!("{act}: the change arrives"), || async {
            let found = addresses(&self.pilotfish, QUIET).await.len();
            if found == self.quiet { Ok(()) } else { Err((found, self.quiet)) }
        })
        .await;
    }

    /// The fault is told, with since when, and everything that was there still is.
    async fn is_told(&self, act: &str) {
        eventually(&format!("{act}: the fault is told"), || async {
            let registries = self.pilotfish.json("/debug/registryz?registries=true").await;
            let text = registries.to_string();
            if text.contains("failingSince") { Ok(()) } else { Err(text) }
        })
        .await;
        assert_eq!(addresses(&self.pilotfish, CATALOG).await.len(), 2, "{act}: endpoints stay");
        assert!(self.pilotfish.metric("pilotfish_kube_watch_events").await > 0.0);
    }

    /// No request failed during the act, and the fault is over.
    async fn is_over(&mut self, act: &str) {
        eventually(&format!("{act}: nothing fails any more"), || async {
            let registries = self.pilotfish.json("/debug/registryz?registries=true").await.to_string();
            if registries.contains("failingSince") { Err(registries) } else { Ok(()) }
        })
        .await;
        self.load.answers(20).await;
        let tally = self.load.reset();
        let failed: Vec<_> = tally.iter().filter(|(who, _)| !["v1", "v2"].contains(&who.as_str())).collect();
        assert!(failed.is_empty(), "{act}: failed requests: {failed:?} of {tally:?}");
    }

    /// Everything is as a Pilotfish has it that starts now.
    async fn as_fresh(&self, act: &str) {
        let fresh = serve(&self.server.kubeconfig()).await;
        let wanted = endpoints(&fresh).await;
        eventually(&format!("{act}: equal to a fresh start"), || async {
            let found = endpoints(&self.pilotfish).await;
            if found == wanted { Ok(()) } else { Err(format!("{found}\n--- fresh\n{wanted}")) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_fails_takes_nothing_away() {
    let Some(mut scene) = Scene::start().await else { return };

    for (act, fault) in [
        ("answers 500", Fault::Status(500, None)),
        ("answers 429", Fault::Status(429, Some(1))),
        ("answers 401", Fault::Status(401, None)),
    ] {
        scene.proxy.set(fault);
        scene.change().await;
        scene.is_told(act).await;
        scene.proxy.set(Fault::None);
        scene.arrived(act).await;
        scene.is_over(act).await;
    }

    // No failures as such: the change has to arrive while it lasts.
    for (act, fault) in [
        ("answers 410 Gone to every watch that resumes", Fault::Gone),
        ("cuts every watch after a second", Fault::Cut(Duration::from_secs(1))),
        ("is slow by two seconds", Fault::Slow(Duration::from_secs(2))),
    ] {
        scene.proxy.set(fault);
        for _ in 0..3 {
            scene.change().await;
            scene.arrived(act).await;
        }
        assert_eq!(addresses(&scene.pilotfish, CATALOG).await.len(), 2, "{act}: endpoints stay");
        scene.proxy.set(Fault::None);
        scene.is_over(act).await;
    }
    scene.as_fresh("after all faults of the proxy").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_dies_and_forgets_takes_nothing_away() {
    let Some(mut scene) = Scene::start().await else { return };

    let act = "killed and started again";
    scene.server.kill().await;
    scene.is_told(act).await;
    scene.load.answers(200).await;
    scene.server.restart().await;
    scene.change().await;
    scene.arrived(act).await;
    scene.is_over(act).await;

    let act = "changed, compacted and started again while nobody could watch";
    scene.proxy.set(Fault::Status(503, None));
    scene.is_told(act).await;
    for _ in 0..5 {
        scene.change().await;
    }
    scene.server.delete(&entries(&scene.shop, &[1])).await;
    scene.server.compact().await;
    scene.server.kill().await;
    scene.server.restart().await;
    scene.proxy.set(Fault::None);
    scene.arrived(act).await;
    has_addresses(&scene.pilotfish, CATALOG, 1).await;
    scene.is_over(act).await;
    scene.as_fresh(act).await;

    let act = "our process is killed while the API server is away";
    scene.server.kill().await;
    scene.pilotfish.kill().await;
    scene.load.answers(100).await;
    scene.server.restart().await;
    scene.pilotfish.restart().await;
    scene.change().await;
    scene.arrived(act).await;
    scene.is_over(act).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_is_killed_during_the_first_list_only_delays() {
    let Some(mut server) = cluster().await else { return };
    server.apply(&[service("quiet"), slice("quiet", 700)].concat()).await;
    let proxy = FaultProxy::start(&server).await;
    // The first lists begin and never end.
    proxy.set(Fault::Silent);
    let pilotfish = launch(&proxy.kubeconfig());
    eventually("the admin API answers", || pilotfish.page("/healthz")).await;
    server.kill().await;
    proxy.set(Fault::Status(503, None));
    assert!(pilotfish.page("/ready").await.is_err(), "nothing is served before everything was read");
    server.restart().await;
    proxy.set(Fault::None);
    pilotfish.ready().await;
    assert_eq!(addresses(&pilotfish, QUIET).await.len(), 700);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_really_gone_goes() {
    let Some(mut scene) = Scene::start().await else { return };
    let act = "scaled to zero and back";
    scene.server.apply(&slice("quiet", 0)).await;
    has_addresses(&scene.pilotfish, QUIET, 0).await;
    scene.quiet = 4;
    scene.change().await;
    scene.arrived(act).await;

    let act = "500 pods deleted at once";
    let pods: Vec<String> = (0..500).map(pod).collect();
    scene.server.apply_many(&pods.join("---\n")).await;
    let workloads = |count: usize| {
        let pilotfish = &scene.pilotfish;
        async move {
            eventually(&format!("{act}: {count} workloads"), || async {
                let registries = pilotfish.json("/debug/registryz?registries=true").await;
                let found = registries[0]["workloads"].as_u64();
                if found == u64::try_from(count).ok() { Ok(()) } else { Err(registries) }
            })
            .await;
        }
    };
    workloads(500).await;
    scene.server.delete_all("Pod", "crowd").await;
    workloads(0).await;
    scene.is_over(act).await;
    scene.as_fresh(act).await;
}

fn pod(number: usize) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: pod-{number}, namespace: crowd}}\nspec: {{containers: [{{name: app, image: \
         x}}]}}\nstatus: {{phase: Running, podIP: 10.2.{}.{}, podIPs: [{{ip: 10.2.{0}.{1}}}], conditions: [{{type: Ready, \
         status: \"True\"}}]}}\n",
        number / 250,
        number % 250 + 1
    )
}
