//! A real API server that misbehaves in every way, with streams connected and traffic flowing: nothing that
//! was there is taken away, every fault is visible, and afterwards everything is as after a fresh start.

mod support;

use pilotfish_testkit::real::{
    ApiServer, ApiServerFault, ApiServerProxy, Envoy, EnvoyOptions, Load, Pilotfish, eventually, get,
};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use support::delta::{Proxy, Recorder, node};
use support::kube::{
    addresses, catalog, cluster, endpoints, entries, has_addresses, launch, serve, service, slice,
};
use support::{CATALOG, Shop};

const QUIET: &str = "quiet.shop.svc.cluster.local";
const QUIET_CLUSTER: &str = "outbound|80||quiet.shop.svc.cluster.local";

/// A cluster behind a proxy, a Pilotfish on it, an Envoy with a load, and a client that remembers every push.
struct Scene {
    server: ApiServer,
    proxy: ApiServerProxy,
    pilotfish: Pilotfish,
    shop: Shop,
    _envoy: Envoy,
    load: Load,
    recorder: Recorder,
    /// To how many endpoints clusters may shrink that may.
    least: BTreeMap<String, usize>,
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
        let proxy = ApiServerProxy::start(&server).await;
        let pilotfish = serve(&proxy.kubeconfig()).await;
        let recorder = record(&pilotfish, &shop).await;
        let envoy = Envoy::start(&pilotfish, &EnvoyOptions::sidecar("delta")).await?;
        eventually("the catalog is reached", || get(shop.port, CATALOG, &[])).await;
        let load = Load::start(shop.port, CATALOG);
        Some(Self {
            server,
            proxy,
            pilotfish,
            shop,
            _envoy: envoy,
            load,
            recorder,
            least: BTreeMap::new(),
            quiet: 1,
        })
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
        self.recorder.has(QUIET_CLUSTER, self.quiet).await;
    }

    /// The fault is reported, with since when, and everything that was there still is.
    async fn is_told(&self, act: &str) {
        eventually(&format!("{act}: the fault is reported"), || async {
            let registries = self.pilotfish.json("/debug/registryz?registries=true").await;
            let text = registries.to_string();
            if text.contains("failingSince") { Ok(()) } else { Err(text) }
        })
        .await;
        assert_eq!(addresses(&self.pilotfish, CATALOG).await.len(), 2, "{act}: endpoints stay");
        let failed = self.pilotfish.metric_of("pilotfish_kube_watch_events", "event=\"failed\"").await;
        assert!(failed > 0.0, "{act}: no metric counts it");
        eventually(&format!("{act}: the registry is reported as failing"), || async {
            let failing = self.pilotfish.metric("pilotfish_registry_failing").await;
            if failing > 0.0 { Ok(()) } else { Err(failing) }
        })
        .await;
    }

    /// No push of all that there were took anything away.
    fn lost_nothing(&self, act: &str) {
        self.recorder.so_far().lost_nothing(act, &self.least);
    }

    /// No request failed during the act, and the fault is over.
    async fn is_over(&mut self, act: &str) {
        eventually(&format!("{act}: nothing fails any more"), || async {
            let registries = self.pilotfish.json("/debug/registryz?registries=true").await.to_string();
            if registries.contains("failingSince") { Err(registries) } else { Ok(()) }
        })
        .await;
        assert_eq!(self.pilotfish.metric("pilotfish_registry_failing").await, 0.0, "{act}");
        self.load.answers(20).await;
        let tally = self.load.reset();
        let failed: Vec<_> = tally.iter().filter(|(who, _)| !["v1", "v2"].contains(&who.as_str())).collect();
        assert!(failed.is_empty(), "{act}: failed requests: {failed:?} of {tally:?}");
        self.lost_nothing(act);
    }
}

fn catalog_cluster(shop: &Shop) -> String {
    format!("outbound|{}||{CATALOG}", shop.port)
}

async fn record(pilotfish: &Pilotfish, shop: &Shop) -> Recorder {
    let node = node("sidecar~10.9.9.9~recorder.shop~shop.svc.cluster.local", &[("NAMESPACE", "shop")]);
    let clusters = [&*catalog_cluster(shop), QUIET_CLUSTER];
    Proxy::connect(pilotfish, node, &clusters).await.expect("it is served").record()
}

