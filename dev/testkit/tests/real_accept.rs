//! What a stock Envoy makes of what it is sent: every response for every recorded case, and what becomes of
//! bad input.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::indexing_slicing, reason = "JSON answers null for what is not there")]

mod accept;

use accept::table::Findings;
use accept::{Play, Theatre, bad_input, needs};
use pilotfish_proto::ResourceType;
use pilotfish_testkit::cases::{Case, ProxyEntry};
use pilotfish_translate::{Proxy, Translator};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Each proxy is shown as a stock Envoy, which lists its extensions in its node, and as recorded. Of what the
/// former gets Envoy takes everything; what the latter gets it refuses exactly if it lacks an extension, in
/// words that name one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stock_envoy_takes_every_response_that_needs_no_extension_of_istio() {
    let Some(theatre) = Theatre::open().await else { return };
    let mut findings = Findings::default();
    let cases = Case::all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle/cases")).unwrap();
    assert!(!cases.is_empty());
    for case in cases {
        let translator = Arc::new(case.translator().unwrap());
        for entry in &case.proxies {
            if entry.kind == "grpc" {
                findings.no_envoys.push((case.name.clone(), entry.name.clone()));
                continue;
            }
            let own = if looks_up_unknown_hosts(&case) { Theatre::open().await } else { None };
            let theatre = own.as_ref().unwrap_or(&theatre);
            as_stock(theatre, &mut findings, &translator, &case, entry).await;
            as_recorded(theatre, &mut findings, &translator, &case, entry).await;
        }
    }
    findings.check();
}

/// True for a case whose proxies have a DNS cache of one name, each with settings of its own. Envoy keeps it
/// while a listener drains, and refuses other settings until then, so that each proxy needs an Envoy.
fn looks_up_unknown_hosts(case: &Case) -> bool {
    case.file("mesh.yaml").unwrap().is_some_and(|mesh| mesh.contains("ALLOW_ANY_DYNAMIC_DNS"))
}

async fn as_stock(
    theatre: &Theatre,
    findings: &mut Findings,
    translator: &Arc<Translator>,
    case: &Case,
    entry: &ProxyEntry,
) {
    let place = format!("{}/{}", case.name, entry.name);
    let mut node = entry.node();
    node.extensions.clone_from(&theatre.extensions);
    let play = Play::new(translator, Proxy::from_node(&node).unwrap()).unwrap();
    let lacking = needs::lacking(&play.dump, &theatre.extensions);
    assert!(lacking.is_empty(), "{place}: a stock Envoy is sent what it lacks: {lacking:?}");
    let refusals = theatre.show(&format!("{place} as a stock Envoy"), &Arc::new(play), true).await;
    findings.refuses(&place, &refusals);
}

async fn as_recorded(
    theatre: &Theatre,
    findings: &mut Findings,
    translator: &Arc<Translator>,
    case: &Case,
    entry: &ProxyEntry,
) {
    let place = format!("{}/{}", case.name, entry.name);
    let play = || Play::new(translator, Proxy::from_node(&entry.node()).unwrap()).unwrap();
    let shown = play();
    let lacking = needs::lacking(&shown.dump, &theatre.extensions);
    let has_plugins = needs::has_discovered_filters(&shown.dump);
    let refusals = theatre.show(&format!("{place} as recorded"), &Arc::new(shown), lacking.is_empty()).await;
    if lacking.is_empty() {
        findings.refuses(&place, &refusals);
        return;
    }
    findings.lacks(&case.name, &entry.name, &lacking);
    let names_one = |error: &str| lacking.keys().any(|ty| error.contains(&format!("with type URL: '{ty}'")));
    assert!(refusals.iter().any(|refusal| names_one(&refusal.error)), "{place}: {lacking:?}: {refusals:?}");
    if has_plugins {
        // Filters that come over ECDS are sent to Istio's proxies only: here without those that Envoy lacks.
        let without = lacking.into_values().flatten().collect();
        let shown = Play { without, ..play() };
        let refusals =
            theatre.show(&format!("{place} without Istio's filters"), &Arc::new(shown), true).await;
        findings.refuses(&place, &refusals);
    }
}

