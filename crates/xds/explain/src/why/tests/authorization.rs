//! What policies of the destination and of gateways do with a request, as the resources that translation
//! makes of them say.

use super::*;

fn policy(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {{name: {name}, namespace: shop}}\nspec: {spec}\n"
    )
}

/// The step of a request with these policies.
fn decided(policies: &[String], path: &str, change: impl FnOnce(&mut Proxy)) -> (Why, Step) {
    let mut objects = vec![SHOP];
    objects.extend(policies.iter().map(String::as_str));
    let answer = ask_as(&objects, "web", path, change);
    let step = answer.steps.iter().rfind(|step| step.step == "authorization").cloned();
    let step = step.unwrap_or_else(|| panic!("no step: {}", said(&answer)));
    (answer, step)
}

#[test]
fn a_policy_that_denies_ends_the_way_and_is_named() {
    let deny =
        |to: &str| policy("none", &format!("{{action: DENY, rules: [{{to: [{{operation: {to}}}]}}]}}"));
    let allow = |rule: &str| policy("some", &format!("{{action: ALLOW, rules: [{rule}]}}"));
    let by_none =
        "403: the sidecar of web-0.shop refuses it: rules[0] of AuthorizationPolicy shop/none denies it";
    let unallowed = "403: the sidecar of web-0.shop refuses it: no rule of those that allow takes it";
    let nothing = policy("some", "{}");
    for (policies, path, outcome, by) in [
        (vec![deny("{paths: [/admin*]}")], "/admin/a", by_none, "none"),
        (vec![deny("{methods: [GET], ports: [\"8080\"]}")], "/", by_none, "none"),
        (vec![deny("{hosts: [web]}")], "/", by_none, "none"),
        (vec![deny("{notPaths: [/ok]}")], "/", by_none, "none"),
        (vec![nothing], "/", unallowed, "some"),
        (vec![allow("{to: [{operation: {paths: [/a]}}]}")], "/b", unallowed, "some"),
        (vec![allow("{to: [{operation: {methods: [POST]}}]}")], "/", unallowed, "some"),
        (vec![allow("{from: [{source: {namespaces: [stock]}}]}")], "/", unallowed, "some"),
        (
            vec![allow("{from: [{source: {principals: [cluster.local/ns/shop/sa/other]}}]}")],
            "/",
            unallowed,
            "some",
        ),
        (vec![allow("{from: [{source: {ipBlocks: [10.9.0.0/16]}}]}")], "/", unallowed, "some"),
        (vec![allow("{when: [{key: 'request.headers[x-user]', values: [tester]}]}")], "/", unallowed, "some"),
        (vec![allow("{from: [{source: {requestPrincipals: [\"*\"]}}]}")], "/", unallowed, "some"),
        // What is denied stays so, whatever is allowed.
        (vec![allow("{}"), deny("{paths: [/a]}")], "/a", by_none, "none"),
    ] {
        let (answer, step) = decided(&policies, path, |_| ());
        assert!(!answer.reaches, "{}", said(&answer));
        assert_eq!((answer.outcome.as_str(), step.verdict), (outcome, Verdict::Ends), "{policies:?}");
        assert_eq!(step.decided_by, [format!("AuthorizationPolicy shop/{by}")], "{policies:?}");
    }
}

