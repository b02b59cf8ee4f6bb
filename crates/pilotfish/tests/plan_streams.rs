//! What a plan says is what streams then send: over random worlds and changes, the resources that proxies
//! have before and after differ in exactly what the plan names, by hash.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails this way")]

use parking_lot::Mutex;
use pilotfish_api::v1::Section;
use pilotfish_control_plane::resources::{Resources, publication};
use pilotfish_explain::{Planned, Subject, plan};
use pilotfish_model::{ChangeSet, World};
use pilotfish_proto::ResourceType::{self, Cluster, Endpoint, Listener, Route};
use pilotfish_proto::envoy::config::cluster::v3 as cluster;
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use pilotfish_proto::to_json;
use pilotfish_registry::testing::Scene;
use pilotfish_translate::{Proxy, Translator};
use pilotfish_xds::{Fanout, NoRecorder, PeerInfo, Protocol, Stream, StreamLimits};
use proptest::prelude::*;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// A client of delta xDS that subscribes as Envoy does.
struct Client {
    name: String,
    proxy: Proxy,
    stream: Arc<Mutex<Stream<Resources>>>,
    /// Versions by type and name.
    has: BTreeMap<(ResourceType, String), String>,
    /// The load assignments of clusters, and the routes of listeners, by the resource that names them.
    refers: BTreeMap<(ResourceType, String), BTreeSet<String>>,
    asked: BTreeMap<ResourceType, BTreeSet<String>>,
    node: Option<Node>,
}

impl Client {
    fn open(fanout: &Arc<Fanout<Resources>>, id: &str) -> Self {
        let node = Node { id: id.to_owned(), ..Node::default() };
        let proxy = Proxy::from_node(&node).unwrap();
        let mut client = Self {
            name: format!("{}.{}", proxy.name, proxy.namespace),
            proxy,
            stream: fanout.open(Protocol::Delta, PeerInfo::default()),
            has: BTreeMap::new(),
            refers: BTreeMap::new(),
            asked: BTreeMap::new(),
            node: Some(node),
        };
        client.ask(Cluster, &[], &[]);
        client.ask(Listener, &[], &[]);
        client.settle();
        client
    }

    fn send(&mut self, request: DeltaDiscoveryRequest) {
        let request = DeltaDiscoveryRequest { node: self.node.take(), ..request };
        self.stream.lock().on_message(&request.encode_to_vec(), Instant::now()).unwrap();
    }

    fn ask(&mut self, ty: ResourceType, more: &[String], less: &[String]) {
        self.send(DeltaDiscoveryRequest {
            type_url: ty.type_url().into(),
            resource_names_subscribe: more.to_vec(),
            resource_names_unsubscribe: less.to_vec(),
            ..DeltaDiscoveryRequest::default()
        });
    }

    /// Takes and acknowledges everything, and asks for what it refers to.
    fn settle(&mut self) {
        loop {
            let response = self.stream.lock().poll_response(Instant::now());
            let Some(response) = response else { if self.follow() { continue } else { return } };
            let frame = response.concat();
            let response = DeltaDiscoveryResponse::decode(&frame[5..]).unwrap();
            self.take(&response);
            let (type_url, response_nonce) = (response.type_url, response.nonce);
            self.send(DeltaDiscoveryRequest { type_url, response_nonce, ..DeltaDiscoveryRequest::default() });
        }
    }

    fn take(&mut self, response: &DeltaDiscoveryResponse) {
        let ty = ResourceType::from_type_url(&response.type_url).unwrap();
        for resource in &response.resources {
            let body = resource.resource.as_ref().unwrap();
            let refers = match ty {
                Cluster => assignments(&cluster::Cluster::decode(&*body.value).unwrap()),
                Listener => routes(&to_json(&body.type_url, &body.value).unwrap()),
                _ => BTreeSet::new(),
            };
            self.refers.insert((ty, resource.name.clone()), refers);
            self.has.insert((ty, resource.name.clone()), resource.version.clone());
        }
        for name in &response.removed_resources {
            self.has.remove(&(ty, name.clone()));
            self.refers.remove(&(ty, name.clone()));
        }
    }

