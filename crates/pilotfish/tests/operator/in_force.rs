//! Whether what was written is in force, what proxies refuse, and what was before.

use super::refusing::{refusal, refusing};
use super::{Operator, ROUTE, SHOP, with_proxies};
use pilotfish_testkit::real::eventually;

/// A route with a generation, as API servers count it; files may have one written.
fn route(generation: u32, timeout: &str) -> String {
    let meta = format!("metadata: {{name: web, namespace: n0, generation: {generation}}}");
    ROUTE.replace("metadata: {name: web, namespace: n0}", &meta).replace("3s", timeout)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_knows_objects_that_registries_read_and_no_other_names() {
    let (pilotfish, _fleet, operator) = with_proxies(1).await;
    for object in ["Service/n0/web", "EndpointSlice/n0/web-1"] {
        let (code, text) = operator.ask(&["wait", object]);
        assert!(code == Some(0) && text.contains(" is in force on "), "{object}: {text}");
    }
    for (object, near) in [
        ("Service/n0/wbe", "Service/n0/web"),
        ("Service/n1/web", "Service/n0/web"),
        ("EndpointSlice/n0/web-2", "EndpointSlice/n0/web-1"),
        ("Pod/n0/web-0", "no object is named"),
        ("Namespace/n0", "no object is named"),
    ] {
        for arguments in [&["wait", object][..], &["why", "no", "config", object]] {
            let (code, text) = operator.ask(arguments);
            assert_eq!(code, Some(2), "{arguments:?}: {text}");
            assert!(text.contains(&format!("no object is named \"{object}\"")), "{text}");
            assert!(text.contains(near), "{near} in {text}");
        }
    }
    // It is the revision of this object, and not the newest one.
    pilotfish.write("shop.yaml", &SHOP.replace("10.0.0.1", "10.0.0.3"));
    let endpoints = eventually("the slice is read again", || async {
        let history = operator.json(&["history", "EndpointSlice/n0/web-1"]);
        history["items"][0]["revision"].as_u64().filter(|revision| *revision > 1).ok_or(history)
    })
    .await;
    pilotfish.write("route.yaml", ROUTE);
    eventually("the route is read", || async {
        let answer = operator.json(&["wait"]);
        if answer["revision"].as_u64() > Some(endpoints) { Ok(()) } else { Err(answer) }
    })
    .await;
    let answer = operator.json(&["wait", "EndpointSlice/n0/web-1"]);
    assert_eq!((&answer["revision"], &answer["concerned"]), (&endpoints.into(), &1.into()), "{answer:#}");
    // One that goes is waited for, too.
    pilotfish.write("shop.yaml", SHOP.split("---").next().unwrap());
    let gone = eventually("the slice is gone", || async {
        let history = operator.json(&["history", "EndpointSlice/n0/web-1"]);
        history["items"][0]["revision"].as_u64().filter(|revision| *revision > endpoints).ok_or(history)
    })
    .await;
    assert_eq!(operator.json(&["wait", "EndpointSlice/n0/web-1"])["revision"], gone);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_waits_for_a_generation_that_is_not_read_yet() {
    let (pilotfish, _fleet, operator) = with_proxies(1).await;
    let wait = |generation: &'static str, limit: &'static str| {
        let operator = Operator(operator.0.clone());
        tokio::task::spawn_blocking(move || {
            operator.ask(&["wait", "VirtualService/n0/web", "--generation", generation, "--for", limit])
        })
    };
    let (code, text) = wait("1", "200ms").await.unwrap();
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("generation 1 of VirtualService n0/web was not read within "), "{text}");
    // Asked for before it is there.
    let waiting = wait("3", "20s");
    pilotfish.write("route.yaml", &route(3, "3s"));
    let (code, text) = waiting.await.unwrap();
    assert!(code == Some(0) && text.contains(" is in force on "), "{text}");
    let waiting = wait("4", "20s");
    pilotfish.write("route.yaml", &route(5, "7s"));
    let (code, text) = waiting.await.unwrap();
    assert!(code == Some(0), "a later one has it: {text}");
    let sent = operator.ask(&["config", "client-0.n0", "routes", "80"]).1;
    assert!(sent.contains("timeout: 7s"), "it is sent when wait returns: {sent}");
    // A version that is refused says so, with the one that is in force.
    pilotfish.write("route.yaml", &route(6, "soon"));
    eventually("the object is refused", || async {
        let problems = operator.ask(&["problems"]).1;
        if problems.contains("soon") { Ok(()) } else { Err(problems) }
    })
    .await;
    let (code, text) = wait("6", "200ms").await.unwrap();
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("generation 5 is in force, from ") && text.contains("soon"), "{text}");
    // Most files have none.
    pilotfish.write("route.yaml", ROUTE);
    let message = eventually("the object without a generation is read", || async {
        let (code, text) =
            operator.ask(&["wait", "VirtualService/n0/web", "--generation", "6", "--for", "1ms"]);
        if code == Some(2) { Ok(text) } else { Err(text) }
    })
    .await;
    assert!(message.contains("VirtualService n0/web has no generation: it was read from "), "{message}");
}

