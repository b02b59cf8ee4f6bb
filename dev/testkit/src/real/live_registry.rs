//! A live registry without the binary: its source runs against a real server, and tests inspect the resulting
//! world.

use super::eventually;
use pilotfish_model::{Endpoint, Provider, Service, ShardKey, World};
use pilotfish_registry::testing::Scene;
use pilotfish_registry::{
    Input, LiveInput, LiveSettings, LiveSource, OptionsError, RegistryReceiver, RegistrySettings,
    RegistryType, SourceReport, SourceState, channel,
};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;
use tokio::task::JoinHandle;

/// The running source of one `--registry`. Ends on drop.
///
/// Its output goes through the aggregate controller into a world, as in the binary.
pub struct LiveRegistry {
    seen: Arc<Mutex<Seen>>,
    report: SourceReport,
    tasks: [JoinHandle<()>; 2],
}

/// State of a registry in a world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistryState {
    /// True once its initial list is complete.
    pub synced: bool,
    /// Reason why it cannot read its product now.
    pub failure: Option<String>,
    /// One line for each service, `HOST in NAMESPACE: PORT NAME PROTOCOL, ...`, followed by one for each of
    /// its endpoints, `- ADDRESS:PORT of NAME`, with non-default attributes: health, weight, locality,
    /// network, node, labels.
    pub lines: Vec<String>,
}

impl RegistryState {
    /// Lines of endpoints, without their marks.
    #[must_use]
    pub fn endpoints(&self) -> Vec<&str> {
        self.lines.iter().filter_map(|line| line.strip_prefix("- ")).collect()
    }

    /// Addresses of endpoints with ports.
    #[must_use]
    pub fn addresses(&self) -> Vec<&str> {
        self.endpoints().into_iter().filter_map(|line| line.split(' ').next()).collect()
    }

    #[must_use]
    pub fn services(&self) -> Vec<&str> {
        self.lines.iter().filter(|line| !line.starts_with("- ")).map(String::as_str).collect()
    }
}

#[derive(Default)]
struct Seen {
    state: RegistryState,
    failures: usize,
    /// Failing states since the last state that a test waited for, each once in a row.
    failing: Vec<RegistryState>,
    least: Option<usize>,
    world: Arc<World>,
}

impl LiveRegistry {
    /// Starts the source of `--registry NAME=ADDRESS[?OPTION=VALUE&...]`; `text` is the part after the first
    /// `=`.
    ///
    /// # Panics
    /// When the settings are refused.
    #[must_use]
    pub fn start(registry: &'static RegistryType, text: &str) -> Self {
        let source = open(registry, text).expect("the settings are right");
        let (sender, receiver) = channel();
        let report = receiver.report().clone();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let runs = tokio::spawn(source.run(sender));
        let reads = tokio::spawn(read(shard(registry), receiver, seen.clone()));
        Self { seen, report, tasks: [runs, reads] }
    }

    /// Reason why settings are refused.
    ///
    /// # Panics
    /// When they are accepted.
    #[must_use]
    pub fn refusal(registry: &'static RegistryType, text: &str) -> String {
        match open(registry, text) {
            Ok(_) => panic!("{text} is taken"),
            Err(error) => error.to_string(),
        }
    }

    #[must_use]
    pub fn state(&self) -> RegistryState {
        self.seen().state.clone()
    }

    #[must_use]
    pub fn world(&self) -> Arc<World> {
        self.seen().world.clone()
    }

    /// Status report of the source: sessions, requests, the guard, problems of the content.
    #[must_use]
    pub fn report(&self) -> SourceState {
        self.report.state()
    }

    /// Number of reported failures.
    #[must_use]
    pub fn failures(&self) -> usize {
        self.seen().failures
    }

    /// Minimum number of endpoints in the world, including between changes, since the last call or the first
    /// complete state.
    #[must_use]
    pub fn fewest_endpoints(&self) -> usize {
        let mut seen = self.seen();
        let now = seen.state.endpoints().len();
        seen.least.replace(now).unwrap_or(now)
    }

    /// Waits until the state matches, and returns it.
    ///
    /// # Panics
    /// On a timeout, with the state.
    pub async fn until(&self, what: &str, wanted: impl Fn(&RegistryState) -> bool) -> RegistryState {
        eventually(what, || async {
            let mut seen = self.seen();
            if !wanted(&seen.state) {
                return Err(seen.state.clone());
            }
            seen.failing.clear();
            Ok(seen.state.clone())
        })
        .await
    }

    /// Waits until it is in sync, does not fail, and has exactly these lines.
    ///
    /// # Panics
    /// On a timeout, with the state.
    pub async fn has(&self, lines: &[&str]) -> RegistryState {
        let wanted = |state: &RegistryState| state.synced && state.failure.is_none() && state.lines == lines;
        self.until(&format!("the world has {lines:#?}"), wanted).await
    }

