//! What `why` says is what a real Envoy does: over random worlds and requests, the route, the cluster and the endpoints that it names hold
//! those of Envoy's access log, and what it says was dropped explains all other endpoints of the host.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails this way")]

#[path = "support/dice.rs"]
mod dice;

use dice::Dice;
use pilotfish_testkit::real::{Backend, Envoy, EnvoyOptions, Pilotfish, eventually, free_port, get, request};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

/// Worlds, one after the other in one folder.
const WORLDS: u64 = 24;
/// Services of a world.
const SERVICES: usize = 5;
/// Requests to each host, each sent so many times: routes by weight take several ways.
const REQUESTS: usize = 4;
const TIMES: usize = 4;
/// Endpoints that the services of a world share out among them.
const BACKENDS: usize = 12;

/// A service of a world.
struct Service {
    name: String,
    namespace: &'static str,
    /// Backends by number, with their version, and whether they are ready.
    endpoints: Vec<(usize, &'static str, bool)>,
}

impl Service {
    fn host(&self) -> String {
        format!("{}.{}.svc.cluster.local", self.name, self.namespace)
    }
}

/// Objects, and what they are about.
struct World {
    number: u64,
    port: u16,
    services: Vec<Service>,
    yaml: String,
}

impl World {
    fn new(number: u64, port: u16, backends: &[Backend]) -> Self {
        let mut dice = Dice(number);
        let mut services: Vec<Service> = (0..SERVICES)
            .map(|at| Service {
                name: format!("s{at}"),
                namespace: dice.pick(&["shop", "stock", "edge"]),
                endpoints: Vec::new(),
            })
            .collect();
        for backend in 0..BACKENDS {
            // Some services have none.
            let service = &mut services[dice.below(SERVICES)];
            service.endpoints.push((backend, dice.pick(&["v1", "v2"]), dice.chance(75)));
        }
        let mut world = Self { number, port, services, yaml: String::new() };
        world.marker(&backends[0]);
        for at in 0..SERVICES {
            world.service(at, &mut dice, backends);
            if dice.chance(60) {
                world.subsets(at);
            }
            if dice.chance(75) {
                world.routes(at, &mut dice);
            }
        }
        if dice.chance(60) {
            world.scope(&mut dice);
        }
        world
    }

    fn add(&mut self, object: &str) {
        let _ = writeln!(self.yaml, "{object}\n---");
    }

    fn marker_host(&self) -> String {
        format!("world-{}.example.com", self.number)
    }

    /// A host that only this world has.
    fn marker(&mut self, backend: &Backend) {
        let (host, port, target) = (self.marker_host(), self.port, backend.port());
        self.add(&format!(
            "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: marker, namespace: shop}}\nspec:\n  hosts: \
             [{host}]\n  resolution: STATIC\n  ports: [{{name: http, number: {port}, protocol: HTTP}}]\n  endpoints: \
             [{{address: {}, ports: {{http: {target}}}}}]",
            address(0)
        ));
    }

