//! The ways from trouble to its cause: the verdict, the search, links of names, commands, pictures.

use super::pages::shop;
use crate::Dashboard;
use crate::refusing::refusing;
use pilotfish_testkit::real::Pilotfish;

/// A host that is routed to subsets of itself, with names longer than any box.
const LOOPS: &str = "apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: recommendations-of-the-shop-for-returning-customers, namespace: loops}
spec:
  hosts: [recommendations-of-the-shop-for-returning-customers.example.com]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints:
  - {address: 192.0.2.11, labels: {version: v1}}
  - {address: 192.0.2.12, labels: {version: v2}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: recommendations-of-the-shop-for-returning-customers, namespace: loops}
spec:
  hosts: [recommendations-of-the-shop-for-returning-customers.example.com]
  http:
  - route:
    - {destination: {host: recommendations-of-the-shop-for-returning-customers.example.com, subset: v1}, weight: 90}
    - {destination: {host: recommendations-of-the-shop-for-returning-customers.example.com, subset: v2-with-a-name-that-is-long}, weight: 10}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: recommendations, namespace: loops}
spec:
  host: recommendations-of-the-shop-for-returning-customers.example.com
  subsets:
  - {name: v1, labels: {version: v1}}
  - {name: v2-with-a-name-that-is-long, labels: {version: v2}}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pictures_of_routes_to_own_subsets_stay_in_their_frames() {
    let Some((pilotfish, _fleet, mut dashboard)) = shop().await else { return };
    pilotfish.write("loops.yaml", LOOPS);
    let host = "recommendations-of-the-shop-for-returning-customers.example.com";
    for (width, dark) in [(1_280, false), (390, true)] {
        dashboard.browser.looks(width, 800, dark).await;
        for page in ["map?in=loops".to_owned(), format!("services/{host}?namespace=loops")] {
            dashboard.open("nothing").await;
            dashboard.open(&page).await;
            dashboard
                .browser
                .until("[...document.querySelectorAll('.graph .note')].filter(({textContent}) => textContent === '1 of 1 healthy').length === 2")
                .await;
            dashboard.is_well(&format!("{page} at {width}")).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn box_that_leads_to_itself_has_its_loop_in_the_frame() {
    let Some((_pilotfish, _fleet, mut dashboard)) = shop().await else { return };
    dashboard.open("map").await;
    dashboard.shows("Who sees whose services").await;
    let draw = "(async () => {
        const { graph } = await import(document.querySelector('script[type=module]').src.replace('main.js', 'graph.js'));
        const node = { id: 'a', label: 'a', note: 'b' };
        const edges = [{ from: 'a', to: 'a', label: 'a label that is wider than its box is, by far' }];
        const picture = await graph({ label: 'Loop', nodes: [node], edges });
        document.querySelector('main h1').after(picture);
        document.querySelectorAll('main section').forEach((one) => one.remove());
        return picture.querySelectorAll('.edge path').length;
    })()";
    assert_eq!(dashboard.browser.evaluate(draw).await, 1);
    dashboard.is_well("a loop").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn colours_warn_beyond_a_share() {
    let Some((_pilotfish, _fleet, mut dashboard)) = shop().await else { return };
    dashboard.open("").await;
    dashboard.shows("all synced").await;
    let colours = "(async () => {
        const { serviceHealth, namespaceHealth } = await import(document.querySelector('script[type=module]').src.replace('main.js', 'health.js'));
        const service = (endpoints, healthy) => serviceHealth({ endpoints, healthy });
        const namespace = (services, empty, unhealthy, endpoints, healthyEndpoints) =>
            namespaceHealth({ services, empty, unhealthy, endpoints, healthyEndpoints });
        return [
            service(0, 0), service(2, 0), service(2, 1), service(100, 97), service(10, 9), service(10, 8), service(3, 3),
            namespace(0, 0, 0, 0, 0), namespace(5, 5, 0, 0, 0), namespace(100, 0, 3, 100, 97), namespace(100, 0, 20, 100, 80),
            namespace(2, 0, 1, 2, 1), namespace(4, 2, 1, 9, 8), namespace(50, 0, 0, 100, 80), namespace(9, 1, 0, 20, 20),
        ].join(' ');
    })()";
    let expected = "none bad doubt good good doubt good none none good doubt bad bad doubt good";
    assert_eq!(dashboard.browser.evaluate(colours).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overview_names_the_cause_first_and_leads_to_it() {
    let Some((pilotfish, _fleet, mut dashboard)) = shop().await else { return };
    let _refuser = refusing(&pilotfish, "shop", "no").await;
    dashboard.open("").await;
    dashboard.shows("ready, and not all is well").await;
    dashboard.browser.until("document.querySelector('.causes a').innerText.includes('refuse')").await;
    dashboard.is_well("an overview with causes").await;
    dashboard.tab_until("element.matches('.causes a') && element.innerText.includes('refuse')").await;
    dashboard.browser.press("Enter").await;
    dashboard.browser.until("location.hash.startsWith('#/proxies')").await;
    dashboard.shows("refuser.shop").await;
}

/// An object that is refused, and a service whose only endpoint is not healthy.
const BROKEN: &str = "apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: broken, namespace: shop}
spec:
  hosts: [web]
  http: [{timeout: soon, route: [{destination: {host: web}}]}]
";

const DOWN: &str = "apiVersion: v1
kind: Service
metadata: {name: down, namespace: shop}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: down-1, namespace: shop, labels: {kubernetes.io/service-name: down}}
addressType: IPv4
ports: [{name: http, port: 80}]
endpoints: [{addresses: [10.9.9.9], conditions: {ready: false}}]
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overview_has_the_verdict_of_the_control_plane() {
    let pilotfish = Pilotfish::start(env!("CARGO_BIN_EXE_pilotfish"), &[("down.yaml", DOWN)]).await;
    let Some(mut dashboard) = Dashboard::of(&pilotfish).await else { return };
    dashboard.open("").await;
    dashboard
        .browser
        .until("[...document.querySelectorAll('.causes a')].some(({innerText}) => innerText.includes('none of them healthy'))")
        .await;
    // The health of services is shown beside the verdict, and is no part of it.
    let verdict = pilotfish.json("/api/v1/overview").await["verdict"].clone();
    assert_eq!(verdict["level"], "well", "{verdict:#}");
    dashboard
        .browser
        .until("document.querySelector('.state.good .summary').innerText.includes('no refusals')")
        .await;
    dashboard.is_well("an overview with a service that is down").await;
    pilotfish.write("broken.yaml", BROKEN);
    dashboard.shows("1 object is not in force").await;
    dashboard.tab_until("element.matches('.causes a') && element.innerText.includes('broken')").await;
    dashboard.browser.press("Enter").await;
    dashboard.browser.until("location.hash === '#/objects/VirtualService%2Fshop%2Fbroken'").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn search_finds_services_proxies_and_objects() {
    let Some((_pilotfish, _fleet, mut dashboard)) = shop().await else { return };
    for (text, result, page) in [
        ("catalog", "catalog.stock.svc.cluster.local", "#/services/catalog.stock"),
        ("client-2", "client-2.stock", "#/proxies/"),
        ("DestinationRule/shop/web", "DestinationRule shop/web", "#/objects/DestinationRule%2Fshop%2Fweb"),
    ] {
        dashboard.open("").await;
        dashboard.shows("all synced").await;
        dashboard.tab_until("element.id === 'search'").await;
        dashboard.browser.enter(text).await;
        dashboard
            .browser
            .until(&format!(
                "[...document.querySelectorAll('.found a')].some(({{innerText}}) => innerText === {result:?})"
            ))
            .await;
        dashboard.is_well(&format!("results of {text}")).await;
        dashboard.tab_until(&format!("element.closest('.found') && element.innerText === {result:?}")).await;
        dashboard.browser.press("Enter").await;
        dashboard.browser.until(&format!("location.hash.startsWith({page:?})")).await;
    }
    // A name on that page leads on: here, to the object's YAML.
    dashboard.shows("maxConnections: 10").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_give_the_command_that_shows_the_same() {
    let Some((pilotfish, _fleet, mut dashboard)) = shop().await else { return };
    let address = format!("--admin-address 127.0.0.1:{}", pilotfish.admin_port());
    for (page, text, command) in [
        ("", "all synced", "pilotfish status"),
        ("services?host=web&namespace=shop", "1 service", "pilotfish services web -n shop"),
        (
            "objects/DestinationRule%2Fshop%2Fweb",
            "maxConnections",
            "pilotfish why no config DestinationRule/shop/web",
        ),
        (
            "why?proxy=client-0.shop&to=web&path=/a&header=x%3Da%20b",
            "it reaches 1 endpoint",
            "pilotfish why client-0.shop --to web --path /a --header 'x=a b'",
        ),
    ] {
        dashboard.open(page).await;
        dashboard.shows(text).await;
        dashboard.browser.evaluate("document.querySelector('main button.copy').click()").await;
        let shown = "document.querySelector('main .copied:not([hidden])')?.innerText ?? ''";
        dashboard.browser.until(&format!("{shown} !== ''")).await;
        assert_eq!(dashboard.browser.evaluate(shown).await, format!("{command} {address}"), "{page}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_offers_the_names_of_proxies_and_services() {
    let Some((_pilotfish, _fleet, mut dashboard)) = shop().await else { return };
    dashboard.open("why").await;
    for (field, typed, list, name) in [
        ("From the proxy or Pod", "client", "why-proxies", "client-1.shop"),
        ("To host[:port]", "cat", "why-hosts", "catalog.stock.svc.cluster.local"),
    ] {
        dashboard.tab_to(field).await;
        dashboard.browser.enter(typed).await;
        dashboard
            .browser
            .until(&format!(
                "[...document.querySelectorAll('#{list} option')].some(({{value}}) => value === {name:?})"
            ))
            .await;
    }
}
