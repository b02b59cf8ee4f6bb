//! 10,000 services and 2,000 proxies; and as many services with proxies that see all of them.
//!
//! What a page costs is bounded by what it holds and asks for: how long that takes depends on the machine,
//! and is printed. With `PILOTFISH_MEASURED=PATH` the program is another build, for the figures of
//! docs/dashboard.md.

use crate::Dashboard;
use pilotfish_bench::fleet::{Fleet, node};
use pilotfish_testkit::real::{LIMIT, Pilotfish};
use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Instant;

const NAMESPACES: usize = 100;
const SERVICES: usize = 100;
const PROXIES: usize = 2_000;
/// Proxies that see everything: each is sent some 10 MB, and the names that clients of one address may
/// subscribe to in all are limited (`address-subscription-bytes`).
const SEEING_ALL: usize = 12;
/// What a page may hold and ask for at most.
const ELEMENTS: u64 = 3_000;
const REQUESTS: u64 = 12;
const BYTES: u64 = 1 << 20;

/// A namespace with its services. A Sidecar may narrow what its proxies see.
fn namespace(number: usize, is_narrow: bool) -> String {
    let mut text = if is_narrow { sidecar(number) } else { String::new() };

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

fn sidecar(number: usize) -> String {
    let next = (number + 1) % NAMESPACES;
    format!(
        "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{name: default, namespace: n{number}}}\nspec: {{egress: [{{hosts: \
         [\"./svc-0.n{number}.svc.cluster.local\", \"n{next}/svc-1.n{next}.svc.cluster.local\"]}}]}}\n"
    )
}

/// Each page with what is there once it can be used.
const PAGES: &[(&str, &str)] = &[
    // The first page is that of a browser that has just begun.
    ("nothing", "document.body.innerText.includes('no such page')"),
    ("", "document.body.innerText.includes('10,000')"),
    ("services", "document.querySelectorAll('tr[data-at] a').length > 10"),
    ("services?sort=health", "document.querySelectorAll('tr[data-at] .bad').length > 10"),
    ("services?host=svc-7.n50.", "document.body.innerText.includes('1 service')"),
    ("services/svc-0.n5.svc.cluster.local?namespace=n5", "document.querySelector('.graph svg')"),
    ("map", "document.querySelectorAll('.tile').length === 100"),
    ("map?in=n7", "document.querySelectorAll('.tile').length === 100"),
    ("proxies", "document.querySelectorAll('tr[data-at] a').length > 10"),
    ("proxies/client-9.n9", "document.querySelector('details.resource')"),
    ("why?proxy=client-5.n5&to=svc-0.n5.svc.cluster.local", "document.querySelector('.outcome')"),
    ("changes", "document.body.innerText.includes('proxies have revision')"),
    ("registries", "document.body.innerText.includes('10,000')"),
    ("problems", "document.body.innerText.includes('No problems')"),
];

/// Bytes and requests of the API since the page was opened.
const ASKED: &str = "(all => [all.length, all.reduce((sum, one) => sum + one.encodedBodySize, 0)])(performance.getEntriesByType('resource')\
                     .filter(({name}) => name.includes('/api/v1/') && !name.includes('/events')))";

async fn mesh(proxies: usize, is_narrow: bool) -> (Pilotfish, Fleet) {
    let texts: Vec<(String, String)> =
        (0..NAMESPACES).map(|number| (format!("n{number}.yaml"), namespace(number, is_narrow))).collect();
    let files: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let measured = std::env::var("PILOTFISH_MEASURED");
    let binary = measured.as_deref().unwrap_or(env!("CARGO_BIN_EXE_pilotfish"));
    let pilotfish = Pilotfish::start(binary, &files).await;
    let target = SocketAddr::from(([127, 0, 0, 1], pilotfish.xds_port()));
    let nodes = (0..proxies).map(|index| node(index, &format!("n{}", index % NAMESPACES))).collect();
    let fleet = Fleet::start(target, nodes);
    fleet.synced(4 * LIMIT).await.unwrap();
    (pilotfish, fleet)
}

/// Opens each page, and looks at what it costs.
async fn pages_are_small(dashboard: &mut Dashboard) {
    dashboard.browser.looks(1_280, 800, false).await;
    for (page, usable) in PAGES {
        dashboard.browser.evaluate("performance.clearResourceTimings()").await;
        let began = Instant::now();
        dashboard.open(page).await;
        dashboard.browser.until(usable).await;
        eprintln!("#/{page}: usable after {} ms", began.elapsed().as_millis());
        let elements = dashboard.browser.evaluate("document.querySelectorAll('*').length").await;
        assert!(elements.as_u64().unwrap() < ELEMENTS, "#/{page}: {elements} elements");
        let asked = dashboard.browser.evaluate(ASKED).await;
        let (requests, bytes) = (asked[0].as_u64().unwrap(), asked[1].as_u64().unwrap());
        eprintln!("#/{page}: {requests} requests, {bytes} bytes, {elements} elements");
        assert!(requests <= REQUESTS && bytes <= BYTES, "#/{page}: {requests} requests, {bytes} bytes");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_mesh_does_not_hang_a_page() {
    let (pilotfish, _fleet) = mesh(PROXIES, true).await;
    let Some(mut dashboard) = Dashboard::of(&pilotfish).await else { return };
    pages_are_small(&mut dashboard).await;
    dashboard.open("map").await;
    dashboard.browser.until("document.querySelector('.graph svg')").await;
    dashboard.open("changes").await;
    dashboard.shows("of 2,000 proxies").await;
    // To the end of a list and back: only what is seen is there.
    dashboard.open("services").await;
    dashboard.shows("10,000 services").await;
    dashboard.browser.evaluate("document.querySelector('.window').scrollTop = 1e9").await;
    dashboard.shows("svc-99.n99.svc.cluster.local").await;
    assert_eq!(dashboard.browser.take_trouble(), Vec::<String>::new());
}

/// Each of these proxies has all 10,000 clusters, so its page, and `why` for it, have the most to go through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxies_that_see_everything_do_not_hang_a_page() {
    let (pilotfish, _fleet) = mesh(SEEING_ALL, false).await;
    let Some(mut dashboard) = Dashboard::of(&pilotfish).await else { return };
    pages_are_small(&mut dashboard).await;
    assert_eq!(dashboard.browser.take_trouble(), Vec::<String>::new());
}
