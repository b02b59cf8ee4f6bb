//! The mesh of these tests: one service with up to two versions, and rules for it.

use pilotfish_testkit::real::{Pilotfish, eventually};
use std::fmt::Write as _;

pub(crate) const TARGET: &str = "xds:///echo.shop.svc.cluster.local:9000";
/// The SPIFFE identities of servers and clients.
pub(crate) const SERVER: &str = "spiffe://cluster.local/ns/shop/sa/echo";
pub(crate) const CLIENT: &str = "spiffe://cluster.local/ns/shop/sa/client";

/// The service with one endpoint for each address and port; the first is version `v1` and so on.
pub(crate) fn service(endpoints: &[(&str, u16)]) -> String {
    let mut text = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: echo, namespace: shop}\nspec:\n  \
                    hosts: [echo.shop.svc.cluster.local]\n  location: MESH_INTERNAL\n  resolution: STATIC\n  ports: [{name: \
                    grpc, number: 9000, protocol: GRPC}]\n  endpoints:\n"
        .to_owned();
    for (index, (address, port)) in endpoints.iter().enumerate() {
        writeln!(
            text,
            "  - {{address: {address}, labels: {{app: echo, version: v{}}}, serviceAccount: echo, ports: {{grpc: {port}}}}}",
            index + 1
        )
        .unwrap();
    }
    text
}

/// Two subsets: testers get `v2`, everyone else one of both by weight.
pub(crate) fn subsets((v1, v2): (u32, u32)) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: echo, namespace: shop}}\nspec:\n  hosts: \
         [echo.shop.svc.cluster.local]\n  http:\n  - match: [{{headers: {{x-user: {{exact: tester}}}}}}]\n    route: \
         [{{destination: {{host: echo.shop.svc.cluster.local, subset: v2}}}}]\n  - route:\n    - {{destination: {{host: \
         echo.shop.svc.cluster.local, subset: v1}}, weight: {v1}}}\n    - {{destination: {{host: echo.shop.svc.cluster.local, \
         subset: v2}}, weight: {v2}}}\n---\n\
         apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: echo, namespace: shop}}\nspec:\n  host: \
         echo.shop.svc.cluster.local\n  subsets:\n  - {{name: v1, labels: {{version: v1}}}}\n  - {{name: v2, labels: {{version: \
         v2}}}}\n"
    )
}

/// Mutual TLS on both sides.
pub(crate) const MUTUAL_TLS: &str = "\
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: strict, namespace: shop}
spec: {mtls: {mode: STRICT}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: mutual, namespace: shop}
spec: {host: echo.shop.svc.cluster.local, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}
";

/// Only the client's identity may call, and no client the method `Admin`.
pub(crate) const AUTHORIZATION: &str = "\
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: callers, namespace: shop}
spec:
  selector: {matchLabels: {app: echo}}
  action: ALLOW
  rules: [{from: [{source: {principals: [cluster.local/ns/shop/sa/client]}}]}]
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: no-admin, namespace: shop}
spec:
  selector: {matchLabels: {app: echo}}
  action: DENY
  rules: [{to: [{operation: {paths: [/pilotfish.test.Echo/Admin]}}]}]
";

/// Nobody may call the method `Admin`.
pub(crate) const NO_ADMIN: &str = "\
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: no-admin, namespace: shop}
spec:
  action: DENY
  rules: [{to: [{operation: {paths: [/pilotfish.test.Echo/Admin]}}]}]
";

/// Conditions of every kind; none of them holds for the calls of the tests.
pub(crate) const CONDITIONS: &str = "\
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: conditions, namespace: shop}
spec:
  action: DENY
  rules:
  - from: [{source: {ipBlocks: [10.9.0.0/16], notIpBlocks: [10.9.9.9]}}]
  - from: [{source: {remoteIpBlocks: [10.9.0.0/16]}}]
  - from: [{source: {namespaces: [elsewhere, \"else*\"], notNamespaces: [shop]}}]
  - from: [{source: {principals: [\"*/sa/nobody\", \"cluster.local/ns/none*\"]}}]
  - from: [{source: {serviceAccounts: [elsewhere/nobody]}}]
  - from: [{source: {requestPrincipals: [\"*\"]}}]
  - to: [{operation: {hosts: [\"*.example.com\"], notHosts: [a.example.com]}}]
  - to: [{operation: {ports: [\"1\"], notPorts: [\"2\"]}}]
  - to: [{operation: {methods: [GET], notMethods: [POST], paths: [\"*/none\", \"/none*\", /none], notPaths: [/other]}}]
  - to: [{operation: {paths: [\"/{*}/none\", \"/{**}/nothing\"]}}]
  - when: [{key: \"request.headers[x-none]\", values: [a, \"b*\", \"*c\", \"*\"]}]
  - when: [{key: source.ip, values: [10.9.9.9]}, {key: remote.ip, values: [10.9.9.9]}, {key: destination.ip, values: [10.9.9.9]}]
  - when: [{key: destination.port, values: [\"1\"]}, {key: connection.sni, values: [none]}]
  - when: [{key: \"request.auth.claims[iss]\", values: [none]}, {key: request.auth.audiences, values: [none]}]
";

/// Waits until Pilotfish knows the service.
pub(crate) async fn is_known(pilotfish: &Pilotfish, service: &str) {
    eventually("the service is known", || async {
        let services = pilotfish.page("/debug/registryz").await?;
        if services.contains(service) { Ok(()) } else { Err(services) }
    })
    .await;
}

/// Fails when a peer has refused what it was sent.
pub(crate) async fn nothing_was_refused(pilotfish: &Pilotfish) {
    let refused = pilotfish.metric("pilot_total_xds_rejects").await;
    assert!(refused == 0.0, "{refused} refusals: {}", pilotfish.page("/debug/adsz").await.unwrap());
}