/// The API server is away for a minute of the clock on the wall: this test is mostly waiting, beside the
/// others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minute_without_api_server_takes_nothing_away() {
    const MINUTE: Duration = Duration::from_secs(60);
    let Some(mut server) = cluster().await else { return };
    let shop = Shop::start().await;
    let objects =
        [catalog(&shop), entries(&shop, &[0, 1]), service("quiet"), "---\n".into(), slice("quiet", 1)];
    server.apply(&objects.concat()).await;
    let sibling = server.sibling().await;
    let mut pilotfish = serve(&server.kubeconfig()).await;
    let recorder = record(&pilotfish, &shop).await;
    let Some(_envoy) = Envoy::start(&pilotfish, &EnvoyOptions::sidecar("delta")).await else { return };
    eventually("the catalog is reached", || get(shop.port, CATALOG, &[])).await;
    let load = Load::start(shop.port, CATALOG);
    let catalog_cluster = catalog_cluster(&shop);
    let failures = async |pilotfish: &Pilotfish| {
        pilotfish.metric_of("pilotfish_kube_watch_events", "event=\"failed\"").await
    };
    // Each kind is watched on its own.
    let listed = pilotfish.metric_of("pilotfish_kube_watch_events", "event=\"listed\"").await;
    let watches = listed.max(1.0);

    server.kill().await;
    let began = Instant::now();
    let since = eventually("the fault is reported", || failing_since(&pilotfish)).await;
    // Changes that no watch can see: written past the API server that is away.
    sibling.apply(&slice("quiet", 7)).await;
    sibling.delete(&entries(&shop, &[1])).await;
    sibling.apply(&entries(&shop, &[1])).await;
    sibling.apply(&[service("late"), "---\n".into(), slice("late", 3)].concat()).await;

    until(began + MINUTE / 3).await;
    let (third, memory) = (failures(&pilotfish).await, memory(&pilotfish).await);
    let files = pilotfish.program().open_files();
    let newcomer = newcomer(&pilotfish, &shop).await;

    // From here on connections to its port are taken, counted and cut.
    let mut door = Door::open(server.port()).await;
    until(began + MINUTE).await;
    let knocks = door.close().await;
    let now = failing_since(&pilotfish).await.unwrap_or_default();
    for (registry, since) in &since {
        assert_eq!(now.get(registry), Some(since), "since when {registry} fails stays what it was");
    }
    let late = failures(&pilotfish).await - third;
    // At the most one try in 7.5 s, after those of the first seconds; five more are for what is no watch of a
    // kind.
    assert!(late <= watches * 7.0, "{late} failures of {watches} watches in the last two thirds");
    assert!(late >= watches * 2.0, "{late} failures of {watches} watches: they are still tried");
    assert!((5..(watches as usize + 5) * 7).contains(&knocks), "{knocks} connections");
    let grown = self::memory(&pilotfish).await - memory;
    assert!(grown < 8e6, "{grown} bytes more after two thirds of a minute");
    let opened = pilotfish.program().open_files();
    assert!(opened <= files + 8, "{opened} files are open, {files} before");
    recorder.so_far().lost_nothing("while it is away", &BTreeMap::new());

    server.restart().await;
    server.apply(&slice("quiet", 9)).await;
    recorder.has(QUIET_CLUSTER, 9).await;
    has_addresses(&pilotfish, "late.shop.svc.cluster.local", 3).await;
    has_addresses(&pilotfish, CATALOG, 2).await;
    eventually("nothing fails any more", || async { failing_since(&pilotfish).await.map_or(Ok(()), Err) })
        .await;
    served_all(load).await;
    // The second version of the catalog was deleted and made again: the world may see that, one at a time.
    let least = BTreeMap::from([(catalog_cluster, 1)]);
    recorder.so_far().lost_nothing("afterwards", &least);
    newcomer.so_far().lost_nothing("afterwards", &least);
    as_fresh(&server, &pilotfish, "after a minute").await;
}

/// Every request of a load was answered.
async fn served_all(load: Load) {
    load.answers(20).await;
    let failed: Vec<_> = load.stop().await.into_iter().filter(|(who, _)| !who.starts_with('v')).collect();
    assert!(failed.is_empty(), "failed requests: {failed:?}");
}

