//! Helpers for unit tests of queries: small worlds built by hand, and the evaluation of single queries.

use crate::engine::memo::Memo;
use crate::engine::{Query, TranslationSettings};
use crate::proxy::Proxy;
use pilotfish_config::mesh::MeshConfig;
use pilotfish_model::{
    ChangeSet, ClusterAddresses, Endpoint, EndpointAttributes, ExportTo, HealthStatus, Hostname, InboundBy,
    Kind, KindSpec, Labels, Locality, Namespace, NetworkId, Object, ObjectKey, ObjectMeta, Origin, Port,
    Protocol, Provider, Resolution, Service, ServiceKey, Switches, TlsMode, TrafficDistribution, Update,
    Workload, WorkloadKey, WorkloadKind, World, WorldWriter,
};
use pilotfish_proto::envoy::config::core::v3::Node;
use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) fn labels(pairs: &[(&str, &str)]) -> Labels {
    Arc::new(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
}

/// An object without labels, created at second 0.
pub(crate) fn object<T: KindSpec>(namespace: &str, name: &str, spec: T) -> Object {
    aged(namespace, name, 0, spec)
}

/// An object of some age.
pub(crate) fn aged<T: KindSpec>(namespace: &str, name: &str, created: i64, spec: T) -> Object {
    let meta = ObjectMeta { created, ..ObjectMeta::of(ObjectKey::new(T::KIND, namespace, name)) };
    Object::new(meta, spec)
}

/// The mesh-wide settings as an object.
pub(crate) fn mesh(config: MeshConfig) -> Object {
    object(Namespace::default().as_str(), "default", config)
}

/// A world of these updates.
pub(crate) fn world(updates: impl IntoIterator<Item = Update>) -> Arc<World> {
    let mut writer = WorldWriter::new();
    for update in updates {
        writer.apply(update);
    }
    writer.publish().map_or_else(Arc::default, |(world, _)| world)
}

/// A world of these objects.
pub(crate) fn world_of(objects: impl IntoIterator<Item = Object>) -> Arc<World> {
    world(objects.into_iter().map(Update::Object))
}

/// The answer to one query in a world.
pub(crate) fn evaluate<Q: Query>(world: &Arc<World>, query: &Q) -> Arc<Q::Output> {
    evaluate_with(Switches::default(), world, query)
}

/// Evaluates one query in a world, with other switches.
pub(crate) fn evaluate_with<Q: Query>(switches: Switches, world: &Arc<World>, query: &Q) -> Arc<Q::Output> {
    let memo = Memo::with_settings(TranslationSettings { switches, ..TranslationSettings::default() });
    let (current, _) = memo.advance(world.clone(), &ChangeSet::default());
    memo.get(&current, query).0
}

/// The provider of Kubernetes Services.
pub(crate) const KUBERNETES: Provider = Provider::new(0, "Kubernetes");
/// The provider of ServiceEntries.
pub(crate) const EXTERNAL: Provider = Provider::new(1, "ServiceEntry");

/// Changes a service to one of a ServiceEntry.
pub(crate) fn of_service_entry(service: &mut Service) {
    service.provider = EXTERNAL;
    service.inbound = InboundBy::Address;
    service.has_short_name = false;
    service.headless = false;
    service.names_for_tls = true;
}

#[derive(Clone)]
pub(crate) struct TestService(pub(crate) Service);

pub(crate) fn service(name: &str, namespace: &str) -> TestService {
    let hostname = Hostname::of_kubernetes_service(name, namespace, "cluster.local").unwrap();
    let port = Port { number: 80, name: "http".into(), protocol: Protocol::Http, target_port: None };
    TestService(Service {
        hostname,
        namespace: namespace.into(),
        name: name.into(),
        object_name: name.into(),
        provider: KUBERNETES,
        inbound: InboundBy::Selector,
        has_short_name: true,
        headless: false,
        names_for_tls: false,
        resolution: Resolution::ClientSideLB,
        ports: Arc::from([port]),
        addresses: ClusterAddresses::new(),
        default_address: Service::UNSPECIFIED.into(),
        auto_addresses: ["".into(), "".into()],
        auto_addresses_stored: false,
        dubbo: None,
        mesh_external: false,
        export_to: ExportTo::Unset,
        entries: BTreeSet::new(),
        labels: Labels::default(),
        selector: Labels::default(),
        service_accounts: Arc::from([]),
        traffic_distribution: TrafficDistribution::Any,
        race_first_tcp_connect: false,
        kubernetes: None,
        created: 0,
        provenance: origin(Kind::Service, namespace, name),
    })
}

impl TestService {
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Service)) -> Self {
        change(&mut self.0);
        self
    }

    pub(crate) fn key(&self) -> ServiceKey {
        self.0.key()
    }

    /// The service in the world; one that selects workloads does so in the cluster `Kubernetes`, unless it
    /// has allocated addresses.
    pub(crate) fn update(&self) -> Update {
        let mut service = self.0.clone();
        let is_allocated = service.auto_addresses.iter().any(|address| !address.is_empty());
        if !service.selector.is_empty() && service.addresses.is_empty() && !is_allocated {
            let addresses = Arc::from([service.default_address.clone()]);
            service.addresses = ClusterAddresses::from([("Kubernetes".into(), addresses)]);
        }
        Update::Services(self.key(), Arc::from([Arc::new(service)]))
    }
}