    fn service(&mut self, at: usize, dice: &mut Dice, backends: &[Backend]) {
        let (name, namespace) = (self.services[at].name.clone(), self.services[at].namespace);
        let export = match dice.below(10) {
            0 | 1 => "annotations: {networking.istio.io/exportTo: .}",
            2 => "annotations: {networking.istio.io/exportTo: stock}",
            _ => "labels: {}",
        };
        self.add(&format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {namespace}, {export}}}\nspec: {{clusterIP: \
             10.1.0.{}, selector: {{app: {name}}}, ports: [{{name: http, port: {}}}]}}",
            at + 1,
            self.port
        ));
        for (backend, version, is_ready) in self.services[at].endpoints.clone() {
            let (ip, port) = (address(backend), backends[backend].port());
            self.add(&format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}-{backend}, namespace: {namespace}, labels: {{app: {name}, \
                 version: {version}}}}}\nspec: {{containers: [{{name: app, image: x}}]}}\nstatus: {{phase: Running, podIP: {ip}, \
                 podIPs: [{{ip: {ip}}}], conditions: [{{type: Ready, status: \"{is_ready}\"}}]}}"
            ));
            // Each has a port of its own, so each has a slice.
            self.add(&format!(
                "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}-{backend}, namespace: {namespace}, \
                 labels: {{kubernetes.io/service-name: {name}}}}}\naddressType: IPv4\nports: [{{name: http, port: {port}, protocol: \
                 TCP}}]\nendpoints: [{{addresses: [{ip}], conditions: {{ready: {is_ready}, serving: {is_ready}, terminating: false}}, \
                 targetRef: {{kind: Pod, name: {name}-{backend}, namespace: {namespace}}}}}]"
            ));
        }
    }

    fn subsets(&mut self, at: usize) {
        let (name, namespace) = (&self.services[at].name, self.services[at].namespace);
        let rule = format!(
            "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec:\n  \
             host: {name}\n  subsets: [{{name: v1, labels: {{version: v1}}}}, {{name: v2, labels: {{version: v2}}}}]"
        );
        self.add(&rule);
    }

    fn routes(&mut self, at: usize, dice: &mut Dice) {
        let namespace = if dice.chance(50) { "shop" } else { self.services[at].namespace };
        let mut rules = String::new();
        for rule in 0..=dice.below(3) {
            let condition = condition(dice);
            let action = self.action(at, dice);
            let _ = write!(rules, "\n  - {{name: w{}-{at}-{rule}, {condition}{action}}}", self.number);
        }
        let (name, host) = (self.services[at].name.clone(), self.services[at].host());
        self.add(&format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec:\n  \
             hosts: [{host}]\n  http:{rules}"
        ));
    }

    fn action(&self, at: usize, dice: &mut Dice) -> String {
        match dice.below(12) {
            0 => return "directResponse: {status: 418}".to_owned(),
            1 => return "redirect: {uri: /moved}".to_owned(),
            _ => {}
        }
        let mut destination = |weight: usize| {
            // Mostly the service itself, and sometimes one that may not be seen.
            let other = if dice.chance(30) { dice.below(SERVICES) } else { at };
            let subset = dice.pick(&["", "", ", subset: v1", ", subset: v2"]);
            format!("{{destination: {{host: {}{subset}}}, weight: {weight}}}", self.services[other].host())
        };
        let first = destination(100);
        if at.is_multiple_of(2) {
            return format!("route: [{first}]");
        }
        format!("route: [{}, {}]", destination(50), destination(50))
    }

    fn scope(&mut self, dice: &mut Dice) {
        let other =
            dice.pick(&["stock/*", "edge/*", "*/s1.stock.svc.cluster.local", "./s2.shop.svc.cluster.local"]);
        let unknown = dice.pick(&["REGISTRY_ONLY", "ALLOW_ANY"]);
        self.add(&format!(
            "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{name: default, namespace: shop}}\nspec:\n  egress: \
             [{{hosts: ['./*', '{other}']}}]\n  outboundTrafficPolicy: {{mode: {unknown}}}"
        ));
    }

    /// Requests to each host, and to one that does not exist.
    fn requests(&self) -> Vec<Asked> {
        let mut dice = Dice(self.number + 1_000);
        let mut all = Vec::new();
        let mut ask = |host: String| {
            for _ in 0..REQUESTS {
                let headers =
                    dice.pick(&[&[][..], &[("x-user", "tester")], &[("x-user", "team-b")], &[("x-a", "1")]]);
                all.push(Asked {
                    host: host.clone(),
                    method: dice.pick(&["GET", "GET", "POST"]),
                    path: dice.pick(&["/", "/v1", "/v1/x", "/a", "/b"]),
                    headers,
                });
            }
        };
        self.services.iter().map(Service::host).for_each(&mut ask);
        let short = self.services.iter().find(|service| service.namespace == "shop");
        short.map(|service| service.name.clone()).into_iter().for_each(&mut ask);
        ask("nowhere.example.com".to_owned());
        all
    }
}

/// The address of a backend.
fn address(backend: usize) -> String {
    format!("127.0.3.{}", backend + 1)
}

