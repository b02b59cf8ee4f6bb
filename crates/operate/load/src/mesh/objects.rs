//! Objects of the mesh as YAML. Arguments select the state of changed fields.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use super::world::{
    Pod, Sizes, account, labels, namespace_name, node_name, round_address, service_address, service_name,
};

/// Namespace of mesh-wide settings.
const ROOT_NAMESPACE: &str = "istio-system";

/// Manifest of that namespace.
#[must_use]
pub fn root_namespace() -> String {
    format!("---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: {ROOT_NAMESPACE}\n")
}

#[must_use]
pub fn namespace(namespace: usize) -> String {
    let name = namespace_name(namespace);
    format!(
        "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n  \
         labels: {{istio-injection: enabled, kubernetes.io/metadata.name: {name}}}\n"
    )
}

/// A node of the cluster, with its locality.
#[must_use]
pub fn node(sizes: &Sizes, node: usize) -> String {
    let (region, zone) = sizes.locality(node);
    let name = node_name(node);
    format!(
        "---\napiVersion: v1\nkind: Node\nmetadata:\n  name: {name}\n  \
         labels: {{kubernetes.io/hostname: {name}, topology.kubernetes.io/region: {region}, \
         topology.kubernetes.io/zone: {zone}}}\n"
    )
}

/// A Service with one HTTP port.
#[must_use]
pub fn service(sizes: &Sizes, service: usize) -> String {
    let (name, namespace) = (service_name(service), namespace_name(sizes.namespace_of(service)));
    named_service(&name, &namespace, service_address(service))
}

fn named_service(name: &str, namespace: &str, address: Ipv4Addr) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  namespace: {namespace}\n  \
         labels: {{app: {name}}}\nspec:\n  clusterIP: {address}\n  selector: {{app: {name}}}\n  ports:\n  \
         - {{name: http, port: 80, targetPort: 8080, protocol: TCP}}\n"
    )
}

