//! A small mesh whose proxies are asked what they let through.

use crate::call::{Call, Place, Request, Tls, Token};
use crate::envoy::Envoy;
use crate::upstream::{Server, sends};
use pilotfish_config::SourceEvent;
use pilotfish_model::{ChangeSet, Fact, Kind, ObjectKey};
use pilotfish_registry::testing::Scene;
use pilotfish_testkit::cases::ProxyEntry;
use pilotfish_testkit::dump::dump;
use pilotfish_translate::{Client, Proxy, Translator};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// A Service of two ports with one workload, all of that name.
fn workload(name: &str, namespace: &str, ip: &str, cluster_ip: &str) -> String {
    format!(
        "
---
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  clusterIP: {cluster_ip}
  selector: {{app: {name}}}
  ports: [{{name: http, port: 8080}}, {{name: tcp, port: 9000}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}-1, namespace: {namespace}, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
ports: [{{name: http, port: 8080}}, {{name: tcp, port: 9000}}]
endpoints: [{{addresses: [{ip}], conditions: {{ready: true}}, targetRef: {{kind: Pod, name: {name}, namespace: {namespace}}}}}]
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: {namespace}, labels: {{app: {name}, istio: {name}}}}}
spec: {{serviceAccountName: default}}
status: {{phase: Running, podIP: {ip}, podIPs: [{{ip: {ip}}}], conditions: [{{type: Ready, status: 'True'}}]}}
"
    )
}

/// What is there besides: keys of an issuer, and a route for the hosts of gateways.
const OTHERS: &str = "
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: keys, namespace: shop}
spec: {hosts: [keys.example], ports: [{number: 443, name: https, protocol: HTTPS}], resolution: DNS}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: front, namespace: shop}
spec:
  hosts: [shop.example, a.wide.example]
  gateways: [shop/guard, shop/wide]
  http: [{route: [{destination: {host: web.shop.svc.cluster.local, port: {number: 8080}}}]}]
";

/// A gateway for more hosts, which gets what no other one takes.
pub(crate) const WIDE: &str = "
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: wide, namespace: shop, creationTimestamp: '2024-06-01T12:00:00Z'}
spec:
  servers:
  - port: {number: 443, name: wide, protocol: HTTPS}
    hosts: ['*.example']
    tls: {mode: SIMPLE, credentialName: wide}
";

/// Certificates of authorities.
pub(crate) const ROOTS: &str = "
---
apiVersion: v1
kind: ConfigMap
metadata: {name: roots, namespace: shop}
data: {ca.crt: pem}
";

/// Policies of others, which must not become wider by what a broken one does.
pub(crate) const POLICIES: &str = "
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: of-other, namespace: shop, creationTimestamp: '2024-06-01T12:00:00Z'}
spec:
  selector: {matchLabels: {app: other}}
  rules: [{from: [{source: {namespaces: [front]}}]}]
---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: of-other, namespace: shop, creationTimestamp: '2024-06-01T12:00:00Z'}
spec:
  selector: {matchLabels: {app: other}}
  jwtRules: [{issuer: 'https://b.example', jwks: '{\"keys\":[{\"kty\":\"oct\",\"kid\":\"key-b\",\"k\":\"c2VjcmV0\"}]}'}]
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: of-all, namespace: shop, creationTimestamp: '2024-01-01T12:00:00Z'}
spec: {mtls: {mode: PERMISSIVE}}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: of-web, namespace: shop, creationTimestamp: '2024-06-01T12:00:00Z'}
spec: {selector: {matchLabels: {app: web}}, mtls: {mode: PERMISSIVE}}
";

const MESH: &str = "
extensionProviders:
- name: authorizer
  envoyExtAuthzGrpc: {service: other.shop.svc.cluster.local, port: 9000}
";

/// The mesh and its proxies.
pub(crate) struct Mesh {
    scene: Scene,
    translator: Translator,
    clients: BTreeMap<&'static str, Client>,
}