/// What a rule matches.
fn condition(dice: &mut Dice) -> String {
    let condition = dice.pick(&[
        "",
        "",
        "{uri: {prefix: /v1}}",
        "{uri: {exact: /a}}",
        "{uri: {regex: '/[ab]'}}",
        "{method: {exact: POST}}",
        "{headers: {x-user: {exact: tester}}}",
        "{headers: {x-user: {prefix: team}}, uri: {prefix: /}}",
        "{headers: {x-user: {regex: 'te.*'}}}",
        "{withoutHeaders: {x-user: {}}}",
        "{authority: {prefix: s1}}",
        "{uri: {prefix: /V1}, ignoreUriCase: true}",
    ]);
    if condition.is_empty() { String::new() } else { format!("match: [{condition}], ") }
}

/// A request of the proxy's application.
#[derive(Debug)]
struct Asked {
    host: String,
    method: &'static str,
    path: &'static str,
    headers: &'static [(&'static str, &'static str)],
}

impl Asked {
    async fn send(&self, port: u16, number: &str) {
        let host = format!("{}:{port}", self.host);
        let headers = [&[("host", host.as_str()), ("x-number", number)], self.headers].concat();
        request(self.method, &format!("http://127.0.0.1:{port}{}", self.path), &headers).await.unwrap();
    }

    async fn why(&self, pilotfish: &Pilotfish, port: u16) -> Value {
        let Self { host, method, path, .. } = self;
        let mut query = format!("/api/v1/why?proxy=client.shop&to={host}:{port}&method={method}&path={path}");
        for (name, value) in self.headers {
            let _ = write!(query, "&header={name}={value}");
        }
        pilotfish.json(&query).await
    }
}

/// What Envoy did with a request: a line of its access log.
#[derive(Clone, Debug)]
struct Done {
    route: String,
    cluster: String,
    endpoint: String,
    code: String,
}

const FORMAT: &str = "%REQ(X-NUMBER)% %ROUTE_NAME% %UPSTREAM_CLUSTER_RAW% %UPSTREAM_HOST% %RESPONSE_CODE%";

/// The lines of an access log by the number of the request.
fn log(file: &Path) -> BTreeMap<String, Done> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().filter_map(|line| {
        let parts: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let [number, route, cluster, endpoint, code] = <[String; 5]>::try_from(parts).ok()?;
        Some((number, Done { route, cluster, endpoint, code }))
    });
    lines.collect()
}

