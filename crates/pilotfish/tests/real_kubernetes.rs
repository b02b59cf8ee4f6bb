//! A real Kubernetes API server: everything that works with files works live.

mod support;

use pilotfish_bench::fleet::{Fleet, node};
use pilotfish_testkit::real::{
    ApiServer, ApiServerOptions, Envoy, EnvoyOptions, LIMIT, Load, Pilotfish, definition, eventually, get,
};
use std::net::SocketAddr;
use support::kube::{
    BINARY, addresses, catalog, cluster, definitions, entries, has_addresses, install_definitions, launch,
    serve, service, slice,
};
use support::{CATALOG, Shop};

const QUIET: &str = "quiet.shop.svc.cluster.local";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_served_and_what_changes_in_it_arrives() {
    let Some(server) = cluster().await else { return };
    let shop = Shop::start().await;
    server
        .apply(
            &[catalog(&shop), entries(&shop, &[0]), service("quiet"), "---\n".into(), slice("quiet", 3)]
                .concat(),
        )
        .await;
    let pilotfish = serve(&server.kubeconfig()).await;
    assert_eq!(addresses(&pilotfish, QUIET).await.len(), 3);
    let Some(_envoy) = Envoy::start(&pilotfish, &EnvoyOptions::sidecar("delta")).await else { return };
    eventually("the catalog is reached", || get(shop.port, CATALOG, &[])).await;

    let load = Load::start(shop.port, CATALOG);
    server.apply(&entries(&shop, &[1])).await;
    eventually("version 2 answers as well", || async {
        let seen = load.so_far();
        if seen.contains_key("v2") { Ok(()) } else { Err(seen) }
    })
    .await;
    server.delete(&entries(&shop, &[0])).await;
    has_addresses(&pilotfish, CATALOG, 1).await;
    eventually("only version 2 answers", || async {
        load.reset();
        load.answers(20).await;
        let seen = load.so_far();
        if seen.keys().eq(["v2"]) { Ok(()) } else { Err(seen) }
    })
    .await;
    server.apply(&slice("quiet", 0)).await;
    has_addresses(&pilotfish, QUIET, 0).await;
    server.apply(&slice("quiet", 600)).await;
    has_addresses(&pilotfish, QUIET, 600).await;
    let tally = load.stop().await;
    assert!(tally.keys().all(|who| ["v1", "v2"].contains(&who.as_str())), "{tally:?}");
}

/// Waits until status says this of kinds that are not served.
async fn has_unserved(pilotfish: &Pilotfish, expected: &[&str]) {
    eventually("the kinds that are not served are told", || async {
        let status = pilotfish.json("/api/v1/status").await;
        let told: Vec<_> =
            status["unserved"].as_array().into_iter().flatten().map(|kind| kind.as_str()).collect();
        let is_as_expected = told.iter().flatten().eq(expected);
        if is_as_expected { Ok(()) } else { Err(status) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_that_appear_later_are_read_and_vanish_with_their_objects() {
    let Some(server) = ApiServer::start(ApiServerOptions::default()).await else { return };
    // Leases are there.
    server.apply("{apiVersion: v1, kind: Namespace, metadata: {name: istio-system}}").await;
    server.apply(&[service("quiet"), slice("quiet", 2)].concat()).await;
    let pilotfish = serve(&server.kubeconfig()).await;
    has_addresses(&pilotfish, QUIET, 2).await;
    let warnings = pilotfish.printed();
    // A busy machine may have others, of slow answers.
    let is_of_kinds = |line: &&str| line.contains(" WARN ") && line.contains("kind");
    let warnings: Vec<&str> = warnings.lines().filter(is_of_kinds).collect();
    assert!(
        matches!(warnings.as_slice(), [line] if line.contains("none of Istio's kinds") && line.contains("pilotfish crds")),
        "{warnings:#?}"
    );

    install_definitions(&server).await;
    let outside = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: outside, namespace: shop}\nspec:\n  \
                   hosts: [outside.example.com]\n  resolution: STATIC\n  ports: [{name: http, number: 80, protocol: HTTP}]\n  \
                   endpoints: [{address: 192.0.2.1}]\n";
    server.apply(outside).await;
    has_addresses(&pilotfish, "outside.example.com", 1).await;
    server.apply_unserved_definitions().await;
    for name in ["a", "b", "c"] {
        let meta = format!("metadata: {{name: {name}, namespace: shop}}");
        server
            .apply(&format!("{{apiVersion: gateway.networking.k8s.io/v1alpha2, kind: UDPRoute, {meta}}}"))
            .await;
    }
    // A change of definitions lets it look again soon.
    server.apply(&definition("example.com", "v1", "Example")).await;
    has_unserved(&pilotfish, &["gateway.networking.k8s.io/v1alpha2 UDPRoute: 3 objects have no effect"])
        .await;
    let report = "objects of gateway.networking.k8s.io/v1alpha2 UDPRoute have no effect: this version does not serve their kind";
    let problems = pilotfish.page("/debug/problemz").await.unwrap();
    assert!(problems.contains(&format!("{report} (3 objects)")), "{problems}");
    assert_eq!(pilotfish.printed().matches(report).count(), 1);
    server.delete(&definition("gateway.networking.k8s.io", "v1alpha2", "UDPRoute")).await;
    has_unserved(&pilotfish, &[]).await;

    let all = definitions().await;
    let one = all.split("\n---").find(|text| text.contains("name: serviceentries.networking.istio.io"));
    server.delete(one.expect("ServiceEntry is defined")).await;
    has_addresses(&pilotfish, "outside.example.com", 0).await;
    assert_eq!(addresses(&pilotfish, QUIET).await.len(), 2, "the rest stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mesh_config_and_broken_objects_are_read_live() {
    let Some(server) = cluster().await else { return };
    let mesh = |domain: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: istio, namespace: istio-system}}\ndata:\n  mesh: |\n    \
             trustDomain: {domain}\n"
        )
    };
    server.apply(&mesh("first.example")).await;
    server.apply(&[service("quiet"), slice("quiet", 1)].concat()).await;
    let pilotfish = serve(&server.kubeconfig()).await;
    let config = async |wanted: &str| {
        eventually("the mesh config is in force", || async {
            let all = pilotfish.page("/debug/configz").await?;
            if all.contains(wanted) { Ok(()) } else { Err(all) }
        })
        .await;
    };
    config("first.example").await;
    server.apply(&mesh("second.example")).await;
    config("second.example").await;

    server.apply(&mesh("[broken")).await;
    let problem = eventually("the mistake is reported", || async {
        let ready = pilotfish.page("/ready").await?;
        if ready.contains("MeshConfig") { Ok(ready) } else { Err(ready) }
    })
    .await;
    assert!(problem.contains("last good version stays in force"), "{problem}");
    config("second.example").await;
}

