//! What `why` says of a sidecar's connections that are not HTTP is what a real Envoy does: over random
//! ServiceEntries, VirtualServices and server names, in TLS that it passes on by server name, and as streams
//! of bytes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails this way")]

#[path = "support/connections.rs"]
mod connections;
#[path = "support/dice.rs"]
mod dice;
#[path = "support/requests.rs"]
mod requests;

use connections::{Asked, Call, Outcomes, Ports, World, check, stream};
use dice::Dice;
use pilotfish_testkit::real::{Backend, EnvoyOptions, Pilotfish, client_hello, eventually, get};
use requests::{BACKENDS, SERVICES, Service, Stage, address, destinations};
use serde_json::Value;

/// Worlds, one after the other in one folder.
const WORLDS: u64 = 24;
/// Connections in TLS, and streams of bytes of a world, each opened so many times: routes by weight take
/// several ways.
const HELLOS: usize = 10;
const STREAMS: usize = 3;
const TIMES: usize = 3;

/// Hosts outside the mesh, of which a world has some.
const HOSTS: [&str; 4] = ["a.example.com", "b.example.com", "c.example.com", "x.b.example.com"];

impl World {
    fn new(number: u64, ports: Ports, backends: &[Backend]) -> Self {
        let mut dice = Dice(number);
        let services = Service::all(&mut dice, &["shop", "stock"]);
        let mut world = Self::empty(number, ports);
        // Unknown connections would go where they came from, which here is the proxy itself.
        world.add(
            "Sidecar",
            "default",
            "shop",
            "{egress: [{hosts: ['*/*']}], outboundTrafficPolicy: {mode: REGISTRY_ONLY}}",
        );
        world.entry("marker", &world.marker_host(), "HTTP", ports.http, &backends[0], 0);
        for (at, service) in services.iter().enumerate() {
            world.yaml += &service.yaml(at, 80, "labels: {}", backends);
            if dice.chance(70) {
                world.yaml += &service.subsets();
            }
        }
        for (at, host) in HOSTS.iter().enumerate() {
            let backend = dice.below(BACKENDS);
            if dice.chance(75) {
                world.entry(&format!("host-{at}"), host, "TLS", ports.tls, &backends[backend], backend);
            }
        }
        if dice.chance(85) {
            let backend = dice.below(BACKENDS);
            world.entry("db", "db.example.com", "TCP", ports.tcp, &backends[backend], backend);
        }
        world.tls(&services, &mut dice);
        world.tcp(&services, &mut dice);
        world
    }

    /// A host of one backend.
    fn entry(&mut self, name: &str, host: &str, protocol: &str, port: u16, backend: &Backend, number: usize) {
        let (address, target) = (address(number), backend.port());
        let spec = format!(
            "{{hosts: [{host}], resolution: STATIC, ports: [{{name: it, number: {port}, protocol: {protocol}}}], endpoints: \
             [{{address: {address}, ports: {{it: {target}}}}}]}}"
        );
        self.add("ServiceEntry", name, "shop", &spec);
    }

    /// Rules by server name.
    fn tls(&mut self, services: &[Service], dice: &mut Dice) {
        let port = self.ports.tls;
        for at in 0..3 {
            let (hosts, names) = dice.pick(&[
                ("a.example.com", "a.example.com"),
                ("b.example.com, c.example.com", "b.example.com"),
                ("b.example.com, c.example.com", "b.example.com, c.example.com"),
                ("'*.example.com'", "'*.example.com'"),
                ("'*.example.com'", "c.example.com"),
                ("'*.b.example.com'", "x.b.example.com"),
            ]);
            let own_port = if dice.chance(50) { format!("port: {port}, ") } else { String::new() };
            let labels =
                dice.pick(&["", "", "", "sourceLabels: {app: client}, ", "sourceLabels: {app: other}, "]);
            let namespace = dice.pick(&["shop", "stock"]);
            let export = dice.pick(&["'*'", "'*'", "'*'", "."]);
            let route = destinations(services, at, dice);
            if dice.chance(75) {
                let spec = format!(
                    "{{hosts: [{hosts}], exportTo: [{export}], tls: [{{match: [{{{own_port}{labels}sniHosts: [{names}]}}], {route}}}]}}"
                );
                self.add("VirtualService", &format!("tls-{at}"), namespace, &spec);
            }
        }
    }

    fn tcp(&mut self, services: &[Service], dice: &mut Dice) {
        if dice.chance(70) {
            let port = if dice.chance(80) { self.ports.tcp } else { 1 };
            let (at, namespace) = (dice.below(SERVICES), dice.pick(&["shop", "stock"]));
            let route = destinations(services, at, dice);
            let spec = format!("{{hosts: [db.example.com], tcp: [{{match: [{{port: {port}}}], {route}}}]}}");
            self.add("VirtualService", "tcp", namespace, &spec);
        }
    }

    fn asked(&self) -> Vec<Question> {
        let mut dice = Dice(self.number + 1_000);
        let Ports { tls, tcp, .. } = self.ports;
        let hosts = [&HOSTS[..], &["nowhere.org"]].concat();
        let hellos = (0..HELLOS).map(|_| Question { is_tls: true, host: dice.pick(&hosts), port: tls });
        let streams = (0..STREAMS).map(|_| Question { is_tls: false, host: "db.example.com", port: tcp });
        hellos.chain(streams).collect()
    }
}

/// A connection of the proxy's application.
#[derive(Debug)]
struct Question {
    is_tls: bool,
    host: &'static str,
    port: u16,
}

impl Asked for Question {
    fn kind(&self) -> &'static str {
        if self.is_tls { "tls" } else { "tcp" }
    }

    async fn send(&self, call: &Call) -> Option<String> {
        if self.is_tls {
            stream(call, self.port, &client_hello(self.host)).await
        } else {
            stream(call, self.port, b"GET / HTTP/1.0\r\n\r\n").await
        }
    }

    async fn why(&self, pilotfish: &Pilotfish) -> Value {
        let Self { is_tls, host, port } = self;
        let scheme = if *is_tls { "tls://" } else { "" };
        pilotfish.json(&format!("/api/v1/why?proxy=client.shop&to={scheme}{host}:{port}")).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_says_what_the_envoy_of_a_sidecar_does_with_connections() {
    let ports = Ports::free();
    let Some(stage) = Stage::start(&EnvoyOptions::sidecar("delta")).await else { return };
    let mut outcomes = Outcomes::new();
    for number in 0..WORLDS {
        let world = World::new(number, ports, &stage.backends);
        stage.serve(&world.yaml);
        // The routes of a port are one resource, which comes after clusters, endpoints and listeners.
        let marker = format!("{}:{}", world.marker_host(), ports.http);
        eventually(&format!("world {number} is served"), || get(ports.http, &marker, &[])).await;
        check(&stage, &world, &marker, (&world.asked(), TIMES), &mut outcomes).await;
    }
    // The worlds are not all alike.
    let all = ["tcp ends", "tcp reaches", "tls ends", "tls reaches"];
    assert!(outcomes.keys().eq(all) && outcomes.values().all(|count| *count > 10), "{outcomes:?}");
}
