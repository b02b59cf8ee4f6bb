//! What `why` says of a gateway is what a real Envoy does: over random Gateways, VirtualServices and
//! requests, in plaintext, in TLS that it passes on by server name, and as streams of bytes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails this way")]

#[path = "support/connections.rs"]
mod connections;
#[path = "support/dice.rs"]
mod dice;
#[path = "support/http_rules.rs"]
mod http_rules;
#[path = "support/requests.rs"]
mod requests;

use connections::{Asked, Call, Outcomes, Ports, World, check, stream};
use dice::Dice;
use http_rules::{action, condition};
use pilotfish_testkit::real::{Backend, EnvoyOptions, Pilotfish, client_hello, eventually, get, request};
use requests::{SERVICES, Service, Stage, destinations};
use serde_json::Value;
use std::fmt::Write;

/// Worlds, one after the other in one folder.
const WORLDS: u64 = 24;
/// Requests in plaintext, in TLS, and streams of bytes of a world, each sent so many times: routes by weight
/// take several ways.
const REQUESTS: usize = 16;
const HELLOS: usize = 8;
const STREAMS: usize = 3;
const TIMES: usize = 3;

impl World {
    fn new(number: u64, ports: Ports, backends: &[Backend]) -> Self {
        let mut dice = Dice(number);
        let services = Service::all(&mut dice, &["shop", "stock"]);
        let mut world = Self::empty(number, ports);
        world.marker();
        for (at, service) in services.iter().enumerate() {
            world.yaml += &service.yaml(at, 80, "labels: {}", backends);
            if dice.chance(70) {
                world.yaml += &service.subsets();
            }
        }
        world.gateways(&mut dice);
        for at in 0..SERVICES {
            world.http(&services, at, &mut dice);
        }
        world.tls(&services, &mut dice);
        world.tcp(&services, &mut dice);
        world
    }

    /// A host that answers its name: the worlds before may have a route for it, too.
    fn marker(&mut self) {
        let (host, port) = (self.marker_host(), self.ports.http);
        let servers = format!(
            "{{selector: {{istio: edge}}, servers: [{{port: {{number: {port}, name: marker, protocol: HTTP}}, hosts: [{host}]}}]}}"
        );
        self.add("Gateway", "marker", "edge", &servers);
        let routes = format!(
            "{{hosts: [{host}], gateways: [marker], http: [{{directResponse: {{status: 200, body: {{string: {host}}}}}}}]}}"
        );
        self.add("VirtualService", "marker", "edge", &routes);
    }

    /// Two gateways, whose servers may share ports, and of which the second may be for other proxies.
    fn gateways(&mut self, dice: &mut Dice) {
        let Ports { http, tls, tcp } = self.ports;
        for name in ["front", "side"] {
            let selector = if name == "side" && dice.chance(30) { "other" } else { "edge" };
            let mut servers = Vec::new();
            if dice.chance(80) {
                let hosts = dice.pick(&[
                    "'*'",
                    "'*.example.com'",
                    "a.example.com, b.example.com",
                    "shop/a.example.com, '*.b.example.com'",
                    "stock/*",
                ]);
                servers.push(format!(
                    "{{port: {{number: {http}, name: http-{name}, protocol: HTTP}}, hosts: [{hosts}]}}"
                ));
            }
            if dice.chance(70) {
                let hosts =
                    if name == "front" { "'*.example.com'" } else { "a.example.org, '*.b.example.org'" };
                servers.push(format!(
                    "{{port: {{number: {tls}, name: tls-{name}, protocol: TLS}}, hosts: [{hosts}], tls: {{mode: PASSTHROUGH}}}}"
                ));
            }
            if name == "front" && dice.chance(80) {
                servers.push(format!("{{port: {{number: {tcp}, name: tcp, protocol: TCP}}, hosts: ['*']}}"));
            }
            if !servers.is_empty() {
                let spec = format!("{{selector: {{istio: {selector}}}, servers: [{}]}}", servers.join(", "));
                self.add("Gateway", name, "edge", &spec);
            }
        }
    }

    fn http(&mut self, services: &[Service], at: usize, dice: &mut Dice) {
        let hosts = dice.pick(&[
            "a.example.com",
            "b.example.com",
            "'*.example.com'",
            "x.b.example.com, c.example.com",
            "'*'",
        ]);
        let gateways = dice.pick(&["edge/front", "edge/front", "edge/side", "edge/front, edge/side", "mesh"]);
        let namespace = dice.pick(&["shop", "stock"]);
        let export = dice.pick(&["'*'", "'*'", "'*'", ".", "edge"]);
        let mut rules = String::new();
        for rule in 0..=dice.below(3) {
            let (condition, action) = (condition(dice), action(services, at, dice));
            let _ = write!(rules, "\n  - {{name: w{}-{at}-{rule}, {condition}{action}}}", self.number);
        }
        let spec =
            format!("\n  hosts: [{hosts}]\n  gateways: [{gateways}]\n  exportTo: [{export}]\n  http:{rules}");
        self.add("VirtualService", &format!("http-{at}"), namespace, &spec);
    }

    fn tls(&mut self, services: &[Service], dice: &mut Dice) {
        let port = self.ports.tls;
        for at in 0..3 {
            let hosts = ["a.example.com", "'*.example.com'", "'*.b.example.org', a.example.org"][at];
            let names = match at {
                0 => "a.example.com",
                1 => dice.pick(&["'*.example.com'", "c.example.com", "b.example.com, '*.x.example.com'"]),
                _ => dice.pick(&["x.b.example.org", "'*.b.example.org'", "a.example.org"]),
            };
            let own_port = if dice.chance(50) { format!("port: {port}, ") } else { String::new() };
            let route = destinations(services, at, dice);
            if dice.chance(75) {
                let gateways = if at == 2 { "edge/side" } else { "edge/front" };
                let spec = format!(
                    "{{hosts: [{hosts}], gateways: [{gateways}], tls: [{{match: [{{{own_port}sniHosts: [{names}]}}], {route}}}]}}"
                );
                self.add("VirtualService", &format!("tls-{at}"), "shop", &spec);
            }
        }
    }

