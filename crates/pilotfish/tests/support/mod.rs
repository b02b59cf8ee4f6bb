//! The shop of the real-client tests: a catalog in two versions, a cart and an external payment service, on
//! backends that say who they are.
#![allow(dead_code, reason = "each test target uses a part")]

pub(crate) mod certificates;
#[allow(clippy::panic, reason = "a test fails by panicking")]
pub(crate) mod delta;
pub(crate) mod issuer;
pub(crate) mod kube;

use pilotfish_testkit::real::{Backend, Pilotfish, free_port};

pub(crate) const CATALOG: &str = "catalog.shop.svc.cluster.local";
pub(crate) const CART: &str = "cart.shop.svc.cluster.local";
pub(crate) const PAYMENT: &str = "payment.example.com";

/// Backends, and the port on which the services are offered.
pub(crate) struct Shop {
    pub(crate) port: u16,
    pub(crate) catalog: [Backend; 2],
    pub(crate) cart: Backend,
    pub(crate) payment: Backend,
}

impl Shop {
    pub(crate) async fn start() -> Self {
        Self {
            port: free_port(),
            catalog: [Backend::start("127.0.0.11", "v1").await, Backend::start("127.0.0.12", "v2").await],
            cart: Backend::start("127.0.0.13", "cart").await,
            payment: Backend::start("127.0.0.14", "payment").await,
        }
    }

    /// Pilotfish on the shop's files, with the given shares of versions 1 and 2.
    pub(crate) async fn serve(&self, weights: (u32, u32)) -> Pilotfish {
        let files = [
            ("services.yaml", self.services()),
            ("catalog.yaml", self.catalog_slices(&[0, 1])),
            ("cart.yaml", self.cart_slice()),
            ("routes.yaml", routes(weights)),
        ];
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
        Pilotfish::start(env!("CARGO_BIN_EXE_pilotfish"), &files).await
    }

    pub(crate) fn services(&self) -> String {
        let service = |name: &str, ip: &str| {
            format!(
                "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\nspec:\n  clusterIP: {ip}\n  \
                 selector: {{app: {name}}}\n  ports:\n  - {{name: http, port: {}, targetPort: 80}}\n---\n",
                self.port
            )
        };
        let pod = |version: usize| {
            format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: catalog-v{version}, namespace: shop, labels: \
                 {{app: catalog, version: v{version}}}}}\nspec: {{containers: [{{name: app, image: x}}]}}\nstatus: {{phase: \
                 Running, podIP: 127.0.0.1{version}, podIPs: [{{ip: 127.0.0.1{version}}}], conditions: [{{type: Ready, \
                 status: \"True\"}}]}}\n---\n"
            )
        };
        let payment = format!(
            "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: payment, namespace: shop}}\nspec:\n  \
             hosts: [{PAYMENT}]\n  location: MESH_EXTERNAL\n  resolution: STATIC\n  ports: [{{name: http, number: {}, \
             protocol: HTTP}}]\n  endpoints: [{{address: 127.0.0.14, ports: {{http: {}}}}}]\n",
            self.port,
            self.payment.port()
        );
        [service("catalog", "127.0.1.1"), service("cart", "127.0.1.2"), pod(1), pod(2), payment].concat()
    }

    /// One slice for each of these versions of the catalog (counted from 0).
    pub(crate) fn catalog_slices(&self, versions: &[usize]) -> String {
        let slice = |version: &usize| {
            let n = version + 1;
            format!(
                "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: catalog-v{n}, namespace: shop, \
                 labels: {{kubernetes.io/service-name: catalog}}}}\naddressType: IPv4\nports: [{{name: http, port: {}, \
                 protocol: TCP}}]\nendpoints: [{{addresses: [127.0.0.1{n}], conditions: {{ready: true}}, targetRef: \
                 {{kind: Pod, name: catalog-v{n}, namespace: shop}}}}]\n---\n",
                self.catalog[*version].port()
            )
        };
        versions.iter().map(slice).collect()
    }

    pub(crate) fn cart_slice(&self) -> String {
        format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: cart, namespace: shop, labels: \
             {{kubernetes.io/service-name: cart}}}}\naddressType: IPv4\nports: [{{name: http, port: {}, protocol: TCP}}]\n\
             endpoints: [{{addresses: [127.0.0.13], conditions: {{ready: true}}}}]\n",
            self.cart.port()
        )
    }
}

/// Testers get version 2, everyone else by weight.
pub(crate) fn routes((v1, v2): (u32, u32)) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: catalog, namespace: shop}}\nspec:\n  \
         hosts: [catalog]\n  http:\n  - match: [{{headers: {{x-user: {{exact: tester}}}}}}]\n    route: [{{destination: \
         {{host: catalog, subset: v2}}}}]\n  - route:\n    - {{destination: {{host: catalog, subset: v1}}, weight: {v1}}}\n    \
         - {{destination: {{host: catalog, subset: v2}}, weight: {v2}}}\n---\n\
         apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: catalog, namespace: shop}}\nspec:\n  \
         host: catalog\n  subsets:\n  - {{name: v1, labels: {{version: v1}}}}\n  - {{name: v2, labels: {{version: v2}}}}\n"
    )
}

/// A rule that spreads over both versions without subsets: a removed endpoint fails no request.
pub(crate) fn plain_route() -> String {
    "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: catalog, namespace: shop}\nspec:\n  hosts: \
     [catalog]\n  http:\n  - route: [{destination: {host: catalog}}]\n"
        .to_owned()
}
