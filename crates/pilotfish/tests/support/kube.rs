//! The shop in a real cluster. An API server refuses endpoints on loopback addresses in EndpointSlices, so
//! the Service of the catalog selects WorkloadEntries, which may have any.

use super::{Shop, plain_route};
use pilotfish_testkit::real::{ApiServer, ApiServerOptions, Pilotfish, eventually};
use std::path::Path;
use tokio::process::Command;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_pilotfish");

/// An API server that knows the kinds of Istio and the Gateway API. `None` where tools are missing.
pub(crate) async fn cluster() -> Option<ApiServer> {
    let server = ApiServer::start(ApiServerOptions::default()).await?;
    install_definitions(&server).await;
    Some(server)
}

/// Applies what `pilotfish crds` prints.
pub(crate) async fn install_definitions(server: &ApiServer) {
    server.apply(&definitions().await).await;
}

pub(crate) async fn definitions() -> String {
    let output = Command::new(BINARY).arg("crds").output().await.expect("pilotfish runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("YAML is text")
}

/// A token of a service account, which is made where there is none, for an audience.
pub(crate) async fn token(server: &ApiServer, namespace: &str, account: &str, audience: &str) -> String {
    let object = format!(
        "{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: {account}, namespace: {namespace}}}}}"
    );
    server.apply(&object).await;
    let request = serde_json::json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": [audience]},
    });
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(request.to_string().into_bytes())
        .expect("it is a request");
    let answer: serde_json::Value = server.client().request(request).await.expect("a token is given");
    answer["status"]["token"].as_str().expect("there is a token").to_owned()
}

/// The authority of the certificate that Pilotfish keeps for its webhooks in the root namespace.
pub(crate) async fn kept_authority(server: &ApiServer) -> String {
    let api: kube::Api<k8s_openapi::api::core::v1::Secret> =
        kube::Api::namespaced(server.client(), "istio-system");
    eventually("the authority is there", || async {
        let secret = api.get("pilotfish-webhook-certificate").await.map_err(|error| error.to_string())?;
        let pem = secret.data.and_then(|mut data| data.remove("ca.crt")).ok_or("no ca.crt")?;
        String::from_utf8(pem.0).map_err(|error| error.to_string())
    })
    .await
}

/// Starts Pilotfish on a cluster, without waiting until it is ready.
pub(crate) fn launch(kubeconfig: &Path) -> Pilotfish {
    let kubeconfig = kubeconfig.to_string_lossy();
    Pilotfish::launch(BINARY, &["--kubernetes", "--kubeconfig", &kubeconfig])
}

/// Starts Pilotfish on a cluster and waits until it is ready.
pub(crate) async fn serve(kubeconfig: &Path) -> Pilotfish {
    let pilotfish = launch(kubeconfig);
    pilotfish.ready().await;
    pilotfish
}

/// The Service of the catalog and its route; its endpoints are [`entries`].
pub(crate) fn catalog(shop: &Shop) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: catalog, namespace: shop}}\nspec:\n  selector: {{app: catalog}}\n  \
         ports: [{{name: http, port: {}, targetPort: http}}]\n---\n{}---\n",
        shop.port,
        plain_route()
    )
}

/// WorkloadEntries for these versions of the catalog (counted from 0).
pub(crate) fn entries(shop: &Shop, versions: &[usize]) -> String {
    let entry = |version: &usize| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {{name: catalog-v{n}, namespace: shop}}\n\
             spec: {{address: 127.0.0.1{n}, labels: {{app: catalog}}, ports: {{http: {}}}}}\n---\n",
            shop.catalog[*version].port(),
            n = version + 1
        )
    };
    versions.iter().map(entry).collect()
}

/// A slice of a Service without clients, with so many endpoints.
pub(crate) fn slice(service: &str, endpoints: usize) -> String {
    let list = (0..endpoints).map(|n| {
        format!("- {{addresses: [10.1.{}.{}], conditions: {{ready: true}}}}\n", n / 250, n % 250 + 1)
    });
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {service}, namespace: shop, labels: \
         {{kubernetes.io/service-name: {service}}}}}\naddressType: IPv4\nports: [{{name: http, port: 80, protocol: \
         TCP}}]\nendpoints:{}",
        if endpoints == 0 { " []\n".to_owned() } else { format!("\n{}", list.collect::<String>()) }
    )
}

/// A Service without a route.
pub(crate) fn service(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\nspec:\n  selector: {{app: {name}}}\n  \
         ports: [{{name: http, port: 80}}]\n---\n"
    )
}

/// The endpoints that the control plane has, without where they stand in which document.
pub(crate) async fn endpoints(pilotfish: &Pilotfish) -> serde_json::Value {
    pilotfish.json("/debug/endpointz").await
}

/// The addresses of a service, as the control plane has them.
pub(crate) async fn addresses(pilotfish: &Pilotfish, host: &str) -> Vec<String> {
    let all = endpoints(pilotfish).await;
    let mut found = Vec::new();
    let namespaces = all[host].as_object().into_iter().flat_map(|namespaces| namespaces.values());
    for shards in namespaces.flat_map(|namespace| namespace["Shards"].as_object()) {
        for endpoint in shards.values().flat_map(|shard| shard.as_array().into_iter().flatten()) {
            found.extend(endpoint["Addresses"][0].as_str().map(str::to_owned));
        }
    }
    found.sort();
    found
}

/// Waits until a service has so many addresses.
pub(crate) async fn has_addresses(pilotfish: &Pilotfish, host: &str, count: usize) {
    eventually(&format!("{host} has {count} endpoints"), || async {
        let found = addresses(pilotfish, host).await;
        if found.len() == count { Ok(()) } else { Err(found.len()) }
    })
    .await;
}