/// What a script does: it writes, waits for what it wrote, and goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_returns_when_a_proxy_has_the_generation_that_was_written() {
    let Some(server) = cluster().await else { return };
    server.apply(&[service("quiet"), slice("quiet", 1)].concat()).await;
    let pilotfish = serve(&server.kubeconfig()).await;
    let target = SocketAddr::from(([127, 0, 0, 1], pilotfish.xds_port()));
    let fleet = Fleet::start(target, vec![node(0, "shop")]);
    fleet.synced(LIMIT).await.unwrap();
    let ask = async |arguments: &[&str]| {
        let mut command = tokio::process::Command::new(BINARY);
        let admin = format!("127.0.0.1:{}", pilotfish.admin_port());
        let output = command.args(arguments).env("PILOTFISH_ADMIN_ADDRESS", admin).output().await.unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    for generation in 1..=8 {
        let route = format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: quiet, namespace: shop}}\nspec:\n  \
             hosts: [quiet]\n  http: [{{timeout: 1{generation}s, route: [{{destination: {{host: quiet}}}}]}}]\n"
        );
        server.apply(&route).await;
        let number = generation.to_string();
        let (code, text) = ask(&["wait", "VirtualService/shop/quiet", "--generation", &number]).await;
        assert_eq!(code, Some(0), "{generation}: {text}");
        let (_, sent) = ask(&["config", "client-0.shop", "routes", "80"]).await;
        assert!(sent.contains(&format!("timeout: 1{generation}s")), "{generation}: {sent}");
    }
    let (code, text) = ask(&["wait", "Service/shop/quiet", "--generation", "1"]).await;
    assert!(code == Some(2) && text.contains("Service shop/quiet has no generation"), "{text}");
    let (code, text) = ask(&["wait", "Service/shop/quiet"]).await;
    assert_eq!(code, Some(0), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_and_a_cluster_are_served_together() {
    let Some(server) = cluster().await else { return };
    server.apply(&[service("quiet"), slice("quiet", 1)].concat()).await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let local = [service("local"), slice("local", 2)].concat();
    std::fs::write(folder.path().join("local.yaml"), local).expect("the folder can be written");
    let (folder, kubeconfig) = (folder.path().to_string_lossy(), server.kubeconfig());
    let arguments = [&*folder, "--kubernetes", "--kubeconfig", &kubeconfig.to_string_lossy()];
    let pilotfish = Pilotfish::launch(BINARY, &arguments);
    pilotfish.ready().await;
    has_addresses(&pilotfish, QUIET, 1).await;
    has_addresses(&pilotfish, "local.shop.svc.cluster.local", 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_served_before_the_cluster_was_read() {
    let Some(mut server) = ApiServer::start(ApiServerOptions::default()).await else { return };
    server.apply(&[service("quiet"), slice("quiet", 1)].concat()).await;
    server.kill().await;
    let pilotfish = launch(&server.kubeconfig());
    eventually("it reports what it waits for", || async {
        match pilotfish.page("/debug/registryz?registries=true").await {
            Ok(text) if text.contains("refused") => Ok(()),
            other => Err(other),
        }
    })
    .await;
    assert!(pilotfish.page("/ready").await.is_err());
    server.restart().await;
    pilotfish.ready().await;
    assert_eq!(addresses(&pilotfish, QUIET).await.len(), 1);
}