/// The first words of items: addresses of endpoints.
fn addresses<'a>(items: impl Iterator<Item = &'a Value>) -> BTreeSet<String> {
    items.map(|item| item.as_str().unwrap().split(' ').next().unwrap().to_owned()).collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Whether an answer says what Envoy did.
fn holds(why: &Value, done: &Done) -> Result<(), String> {
    let step = |name: &str| list(&why["steps"]).filter(|step| step["step"] == name).collect::<Vec<_>>();
    let outcome = why["outcome"].as_str().unwrap();
    let chosen = step("route").first().map_or("", |route| route["chosen"].as_str().unwrap()).to_owned();
    let is_route = match done.route.as_str() {
        // Without a route, or with one that no VirtualService names.
        "-" | "default" => !chosen.contains('"'),
        name => chosen.contains(&format!("{name:?}")),
    };
    if !is_route {
        return Err(format!("another route: {chosen:?}"));
    }
    let clusters: Vec<&Value> = step("cluster").iter().map(|cluster| &cluster["chosen"]).collect();
    if done.cluster != "-" && !clusters.iter().any(|cluster| **cluster == *done.cluster) {
        return Err(format!("another cluster: {clusters:?}"));
    }
    if done.endpoint != "-" {
        let endpoints = addresses(list(&why["endpoints"]));
        let goes = why["reaches"] == true || outcome.contains("% of requests");
        return match (goes, endpoints.contains(&done.endpoint)) {
            (true, true) => Ok(()),
            (false, _) => Err(format!("it ends: {outcome}")),
            (true, false) => Err(format!("other endpoints: {endpoints:?}")),
        };
    }
    let code = if done.code.starts_with('3') { "3xx" } else { &done.code };
    if why["reaches"] == false && outcome.contains(code) {
        Ok(())
    } else {
        Err(format!("it goes on: {outcome}"))
    }
}

/// Whether every endpoint of the chosen clusters' hosts is among those that take requests, or is said to be dropped.
fn explains(why: &Value, world: &World, backends: &[Backend]) -> Result<(), String> {
    let mut known = addresses(list(&why["endpoints"]));
    known.extend(addresses(list(&why["dropped"]).map(|dropped| &dropped["what"])));
    for step in list(&why["steps"]).filter(|step| step["step"] == "endpoints" || step["step"] == "cluster") {
        let Some(host) = step["chosen"].as_str().and_then(|name| name.rsplit('|').next()) else { continue };
        // A cluster that is not there has no endpoints to explain.
        if step["verdict"] == "ends" {
            continue;
        }
        let service = world.services.iter().find(|service| service.host() == host);
        for (backend, ..) in service.into_iter().flat_map(|service| &service.endpoints) {
            let endpoint = format!("{}:{}", address(*backend), backends[*backend].port());
            if !known.contains(&endpoint) {
                return Err(format!("{endpoint} of {host} is not explained: {known:?}"));
            }
        }
    }
    // A host that is there and not seen: by what.
    let service = &why["steps"][0];
    if service["step"] == "service" && service["chosen"] == "" {
        let text = service["text"].as_str().unwrap();
        let is_known =
            world.services.iter().any(|service| why["request"].as_str().unwrap().contains(&service.host()));
        if is_known
            && !(text.contains("exportTo") || text.contains("Sidecar") || text.contains("does not see it:"))
        {
            return Err(format!("nothing says why it is not seen: {text}"));
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_says_what_envoy_does() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.log");
    let mut backends = Vec::new();
    for backend in 0..BACKENDS {
        backends.push(Backend::start(&address(backend), "it").await);
    }
    let port = free_port();
    let settings = folder.path().join("mesh-config.yaml");
    let text = format!("accessLogFile: {}\naccessLogFormat: \"{FORMAT}\\n\"\n", file.display());
    std::fs::write(&settings, text).unwrap();
    let mesh = folder.path().join("mesh");
    std::fs::create_dir(&mesh).unwrap();
    let arguments = [mesh.to_str().unwrap(), "--mesh-config", settings.to_str().unwrap()];
    let pilotfish = Pilotfish::launch(env!("CARGO_BIN_EXE_pilotfish"), &arguments);
    pilotfish.ready().await;
    let Some(_envoy) = Envoy::start(&pilotfish, &EnvoyOptions::sidecar("delta")).await else { return };
    let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
    for number in 0..WORLDS {
        let world = World::new(number, port, &backends);
        let new = folder.path().join("new");
        std::fs::write(&new, &world.yaml).unwrap();
        std::fs::rename(&new, mesh.join("world.yaml")).unwrap();
        // The routes of a port are one resource, which comes after clusters and endpoints.
        let marker = format!("{}:{port}", world.marker_host());
        eventually(&format!("world {number} is served"), || get(port, &marker, &[])).await;
        let requests = world.requests();
        let name = |at: usize, time: usize| format!("{number}-{at}-{time}");
        for (at, asked) in requests.iter().enumerate() {
            for time in 0..TIMES {
                asked.send(port, &name(at, time)).await;
            }
        }
        let done = eventually("the access log has all requests", || async {
            let log = log(&file);
            let all = (0..requests.len()).all(|at| (0..TIMES).all(|time| log.contains_key(&name(at, time))));
            if all { Ok(log) } else { Err(log.len()) }
        })
        .await;
        for (at, asked) in requests.iter().enumerate() {
            let why = asked.why(&pilotfish, port).await;
            let says = |error: String, done: Option<&Done>| -> ! {
                panic!("world {number}: {error}\n{asked:?}\nEnvoy: {done:?}\n{why:#}\n{}", world.yaml)
            };
            for time in 0..TIMES {
                let done = &done[&name(at, time)];
                holds(&why, done).unwrap_or_else(|error| says(error, Some(done)));
                *outcomes.entry(done.code.clone()).or_default() += 1;
            }
            explains(&why, &world, &backends).unwrap_or_else(|error| says(error, None));
        }
    }
    // The worlds are not all alike: requests arrive, are answered by the proxy, and find no route or nobody.
    assert!(
        ["200", "301", "404", "418", "503"].iter().all(|code| outcomes.contains_key(*code)),
        "{outcomes:?}"
    );
}
