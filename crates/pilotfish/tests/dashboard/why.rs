//! Each of the broken set-ups is explained by the form, in one screen.

use crate::Dashboard;
use pilotfish_bench::fleet::{Fleet, node};
use pilotfish_testkit::real::{LIMIT, Pilotfish};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What stands in a text between two others.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    text.split_once(before).and_then(|(_, rest)| rest.split_once(after)).map_or("", |(found, _)| found)
}

fn set_ups() -> Vec<PathBuf> {
    let broken = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/broken");
    let entries = std::fs::read_dir(broken).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_dir()).collect()
}

/// The arguments of a registry that a set-up needs, and the folder that is served with it.
fn served(folder: &Path) -> Vec<String> {
    let arguments = |all: &[&str]| all.iter().map(|&one| one.to_owned()).collect();
    if folder.ends_with("dead-registry") {
        let shop = folder.join("../../shop");
        return arguments(&[
            shop.to_str().unwrap(),
            "--registry",
            "consul=http://127.0.0.1:1",
            "--registry-timeout",
            "1s",
        ]);
    }
    arguments(&[folder.to_str().unwrap()])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_broken_set_up_is_explained_in_one_screen() {
    for folder in set_ups() {
        let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
        let command = readme.split("$ pilotfish why ").nth(1).unwrap().lines().next().unwrap();
        let words: Vec<&str> = command.split(' ').collect();
        let value = |flag: &str| words.iter().position(|word| *word == flag).map_or("", |at| words[at + 1]);
        let arguments = served(&folder);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let pilotfish = Pilotfish::launch(env!("CARGO_BIN_EXE_pilotfish"), &arguments);
        pilotfish.ready().await;
        let Some(mut dashboard) = Dashboard::of(&pilotfish).await else { return };
        // The others are asked about as Pods that are not connected.
        let (mut proxy, mut fleet) = (words[0], None);
        if folder.ends_with("dead-registry") {
            let target = SocketAddr::from(([127, 0, 0, 1], pilotfish.xds_port()));
            fleet.insert(Fleet::start(target, vec![node(0, "shop")])).synced(LIMIT).await.unwrap();
            proxy = "client-0.shop";
        }
        dashboard.browser.looks(1_280, 1_024, false).await;
        dashboard.open("why").await;
        for (field, text) in
            [("From the proxy or Pod", proxy), ("To host[:port]", value("--to")), ("Path", value("--path"))]
        {
            dashboard.tab_to(field).await;
            dashboard.browser.enter(text).await;
        }
        if words.contains(&"--gateway") {
            dashboard.browser.evaluate("document.getElementById('why-gateway').click()").await;
        }
        dashboard.browser.press("Enter").await;
        dashboard.shows(between(&readme, "says so: `", "`")).await;
        let bottom = "document.querySelector('.steps').getBoundingClientRect().bottom";
        let bottom = dashboard.browser.evaluate(bottom).await.as_f64().unwrap();
        assert!(bottom <= 1_024.0, "{}: the steps end at {bottom}", folder.display());
        dashboard.is_well(&folder.display().to_string()).await;
    }
}