    /// Changes subscriptions to what is referred to. Returns whether anything changed.
    fn follow(&mut self) -> bool {
        let mut changed = false;
        for (ty, of) in [(Endpoint, Cluster), (Route, Listener)] {
            let of = self.refers.iter().filter(|((own, _), _)| *own == of);
            let wanted: BTreeSet<String> = of.flat_map(|(_, names)| names.iter().cloned()).collect();
            let asked = self.asked.entry(ty).or_default();
            let more: Vec<String> = wanted.difference(asked).cloned().collect();
            let less: Vec<String> = asked.difference(&wanted).cloned().collect();
            *asked = wanted;
            if !more.is_empty() || !less.is_empty() {
                changed = true;
                for name in &less {
                    self.has.remove(&(ty, name.clone()));
                }
                self.ask(ty, &more, &less);
            }
        }
        changed
    }

    fn subject(&self) -> Subject {
        let names = self
            .asked
            .iter()
            .map(|(ty, names)| (*ty, names.iter().map(|name| name.as_str().into()).collect()));
        Subject { name: self.name.clone(), proxy: self.proxy.clone(), names: names.collect() }
    }
}

fn assignments(cluster: &cluster::Cluster) -> BTreeSet<String> {
    let eds = cluster::cluster::ClusterDiscoveryType::Type(cluster::cluster::DiscoveryType::Eds as i32);
    if cluster.cluster_discovery_type != Some(eds) {
        return BTreeSet::new();
    }
    let named = cluster.eds_cluster_config.as_ref().map(|config| config.service_name.clone());
    BTreeSet::from([named.filter(|name| !name.is_empty()).unwrap_or_else(|| cluster.name.clone())])
}

fn routes(value: &serde_json::Value) -> BTreeSet<String> {
    match value {
        serde_json::Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, value)| match value.as_str() {
                Some(text) if name == "route_config_name" => BTreeSet::from([text.to_owned()]),
                _ => routes(value),
            })
            .collect(),
        serde_json::Value::Array(items) => items.iter().flat_map(routes).collect(),
        _ => BTreeSet::new(),
    }
}

fn section(ty: ResourceType) -> Option<Section> {
    match ty {
        Cluster => Some(Section::Clusters),
        Endpoint => Some(Section::Endpoints),
        Listener => Some(Section::Listeners),
        Route => Some(Section::Routes),
        _ => None,
    }
}

/// What differs between what a client had and has: section, name, version before and after.
type Differences = BTreeSet<(Section, String, String, String)>;

fn differences(
    before: &BTreeMap<(ResourceType, String), String>,
    after: &BTreeMap<(ResourceType, String), String>,
) -> Differences {
    let keys: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let version = |map: &BTreeMap<_, String>, key| map.get(key).cloned().unwrap_or_default();
    keys.into_iter()
        .filter(|key| before.get(*key) != after.get(*key))
        .filter_map(|key| Some((section(key.0)?, key.1.clone(), version(before, key), version(after, key))))
        .collect()
}

/// The objects of a world, each in one of some variants, or not there.
const VARIANTS: &[&[&str]] = &[
    &[
        "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {clusterIP: 10.1.0.1, ports: [{name: http, port: 80}]}\n",
        "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {clusterIP: 10.1.0.1, ports: [{name: http, port: 80}, {name: tcp, port: 90}]}\n",
        "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop, annotations: {networking.istio.io/exportTo: .}}\nspec: {clusterIP: 10.1.0.1, ports: [{name: http, port: 80}]}\n",
    ],
    &[
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}\naddressType: IPv4\nports: [{name: http, port: 8080, protocol: TCP}]\nendpoints: [{addresses: [10.0.0.1], conditions: {ready: true}}]\n",
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}\naddressType: IPv4\nports: [{name: http, port: 8080, protocol: TCP}]\nendpoints: [{addresses: [10.0.0.1], conditions: {ready: false}}, {addresses: [10.0.0.2], conditions: {ready: true}}]\n",
    ],
    &[
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: web, namespace: shop}\nspec: {hosts: [web.shop.svc.cluster.local], http: [{timeout: 3s, route: [{destination: {host: web.shop.svc.cluster.local}}]}]}\n",
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: web, namespace: shop}\nspec: {hosts: [web.shop.svc.cluster.local], http: [{route: [{destination: {host: web.shop.svc.cluster.local, subset: v1}}]}]}\n",
    ],
    &[
        "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: web, namespace: shop}\nspec: {host: web.shop.svc.cluster.local, subsets: [{name: v1, labels: {version: v1}}]}\n",
        "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: web, namespace: shop}\nspec: {host: web.shop.svc.cluster.local, trafficPolicy: {connectionPool: {tcp: {maxConnections: 7}}}}\n",
    ],
    &[
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: db, namespace: pay}\nspec: {hosts: [db.example.com], resolution: DNS, ports: [{name: tcp, number: 5432, protocol: TCP}]}\n",
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: db, namespace: pay}\nspec: {hosts: [db.example.com], addresses: [10.9.0.1], resolution: STATIC, ports: [{name: http, number: 80, protocol: HTTP}], endpoints: [{address: 10.0.9.1}]}\n",
    ],
    &[
        "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: narrow, namespace: pay}\nspec: {egress: [{hosts: [\"./*\"]}]}\n",
    ],
    &[
        "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: default, namespace: shop}\nspec: {mtls: {mode: STRICT}}\n",
        "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: default, namespace: shop}\nspec: {mtls: {mode: DISABLE}}\n",
    ],
];