#[test]
fn a_request_that_policies_let_through_arrives_and_the_step_says_what_was_considered() {
    let deny = |rule: &str| policy("none", &format!("{{action: DENY, rules: [{rule}]}}"));
    let allow = |rule: &str| policy("some", &format!("{{action: ALLOW, rules: [{rule}]}}"));
    let allowed = "rules[0] of AuthorizationPolicy shop/some allows it";
    for (policies, text, considered) in [
        (
            vec![deny("{to: [{operation: {paths: [/admin]}}]}")],
            "no policy denies it",
            Some("the path is \"/\", and it wants exact \"/admin\""),
        ),
        (vec![allow("{}")], allowed, None),
        (vec![allow("{from: [{source: {namespaces: [shop]}}]}")], allowed, None),
        (vec![allow("{from: [{source: {serviceAccounts: [client]}}]}")], allowed, None),
        (vec![allow("{from: [{source: {principals: [cluster.local/ns/shop/sa/client]}}]}")], allowed, None),
        (
            vec![allow("{from: [{source: {ipBlocks: [10.0.0.9], remoteIpBlocks: [10.0.0.0/24]}}]}")],
            allowed,
            None,
        ),
        (
            vec![allow(
                "{when: [{key: destination.ip, values: [10.0.0.1]}, {key: connection.sni, values: [\"outbound_*\"]}]}",
            )],
            allowed,
            None,
        ),
        (vec![policy("log", "{action: AUDIT, rules: [{}]}")], "no policy denies it", None),
    ] {
        let (answer, step) = decided(&policies, "/", |_| ());
        assert!(answer.reaches, "{}", said(&answer));
        assert_eq!((step.text.as_str(), step.verdict), (text, Verdict::Ok), "{policies:?}");
        let why: Vec<&str> = step.others.iter().map(|other| other.why.as_str()).collect();
        assert_eq!(why, considered.into_iter().collect::<Vec<_>>(), "{policies:?}");
    }
    let answer = ask(&[SHOP, &policy("others", "{selector: {matchLabels: {app: other}}}")], "web", "/");
    assert!(answer.reaches && !said(&answer).contains("authorization"), "{}", said(&answer));
}

#[test]
fn an_identity_is_known_only_where_the_connection_is_mutual_tls() {
    let only = policy("some", "{rules: [{from: [{source: {namespaces: [shop]}}]}]}");
    let plain = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: web, namespace: shop}\nspec: {host: web, \
                 trafficPolicy: {tls: {mode: DISABLE}}}\n";
    let (answer, step) = decided(&[only.clone(), plain.to_owned()], "/", |_| ());
    assert!(!answer.reaches, "{}", said(&answer));
    assert!(
        step.others[0].why.starts_with("the connection has no identity (it is not mutual TLS)"),
        "{}",
        said(&answer)
    );
    // A proxy whose workload nobody knows.
    let (answer, step) = decided(&[only], "/", |proxy| proxy.name = "stranger".into());
    assert!(answer.reaches, "{}", said(&answer));
    assert_eq!(step.verdict, Verdict::Doubtful);
    assert_eq!(
        step.text,
        "nothing else allows it: rules[0] of AuthorizationPolicy shop/some allows it, depending on the client's identity"
    );
}

#[test]
fn what_nobody_can_know_beforehand_is_said_to_decide() {
    let tokens = "apiVersion: security.istio.io/v1\nkind: RequestAuthentication\nmetadata: {name: tokens, namespace: shop}\nspec: {jwtRules: \
                  [{issuer: me, jwks: '{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"DEN6v5rfw1siaPzRBxHB6apvtnqttWFtOrevhb2WLYg\",\"y\":\"LMhbD_zU5-lGBVeeerrPo36gHCvMOBh5bcWsErZ2Nzs\"}]}'}]}\n";
    let claims = policy("some", "{rules: [{from: [{source: {requestPrincipals: [me/you]}}]}]}");
    let with = |headers: &[String]| {
        let world = scene_world(&[SHOP, tokens, &claims]);
        let request = Request::parse("web", "/", "GET", headers).unwrap();
        ask_for(world, &request, |_| ())
    };
    let answer = with(&[]);
    assert!(!answer.reaches && said(&answer).contains("the request has no token"), "{}", said(&answer));
    let answer = with(&["authorization=Bearer x".to_owned()]);
    let text = said(&answer);
    assert!(answer.reaches && answer.outcome.ends_with("; 1 step is doubtful"), "{text}");
    for part in [
        "401 unless its token is valid",
        "depending on the token of the request",
        "RequestAuthentication shop/tokens",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
}

#[test]
fn an_external_authorizer_is_said_to_decide_on_what_is_marked_for_it() {
    let custom = policy(
        "ask",
        "{action: CUSTOM, provider: {name: judge}, rules: [{to: [{operation: {paths: [/ask]}}]}]}",
    );
    let judge = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: judge, namespace: shop}\nspec: {hosts: [judge.example.com], \
                 resolution: STATIC, ports: [{name: grpc, number: 9000, protocol: GRPC}], endpoints: [{address: 10.9.9.9}]}\n";
    let mesh =
        "extensionProviders: [{name: judge, envoyExtAuthzGrpc: {service: judge.example.com, port: 9000}}]\n";
    let world = |mesh: &str| {
        let mut scene = Scene::new();
        scene.set_mesh(mesh).unwrap();
        [SHOP, judge, &custom].into_iter().for_each(|text| scene.apply(text).unwrap());
        scene.world()
    };
    let answer = ask_in(world(mesh), "web", "/ask", |_| ());
    let text = said(&answer);
    assert!(answer.reaches, "{text}");
    assert!(
        text.contains("the external authorizer of rules[0] of AuthorizationPolicy shop/ask decides"),
        "{text}"
    );
    let answer = ask_in(world(mesh), "web", "/", |_| ());
    assert!(answer.reaches && !answer.outcome.contains("doubtful"), "{}", said(&answer));
    // Without the provider, what would go to it is denied.
    let answer = ask_in(world("rootNamespace: istio-system\n"), "web", "/ask", |_| ());
    assert!(!answer.reaches, "{}", said(&answer));
    assert!(
        answer.outcome.ends_with("denies it, since its external authorizer is not known"),
        "{}",
        answer.outcome
    );
}