/// A healthy endpoint of a service port.
pub(crate) fn endpoint(address: &str, port: u32, service_port: &str) -> Endpoint {
    Endpoint {
        addresses: if address.is_empty() { Arc::from([]) } else { Arc::from([Arc::from(address)]) },
        port,
        service_port: service_port.into(),
        service_port_id: None,
        health: HealthStatus::Healthy,
        attributes: Arc::new(EndpointAttributes {
            labels: Labels::default(),
            locality: Locality::default(),
            network: NetworkId::default(),
            cluster: "Kubernetes".into(),
            weight: 0,
            identity: None,
            tls_mode: TlsMode::Disabled,
            hostname: "".into(),
            sub_domain: "".into(),
            node: "".into(),
            workload_name: "".into(),
            namespace: Namespace::default(),
            entry: None,
            provenance: origin(Kind::EndpointSlice, "shop", "slice"),
        }),
    }
}

fn origin(kind: Kind, namespace: &str, name: &str) -> Origin {
    Origin::object(ObjectKey::new(kind, namespace, name), "Kubernetes")
}

/// A sidecar without a pod.
pub(crate) fn sidecar(name: &str, namespace: &str) -> Proxy {
    let id = format!("sidecar~10.0.99.1~{name}.{namespace}~{namespace}.svc.cluster.local");
    Proxy::from_node(&Node { id, ..Default::default() }).unwrap()
}

/// The objects of a YAML text.
pub(crate) fn yaml(text: &str) -> Vec<Update> {
    let file = pilotfish_config::read("test.yaml", text.as_bytes(), &pilotfish_config::Limits::default());
    assert!(file.rejected.is_empty(), "{:?}", file.rejected);
    file.objects.into_iter().map(|read| Update::Object(read.object)).collect()
}

/// A world of the objects of a YAML text.
pub(crate) fn yaml_world(text: &str) -> Arc<World> {
    world(yaml(text))
}

/// One object as YAML in a line.
pub(crate) fn line(api: &str, kind: &str, namespace: &str, name: &str, spec: &str) -> String {
    format!(
        "---\n{{apiVersion: {api}, kind: {kind}, metadata: {{name: {name}, namespace: {namespace}}}, \
         spec: {spec}}}\n"
    )
}

pub(crate) fn pod(name: &str, namespace: &str, address: &str, pairs: &[(&str, &str)]) -> Workload {
    Workload {
        key: WorkloadKey {
            kind: WorkloadKind::Pod,
            namespace: namespace.into(),
            name: name.into(),
            cluster: "Kubernetes".into(),
        },
        addresses: Arc::from([Arc::from(address)]),
        ports: Arc::default(),
        labels: labels(pairs),
        locality: Locality::default(),
        network: NetworkId::default(),
        weight: 0,
        service_account: "default".into(),
        identity: None,
        tls_mode: TlsMode::Disabled,
        node: "".into(),
        node_addresses: Arc::default(),
        workload_name: "".into(),
        hostname: "".into(),
        sub_domain: "".into(),
        host_network: false,
        ready: true,
        terminating: false,
        created: 0,
        provenance: origin(Kind::Pod, namespace, name),
    }
}

/// The type and the values of a Secret with a certificate and its key, as YAML.
pub(crate) fn tls_secret() -> String {
    let (chain, key) =
        (include_str!("credentials/testdata/p256.crt"), include_str!("credentials/testdata/p256.key"));
    format!("type: kubernetes.io/tls, stringData: {{tls.crt: {chain:?}, tls.key: {key:?}}}")
}

/// The Secrets and ConfigMaps of the recorded cases about listeners with TLS: good and bad ones, in the
/// namespaces `edge`, `harbour` and `yard`. Unreadable objects are left out.
pub(crate) fn credentials() -> Vec<Update> {
    let cases = [
        include_str!("../../../../oracle/cases/gwapi-certificate-refs/config.yaml"),
        include_str!("../../../../oracle/cases/gwapi-frontend-validation-invalid/config.yaml"),
        include_str!("../../../../oracle/cases/gwapi-frontend-validation-references/config.yaml"),
    ];
    let read = |text: &str| {
        pilotfish_config::read("config.yaml", text.as_bytes(), &pilotfish_config::Limits::default())
    };
    let objects = cases.into_iter().flat_map(|text| read(text).objects).map(|read| read.object);
    let credentials = objects.filter(|object| matches!(object.meta.key.kind, Kind::Secret | Kind::ConfigMap));
    credentials.map(Update::Object).collect()
}
