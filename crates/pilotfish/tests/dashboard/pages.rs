//! Each page.

use crate::Dashboard;
use crate::refusing::refusing;
use pilotfish_bench::fleet::{Fleet, node};
use pilotfish_testkit::real::{LIMIT, Pilotfish, eventually};
use std::net::SocketAddr;

const SHOP: &str = include_str!("shop.yaml");

const ROUTE: &str = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: web, namespace: shop}\nspec:\n  hosts: [web]\n  \
                     http: [{timeout: 3s, route: [{destination: {host: web}}]}]\n";

/// A name that would be a script, if it ever became markup.
const STRANGE: &str = "<img src=x onerror=document.title=1>";

pub(super) async fn shop() -> Option<(Pilotfish, Fleet, Dashboard)> {
    let pilotfish = Pilotfish::start(env!("CARGO_BIN_EXE_pilotfish"), &[("shop.yaml", SHOP)]).await;
    let target = SocketAddr::from(([127, 0, 0, 1], pilotfish.xds_port()));
    let mut nodes = vec![node(0, "shop"), node(1, "shop"), node(2, "stock")];
    nodes[2].user_agent_name = STRANGE.into();
    let fleet = Fleet::start(target, nodes);
    fleet.synced(LIMIT).await.unwrap();
    let dashboard = Dashboard::of(&pilotfish).await?;
    Some((pilotfish, fleet, dashboard))
}