/// A running, ready Pod.
#[must_use]
pub fn pod(sizes: &Sizes, pod: &Pod) -> String {
    let namespace = namespace_name(sizes.namespace_of(pod.service));
    let labels: Vec<String> = labels(pod).iter().map(|(key, value)| format!("{key}: {value}")).collect();
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: {}\n  namespace: {namespace}\n  labels: {{{}}}\n\
         spec:\n  serviceAccountName: {}\n  nodeName: {}\n  containers:\n  \
         - {{name: app, image: example/app, ports: [{{name: http, containerPort: 8080, protocol: TCP}}]}}\n\
         status:\n  phase: Running\n  podIP: {ip}\n  podIPs: [{{ip: {ip}}}]\n  \
         conditions: [{{type: Ready, status: \"True\"}}]\n",
        pod.name,
        labels.join(", "),
        account(pod.service),
        node_name(pod.node),
        ip = pod.ip,
    )
}

/// EndpointSlice of a Service: its Pods, and one endpoint without a Pod that rounds change.
#[must_use]
pub fn slice(sizes: &Sizes, service: usize, moved: Option<usize>) -> String {
    let pods: Vec<Pod> =
        (service..sizes.pods).step_by(sizes.services).map(|index| sizes.pod(index)).collect();
    let namespace = namespace_name(sizes.namespace_of(service));
    let name = service_name(service);
    slice_of(sizes, &format!("{name}-1"), &name, &namespace, &pods, moved.map(round_address))
}

/// EndpointSlice with one additional Pod of a Service.
#[must_use]
pub fn further_slice(sizes: &Sizes, pod: &Pod) -> String {
    let namespace = namespace_name(sizes.namespace_of(pod.service));
    let name = service_name(pod.service);
    slice_of(sizes, &pod.name, &name, &namespace, std::slice::from_ref(pod), None)
}

fn slice_of(
    sizes: &Sizes,
    slice: &str,
    service: &str,
    namespace: &str,
    pods: &[Pod],
    moved: Option<Ipv4Addr>,
) -> String {
    let mut text = format!(
        "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: {slice}\n  \
         namespace: {namespace}\n  labels: {{kubernetes.io/service-name: {service}}}\naddressType: IPv4\n\
         ports:\n- {{name: http, port: 8080, protocol: TCP}}\nendpoints:\n"
    );
    for pod in pods {
        let (_, zone) = sizes.locality(pod.node);
        let _ = writeln!(
            text,
            "- {{addresses: [{}], conditions: {{ready: true, serving: true, terminating: false}}, nodeName: \
             {}, zone: {zone}, targetRef: {{kind: Pod, name: {}, namespace: {namespace}}}}}",
            pod.ip,
            node_name(pod.node),
            pod.name,
        );
    }
    if let Some(address) = moved {
        let _ = writeln!(text, "- {{addresses: [{address}], conditions: {{ready: true}}}}");
    }
    text
}

/// VirtualService with weights, and a header match for one version.
#[must_use]
pub fn virtual_service(sizes: &Sizes, service: usize, round: usize) -> String {
    let (name, namespace) = (service_name(service), namespace_name(sizes.namespace_of(service)));
    let weight = 1 + round % 98;
    format!(
        "---\napiVersion: networking.istio.io/v1\nkind: VirtualService\n\
         metadata: {{name: {name}, namespace: {namespace}}}\nspec:\n  hosts: [{name}]\n  http:\n  \
         - name: testers\n    match:\n    - headers: {{x-tester: {{exact: round-{round}}}}}\n    route:\n    \
         - destination: {{host: {name}, subset: v2}}\n  - name: everyone\n    timeout: 10s\n    \
         retries: {{attempts: 3, perTryTimeout: 2s, retryOn: \"5xx,reset\"}}\n    route:\n    \
         - destination: {{host: {name}, subset: v1}}\n      weight: {}\n    \
         - destination: {{host: {name}, subset: v2}}\n      weight: {weight}\n",
        100 - weight,
    )
}

/// DestinationRule with subsets, and a connect timeout that rounds change.
#[must_use]
pub fn destination_rule(sizes: &Sizes, service: usize, round: usize) -> String {
    let (name, namespace) = (service_name(service), namespace_name(sizes.namespace_of(service)));
    format!(
        "---\napiVersion: networking.istio.io/v1\nkind: DestinationRule\n\
         metadata: {{name: {name}, namespace: {namespace}}}\nspec:\n  host: {name}\n  trafficPolicy:\n    \
         connectionPool:\n      tcp: {{maxConnections: 1000, connectTimeout: {}ms}}\n      \
         http: {{http2MaxRequests: 1000}}\n    loadBalancer: {{simple: LEAST_REQUEST}}\n  subsets:\n  \
         - name: v1\n    labels: {{version: v1}}\n  - name: v2\n    labels: {{version: v2}}\n",
        1_000 + round,
    )
}

/// AuthorizationPolicy of one workload.
#[must_use]
pub fn workload_policy(sizes: &Sizes, service: usize, round: usize) -> String {
    let name = service_name(service);
    let selector = format!("  selector: {{matchLabels: {{app: {name}}}}}\n");
    policy(sizes.namespace_of(service), &name, &selector, round)
}

/// AuthorizationPolicy for all workloads of a namespace.
#[must_use]
pub fn namespace_policy(namespace: usize, round: usize) -> String {
    policy(namespace, "all", "", round)
}

fn policy(namespace: usize, name: &str, selector: &str, round: usize) -> String {
    let own = namespace_name(namespace);
    format!(
        "---\napiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\n\
         metadata: {{name: {name}, namespace: {own}}}\nspec:\n{selector}  action: ALLOW\n  rules:\n  \
         - from:\n    - source: {{namespaces: [{own}, {}]}}\n    to:\n    \
         - operation: {{methods: [GET, POST], paths: [/api/*, /round-{round}]}}\n",
        namespace_name(0),
    )
}

/// PeerAuthentication of a namespace; rounds switch a port between two modes.
#[must_use]
pub fn peer_authentication(namespace: usize, round: usize) -> String {
    let mode = if round.is_multiple_of(2) { "PERMISSIVE" } else { "STRICT" };
    format!(
        "---\napiVersion: security.istio.io/v1\nkind: PeerAuthentication\n\
         metadata: {{name: default, namespace: {}}}\nspec:\n  mtls: {{mode: {mode}}}\n",
        namespace_name(namespace),
    )
}

/// Sidecar of a namespace. In odd rounds it includes one more namespace.
#[must_use]
pub fn sidecar(namespace: usize, round: usize) -> String {
    let more = if round.is_multiple_of(2) { String::new() } else { format!(", \"{}/*\"", namespace_name(1)) };
    format!(
        "---\napiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{name: default, namespace: {}}}\n\
         spec:\n  egress:\n  - hosts: [\"./*\", \"istio-system/*\", \"{}/*\"{more}]\n",
        namespace_name(namespace),
        namespace_name(0),
    )
}

/// ServiceEntry: every second one has DNS resolution, the others have addresses.
#[must_use]
pub fn service_entry(sizes: &Sizes, entry: usize) -> String {
    let namespace = namespace_name(entry % sizes.namespaces);
    let how = if entry.is_multiple_of(2) {
        "resolution: DNS\n".to_owned()
    } else {
        let [_, _, third, fourth] = pod_like(entry);
        format!(
            "resolution: STATIC\n  endpoints:\n  - {{address: 198.18.{third}.{fourth}}}\n  - {{address: \
             198.19.{third}.{fourth}}}\n"
        )
    };
    format!(
        "---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\n\
         metadata: {{name: ext-{entry}, namespace: {namespace}}}\nspec:\n  \
         hosts: [ext-{entry}.example.com]\n  location: MESH_EXTERNAL\n  ports:\n  \
         - {{name: http, number: 80, protocol: HTTP}}\n  - {{name: tls, number: 443, protocol: TLS}}\n  \
         {how}"
    )
}

fn pod_like(index: usize) -> [u8; 4] {
    round_address(index).octets()
}

/// A Service that rounds add and remove, with its endpoints.
#[must_use]
pub fn added_service(sizes: &Sizes, round: usize) -> String {
    let (name, namespace) = (format!("added-{round}"), namespace_name(0));
    let mut text = named_service(&name, &namespace, service_address(sizes.services + 1 + round));
    text += &slice_of(sizes, &name, &name, &namespace, &[], Some(round_address(40_000 + round)));
    text
}

/// Mesh settings as Istio's ConfigMap: the access log affects every listener, the connect timeout every
/// cluster.
#[must_use]
pub fn mesh_config(access_log: usize, connect_timeout: usize) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: istio, namespace: {ROOT_NAMESPACE}}}\ndata:\n  \
         mesh: |\n    accessLogFile: /dev/stdout\n    accessLogFormat: \"round-{access_log} %REQ(:METHOD)% \
         %RESPONSE_CODE%\\n\"\n    connectTimeout: {}ms\n",
        10_000 + connect_timeout,
    )
}