    fn tcp(&mut self, services: &[Service], dice: &mut Dice) {
        if dice.chance(80) {
            let port = if dice.chance(80) { self.ports.tcp } else { 1 };
            let (at, namespace) = (dice.below(SERVICES), dice.pick(&["shop", "stock"]));
            let route = destinations(services, at, dice);
            let spec = format!(
                "{{hosts: ['*'], gateways: [edge/front], tcp: [{{match: [{{port: {port}}}], {route}}}]}}"
            );
            self.add("VirtualService", "tcp", namespace, &spec);
        }
    }

    fn asked(&self) -> Vec<Question> {
        let mut dice = Dice(self.number + 1_000);
        let Ports { http, tls, tcp } = self.ports;
        let request = |dice: &mut Dice| Question {
            speaks: Speaks::Http {
                method: dice.pick(&["GET", "GET", "POST"]),
                path: dice.pick(&["/", "/v1", "/v1/x", "/a", "/b"]),
                headers: dice.pick(&[&[][..], &[("x-user", "tester")], &[("x-user", "team-b")]]),
            },
            host: dice.pick(&[
                "a.example.com",
                "b.example.com",
                "c.example.com",
                "x.b.example.com",
                "nowhere.org",
            ]),
            port: http,
        };
        let hello = |dice: &mut Dice| Question {
            speaks: Speaks::Tls,
            host: dice.pick(&[
                "a.example.com",
                "b.example.com",
                "c.example.com",
                "y.x.example.com",
                "a.example.org",
                "x.b.example.org",
                "nowhere.org",
            ]),
            port: tls,
        };
        let stream = |_: &mut Dice| Question { speaks: Speaks::Bytes, host: "db.example.com", port: tcp };
        let requests: Vec<Question> = (0..REQUESTS).map(|_| request(&mut dice)).collect();
        let hellos: Vec<Question> = (0..HELLOS).map(|_| hello(&mut dice)).collect();
        let streams: Vec<Question> = (0..STREAMS).map(|_| stream(&mut dice)).collect();
        [requests, hellos, streams].into_iter().flatten().collect()
    }
}

/// What a client speaks.
#[derive(Debug)]
enum Speaks {
    Http { method: &'static str, path: &'static str, headers: &'static [(&'static str, &'static str)] },
    Tls,
    Bytes,
}

/// What a client asks of the gateway.
#[derive(Debug)]
struct Question {
    speaks: Speaks,
    host: &'static str,
    port: u16,
}

impl Asked for Question {
    fn kind(&self) -> &'static str {
        match self.speaks {
            Speaks::Http { .. } => "http",
            Speaks::Tls => "tls",
            Speaks::Bytes => "tcp",
        }
    }

    async fn send(&self, call: &Call) -> Option<String> {
        let Self { host, port, .. } = self;
        match &self.speaks {
            Speaks::Http { method, path, headers } => {
                let number = call.to_string();
                let headers = [&[("host", *host), ("x-number", number.as_str())], *headers].concat();
                request(method, &format!("http://127.0.0.1:{port}{path}"), &headers).await.ok()?;
                Some(number)
            }
            Speaks::Tls => stream(call, *port, &client_hello(host)).await,
            Speaks::Bytes => stream(call, *port, b"GET / HTTP/1.0\r\n\r\n").await,
        }
    }

    async fn why(&self, pilotfish: &Pilotfish) -> Value {
        let Self { host, port, .. } = self;
        let scheme = match self.speaks {
            Speaks::Http { .. } => "http",
            Speaks::Tls => "tls",
            Speaks::Bytes => "",
        };
        let to =
            if scheme.is_empty() { format!("{host}:{port}") } else { format!("{scheme}://{host}:{port}") };
        let mut query = format!("/api/v1/why?proxy=gateway.edge&to={to}");
        if let Speaks::Http { method, path, headers } = &self.speaks {
            let _ = write!(query, "&method={method}&path={path}");
            for (name, value) in *headers {
                let _ = write!(query, "&header={name}={value}");
            }
        }
        pilotfish.json(&query).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_says_what_the_envoy_of_a_gateway_does() {
    let ports = Ports::free();
    let arguments = ["--kind", "router", "--name", "gateway", "--namespace", "edge", "--label", "istio=edge"];
    let options =
        EnvoyOptions { protocol: "delta", arguments: arguments.map(str::to_owned).to_vec(), xds_port: None };
    let Some(stage) = Stage::start(&options).await else { return };
    let mut outcomes = Outcomes::new();
    for number in 0..WORLDS {
        let world = World::new(number, ports, &stage.backends);
        stage.serve(&world.yaml);
        // The routes of a port are one resource, which comes after clusters, endpoints and listeners.
        let marker = world.marker_host();
        eventually(&format!("world {number} is served"), || async {
            let answer = get(ports.http, &marker, &[]).await;
            if answer.as_ref() == Ok(&marker) { Ok(()) } else { Err(answer) }
        })
        .await;
        check(&stage, &world, &marker, (&world.asked(), TIMES), &mut outcomes).await;
    }
    // The worlds are not all alike.
    let all = ["http ends", "http reaches", "tcp ends", "tcp reaches", "tls ends", "tls reaches"];
    assert!(outcomes.keys().eq(all) && outcomes.values().all(|count| *count > 20), "{outcomes:?}");
}