#[test]
fn a_stream_of_bytes_is_judged_by_its_connection() {
    let tcp = SHOP.replace("name: http, port", "name: tcp, port");
    let ask = |spec: &str| ask(&[&tcp, &policy("some", spec)], "web", "/");
    let answer = ask("{action: DENY, rules: [{to: [{operation: {ports: [\"8080\"]}}]}]}");
    assert_eq!(
        answer.outcome,
        "the connection is closed: the sidecar of web-0.shop refuses it: rules[0] of AuthorizationPolicy shop/some denies it"
    );
    let answer = ask("{action: ALLOW, rules: [{from: [{source: {namespaces: [shop]}}]}]}");
    assert!(answer.reaches, "{}", said(&answer));
}

#[test]
fn endpoints_that_differ_in_their_policies_are_counted() {
    let two = SHOP.replace(
        "{ready: false, serving: false, terminating: false}}",
        "{ready: true}, targetRef: {kind: Pod, name: web-1, namespace: shop}}",
    );
    let other = "apiVersion: v1\nkind: Pod\nmetadata: {name: web-1, namespace: shop, labels: {app: web, version: v2, security.istio.io/tlsMode: \
                 istio}}\nspec: {serviceAccountName: web, containers: [{name: app, image: x}]}\nstatus: {phase: Running, podIP: 10.0.0.2, podIPs: [{ip: \
                 10.0.0.2}], conditions: [{type: Ready, status: \"True\"}]}\n";
    let deny = policy("v2", "{selector: {matchLabels: {version: v2}}, action: DENY, rules: [{}]}");
    let answer = ask(&[&two, other, &deny], "web", "/");
    let text = said(&answer);
    assert!(answer.reaches, "{text}");
    assert!(
        text.contains("rules[0] of AuthorizationPolicy shop/v2 denies it; so it is at 1 of 2 endpoints"),
        "{text}"
    );
}

#[test]
fn the_policies_of_a_gateway_are_judged_as_well() {
    let gateway = "
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: shop}
spec: {selector: {app: client}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [a.example.com]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: front, namespace: shop}
spec: {hosts: [a.example.com], gateways: [front], http: [{route: [{destination: {host: web}}]}]}
";
    let ask = |spec: &str| ask_gateway(&[SHOP, gateway, &policy("front", spec)], "a.example.com");
    let answer = ask(
        "{selector: {matchLabels: {app: client}}, action: DENY, rules: [{to: [{operation: {methods: [GET]}}]}]}",
    );
    assert_eq!(
        answer.outcome,
        "403: this gateway refuses it: rules[0] of AuthorizationPolicy shop/front denies it",
        "{}",
        said(&answer)
    );
    let answer = ask(
        "{selector: {matchLabels: {app: client}}, rules: [{from: [{source: {remoteIpBlocks: [1.2.3.4]}}]}]}",
    );
    let text = said(&answer);
    assert!(answer.reaches && text.contains("depending on the address of the client"), "{text}");
}