    /// Waits for a failure with a reason that contains this text, and returns the state of that moment.
    ///
    /// A failure that has already ended counts if it began after the last state that the test waited for: a
    /// test that restarts a server may look only when the registry has recovered.
    ///
    /// # Panics
    /// On a timeout, with the state.
    pub async fn fails(&self, reason: &str) -> RegistryState {
        let wanted = |state: &RegistryState| state.failure.as_ref().is_some_and(|text| text.contains(reason));
        eventually(&format!("it fails: {reason}"), || async {
            let mut seen = self.seen();
            if wanted(&seen.state) {
                seen.failing.clear();
                return Ok(seen.state.clone());
            }
            let Some(at) = seen.failing.iter().position(wanted) else { return Err(seen.state.clone()) };
            Ok(seen.failing.drain(..=at).next_back().expect("it has the failure at its end"))
        })
        .await
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no holder panics")
    }
}

impl Drop for LiveRegistry {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

fn shard(registry: &RegistryType) -> ShardKey {
    ShardKey::new(Provider::new(2, registry.provider), "Kubernetes")
}

fn open(registry: &RegistryType, text: &str) -> Result<Box<dyn LiveSource>, OptionsError> {
    let Input::Live(new) = registry.input else { panic!("{} reads objects", registry.name) };
    let (address, options) = text.split_once('?').unwrap_or((text, ""));
    new(LiveSettings {
        shard: shard(registry),
        address: address.to_owned(),
        options: form_urlencoded::parse(options.as_bytes()).into_owned().collect(),
        registry: RegistrySettings::default(),
    })
}

/// Applies the source's output to a world.
async fn read(shard: ShardKey, mut receiver: RegistryReceiver, seen: Arc<Mutex<Seen>>) {
    let mut scene = Scene::new();
    scene.controller.add_live(shard.clone());
    while receiver.wait().await {
        if let Some(input) = receiver.take() {
            let mut seen = seen.lock().expect("no holder panics");
            seen.failures += usize::from(input.failure.is_some());
            bring(&mut scene, &shard, input);
            seen.look(&mut scene, &shard);
        }
    }
}

/// Order of the control loop: content first, then health.
fn bring(scene: &mut Scene, shard: &ShardKey, input: LiveInput) {
    let controller = &mut scene.controller;
    if let Some(batch) = input.batch {
        controller.registry_batch(shard, batch).expect("it was added");
    }
    if input.synced {
        controller.registry_synced(shard).expect("it was added");
    }
    if let Some(reason) = input.failure {
        controller.registry_failed(shard, SystemTime::now(), reason).expect("it was added");
    }
}

impl Seen {
    fn look(&mut self, scene: &mut Scene, shard: &ShardKey) {
        self.world = scene.world();
        let status = scene.controller.status();
        let status = status.iter().find(|status| status.shard == *shard).expect("it was added");
        self.state = RegistryState {
            synced: status.sync.is_synced(),
            failure: status.sync.failure().map(|failure| failure.reason.to_string()),
            lines: lines(&self.world, shard),
        };
        if self.state.failure.is_some() && self.failing.last() != Some(&self.state) {
            self.failing.push(self.state.clone());
        }
        if self.state.synced {
            let now = self.state.endpoints().len();
            self.least = Some(self.least.map_or(now, |least| least.min(now)));
        }
    }
}

/// All services and endpoints of a shard.
fn lines(world: &World, shard: &ShardKey) -> Vec<String> {
    let mut lines = Vec::new();
    for (key, services) in world.services() {
        lines.extend(services.iter().map(|service| service_line(service)));
        let endpoints = world.endpoints_of(key);
        let mut endpoints: Vec<String> = endpoints
            .iter()
            .filter_map(|endpoints| endpoints.shards.get(shard))
            .flat_map(|list| list.iter().map(|endpoint| endpoint_line(endpoint)))
            .collect();
        endpoints.sort();
        lines.append(&mut endpoints);
    }
    lines
}

fn service_line(service: &Service) -> String {
    let ports: Vec<_> = service
        .ports
        .iter()
        .map(|port| format!("{} {} {:?}", port.number, port.name, port.protocol))
        .collect();
    format!("{} in {}: {}", service.hostname, service.namespace, ports.join(", "))
}

fn endpoint_line(endpoint: &Endpoint) -> String {
    let of = &endpoint.attributes;
    let mut line =
        format!("- {}:{} of {}", endpoint.addresses.join("+"), endpoint.port, endpoint.service_port);
    let locality = of.locality.to_string();
    let labels: Vec<_> = of.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let more = [
        ("health", format!("{:?}", endpoint.health), "Healthy"),
        ("weight", of.weight.to_string(), "0"),
        ("locality", locality, ""),
        ("network", of.network.to_string(), ""),
        ("node", of.node.to_string(), ""),
        ("labels", labels.join(","), ""),
    ];
    for (name, value, usual) in more {
        if value != usual {
            write!(line, " {name}={value}").expect("a string can be written");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_model::{Hostname, Origin, Port, Protocol, ServiceKey, Workload};
    use pilotfish_registry::{OptionSpec, RegistryBatch, RegistrySender};
    use std::pin::Pin;
    use tokio::sync::mpsc;

    static STEPS: RegistryType = RegistryType {
        name: "steps",
        provider: "steps",
        about: "a list for each address of its text",
        address: "here",
        options: &[&[OptionSpec { name: "steps", value: "LIST,...", about: "lists of addresses" }]],
        input: Input::Live(|mut settings| {
            let steps = settings.options.take("steps").unwrap_or_default();
            let shard = settings.shard.clone();
            settings.finish(&STEPS)?;
            Ok(Box::new(Steps { shard, steps }))
        }),
    };

    struct Steps {
        shard: ShardKey,
        steps: String,
    }

    impl Steps {
        fn batch(&self, addresses: &str) -> RegistryBatch {
            let mut batch = RegistryBatch::complete();
            let port = Port { number: 80, name: "http".into(), protocol: Protocol::Http, target_port: None };
            let hostname = Hostname::parse("web.steps").unwrap();
            let workloads = addresses
                .split_whitespace()
                .map(|ip| Workload::registered(&self.shard, "shop", ip.to_owned(), vec![ip.into()]));
            let endpoints: Vec<_> =
                workloads.map(|workload| Arc::new(workload.endpoint(&port, 8080))).collect();
            let key = ServiceKey { hostname: hostname.clone(), namespace: "shop".into() };
            batch.set_endpoints(key, endpoints);
            let origin = Origin::registered(self.shard.clone(), "web");
            batch.set_service(Service::registered(self.shard.provider, hostname, "shop", vec![port], origin));
            batch
        }
    }

    impl LiveSource for Steps {
        fn run(self: Box<Self>, sender: RegistrySender) -> Pin<Box<dyn Future<Output = ()> + Send>> {
            Box::pin(async move {
                for step in self.steps.split(',') {
                    match step.strip_prefix('!') {
                        Some(reason) => sender.failed(reason),
                        None => sender.send(self.batch(step)),
                    }
                    // What is sent is taken before the next.
                    for _ in 0..4 {
                        tokio::task::yield_now().await;
                    }
                }
                let (_keep, mut never) = mpsc::channel::<()>(1);
                never.recv().await;
            })
        }
    }

    #[tokio::test]
    async fn it_tells_services_endpoints_and_failures() {
        let registry = LiveRegistry::start(&STEPS, "here?steps=10.0.0.1 10.0.0.2");
        let state = registry
            .has(&["web.steps in shop: 80 http Http", "- 10.0.0.1:8080 of http", "- 10.0.0.2:8080 of http"])
            .await;
        assert_eq!(state.services(), ["web.steps in shop: 80 http Http"]);
        assert_eq!(state.addresses(), ["10.0.0.1:8080", "10.0.0.2:8080"]);
        assert_eq!((registry.failures(), registry.fewest_endpoints()), (0, 2));
        let failing = LiveRegistry::start(&STEPS, "here?steps=10.0.0.1,!it is gone");
        let state = failing.fails("is gone").await;
        assert_eq!((state.addresses(), failing.failures()), (vec!["10.0.0.1:8080"], 1));
    }

    #[tokio::test]
    async fn a_failure_that_ended_before_the_test_looked_is_found() {
        let registry = LiveRegistry::start(&STEPS, "here?steps=10.0.0.1,!it is gone,!it is slow,10.0.0.2");
        eventually("the last is there", || async {
            let state = registry.state();
            if state.addresses() == ["10.0.0.2:8080"] { Ok(()) } else { Err(state) }
        })
        .await;
        let gone = registry.fails("is gone").await;
        assert_eq!(gone.addresses(), ["10.0.0.1:8080"]);
        registry.fails("is slow").await;
        let waited = registry.until("the last is there", |state| state.failure.is_none()).await;
        assert_eq!(waited.addresses(), ["10.0.0.2:8080"]);
        assert_eq!(registry.seen().failing, [], "what was waited for ends what was before");
    }

    #[tokio::test]
    async fn it_remembers_what_was_there_for_a_moment() {
        let registry = LiveRegistry::start(&STEPS, "here?steps=10.0.0.1 10.0.0.2,,10.0.0.3");
        registry.until("the last is there", |state| state.addresses() == ["10.0.0.3:8080"]).await;
        assert_eq!(registry.fewest_endpoints(), 0);
        assert_eq!(registry.fewest_endpoints(), 1, "counted anew");
    }

    #[tokio::test]
    async fn it_tells_what_is_refused() {
        let refusal = LiveRegistry::refusal(&STEPS, "here?stepz=1");
        assert_eq!(refusal, "there is no option \"stepz\" (did you mean \"steps\"?)");
    }
}
