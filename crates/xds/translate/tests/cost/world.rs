//! Small worlds and what a proxy gets of them.

use pilotfish_model::{
    ChangeSet, ClusterAddresses, Hostname, Kind, KubernetesAttributes, ObjectKey, Origin, Port, Protocol,
    Provider, Resolution, Service, Update, World, WorldWriter,
};
use pilotfish_proto::ResourceType;
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_translate::{Proxy, Translator};
use std::sync::Arc;

/// A world of one size of a shape.
pub(crate) struct Case {
    updates: Vec<Update>,
    /// Bytes of what the world was made of.
    pub(crate) input: usize,
    proxy: Proxy,
    /// Names of the route configurations that the proxy asks for.
    routes: Vec<String>,
}

impl Case {
    /// For a sidecar in the namespace `shop`.
    pub(crate) fn sidecar() -> Self {
        Self::of("sidecar~10.0.99.1~a.shop~shop.svc.cluster.local")
    }

    /// For a gateway's proxy in that namespace.
    pub(crate) fn router() -> Self {
        Self::of("router~10.0.99.1~a.shop~shop.svc.cluster.local")
    }

    fn of(id: &str) -> Self {
        let proxy = Proxy::from_node(&Node { id: id.to_owned(), ..Node::default() }).unwrap();
        Self { updates: Vec::new(), input: 0, proxy, routes: Vec::new() }
    }

    /// Adds an object of a namespace `shop`.
    pub(crate) fn object(&mut self, kind: &str, name: &str, spec: &str) {
        let group = match kind {
            "AuthorizationPolicy" => "security.istio.io/v1",
            "EnvoyFilter" => "networking.istio.io/v1alpha3",
            _ => "networking.istio.io/v1",
        };
        let text = format!(
            "{{apiVersion: {group}, kind: {kind}, metadata: {{name: {name}, namespace: shop}}, spec: {spec}}}"
        );
        let file = pilotfish_config::read("test.yaml", text.as_bytes(), &pilotfish_config::Limits::default());
        assert!(file.rejected.is_empty(), "{:?}", file.rejected);
        self.input += text.len();
        self.updates.extend(file.objects.into_iter().map(|read| Update::Object(read.object)));
    }

    /// Adds a service.
    pub(crate) fn service(&mut self, service: Service) {
        self.services(vec![service]);
    }

    /// Adds services of one host.
    pub(crate) fn services(&mut self, services: Vec<Service>) {
        const EACH: usize = 300;
        const PORT: usize = 50;
        self.input += services.iter().map(|service| EACH + PORT * service.ports.len()).sum::<usize>();
        let first = services.first().unwrap();
        let key = first.key();
        self.updates.push(Update::Services(key, services.into_iter().map(Arc::new).collect()));
    }

    /// Has the proxy ask for a route configuration.
    pub(crate) fn route(&mut self, name: impl Into<String>) {
        self.routes.push(name.into());
    }

    pub(crate) fn publish(&self) -> (Arc<World>, ChangeSet) {
        let mut writer = WorldWriter::new();
        self.updates.iter().cloned().for_each(|update| writer.apply(update));
        writer.publish().unwrap()
    }

    /// Reads all that the proxy gets, and counts its bytes.
    pub(crate) fn sent_by(&self, translator: &Translator) -> usize {
        let client = translator.connect(self.proxy.clone());
        let snapshot = translator.snapshot();
        let mut sent = 0;
        for resource_type in [ResourceType::Cluster, ResourceType::Listener] {
            let view = snapshot.view(&client, resource_type).unwrap();
            assert!(snapshot.prepare(view));
            for name in snapshot.names(view).iter() {
                sent += snapshot.get(view, name).map_or(0, |resource| resource.body.len());
            }
        }
        let view = snapshot.view(&client, ResourceType::Route).unwrap();
        for name in &self.routes {
            sent += snapshot.get(view, name).map_or(0, |resource| resource.body.len());
        }
        sent
    }
}

/// A Kubernetes Service `NAME.shop` with these ports.
pub(crate) fn service(name: &str, ports: impl IntoIterator<Item = (u32, Protocol)>) -> Service {
    let hostname = Hostname::of_kubernetes_service(name, "shop", "cluster.local").unwrap();
    with_host(hostname, name, ports)
}

/// A service of any host.
pub(crate) fn with_host(
    hostname: Hostname,
    name: &str,
    ports: impl IntoIterator<Item = (u32, Protocol)>,
) -> Service {
    let port = |(number, protocol): (u32, Protocol)| Port {
        number,
        name: format!("p-{number}").into(),
        protocol,
        target_port: None,
    };
    let ports: Vec<Port> = ports.into_iter().map(port).collect();
    let provenance = Origin::object(ObjectKey::new(Kind::Service, "shop", name), "Kubernetes");
    Service {
        has_short_name: true,
        addresses: ClusterAddresses::new(),
        ..Service::registered(Provider::new(0, "Kubernetes"), hostname, "shop", ports, provenance)
    }
}

/// An alias of another Service.
pub(crate) fn alias(name: &str, to: &str) -> Service {
    let to = format!("{to}.shop.svc.cluster.local");
    let attributes =
        KubernetesAttributes { external_name: Some(to.into()), ..KubernetesAttributes::default() };
    Service {
        resolution: Resolution::Alias,
        kubernetes: Some(Arc::new(attributes)),
        ..service(name, [(80, Protocol::Http)])
    }
}