impl Mesh {
    /// The mesh with more objects.
    pub(crate) fn with(more: &str) -> Self {
        let mut scene = Scene::new();
        scene.set_mesh(MESH).expect("mesh settings");
        for (name, namespace, ip, cluster_ip) in [
            ("web", "shop", "10.0.0.1", "10.96.0.1"),
            ("other", "shop", "10.0.0.2", "10.96.0.2"),
            ("edge", "istio-system", "10.0.0.3", "10.96.0.3"),
        ] {
            scene.apply(&workload(name, namespace, ip, cluster_ip)).expect("a workload");
        }
        scene.apply(&format!("{OTHERS}{more}")).expect("objects");
        let translator = Translator::new();
        translator.publish(scene.world(), &ChangeSet { facts: [Fact::Kind(Kind::MeshConfig)].into() });
        let clients = [
            ("web", "sidecar", "10.0.0.1"),
            ("other", "sidecar", "10.0.0.2"),
            ("edge", "router", "10.0.0.3"),
        ];
        let connect = |(name, kind, ip)| (name, translator.connect(proxy(name, kind, ip)));
        Self { clients: clients.map(connect).into(), scene, translator }
    }

    /// Puts in force what a source sends, in place of what it sent before.
    pub(crate) fn replace(&mut self, key: &ObjectKey, events: Vec<SourceEvent>) {
        self.scene.delete(key.clone());
        for event in events {
            self.scene.send(event);
        }
        let changes = self.scene.settle();
        if !changes.is_empty() {
            self.translator.publish(self.scene.world(), &changes);
        }
    }

    /// The resources of a proxy.
    pub(crate) fn resources(&self, proxy: &str) -> Value {
        dump(&self.translator.snapshot(), &self.clients[proxy], None).expect("resources that decode")
    }
}

fn proxy(name: &str, kind: &str, ip: &str) -> Proxy {
    let namespace = if name == "edge" { "istio-system" } else { "shop" };
    let entry = json!({"name": name, "kind": kind, "ip": ip, "namespace": namespace, "labels": {"app": name, "istio": name}});
    let entry: ProxyEntry = serde_json::from_value(entry).expect("a proxy");
    Proxy::from_node(&entry.node()).expect("a node")
}

/// The calls to the workloads of the mesh that come through, by workload and number.
pub(crate) fn inbound(mesh: &Mesh, calls: &[Call]) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for (name, ip) in [("web", "10.0.0.1"), ("other", "10.0.0.2")] {
        let resources = mesh.resources(name);
        for (index, call) in calls.iter().enumerate() {
            let call = Call { destination: address(ip), ..call.clone() };
            let admits = |call: &Call| Envoy(&resources).admits("virtualInbound", call);
            // A client with a certificate may just as well leave it away.
            let plain = Call { tls: None, ..call.clone() };
            if admits(&call) || call.tls.is_some() && admits(&plain) {
                out.insert(format!("{name} {index}"));
            }
        }
    }
    out
}

/// The calls to the gateway that come through to a service.
pub(crate) fn at_gateway(mesh: &Mesh, calls: &[Call]) -> BTreeSet<String> {
    let resources = mesh.resources("edge");
    let admitted = |call: &&Call| Envoy(&resources).admits(&format!("0.0.0.0_{}", call.port), call);
    calls.iter().filter(admitted).map(|call| format!("{call:?}")).collect()
}