/// Pages with a text that is there once they are complete.
const PAGES: &[(&str, &str)] = &[
    ("", "all synced"),
    ("services", "catalog.stock.svc.cluster.local"),
    ("services/web.shop.svc.cluster.local?namespace=shop", "DestinationRule shop/web"),
    ("services/nobody.shop.svc.cluster.local", "no host is named"),
    ("map", "Who sees whose services"),
    ("map?in=shop", "1 of 2 healthy"),
    ("proxies", "client-2.stock"),
    ("proxies/client-0.shop", "outbound|80||web.shop.svc.cluster.local"),
    ("proxies/nobody", "no proxy is named"),
    ("why?proxy=client-0.shop&to=web", "it reaches 1 endpoint"),
    ("why?address=10.0.0.2", "it is not ready"),
    ("changes", "concerned no proxy"),
    (
        "changes?of=VirtualService%2Fshop%2Fbroken",
        "The newest version of VirtualService shop/broken is not in force.",
    ),
    ("registries", "Kubernetes/Kubernetes"),
    ("problems", "VirtualService shop/broken"),
    ("objects/DestinationRule%2Fshop%2Fweb", "maxConnections: 10"),
    ("objects/VirtualService%2Fshop%2Fbroken", "What is wrong with it"),
    ("nothing", "There is no such page"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_page_is_well_in_each_size_and_colour() {
    let Some((_pilotfish, _fleet, mut dashboard)) = shop().await else { return };
    for (width, height) in [(1_280, 800), (390, 844)] {
        for dark in [false, true] {
            dashboard.browser.looks(width, height, dark).await;
            for (page, text) in PAGES {
                dashboard.open(page).await;
                dashboard.shows(text).await;
                dashboard.is_well(&format!("#/{page} at {width} px, dark: {dark}")).await;
            }
        }
    }
}

/// Whether some canvas has a point that is nearly of that colour.
fn drawn([red, green, blue]: [u8; 3]) -> String {
    format!(
        "[...document.querySelectorAll('canvas')].some((canvas) => {{ \
           const {{ data }} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height); \
           const near = (at) => data[at + 3] > 250 && Math.abs(data[at] - {red}) + Math.abs(data[at + 1] - {green}) + Math.abs(data[at + 2] - {blue}) < 16; \
           for (let at = 0; at < data.length; at += 4) if (near(at)) return true; \
           return false; \
         }})"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charts_are_drawn_in_the_colours_of_the_system_or_in_those_that_are_chosen() {
    const LIGHT: [u8; 3] = [0x0b, 0x6b, 0x8a];
    const DARK: [u8; 3] = [0x55, 0xb4, 0xda];
    let Some((_pilotfish, _fleet, mut dashboard)) = shop().await else { return };
    for (dark, line) in [(true, DARK), (false, LIGHT)] {
        dashboard.browser.looks(1_280, 800, dark).await;
        dashboard.open("").await;
        dashboard.browser.until(&drawn(line)).await;
    }
    dashboard.browser.evaluate("pilotfishTheme.choose('dark')").await;
    dashboard.browser.until(&drawn(DARK)).await;
    let page = dashboard.browser.evaluate("getComputedStyle(document.documentElement).backgroundColor").await;
    assert_eq!(page, "rgb(17, 23, 28)");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_done_by_keyboard() {
    let Some((_pilotfish, _fleet, mut dashboard)) = shop().await else { return };
    dashboard.open("").await;
    dashboard.shows("all synced").await;
    dashboard.tab_to("Services").await;
    dashboard.browser.press("Enter").await;
    dashboard.shows("4 services").await;
    dashboard.tab_to("Host contains").await;
    dashboard.browser.enter("catalog").await;
    dashboard.shows("1 service").await;
    assert!(dashboard.browser.evaluate("location.hash").await.as_str().unwrap().contains("host=catalog"));
    dashboard.tab_to("catalog.stock.svc.cluster.local").await;
    dashboard.browser.press("Enter").await;
    dashboard.shows("Who may call it").await;
    assert!(
        dashboard.browser.evaluate("document.title").await.as_str().unwrap().starts_with("catalog.stock")
    );

    // The arrows lead through the rows of a list.
    dashboard.open("services").await;
    dashboard.shows("4 services").await;
    dashboard.tab_to("cart.shop.svc.cluster.local").await;
    dashboard.browser.press("ArrowDown").await;
    let focused = dashboard.browser.evaluate("document.activeElement.innerText").await;
    assert_eq!(focused, "catalog.stock.svc.cluster.local");

    // What a resource holds, and who made it.
    dashboard.open("proxies/client-0.shop").await;
    dashboard.shows("outbound|80||web.shop.svc.cluster.local").await;
    dashboard.tab_to("outbound|80||web.shop.svc.cluster.local").await;
    dashboard.browser.press("Enter").await;
    dashboard.shows("Made by").await;
    dashboard.shows("type: EDS").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_map_changes_registries_and_problems_are_used_by_keyboard() {
    let Some((pilotfish, _fleet, mut dashboard)) = shop().await else { return };
    // From the first page to the map, to a namespace in it, and to a service of that.
    dashboard.open("").await;
    dashboard.shows("all synced").await;
    dashboard.tab_to("Map").await;
    dashboard.browser.press("Enter").await;
    dashboard.shows("Who sees whose services").await;
    dashboard.tab_to("Find a namespace or a service").await;
    dashboard.browser.enter("catalog").await;
    dashboard.shows("Services with that in their name").await;
    dashboard.open("map").await;
    dashboard.tab_until("element.matches('a.tile') && element.innerText.startsWith('shop')").await;
    dashboard.browser.press("Enter").await;
    dashboard.shows("Map of shop").await;
    dashboard.shows("Who calls whom").await;
    dashboard.tab_until("element.matches('a.tile') && element.innerText.startsWith('web')").await;
    dashboard.browser.press("Enter").await;
    dashboard.shows("Who may call it").await;

    // Who has a change: by its object, and to the proxy that refuses it.
    let _refuser = refusing(&pilotfish, "shop", "no").await;
    dashboard.open("changes").await;
    dashboard.shows("refuser.shop").await;
    dashboard.tab_to("Revision or object (empty for the newest)").await;
    dashboard.browser.enter("VirtualService/shop/nobody").await;
    dashboard.shows("nobody").await;
    dashboard.open("changes").await;
    dashboard.shows("refuser.shop").await;
    dashboard.tab_to("refuser.shop").await;
    dashboard.browser.press("Enter").await;
    dashboard.browser.until("location.hash.includes('refuser.shop')").await;

    dashboard.tab_to("Registries").await;
    dashboard.browser.press("Enter").await;
    dashboard.shows("Kubernetes/Kubernetes").await;
    dashboard.tab_to("Problems").await;
    dashboard.browser.press("Enter").await;
    dashboard.shows("VirtualService shop/broken").await;
    dashboard.tab_to("Object or message contains").await;
    dashboard.browser.enter("no such object").await;
    dashboard.shows("No problems.").await;
    assert_eq!(dashboard.browser.take_trouble(), Vec::<String>::new());
}

/// A registry of which nothing is new is not asked about, while its ages grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registries_are_asked_for_when_there_is_news_of_them() {
    let Some((pilotfish, _fleet, mut dashboard)) = shop().await else { return };
    dashboard.open("registries").await;
    dashboard.shows("Kubernetes/Kubernetes").await;
    const ASKED: &str = "performance.getEntriesByType('resource').filter(({name}) => name.includes('/api/v1/registries')).length";
    let before = dashboard.browser.evaluate(ASKED).await.as_u64().unwrap();
    // Four samples later, one each second.
    let samples = async || pilotfish.json("/api/v1/samples").await.as_array().map_or(0, Vec::len);
    let first = samples().await;
    eventually("seconds go by", || async {
        let now = samples().await;
        if now >= first + 4 { Ok(()) } else { Err(now) }
    })
    .await;
    assert_eq!(dashboard.browser.evaluate(ASKED).await.as_u64().unwrap(), before, "nothing is new");
    pilotfish.write("more.yaml", &SHOP.replace("namespace: shop", "namespace: more"));
    dashboard.browser.until(&format!("{ASKED} > {before}")).await;
    assert_eq!(dashboard.browser.take_trouble(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_proxy_refused_is_found_and_opened() {
    let Some((pilotfish, _fleet, mut dashboard)) = shop().await else { return };
    let words = "outbound|80||web.shop.svc.cluster.local is bad";
    let _refuser = refusing(&pilotfish, "shop", words).await;
    dashboard.open("proxies?state=rejected").await;
    dashboard.shows("refuser.shop").await;
    dashboard.is_well("proxies that refuse").await;
    dashboard.tab_to("refuser.shop").await;
    dashboard.browser.press("Enter").await;
    // Its own words, and the objects that made what it refuses.
    for text in [words, "Service shop/web"] {
        dashboard.shows(text).await;
    }
    let title = dashboard.browser.evaluate("document.title").await;
    assert!(title.as_str().unwrap().starts_with("refuser.shop"), "{title}");
    dashboard.is_well("a proxy that refuses").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_strangers_are_text() {
    let Some((_pilotfish, _fleet, mut dashboard)) = shop().await else { return };
    for page in ["proxies", "proxies/client-2.stock"] {
        dashboard.open(page).await;
        dashboard.shows("client-2.stock").await;
        dashboard
            .browser
            .until(&format!(
                "document.body.innerHTML.includes({:?})",
                STRANGE.replace('<', "&lt;").replace('>', "&gt;")
            ))
            .await;
        assert_eq!(dashboard.browser.evaluate("document.querySelectorAll('img[src=x]').length").await, 0);
        assert_eq!(dashboard.browser.take_trouble(), Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_seen_on_its_way_without_asking() {
    let Some((pilotfish, _fleet, mut dashboard)) = shop().await else { return };
    dashboard.open("changes").await;
    dashboard.shows("revision 1").await;
    pilotfish.write("route.yaml", ROUTE);
    dashboard.shows("VirtualService shop/web").await;
    dashboard.shows("3 of 3 proxies in").await;
    dashboard.shows("3 of 3 proxies have revision 2").await;
    // A list is asked for again where something has changed.
    dashboard.open("services?health=empty").await;
    dashboard.shows("1 service").await;
    pilotfish.remove("shop.yaml");
    eventually("the services are gone", || async {
        let answer = pilotfish.json("/api/v1/services").await;
        if answer["total"] == 0 { Ok(()) } else { Err(answer) }
    })
    .await;
    dashboard.shows("No services.").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_says_when_nobody_answers_and_goes_on_when_somebody_does() {
    let Some((mut pilotfish, _fleet, mut dashboard)) = shop().await else { return };
    dashboard.open("registries").await;
    dashboard.shows("live").await;
    pilotfish.kill().await;
    dashboard.shows("not connected").await;
    pilotfish.restart().await;
    pilotfish.ready().await;
    dashboard.browser.until("document.querySelector('.connection').innerText.endsWith('live')").await;
}

/// The vendored libraries are those of the locked packages.
#[tokio::test]
async fn libraries_are_what_their_packages_hold() {
    let Some(packages) = pilotfish_testkit::real::Tool::DashboardPackages.find() else { return };
    let vendor = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../operate/dashboard/assets/vendor");
    for (package, ours) in [
        ("uplot/dist/uPlot.iife.min.js", "uplot/uPlot.iife.min.js"),
        ("uplot/dist/uPlot.min.css", "uplot/uPlot.min.css"),
        ("@dagrejs/dagre/dist/dagre.esm.js", "dagre/dagre.esm.js"),
    ] {
        assert!(
            std::fs::read(packages.join(package)).unwrap() == std::fs::read(vendor.join(ours)).unwrap(),
            "{ours}"
        );
    }
}