fn world() -> impl Strategy<Value = Vec<usize>> {
    VARIANTS.iter().map(|variants| 0..=variants.len()).collect::<Vec<_>>()
}

fn text(choice: usize, variants: &[&'static str]) -> Option<&'static str> {
    choice.checked_sub(1).and_then(|choice| variants.get(choice)).copied()
}

/// Brings a scene from one choice to another.
fn change(scene: &mut Scene, from: &[usize], to: &[usize]) -> (Arc<World>, ChangeSet) {
    for ((old, new), variants) in from.iter().zip(to).zip(VARIANTS) {
        match (text(*old, variants), text(*new, variants)) {
            (old, new) if old == new => {}
            (_, Some(new)) => scene.apply(new).unwrap(),
            (Some(old), None) => {
                let object = pilotfish_registry::testing::objects(old).unwrap().remove(0);
                scene.delete(object.key().clone());
            }
            (None, None) => {}
        }
    }
    let changes = scene.settle();
    (scene.world(), changes)
}

fn check(before: &[usize], after: &[usize]) {
    let mut scene = Scene::new();
    let (world, changes) = change(&mut scene, &vec![0; before.len()], before);
    let translator = Arc::new(Translator::new());
    let resources = Arc::new(Resources::new(translator.clone(), false, Vec::new()));
    let fanout = Fanout::new(resources.clone(), Arc::new(NoRecorder), StreamLimits::default());
    fanout.publish(&publication(translator.publish(world.clone(), &changes)));
    resources.set_ready();
    let ids = [
        "sidecar~10.0.0.1~web-0.shop~shop.svc.cluster.local",
        "sidecar~10.0.0.7~till-0.pay~pay.svc.cluster.local",
    ];
    let mut clients: Vec<Client> = ids.iter().map(|id| Client::open(&fanout, id)).collect();
    let (next, changes) = change(&mut scene, before, after);
    let planned = Planned { before: world, after: next.clone(), changes: changes.clone(), objects: 1 };
    let subjects: Vec<Subject> = clients.iter().map(Client::subject).collect();
    let said = plan(&translator, &planned, &subjects);
    let had: Vec<_> = clients.iter().map(|client| client.has.clone()).collect();
    fanout.publish(&publication(translator.publish(next, &changes)));
    for (client, had) in clients.iter_mut().zip(&had) {
        client.settle();
        let of_client = said.impact.iter().filter(|impact| impact.names.contains(&client.name));
        let planned: Differences = of_client
            .flat_map(|impact| &impact.changes)
            .map(|place| &said.changes[*place])
            .filter(|change| change.section != Section::Names)
            .map(|change| (change.section, change.name.clone(), change.before.clone(), change.after.clone()))
            .collect();
        assert_eq!(planned, differences(had, &client.has), "{} from {before:?} to {after:?}", client.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn what_a_plan_says_is_what_streams_then_send(before in world(), after in world()) {
        check(&before, &after);
    }
}

#[test]
fn a_service_that_goes_takes_its_cluster_and_endpoints() {
    check(&[1, 1, 0, 0, 0, 0, 0], &[0, 0, 0, 0, 0, 0, 0]);
    check(&[1, 1, 1, 0, 0, 0, 0], &[2, 2, 2, 1, 1, 1, 1]);
}
