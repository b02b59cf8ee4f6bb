use super::*;
use serde_json::{Value, json};

/// Rewritten Pod with one container, its probes, and the warnings.
fn rewritten(container: &Value, annotations: &[(&str, &str)]) -> (Value, Vec<Probe>, Vec<String>) {
    let mut pod: Json = serde_json::from_value(json!({"spec": {"containers": [container]}})).unwrap();
    let rewrite = Rewrite::of(&pod, &annotations.iter().copied().collect(), &BTreeMap::new());
    rewrite.apply(&mut pod);
    let mut pod = serde_json::to_value(&pod).unwrap();
    (pod["spec"]["containers"][0].take(), rewrite.probes, rewrite.warnings)
}

fn probe(check: Check, kind: &'static str, port: u16) -> Probe {
    Probe { container: "app".into(), kind, port, timeout: 1, period: 10, check }
}

fn http(path: &str) -> Check {
    Check::Http { is_tls: false, path: path.into(), headers: Vec::new() }
}

#[test]
fn each_kind_of_probe_becomes_one_of_the_sidecar() {
    let (container, probes, warnings) = rewritten(
        &json!({"name": "app", "ports": [{"name": "web", "containerPort": 8443}],
            "readinessProbe": {"failureThreshold": 2, "periodSeconds": 3, "timeoutSeconds": 4, "httpGet": {
                "path": "/ready?x=1", "port": "web", "scheme": "HTTPS", "httpHeaders": [{"name": "Host", "value": "a.b"}]}},
            "livenessProbe": {"tcpSocket": {"port": 5432}},
            "startupProbe": {"grpc": {"port": 9000, "service": "shop.Cart"}}}),
        &[],
    );
    assert_eq!(
        container,
        json!({"name": "app", "ports": [{"name": "web", "containerPort": 8443}],
            "readinessProbe": {"failureThreshold": 2, "periodSeconds": 3, "timeoutSeconds": 4, "httpGet": {
                "path": "/app-health/app/readyz", "port": 15020, "httpHeaders": [{"name": "Host", "value": "a.b"}]}},
            "livenessProbe": {"httpGet": {"path": "/app-health/app/livez", "port": 15020}},
            "startupProbe": {"httpGet": {"path": "/app-health/app/startupz", "port": 15020}}})
    );
    let secure = Check::Http { is_tls: true, path: "/ready?x=1".into(), headers: vec!["host".into()] };
    let ready = Probe { timeout: 4, period: 3, ..probe(secure, "readyz", 8443) };
    let start = probe(Check::Grpc { service: "shop.Cart".into() }, "startupz", 9000);
    assert_eq!(probes, [ready, probe(Check::Tcp, "livez", 5432), start]);
    assert_eq!(warnings, Vec::<String>::new());
}

#[test]
fn probes_without_a_connection_to_the_pod_stay() {
    for unchanged in [
        json!({"exec": {"command": ["true"]}}),
        json!({"httpGet": {"port": "unknown", "path": "/"}}),
        json!({"httpGet": {"port": 8080, "host": "status.example.com"}}),
        json!({"tcpSocket": {"port": 8080, "host": "10.0.0.1"}}),
        json!({"httpGet": {"port": 15020, "path": "/app-health/app/livez"}}),
        json!({"httpGet": {"port": 15021, "path": "/healthz/ready"}}),
        json!({"httpGet": {"port": 0}}),
        json!({"tcpSocket": {"port": 65536}}),
        json!({"tcpSocket": {"port": -1}}),
        json!({"tcpSocket": {}}),
        json!({"tcpSocket": null}),
        json!({"tcpSocket": {"port": 1}, "httpGet": {"port": 1}}),
        json!("a probe"),
    ] {
        let container = json!({"name": "app", "livenessProbe": unchanged});
        assert_eq!(rewritten(&container, &[]), (container, Vec::new(), Vec::new()));
    }
    let container = json!({"name": "a/../b", "livenessProbe": {"tcpSocket": {"port": 1}}});
    assert_eq!(rewritten(&container, &[]).0, container);
}

