//! 10,000 services and 2,000 proxies.

use crate::Dashboard;
use pilotfish_bench::fleet::{Fleet, node};
use pilotfish_testkit::real::{LIMIT, Pilotfish};
use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

const NAMESPACES: usize = 100;
const SERVICES: usize = 100;
const PROXIES: usize = 2_000;
/// What a page may take here, where the program is not optimised and the proxies share its processors. docs/dashboard.md has what it takes
/// otherwise.
const PATIENCE: Duration = Duration::from_secs(10);

/// A namespace with its services. A Sidecar narrows what its proxies see: the test is about pages, not about pushes.
fn namespace(number: usize) -> String {
    let mut text = format!(
        "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{name: default, namespace: n{number}}}\nspec: {{egress: [{{hosts: \
         [\"./svc-0.n{number}.svc.cluster.local\", \"n{}/svc-1.n{}.svc.cluster.local\"]}}]}}\n",
        (number + 1) % NAMESPACES,
        (number + 1) % NAMESPACES
    );
    for service in 0..SERVICES {
        write!(
            text,
            "---\napiVersion: v1\nkind: Service\nmetadata: {{name: svc-{service}, namespace: n{number}}}\nspec: {{clusterIP: 10.{}.{number}.{}, \
             ports: [{{name: http, port: 80}}]}}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: svc-{service}, \
             namespace: n{number}, labels: {{kubernetes.io/service-name: svc-{service}}}}}\naddressType: IPv4\nports: [{{name: http, port: 8080}}]\n\
             endpoints: [{{addresses: [10.200.{number}.{}], conditions: {{ready: {}}}}}]\n",
            100 + service / 250,
            1 + service % 250,
            1 + service % 250,
            service % 40 != 7
        )
        .unwrap();
    }
    text
}

/// Each page with what is there once it can be used.
const PAGES: &[(&str, &str)] = &[
    // The first page is that of a browser that has just begun.
    ("nothing", "document.body.innerText.includes('no such page')"),
    ("", "document.body.innerText.includes('2,000')"),
    ("services", "document.querySelectorAll('tr[data-at] a').length > 10"),
    ("services?sort=health", "document.querySelectorAll('tr[data-at] .bad').length > 10"),
    ("services?host=svc-7.n50.", "document.body.innerText.includes('1 service')"),
    ("services/svc-0.n5.svc.cluster.local?namespace=n5", "document.querySelector('.graph svg')"),
    ("map", "document.querySelectorAll('.tile').length === 100 && document.querySelector('.graph svg')"),
    ("map?in=n7", "document.querySelectorAll('.tile').length === 100"),
    ("proxies", "document.querySelectorAll('tr[data-at] a').length > 10"),
    ("proxies/client-1999.n99", "document.querySelector('details.resource')"),
    ("why?proxy=client-5.n5&to=svc-0.n5.svc.cluster.local", "document.querySelector('.outcome')"),
    ("changes", "document.body.innerText.includes('of 2,000 proxies')"),
    ("registries", "document.body.innerText.includes('10,000')"),
    ("problems", "document.body.innerText.includes('No problems')"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_mesh_does_not_hang_a_page() {
    let texts: Vec<(String, String)> =
        (0..NAMESPACES).map(|number| (format!("n{number}.yaml"), namespace(number))).collect();
    let files: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let pilotfish = Pilotfish::start(env!("CARGO_BIN_EXE_pilotfish"), &files).await;
    let target = SocketAddr::from(([127, 0, 0, 1], pilotfish.xds_port()));
    let nodes = (0..PROXIES).map(|index| node(index, &format!("n{}", index % NAMESPACES))).collect();
    let fleet = Fleet::start(target, nodes);
    fleet.synced(2 * LIMIT).await.unwrap();
    let Some(mut dashboard) = Dashboard::of(&pilotfish).await else { return };
    dashboard.browser.looks(1_280, 800, false).await;
    for (page, usable) in PAGES {
        let began = std::time::Instant::now();
        dashboard.open(page).await;
        dashboard.browser.until(usable).await;
        let took = began.elapsed();
        println!("#/{page}: usable after {} ms", took.as_millis());
        assert!(took < PATIENCE, "#/{page}: {took:?}");
        let elements = dashboard.browser.evaluate("document.querySelectorAll('*').length").await;
        assert!(elements.as_u64().unwrap() < 3_000, "#/{page}: {elements} elements");
    }
    // To the end of a list and back: only what is seen is there.
    dashboard.open("services").await;
    dashboard.shows("10,000 services").await;
    dashboard.browser.evaluate("document.querySelector('.window').scrollTop = 1e9").await;
    dashboard.shows("svc-99.n99.svc.cluster.local").await;
    assert_eq!(dashboard.browser.take_trouble(), Vec::<String>::new());
}
