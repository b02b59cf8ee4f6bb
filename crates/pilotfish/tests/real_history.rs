//! A long random history through a real API server ends in the same world as the files of its final state.

mod support;

use kube::api::{Api, ApiResource, DynamicObject};
use pilotfish_testkit::real::{ApiServer, Pilotfish, eventually};
use std::collections::BTreeMap;
use support::kube::{BINARY, cluster};

const EVENTS: u64 = 2_000;
/// Written down so that a failure can be repeated.
const SEED: u64 = 20_250_301;

/// Kinds of the history: group, version, kind, and how many objects there can be.
const KINDS: &[(&str, &str, &str, u64)] = &[
    ("", "v1", "Service", 6),
    ("discovery.k8s.io", "v1", "EndpointSlice", 12),
    ("", "v1", "Pod", 24),
    ("", "v1", "Node", 3),
    ("networking.istio.io", "v1", "ServiceEntry", 4),
    ("networking.istio.io", "v1", "WorkloadEntry", 6),
    ("networking.istio.io", "v1", "VirtualService", 4),
    ("networking.istio.io", "v1", "DestinationRule", 4),
];

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// One version of one object.
#[allow(clippy::too_many_lines, reason = "a table of texts")]
fn object(kind: &str, name: u64, dice: &mut Dice) -> String {
    let namespace = ["red", "blue"][usize::try_from(name % 2).unwrap_or(0)];
    let app = dice.below(4);
    match kind {
        "Service" => format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: s{name}, namespace: {namespace}}}\nspec: {{selector: {{app: \
             a{app}}}, ports: [{{name: http, port: {}}}]}}\n",
            80 + dice.below(3)
        ),
        "EndpointSlice" => {
            let endpoint = |pod: u64, ready: u64| {
                let pod = pod * 2 + name % 2;
                format!(
                    "{{addresses: [10.1.0.{}], conditions: {{ready: {}}}, targetRef: {{kind: Pod, name: p{pod}, namespace: \
                     {namespace}}}}}",
                    pod + 1,
                    ready > 0
                )
            };
            let list: Vec<String> =
                (0..dice.below(5)).map(|_| endpoint(dice.below(12), dice.below(4))).collect();
            format!(
                "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: e{name}, namespace: {namespace}, labels: \
                 {{kubernetes.io/service-name: s{}}}}}\naddressType: IPv4\nports: [{{name: http, port: 8080}}]\nendpoints: [{}]\n",
                dice.below(3) * 2 + name % 2,
                list.join(", ")
            )
        }
        "Pod" => format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p{name}, namespace: {namespace}, labels: {{app: a{app}}}}}\nspec: \
             {{nodeName: n{}, containers: [{{name: app, image: x}}]}}\nstatus: {{phase: Running, podIP: 10.1.0.{ip}, podIPs: \
             [{{ip: 10.1.0.{ip}}}], conditions: [{{type: Ready, status: \"{}\"}}]}}\n",
            name % 3,
            if dice.below(3) > 0 { "True" } else { "False" },
            ip = name + 1
        ),
        "Node" => format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: n{name}, labels: {{topology.kubernetes.io/region: r, \
             topology.kubernetes.io/zone: z{}}}}}\n",
            dice.below(3)
        ),
        "ServiceEntry" => format!(
            "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: x{name}, namespace: {namespace}}}\nspec: \
             {{hosts: [x{}.example.com], resolution: STATIC, ports: [{{name: http, number: 80, protocol: HTTP}}], \
             workloadSelector: {{labels: {{app: a{app}}}}}}}\n",
            dice.below(3)
        ),
        "WorkloadEntry" => format!(
            "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {{name: w{name}, namespace: {namespace}}}\nspec: \
             {{address: 10.3.0.{}, labels: {{app: a{app}}}}}\n",
            dice.below(9) + 1
        ),
        "VirtualService" => format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: v{name}, namespace: \
             {namespace}}}\nspec: {{hosts: [s{app}], http: [{{timeout: {}s, route: [{{destination: {{host: s{app}}}}}]}}]}}\n",
            dice.below(9) + 1
        ),
        _ => format!(
            "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: d{name}, namespace: \
             {namespace}}}\nspec: {{host: s{app}, trafficPolicy: {{connectionPool: {{tcp: {{maxConnections: {}}}}}}}}}\n",
            dice.below(9) + 1
        ),
    }
}

/// What is compared: all services and all endpoints.
async fn world(pilotfish: &Pilotfish) -> String {
    let services = pilotfish.json("/debug/registryz").await;
    let endpoints = pilotfish.json("/debug/endpointz").await;
    format!("{services:#}\n{endpoints:#}")
}

/// The objects of all kinds as the API server has them now, as a file.
async fn final_state(server: &ApiServer) -> String {
    let mut items = Vec::new();
    let namespaces = ("", "v1", "Namespace", 0);
    for (group, version, kind, _) in KINDS.iter().chain([&namespaces]) {
        let types = kube::core::GroupVersionKind::gvk(group, version, kind);
        let (resource, _) =
            kube::discovery::pinned_kind(&server.client(), &types).await.expect("the kind is served");
        let resource: ApiResource = resource;
        let all: Api<DynamicObject> = Api::all_with(server.client(), &resource);
        for mut object in all.list(&Default::default()).await.expect("objects can be listed").items {
            object.types = Some(kube::core::TypeMeta {
                api_version: resource.api_version.clone(),
                kind: resource.kind.clone(),
            });
            items.push(object);
        }
    }
    serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_history_ends_in_the_world_of_its_final_state() {
    let Some(server) = cluster().await else { return };
    // What the other one does to the objects is no part of their history.
    let kubeconfig = server.kubeconfig();
    let arguments =
        ["--kubernetes", "--kubeconfig", &*kubeconfig.to_string_lossy(), "--allocate-addresses=name"];
    let live = Pilotfish::launch(BINARY, &arguments);
    live.ready().await;
    let mut dice = Dice(SEED);
    let mut there: BTreeMap<(usize, u64), String> = BTreeMap::new();
    for _ in 0..EVENTS {
        let index = usize::try_from(dice.below(KINDS.len() as u64)).expect("it is small");
        let (_, _, kind, count) = KINDS[index];
        let name = dice.below(count);
        let known = there.remove(&(index, name));
        match known {
            Some(text) if dice.below(3) == 0 => server.delete(&text).await,
            _ => {
                let text = object(kind, name, &mut dice);
                server.apply(&text).await;
                there.insert((index, name), text);
            }
        }
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("all.json"), final_state(&server).await).expect("it can be written");
    let files = Pilotfish::launch(BINARY, &[&folder.path().to_string_lossy()]);
    files.ready().await;
    let wanted = world(&files).await;
    assert!(wanted.len() > 10_000, "a world of some size: {wanted}");
    eventually("the live world is that of the files", || async {
        let found = world(&live).await;
        if found == wanted { Ok(()) } else { Err(first_difference(&found, &wanted)) }
    })
    .await;
}

fn first_difference(found: &str, wanted: &str) -> String {
    let mut lines = found.lines().zip(wanted.lines()).enumerate();
    let differs = lines.find(|(_, (found, wanted))| found != wanted);
    differs.map_or("one is longer".into(), |(line, (found, wanted))| {
        let around: Vec<&str> = wanted.lines().skip(line.saturating_sub(12)).take(12).collect();
        format!("line {line}:\n{found}\n--- wanted\n{wanted}\n--- before\n{}", around.join("\n"))
    })
}