#[test]
fn paths_are_sent_as_kubelets_send_them() {
    for (path, sent) in [
        ("", "/"),
        ("/", "/"),
        ("healthz", "/healthz"),
        ("/a?b=c&d", "/a?b=c&d"),
        ("/a#b", "/a"),
        ("/a b/\u{e9}\r\n", "/a%20b/%C3%A9%0D%0A"),
        ("/%20$(POD_IP)", "/%20$(POD_IP)"),
    ] {
        assert_eq!(target(path), sent, "{path:?}");
    }
}

#[test]
fn annotations_decide_as_in_istio() {
    let container = json!({"name": "app", "livenessProbe": {"httpGet": {"port": "8080"}}});
    let with = |annotations: &[(&str, &str)]| rewritten(&container, annotations);
    assert_eq!(with(&[]).1, [probe(http("/"), "livez", 8080)]);
    assert_eq!(with(&[(REWRITE_ANNOTATION, "true")]).1.len(), 1);
    for off in ["false", "0", "F"] {
        assert_eq!(with(&[(REWRITE_ANNOTATION, off)]), (container.clone(), Vec::new(), Vec::new()));
    }
    let (_, probes, warnings) = with(&[(REWRITE_ANNOTATION, "no")]);
    assert_eq!(probes.len(), 1);
    let warning = "metadata.annotations[\"sidecar.istio.io/rewriteAppHTTPProbers\"]: \"no\" is neither true nor \
                   false; ignored";
    assert_eq!(warnings, [warning]);
    let other = with(&[(STATUS_PORT_ANNOTATION, "16020")]).0;
    assert_eq!(other["livenessProbe"]["httpGet"]["port"], 16020);
    assert_eq!(with(&[(STATUS_PORT_ANNOTATION, "0")]).0, container);
}

#[test]
fn values_decide_for_pods_without_annotations() {
    let pod = json!({"spec": {"containers": [{"name": "app", "livenessProbe": {"tcpSocket": {"port": 1}}}]}});
    let pod: Json = serde_json::from_value(pod).unwrap();
    let of = |annotations: &[(&str, &str)], values: &[(&str, &str)]| {
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let rewrite = Rewrite::of(&pod, &annotations.iter().copied().collect(), &values);
        (rewrite.probes.len(), rewrite.port)
    };
    let off = [(REWRITE_VALUE, "false")];
    assert_eq!(of(&[], &off).0, 0);
    assert_eq!(of(&[(REWRITE_ANNOTATION, "true")], &off).0, 1);
    assert_eq!(of(&[(REWRITE_ANNOTATION, "maybe")], &off).0, 0);
    assert_eq!(of(&[], &[(STATUS_PORT_VALUE, "16020")]).1, 16020);
    assert_eq!(of(&[(STATUS_PORT_ANNOTATION, "17020")], &[(STATUS_PORT_VALUE, "16020")]).1, 17020);
}

#[test]
fn native_sidecars_are_probed_too_and_the_number_of_probes_is_limited() {
    let container =
        |index| json!({"name": format!("c{index}"), "readinessProbe": {"tcpSocket": {"port": 80}}});
    let many: Vec<Value> = (0..MOST).map(container).collect();
    let pod = json!({"spec": {"containers": many, "initContainers": [container(MOST)]}});
    let mut pod: Json = serde_json::from_value(pod).unwrap();
    let rewrite = Rewrite::of(&pod, &BTreeMap::new(), &BTreeMap::new());
    assert_eq!((rewrite.probes.len(), rewrite.warnings.len()), (MOST, 1));
    rewrite.apply(&mut pod);
    let sidecar = pod.at(&["spec", "initContainers"]).unwrap().items()[0].clone();
    assert!(sidecar.at(&["readinessProbe", "tcpSocket"]).is_some());
    let pod = json!({"spec": {"initContainers": [container(7)]}});
    let pod: Json = serde_json::from_value(pod).unwrap();
    assert_eq!(Rewrite::of(&pod, &BTreeMap::new(), &BTreeMap::new()).probes[0].container, "c7");
    let values = BTreeMap::from([(NATIVE_VALUE.to_owned(), "false".to_owned())]);
    assert!(Rewrite::of(&pod, &BTreeMap::new(), &values).probes.is_empty(), "they start before the sidecar");
}