/// Subscribes to the routes `80` too, and accepts all that is sent of them.
fn accepting_routes(mut connection: pilotfish_bench::connection::Connection) -> tokio::task::JoinHandle<()> {
    use pilotfish_proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
    use prost::Message;
    const ROUTES: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
    tokio::spawn(async move {
        let mut response_nonce = String::new();
        loop {
            let request = DiscoveryRequest {
                type_url: ROUTES.into(),
                resource_names: vec!["80".into()],
                response_nonce,
                ..DiscoveryRequest::default()
            };
            connection.send(&request.encode_to_vec()).unwrap();
            response_nonce = loop {
                let Ok(Some(message)) = connection.next().await else { return };
                let response = DiscoveryResponse::decode(message).unwrap();
                if response.type_url == ROUTES {
                    break response.nonce;
                }
            };
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_refuses_its_clusters_keeps_no_route_from_being_in_force() {
    let (pilotfish, _fleet, operator) = with_proxies(1).await;
    let refuser = refusing(&pilotfish, "n0", "outbound|80||web.n0.svc.cluster.local is bad").await;
    let accepting = accepting_routes(refuser);
    eventually("it has its routes, and refuses its clusters", || async {
        let proxy = operator.json(&["proxies", "refuser.n0"]);
        let state = |name: &str| {
            let types = proxy["types"].as_array().cloned().unwrap_or_default();
            types.iter().find(|ty| ty["name"] == name).map(|ty| ty["state"].clone())
        };
        let is_so = state("routes") == Some("synced".into()) && state("clusters") == Some("rejected".into());
        if is_so { Ok(()) } else { Err(proxy) }
    })
    .await;
    pilotfish.write("route.yaml", &route(1, "3s"));
    let (code, text) = operator.ask(&["wait", "VirtualService/n0/web", "--generation", "1"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("each of 2 proxies that it concerns has it, of 2 that are connected"), "{text}");
    let newest = eventually("the change is in force at both", || async {
        let newest = operator.json(&["history", "VirtualService/n0/web"])["items"][0].clone();
        if newest["outcome"] == "in-force" && newest["proxies"] == 2 { Ok(newest) } else { Err(newest) }
    })
    .await;
    // All that is in force is another question.
    let (code, text) = operator.ask(&["wait", "--for", "100ms"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("refuser.n0 refuses clusters") && !text.contains("client-0"), "{text}");
    // An endpoint change concerns the one that subscribes to endpoints; the other one is not named.
    pilotfish.write("shop.yaml", &SHOP.replace("10.0.0.1", "10.0.0.3"));
    let endpoints = eventually("the endpoints are published", || async {
        let history = operator.json(&["history", "EndpointSlice/n0/web-1"]);
        let revision = history["items"][0]["revision"].as_u64();
        revision.filter(|revision| Some(*revision) > newest["revision"].as_u64()).ok_or(history)
    })
    .await;
    let answer = operator.json(&["wait", "--revision", &endpoints.to_string()]);
    assert_eq!((&answer["concerned"], &answer["acknowledged"]), (&1.into(), &2.into()), "{answer:#}");
    accepting.abort();
}

const FILTER: &str = "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: zz-slow, namespace: n0}\nspec:\n  \
                      configPatches:\n  - applyTo: CLUSTER\n    match: {context: SIDECAR_OUTBOUND}\n    \
                      patch: {operation: MERGE, value: {connect_timeout: 7s}}\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_most_suspect_object_of_a_refusal_is_named_wherever_it_is_told() {
    let (pilotfish, _fleet, operator) = with_proxies(1).await;
    assert_eq!(operator.ask(&["status"]).0, Some(0), "all is well");
    pilotfish.write("filter.yaml", FILTER);
    eventually("the filter is in the clusters", || async {
        let config = operator.ask(&["config", "client-0.n0", "clusters"]).1;
        if config.contains("EnvoyFilter n0/zz-slow") { Ok(()) } else { Err(config) }
    })
    .await;
    let _refuser = refusing(&pilotfish, "n0", "outbound|80||web.n0.svc.cluster.local is bad").await;
    let words = "EnvoyFilter n0/zz-slow";
    eventually("/ready names it", || async {
        let ready = pilotfish.json("/ready").await;
        let line = ready["problems"][0].as_str().unwrap_or_default();
        if line.contains(&format!("made by {words} and ")) { Ok(()) } else { Err(ready) }
    })
    .await;
    eventually("the log names it", || async {
        let printed = pilotfish.printed();
        let mut lines = printed.lines().filter(|line| line.contains("a proxy refused a response"));
        if lines.any(|line| line.contains(words)) { Ok(()) } else { Err(printed) }
    })
    .await;
    for arguments in [&["proxies"][..], &["proxies", "refuser.n0"]] {
        let text = operator.ask(arguments).1;
        assert!(
            text.contains(&format!("made by {words}")) || text.contains(&format!("made by: {words}")),
            "{text}"
        );
    }
    let (code, text) = operator.ask(&["status"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("ready, and not all is well") && text.contains(words), "{text}");
    let status = operator.json(&["status"]);
    assert_eq!((&status["rejected"], &status["proxies"]), (&1.into(), &2.into()), "{status:#}");
    let refused = &status["refused"][0];
    assert_eq!(
        (&refused["proxy"], &refused["madeBy"][0]),
        (&"refuser.n0".into(), &words.into()),
        "{status:#}"
    );
}

/// Reads the next response, and accepts it, or refuses it with these words.
async fn respond(connection: &mut pilotfish_bench::connection::Connection, words: Option<&str>) {
    use pilotfish_proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
    use prost::Message;
    let response = DiscoveryResponse::decode(connection.next().await.unwrap().unwrap()).unwrap();
    let accepts = |response: &DiscoveryResponse| DiscoveryRequest {
        type_url: response.type_url.clone(),
        version_info: response.version_info.clone(),
        response_nonce: response.nonce.clone(),
        ..DiscoveryRequest::default()
    };
    let request = words.map_or_else(|| accepts(&response).encode_to_vec(), |words| refusal(&response, words));
    connection.send(&request).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_history_and_log_agree_on_a_change_that_is_accepted_after_a_refusal() {
    const RULE: &str = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: web, namespace: n0}\n\
                        spec: {host: web, trafficPolicy: {connectionPool: {tcp: {maxConnections: 9}}}}\n";
    const FILTER_NAME: &str = "EnvoyFilter/n0/zz-slow";
    let (pilotfish, _fleet, operator) = with_proxies(1).await;
    let mut refuser = refusing(&pilotfish, "n0", "all is bad").await;
    let newest = || operator.json(&["history", FILTER_NAME])["items"][0]["revision"].as_u64();
    let operator = &operator;
    let until = |outcome: &'static str, revision: u64| {
        eventually("the change has its outcome", move || async move {
            let change = operator.json(&["history", "--revision", &revision.to_string()]);
            if change["outcome"] == outcome && change["refused"] == 1 { Ok(change) } else { Err(change) }
        })
    };

    pilotfish.write("filter.yaml", FILTER);
    respond(&mut refuser, Some("the filter is bad")).await;
    eventually("the proxy refuses the filter", || async {
        let (code, text) = operator.ask(&["wait", FILTER_NAME, "--for", "1ms"]);
        if code == Some(1) && text.contains("the filter is bad") { Ok(()) } else { Err(text) }
    })
    .await;
    let first = newest().unwrap();
    pilotfish.write("rule.yaml", RULE);
    respond(&mut refuser, None).await;
    let change = until("in-force", first).await;
    assert!(change["acceptedWith"].as_u64() > Some(first), "{change:#}");
    let accepted = format!("accepted there with revision {}", change["acceptedWith"]);
    for what in [&[FILTER_NAME][..], &["--revision", &first.to_string()]] {
        let (code, text) = operator.ask(&[&["wait", "--for", "1ms"], what].concat());
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("is in force on") && text.contains(&accepted), "{text}");
    }
    assert!(operator.ask(&["history", "--revision", &first.to_string()]).1.contains(&accepted));

    pilotfish.write("filter.yaml", &FILTER.replace("7s", "8s"));
    respond(&mut refuser, Some("the filter is worse")).await;
    let second = eventually("the filter is read", || async {
        newest().filter(|revision| *revision > first).ok_or(())
    })
    .await;
    pilotfish.write("filter.yaml", &FILTER.replace("7s", "9s"));
    respond(&mut refuser, None).await;
    let change = until("refused", second).await;
    let superseded = format!("superseded there by revision {}", change["supersededBy"]);
    let (code, text) = operator.ask(&["wait", "--revision", &second.to_string()]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("is not in force on") && text.contains(&superseded), "{text}");
    let (code, text) = operator.ask(&["wait", FILTER_NAME]);
    assert!(code == Some(0) && !text.contains("refused"), "the newest version is accepted: {text}");
    eventually("the log says the same", || async {
        let printed = pilotfish.printed();
        let has = |revision: u64, words: &str| {
            let field = format!("revision={revision} ");
            printed.lines().any(|line| line.contains(&field) && line.contains(words))
        };
        let is_so = has(first, "in force at last: the proxies that refused the change have accepted it")
            && has(second, "superseded: some proxies refused the change");
        if is_so { Ok(()) } else { Err(printed) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_at_a_revision_asks_for_the_pod_of_then() {
    const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web-0, namespace: n0, labels: {app: web}}\nspec: {}\n\
                       status: {podIP: 10.0.0.1, phase: Running}\n";
    let (pilotfish, _fleet, operator) = with_proxies(1).await;
    let newest = || operator.json(&["wait"])["revision"].as_u64().unwrap();
    let start = newest();
    pilotfish.write("pod.yaml", POD);
    let there = eventually("the Pod is there", || async {
        let revision = newest();
        if operator.ask(&["why", "web-0.n0", "--to", "web"]).0 == Some(0) {
            Ok(revision)
        } else {
            Err(revision)
        }
    })
    .await;
    pilotfish.write("pod.yaml", "");
    eventually("the Pod is gone", || async {
        let (code, text) = operator.ask(&["why", "web-0.n0", "--to", "web"]);
        if code == Some(2) { Ok(()) } else { Err(text) }
    })
    .await;
    // A revision before the question may be the one before.
    let then = newest() - 1;
    assert!(then > start && newest() > there, "{start} {there} {then}");
    let (code, text) = operator.ask(&["why", "web-0.n0", "--to", "web", "--at", &then.to_string()]);
    assert!(code == Some(0), "it was there at {then}: {text}");
    let (code, text) = operator.ask(&["why", "web-0.n0", "--to", "web", "--at", &start.to_string()]);
    assert!(
        code == Some(2) && text.contains("no proxy is named \"web-0.n0\""),
        "it was not at {start}: {text}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_fails_while_the_newest_version_of_an_object_is_invalid() {
    let (pilotfish, _fleet, operator) = with_proxies(1).await;
    let wait = |object: &str| operator.ask(&["wait", object, "--for", "1ms"]);
    let until = |object: &'static str, code: i32, expected: &'static str| {
        eventually("the file is read", move || async move {
            let answer = wait(object);
            if answer.0 == Some(code) && answer.1.contains(expected) { Ok(()) } else { Err(answer) }
        })
    };
    pilotfish.write("route.yaml", ROUTE);
    until("VirtualService/n0/web", 0, "is in force on").await;

    pilotfish.write("route.yaml", &ROUTE.replace("3s", "x"));
    until("VirtualService/n0/web", 1, "the last good version stays in force").await;
    let (_, text) = wait("VirtualService/n0/web");
    assert!(text.starts_with("the newest version of VirtualService n0/web is not in force after "), "{text}");

    let never_good = ROUTE.replace("name: web,", "name: bad,").replace("3s", "x");
    pilotfish.write("bad.yaml", &never_good);
    until("VirtualService/n0/bad", 1, "this VirtualService is not applied").await;

    pilotfish.write("route.yaml", ROUTE);
    until("VirtualService/n0/web", 0, "is in force on").await;
}
