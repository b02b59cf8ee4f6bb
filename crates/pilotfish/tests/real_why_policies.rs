//! What `why` says of policies is what a real Envoy does: over random AuthorizationPolicies and requests
//! through two sidecars, those that it says are refused are answered 403, and all others arrive.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails this way")]

#[path = "support/dice.rs"]
mod dice;

use dice::Dice;
use pilotfish_testkit::real::{Backend, Envoy, EnvoyOptions, Pilotfish, eventually, free_port, get, request};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Worlds, one after the other in one folder, and requests of each.
const WORLDS: u64 = 40;
const REQUESTS: usize = 12;
/// The address of the workload.
const ADDRESS: &str = "127.0.4.1";
const HOST: &str = "web.shop.svc.cluster.local";

/// A Service whose one endpoint is the sidecar's own listener. Each request has a connection of its own,
/// since connections keep the policies that they began with.
fn mesh(port: u16, inbound: u16, backend: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: shop}}\nspec: {{clusterIP: 10.1.0.1, selector: {{app: web}}, ports: \
         [{{name: http, port: {port}, targetPort: {inbound}}}]}}\n---\n\
         apiVersion: v1\nkind: Pod\nmetadata: {{name: web, namespace: shop, labels: {{app: web}}}}\nspec: {{serviceAccountName: web, containers: \
         [{{name: app, image: x}}]}}\nstatus: {{phase: Running, podIP: {ADDRESS}, podIPs: [{{ip: {ADDRESS}}}], conditions: [{{type: Ready, status: \
         \"True\"}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: web, namespace: shop, labels: {{kubernetes.io/service-name: \
         web}}}}\naddressType: IPv4\nports: [{{name: http, port: {inbound}, protocol: TCP}}]\nendpoints: [{{addresses: [{ADDRESS}], conditions: \
         {{ready: true}}, targetRef: {{kind: Pod, name: web, namespace: shop}}}}]\n---\n\
         apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: web, namespace: shop}}\nspec: {{host: {HOST}, trafficPolicy: \
         {{connectionPool: {{http: {{maxRequestsPerConnection: 1}}}}}}}}\n---\n\
         apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{name: web, namespace: shop}}\nspec:\n  workloadSelector: {{labels: {{app: \
         web}}}}\n  ingress: [{{port: {{number: {inbound}, protocol: HTTP, name: http}}, bind: {ADDRESS}, captureMode: NONE, defaultEndpoint: \
         127.0.0.1:{backend}}}]\n  egress: [{{hosts: [nowhere/*]}}]\n"
    )
}

/// Policies of a world. The first one only says that the world is in force.
fn policies(number: u64, port: u16, inbound: u16) -> String {
    let mut dice = Dice(number);
    let mut text =
        policy("marker", "DENY", &format!("{{to: [{{operation: {{paths: [/world-{number}]}}}}]}}"));
    for at in 0..dice.below(4) {
        let action = dice.pick(&["DENY", "ALLOW", "ALLOW", "AUDIT"]);
        // Only what allows may do without rules: then it allows nothing.
        let fewest = usize::from(action != "ALLOW");
        let rules: Vec<String> =
            (0..dice.below(3).max(fewest)).map(|_| rule(&mut dice, port, inbound)).collect();
        let _ = write!(text, "---\n{}", policy(&format!("p{at}"), action, &rules.join(", ")));
    }
    text
}

fn policy(name: &str, action: &str, rules: &str) -> String {
    format!(
        "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{selector: {{matchLabels: \
         {{app: web}}}}, action: {action}, rules: [{rules}]}}\n"
    )
}

fn rule(dice: &mut Dice, port: u16, inbound: u16) -> String {
    let mut parts = Vec::new();
    if dice.chance(70) {
        let operation = match dice.below(10) {
            0 => "methods: [GET]".to_owned(),
            1 => "notMethods: [POST]".to_owned(),
            2 => "paths: [/a, /b/*]".to_owned(),
            3 => "paths: ['*x']".to_owned(),
            4 => "paths: ['/b/{*}']".to_owned(),
            5 => "notPaths: [/a*]".to_owned(),
            6 => format!("ports: ['{inbound}']"),
            7 => format!("ports: ['{port}']"),
            8 => format!("hosts: ['{HOST}:{port}']"),
            _ => "methods: [GET, PUT], notPaths: [/]".to_owned(),
        };
        parts.push(format!("to: [{{operation: {{{operation}}}}}]"));
    }
    if dice.chance(50) {
        let source = dice.pick(&[
            "ipBlocks: [127.0.0.1]",
            "ipBlocks: [10.0.0.0/8]",
            "notIpBlocks: [127.0.0.0/8]",
            "remoteIpBlocks: [127.0.0.0/8, 1.2.3.4]",
            "remoteIpBlocks: [1.2.3.0/24]",
            "namespaces: [shop]",
            "notPrincipals: ['*']",
        ]);
        parts.push(format!("from: [{{source: {{{source}}}}}]"));
    }
    if dice.chance(30) {
        let when = dice.pick(&[
            "{key: 'request.headers[x-user]', values: [tester]}",
            "{key: 'request.headers[x-user]', notValues: ['te*']}",
            "{key: destination.ip, values: [127.0.4.1]}",
            "{key: destination.ip, notValues: [127.0.4.0/24]}",
        ]);
        parts.push(format!("when: [{when}]"));
    }
    format!("{{{}}}", parts.join(", "))
}

/// A request of the client's application.
#[derive(Debug)]
struct Asked {
    method: &'static str,
    path: &'static str,
    header: Option<(&'static str, &'static str)>,
}

impl Asked {
    fn new(dice: &mut Dice) -> Self {
        Self {
            method: dice.pick(&["GET", "POST", "PUT"]),
            path: dice.pick(&["/", "/a", "/ax", "/b/c", "/b/c/x?q=1"]),
            header: dice.pick(&[
                None,
                Some(("x-user", "tester")),
                Some(("x-user", "other")),
                Some(("x-forwarded-for", "9.9.9.9, 1.2.3.4")),
            ]),
        }
    }

    async fn send(&self, port: u16) -> u16 {
        let host = format!("{HOST}:{port}");
        let headers: Vec<(&str, &str)> = [("host", host.as_str())].into_iter().chain(self.header).collect();
        request(self.method, &format!("http://127.0.0.1:{port}{}", self.path), &headers).await.unwrap().0
    }

    async fn why(&self, pilotfish: &Pilotfish, port: u16) -> Value {
        let path = self.path.replace('?', "%3F");
        let mut query =
            format!("/api/v1/why?proxy=client.shop&to={HOST}:{port}&method={}&path={path}", self.method);
        if let Some((name, value)) = self.header {
            let _ = write!(query, "&header={name}={}", value.replace(' ', "%20"));
        }
        pilotfish.json(&query).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_says_what_policies_of_an_envoy_do() {
    let backend = Backend::start("127.0.0.1", "it").await;
    let (port, inbound) = (free_port(), free_port());
    let files = [("mesh.yaml", mesh(port, inbound, backend.port()))];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let pilotfish = Pilotfish::start(env!("CARGO_BIN_EXE_pilotfish"), &files).await;
    let Some(_client) = Envoy::start(&pilotfish, &EnvoyOptions::sidecar("delta")).await else { return };
    let arguments = ["--name", "web", "--namespace", "shop", "--label", "app=web", "--ip", ADDRESS];
    let options =
        EnvoyOptions { protocol: "delta", arguments: arguments.map(str::to_owned).to_vec(), xds_port: None };
    let server = Envoy::start(&pilotfish, &options).await.unwrap();
    let host = format!("{HOST}:{port}");
    eventually("requests arrive", || get(port, &host, &[])).await;

    let mut outcomes: BTreeMap<u16, usize> = BTreeMap::new();
    for number in 0..WORLDS {
        let yaml = policies(number, port, inbound);
        pilotfish.write("policies.yaml", &yaml);
        eventually(&format!("world {number} is in force"), || async {
            let listeners = server.page("/config_dump?resource=dynamic_listeners").await?;
            let marker = format!("\"/world-{number}\"");
            if listeners.contains(&marker) { Ok(()) } else { Err(listeners) }
        })
        .await;
        let mut dice = Dice(number + 1_000);
        for asked in (0..REQUESTS).map(|_| Asked::new(&mut dice)) {
            let status = asked.send(port).await;
            let why = asked.why(&pilotfish, port).await;
            *outcomes.entry(status).or_default() += 1;
            let outcome = why["outcome"].as_str().unwrap();
            let is_said = match status {
                200 => why["reaches"] == true && !outcome.contains("doubtful"),
                403 => {
                    why["reaches"] == false && outcome.starts_with("403: the sidecar of web.shop refuses it")
                }
                _ => false,
            };
            assert!(is_said, "world {number}: {status}\n{asked:?}\n{why:#}\n{yaml}");
        }
    }
    // The worlds are not all alike.
    assert!(
        outcomes.keys().eq([200, 403].iter()) && outcomes.values().all(|count| *count > 50),
        "{outcomes:?}"
    );
}