/// The servers that a client of a service would send its requests to, were they its endpoints.
pub(crate) fn upstream(mesh: &Mesh, _: &[Call]) -> BTreeSet<String> {
    let resources = mesh.resources("other");
    let servers = [
        Server::Plain,
        Server::Tls { name: "web.example", authority: "good-ca" },
        Server::Tls { name: "other.example", authority: "good-ca" },
        Server::Tls { name: "web.example", authority: "system" },
        Server::Tls { name: "web.example", authority: "roots" },
        Server::Tls { name: "other.example", authority: "roots" },
        Server::Tls { name: "spiffe://cluster.local/ns/shop/sa/default", authority: "ROOTCA" },
    ];
    let mut out = BTreeSet::new();
    for cluster in ["8080|", "8080|v1", "9000|", "9000|v1"] {
        let name = format!("outbound|{cluster}|web.shop.svc.cluster.local");
        for server in servers.iter().filter(|server| sends(&resources, &name, server)) {
            out.insert(format!("{name} to {server:?}"));
        }
    }
    out
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Calls to workloads: with every certificate, from every address, with every request and token.
pub(crate) fn calls() -> Vec<Call> {
    let mut out = Vec::new();
    for certificate in
        [None, Some("front/sa/ui"), Some("shop/sa/app.v1"), Some("shop/sa/app-v1"), Some("back/sa/job")]
    {
        for (source, remote) in
            [("10.1.0.1", "10.1.0.1"), ("10.2.0.7", "192.0.2.1"), ("10.9.0.1", "10.9.0.1")]
        {
            let tls = certificate.map(|name| format!("spiffe://cluster.local/ns/{name}"));
            let connection = |port, http: Option<Request>| Call {
                port,
                destination: address("10.0.0.1"),
                source: address(source),
                remote: address(remote),
                tls: tls.clone().map(|name| Tls {
                    server_name: "web.shop".to_owned(),
                    protocols: if http.is_some() {
                        vec!["istio-http/1.1"]
                    } else {
                        vec!["istio-peer-exchange"]
                    },
                    certificate: Some(name),
                }),
                http,
            };
            out.push(connection(9000, None));
            out.extend(requests().into_iter().map(|request| connection(8080, Some(request))));
        }
    }
    out
}

fn requests() -> Vec<Request> {
    let request = |(method, path, host, user): (_, _, _, Option<_>), token| {
        let headers = user.map(|user| ("x-user", user)).into_iter().collect();
        Request { method, path, host, headers, token }
    };
    let admin = ("POST", "/admin/x", "web.shop", None);
    let mut out =
        vec![request(("GET", "/a/users?x=1", "a.example", Some("root")), None), request(admin, None)];
    out.extend(tokens().into_iter().map(|token| request(("GET", "/public", "web.shop", None), token)));
    out.extend(tokens().into_iter().skip(1).step_by(2).map(|token| request(admin, token)));
    out
}

fn tokens() -> Vec<Option<Token>> {
    let token = |place, issuer, subject, key| {
        let claims = [("group", "admin"), ("azp", "cli")].into();
        Some(Token { place, issuer, subject, audience: "shop", key, claims })
    };
    let bearer = Place::Header("authorization", "Bearer ");
    vec![
        None,
        token(bearer, "https://a.example", "alice", "key-a"),
        token(bearer, "https://a.example", "alice", "forged"),
        token(bearer, "https://b.example", "bob", "key-b"),
        token(Place::Header("x-token", "JWT "), "https://a.example", "alice", "key-a"),
        token(Place::Parameter("token"), "https://b.example", "bob", "forged"),
        token(Place::Cookie("session"), "https://a.example", "mallory", "forged"),
    ]
}

/// Calls to the gateway: plain, and with TLS with and without a certificate.
pub(crate) fn gateway_calls() -> Vec<Call> {
    let mut out = Vec::new();
    for host in ["shop.example", "a.wide.example"] {
        let request = Request { method: "GET", path: "/", host, headers: BTreeMap::new(), token: None };
        for certificate in [None, Some("front/sa/ui"), Some("back/sa/job")] {
            let name = certificate.map(|name| format!("spiffe://cluster.local/ns/{name}"));
            let tls = Tls { server_name: host.to_owned(), protocols: vec!["http/1.1"], certificate: name };
            out.push(gateway_call(443, Some(tls), request.clone()));
        }
        out.push(gateway_call(80, None, request.clone()));
        out.push(gateway_call(443, None, request));
    }
    out
}

fn gateway_call(port: u32, tls: Option<Tls>, request: Request) -> Call {
    let [destination, source] = ["10.0.0.3", "10.9.0.1"].map(address);
    Call { port, destination, source, remote: source, tls, http: Some(request) }
}