/// Everything is as a Pilotfish has it that starts now.
async fn as_fresh(server: &ApiServer, pilotfish: &Pilotfish, act: &str) {
    let fresh = serve(&server.kubeconfig()).await;
    let wanted = endpoints(&fresh).await;
    eventually(&format!("{act}: equal to a fresh start"), || async {
        let found = endpoints(pilotfish).await;
        if found == wanted { Ok(()) } else { Err(format!("{found}\n--- fresh\n{wanted}")) }
    })
    .await;
}

/// A proxy that connects while the API server is away gets everything.
async fn newcomer(pilotfish: &Pilotfish, shop: &Shop) -> Recorder {
    let newcomer = record(pilotfish, shop).await;
    let catalog = catalog_cluster(shop);
    newcomer.has(&catalog, 2).await;
    newcomer.has(QUIET_CLUSTER, 1).await;
    eventually("a new proxy gets every cluster", || async {
        let clusters = newcomer.so_far().clusters;
        if clusters.contains(&catalog) { Ok(()) } else { Err(clusters) }
    })
    .await;
    newcomer
}

/// Waits for a time on the clock. Only for what is about time itself.
async fn until(time: Instant) {
    tokio::time::sleep_until(time.into()).await;
}

/// Since when which registries fail; all registries where none does.
async fn failing_since(pilotfish: &Pilotfish) -> Result<BTreeMap<String, String>, String> {
    let registries = pilotfish.json("/debug/registryz?registries=true").await;
    let all = registries.as_array().into_iter().flatten();
    let failing = all.filter_map(|registry| {
        Some((registry["name"].to_string(), registry["failingSince"].as_str()?.to_owned()))
    });
    let failing: BTreeMap<_, _> = failing.collect();
    if failing.is_empty() { Err(registries.to_string()) } else { Ok(failing) }
}

async fn memory(pilotfish: &Pilotfish) -> f64 {
    pilotfish.metric("process_resident_memory_bytes").await
}

/// Takes connections on a port, counts and cuts them.
struct Door {
    task: tokio::task::JoinHandle<()>,
    knocks: std::sync::Arc<std::sync::atomic::AtomicUsize>,
}

