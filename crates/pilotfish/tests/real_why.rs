//! What `why` says is what a real Envoy does: over random worlds and requests, the route, the cluster and the
//! endpoints that it names hold those of Envoy's access log, and what it says was dropped explains all other
//! endpoints of the host.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails this way")]

#[path = "support/dice.rs"]
mod dice;
#[path = "support/http_rules.rs"]
mod http_rules;
#[path = "support/requests.rs"]
mod requests;

use dice::Dice;
use http_rules::{action, condition};
use pilotfish_testkit::real::{Backend, EnvoyOptions, Pilotfish, eventually, free_port, get, request};
use requests::{Done, SERVICES, Service, Stage, address, addresses, holds, list, log};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Worlds, one after the other in one folder.
const WORLDS: u64 = 24;
/// Requests to each host, each sent so many times: routes by weight take several ways.
const REQUESTS: usize = 4;
const TIMES: usize = 4;

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
        let services = Service::all(&mut dice, &["shop", "stock", "edge"]);
        let mut world = Self { number, port, services, yaml: String::new() };
        world.marker(&backends[0]);
        for at in 0..SERVICES {
            world.service(at, &mut dice, backends);
            if dice.chance(60) {
                world.yaml += &world.services[at].subsets();
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
        let metadata = match dice.below(10) {
            0 | 1 => "annotations: {networking.istio.io/exportTo: .}",
            2 => "annotations: {networking.istio.io/exportTo: stock}",
            _ => "labels: {}",
        };
        self.yaml += &self.services[at].yaml(at, self.port, metadata, backends);
    }

    fn routes(&mut self, at: usize, dice: &mut Dice) {
        let namespace = if dice.chance(50) { "shop" } else { self.services[at].namespace };
        let mut rules = String::new();
        for rule in 0..=dice.below(3) {
            let condition = condition(dice);
            let action = action(&self.services, at, dice);
            let _ = write!(rules, "\n  - {{name: w{}-{at}-{rule}, {condition}{action}}}", self.number);
        }
        let (name, host) = (self.services[at].name.clone(), self.services[at].host());
        self.add(&format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec:\n  \
             hosts: [{host}]\n  http:{rules}"
        ));
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

/// Whether every endpoint of the chosen clusters' hosts is among those that take requests, or is said to be
/// dropped.
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
    let port = free_port();
    let Some(stage) = Stage::start(&EnvoyOptions::sidecar("delta")).await else { return };
    let file = stage.access_log();
    let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
    for number in 0..WORLDS {
        let world = World::new(number, port, &stage.backends);
        stage.serve(&world.yaml);
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
            let why = asked.why(&stage.pilotfish, port).await;
            let says = |error: String, done: Option<&Done>| -> ! {
                panic!("world {number}: {error}\n{asked:?}\nEnvoy: {done:?}\n{why:#}\n{}", world.yaml)
            };
            for time in 0..TIMES {
                let done = &done[&name(at, time)];
                holds(&why, done).unwrap_or_else(|error| says(error, Some(done)));
                *outcomes.entry(done.code.clone()).or_default() += 1;
            }
            explains(&why, &world, &stage.backends).unwrap_or_else(|error| says(error, None));
        }
    }
    // The worlds are not all alike: requests arrive, are answered by the proxy, and find no route or nobody.
    assert!(
        ["200", "301", "404", "418", "503"].iter().all(|code| outcomes.contains_key(*code)),
        "{outcomes:?}"
    );
}