/// Validation reports bad input, with the field, and then nothing of the object is served; what it accepts
/// becomes something that Envoy takes. Where neither can be, the list has Envoy's words.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_validation_takes_envoy_takes() {
    let Some(theatre) = Theatre::open().await else { return };
    let mut wrong = Vec::new();
    for input in bad_input::inputs() {
        let served = input.serve();
        let error = served.problems.iter().find(|problem| problem.is_error());
        let reported = error.map(|problem| problem.path.to_string());
        let warned = served.problems.iter().filter(|problem| !problem.is_error());
        let warned: Vec<String> = warned.map(|problem| problem.path.to_string()).collect();
        let refused =
            if reported.is_some() { None } else { refusal_of(&theatre, &input, served.translator).await };
        let as_listed = match (&refused, &input.refused) {
            (Some(words), Some(part)) => words.contains(part.as_str()),
            (words, part) => words.is_none() && part.is_none(),
        };
        let is_warned = input.warned.as_ref().is_none_or(|field| warned.contains(field));
        if reported != input.reported || !as_listed || !is_warned {
            let found = serde_json::json!({
                "name": input.name, "reported": reported, "warned": warned, "refused": refused,
            });
            wrong.push(found.to_string());
        }
    }
    assert!(wrong.is_empty(), "not as listed in bad_input.yaml:\n{}", wrong.join("\n"));
}

/// What cannot be found before it is sent (a script that fails only when it runs, a log in a folder that the
/// proxy lacks) costs the listener that has it: Envoy names no other one, and serves all others of the same
/// response.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_listener_is_lost_alone() {
    const BAD: &str = "0.0.0.0_80";
    let Some(theatre) = Theatre::open().await else { return };
    let listed = bad_input::inputs();
    let input = listed
        .iter()
        .find(|input| input.name == "patch with Lua that compiles and fails at one port")
        .unwrap();
    let translator = Arc::new(input.serve().translator);
    let entry = bad_input::proxies().into_iter().find(|entry| entry.name == "client").unwrap();
    let mut node = entry.node();
    node.extensions.clone_from(&theatre.extensions);
    let play = Arc::new(Play::new(&translator, Proxy::from_node(&node).unwrap()).unwrap());
    let sent = {
        let snapshot = translator.snapshot();
        snapshot.names(snapshot.view(&play.client, ResourceType::Listener).unwrap())
    };
    let refusals = theatre.show("one bad listener", &play, true).await;
    let [refusal] = refusals.as_slice() else { panic!("{refusals:?}") };
    assert!(refusal.error.contains(BAD), "{refusal:?}");
    let others: BTreeSet<String> = sent.iter().map(ToString::to_string).filter(|name| name != BAD).collect();
    assert!(others.len() > 2 && others.len() + 1 == sent.len(), "{sent:?}");
    assert!(others.iter().all(|name| !refusal.error.contains(name)), "{refusal:?}");
    theatre.serves(&others).await;
}

/// Envoy's first rejection of what some proxy is sent.
async fn refusal_of(theatre: &Theatre, input: &bad_input::Input, translator: Translator) -> Option<String> {
    let translator = Arc::new(translator);
    let mut first = None;
    for entry in bad_input::proxies() {
        let mut node = entry.node();
        node.extensions.clone_from(&theatre.extensions);
        let play = Play::new(&translator, Proxy::from_node(&node).unwrap()).unwrap();
        let place = format!("{}: {}", input.name, entry.name);
        let refusals = theatre.show(&place, &Arc::new(play), true).await;
        first = first.or_else(|| refusals.into_iter().next().map(|refusal| refusal.error));
    }
    first
}