impl Door {
    async fn open(port: u16) -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.expect("the port is free");
        let knocks = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = knocks.clone();
        let task = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                drop(connection);
                count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        });
        Self { task, knocks }
    }

    async fn close(&mut self) -> usize {
        self.task.abort();
        // The port is free when the task has ended.
        let _ = (&mut self.task).await;
        self.knocks.load(std::sync::atomic::Ordering::Relaxed)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_fails_takes_nothing_away() {
    let Some(mut scene) = Scene::start().await else { return };

    for (act, fault) in [
        ("answers 500", ApiServerFault::Status(500, None)),
        ("answers 429", ApiServerFault::Status(429, Some(1))),
        ("answers 401", ApiServerFault::Status(401, None)),
    ] {
        scene.proxy.set(fault);
        scene.change().await;
        scene.is_told(act).await;
        scene.proxy.set(ApiServerFault::None);
        scene.arrived(act).await;
        scene.is_over(act).await;
    }

    // No failures as such: the change has to arrive while it lasts.
    for (act, event, fault) in [
        ("answers 410 Gone to every watch that resumes", "expired", ApiServerFault::Gone),
        ("cuts every watch after a second", "resumed", ApiServerFault::Cut(Duration::from_secs(1))),
        ("is slow by two seconds", "slow", ApiServerFault::Slow(Duration::from_secs(2))),
    ] {
        let event = format!("event=\"{event}\"");
        let before = scene.pilotfish.metric_of("pilotfish_kube_watch_events", &event).await;
        scene.proxy.set(fault);
        for _ in 0..3 {
            scene.change().await;
            scene.arrived(act).await;
        }
        assert_eq!(addresses(&scene.pilotfish, CATALOG).await.len(), 2, "{act}: endpoints stay");
        eventually(&format!("{act}: it is counted"), || async {
            let now = scene.pilotfish.metric_of("pilotfish_kube_watch_events", &event).await;
            if now > before { Ok(()) } else { Err((before, now)) }
        })
        .await;
        scene.proxy.set(ApiServerFault::None);
        scene.is_over(act).await;
    }
    as_fresh(&scene.server, &scene.pilotfish, "after all faults of the proxy").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_missing_from_an_api_server_that_has_just_started_keep_their_objects() {
    let Some(mut scene) = Scene::start().await else { return };
    let act = "has just started";
    let before = scene.proxy.counts().groups;
    scene.proxy.set(ApiServerFault::Starting);
    eventually("the served kinds are discovered", || async {
        let requests = scene.proxy.counts().groups - before;
        if requests >= 3 { Ok(()) } else { Err((requests, scene.pilotfish.printed())) }
    })
    .await;
    assert_eq!(addresses(&scene.pilotfish, CATALOG).await.len(), 2, "{act}: endpoints stay");
    // Who starts at the same time waits, and does not serve a cluster without configuration.
    let second = launch(&scene.proxy.kubeconfig());
    eventually("the admin API answers", || second.page("/healthz")).await;
    eventually("it reports what it waits for", || async {
        let registries = second.json("/debug/registryz?registries=true").await.to_string();
        if registries.contains("failingSince") { Ok(()) } else { Err(registries) }
    })
    .await;
    assert!(second.page("/ready").await.is_err(), "{act}: not everything can be read yet");
    scene.proxy.set(ApiServerFault::None);
    second.ready().await;
    assert_eq!(
        addresses(&second, CATALOG).await.len(),
        2,
        "{act}: everything is there from the first moment"
    );
    scene.change().await;
    scene.arrived(act).await;
    scene.is_over(act).await;
    assert_eq!(addresses(&scene.pilotfish, CATALOG).await.len(), 2, "{act}: endpoints stay");
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

    let act = "changed, compacted and started again while no watch was possible";
    scene.proxy.set(ApiServerFault::Status(503, None));
    scene.is_told(act).await;
    for _ in 0..5 {
        scene.change().await;
    }
    scene.server.delete(&entries(&scene.shop, &[1])).await;
    scene.least.insert(catalog_cluster(&scene.shop), 1);
    scene.server.compact().await;
    scene.server.kill().await;
    scene.server.restart().await;
    scene.proxy.set(ApiServerFault::None);
    scene.arrived(act).await;
    has_addresses(&scene.pilotfish, CATALOG, 1).await;
    scene.is_over(act).await;
    as_fresh(&scene.server, &scene.pilotfish, act).await;

    let act = "our process is killed while the API server is away";
    scene.server.kill().await;
    scene.pilotfish.kill().await;
    scene.load.answers(100).await;
    scene.server.restart().await;
    scene.pilotfish.restart().await;
    scene.recorder = record(&scene.pilotfish, &scene.shop).await;
    scene.change().await;
    scene.arrived(act).await;
    scene.is_over(act).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_is_killed_during_the_first_list_only_delays() {
    let Some(mut server) = cluster().await else { return };
    server.apply(&[service("quiet"), slice("quiet", 700)].concat()).await;
    let proxy = ApiServerProxy::start(&server).await;
    // The first lists begin and never end.
    proxy.set(ApiServerFault::Silent);
    let pilotfish = launch(&proxy.kubeconfig());
    eventually("the admin API answers", || pilotfish.page("/healthz")).await;
    server.kill().await;
    proxy.set(ApiServerFault::Status(503, None));
    assert!(pilotfish.page("/ready").await.is_err(), "nothing is served before everything was read");
    server.restart().await;
    proxy.set(ApiServerFault::None);
    pilotfish.ready().await;
    assert_eq!(addresses(&pilotfish, QUIET).await.len(), 700);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_really_gone_goes() {
    let Some(mut scene) = Scene::start().await else { return };
    let act = "scaled to zero and back";
    scene.least.insert(QUIET_CLUSTER.to_owned(), 0);
    scene.server.apply(&slice("quiet", 0)).await;
    has_addresses(&scene.pilotfish, QUIET, 0).await;
    scene.recorder.has(QUIET_CLUSTER, 0).await;
    scene.quiet = 4;
    scene.change().await;
    scene.arrived(act).await;
    // Empty exactly once, in between.
    let mut pushes = scene.recorder.so_far().endpoints[QUIET_CLUSTER].clone();
    pushes.dedup();
    assert_eq!(pushes, [1, 0, 5], "{act}");

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
    as_fresh(&scene.server, &scene.pilotfish, act).await;
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
