//! Rendered objects, by golden files. With `UPDATE_GOLDEN=1` they are written anew.

use super::*;
use pilotfish_config::gateway_api::read_overlays;
use std::path::Path;

fn template(values: &[(&str, &str)]) -> GatewayTemplate {
    let values = values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let bootstrap: GatewayBootstrap =
        Arc::new(|workload| Some(json!({"app": workload.name, "labels": workload.labels.len()})));
    GatewayTemplate::new(DEFAULT_TEMPLATE, values, bootstrap, &Revision::default()).unwrap()
}

fn overlays(pairs: &[(&str, &str)]) -> pilotfish_config::gateway_api::Overlays {
    let data = pairs.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
    read_overlays(&data).unwrap()
}

fn text(manifests: &[Manifest]) -> String {
    let bodies: Vec<String> =
        manifests.iter().map(|manifest| serde_saphyr::to_string(&manifest.body).unwrap()).collect();
    bodies.join("---\n")
}

fn check(name: &str, manifests: &[Manifest]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/render/golden").join(name);
    let found = text(manifests);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, expected, "{} (UPDATE_GOLDEN=1 writes it)", path.display());
}

#[test]
fn objects_of_a_gateway_without_parameters() {
    check("plain.yaml", &template(&[]).render(&example()).unwrap());
}

#[test]
fn objects_of_a_gateway_with_parameters() {
    let class = overlays(&[
        ("service", "spec: {externalTrafficPolicy: Local}"),
        ("horizontalPodAutoscaler", "spec: {minReplicas: 2, maxReplicas: 4}"),
    ]);
    let own = overlays(&[
        (
            "deployment",
            "spec: {replicas: 7, template: {spec: {containers: [{name: istio-proxy, resources: {limits: {cpu: '4'}}}, {name: log, image: log}]}}}",
        ),
        ("podDisruptionBudget", "spec: {minAvailable: 1}"),
        ("serviceAccount", "metadata: {annotations: {role: edge}}"),
        ("horizontalPodAutoscaler", "spec: {maxReplicas: 9}"),
    ]);
    let gateway = ManagedGateway {
        labels: BTreeMap::from([("team".into(), "edge".into())]),
        annotations: BTreeMap::from([("note".into(), "a \"quote\"".into())]),
        service_account: Some("front".into()),
        address: Some("192.0.2.1".into()),
        overlays: Ok(vec![class, own]),
        ..example()
    };
    check(
        "parameters.yaml",
        &template(&[("tokenAudience", "istio-ca"), ("cpu", "50m")]).render(&gateway).unwrap(),
    );
}

fn pod_template(manifests: &[Manifest]) -> Value {
    let deployment = manifests.iter().find(|manifest| manifest.id.kind == ManagedKind::Deployment).unwrap();
    deployment.body["spec"]["template"].clone()
}

#[test]
fn ports_do_not_change_the_pod_template() {
    let template = template(&[]);
    let port =
        |listener: &str, port| ManagedPort { listener: listener.into(), port, protocol: "HTTP".into() };
    let more = ManagedGateway {
        ports: vec![
            port("http", 80),
            port("a.b", 81),
            port("a-b", 82),
            port("1", 83),
            port("status-port", 84),
            port("http-86", 85),
            port("http", 86),
        ],
        ..example()
    };
    let (before, after) = (template.render(&example()).unwrap(), template.render(&more).unwrap());
    assert_eq!(pod_template(&before), pod_template(&after));
    let service = after.iter().find(|manifest| manifest.id.kind == ManagedKind::Service).unwrap();
    let names: Vec<&str> = service.body["spec"]["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|port| port["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["status-port", "http", "a-b", "http-82", "1", "http-84", "http-86", "http-86-2"]);
}

#[test]
fn annotation_of_the_revision_is_written_once() {
    let annotations = BTreeMap::from([("istio.io/rev".into(), "other".into()), ("note".into(), "b".into())]);
    let gateway = ManagedGateway { annotations, ..example() };
    let found = pod_template(&template(&[]).render(&gateway).unwrap())["metadata"]["annotations"].clone();
    assert_eq!((&found["istio.io/rev"], &found["note"]), (&json!("pilotfish"), &json!("b")));
}

#[test]
fn overlays_cannot_rename_or_disown() {
    let own = overlays(&[(
        "deployment",
        "{kind: Pod, metadata: {name: x, namespace: y, ownerReferences: [], labels: {gateway.istio.io/managed: z}}, status: {}}",
    )]);
    let gateway = ManagedGateway { overlays: Ok(vec![own]), ..example() };
    let manifests = template(&[]).render(&gateway).unwrap();
    assert_eq!(text(&manifests), text(&template(&[]).render(&example()).unwrap()));
}

#[test]
fn what_cannot_be_made_has_a_reason() {
    let long = "x".repeat(64);
    for (gateway, expected) in [
        (ManagedGateway { uid: "".into(), ..example() }, "no uid"),
        (ManagedGateway { name: long.clone(), ..example() }, "is no name of a Service"),
        (ManagedGateway { service_account: Some("A".into()), ..example() }, "is no name of a Service"),
        (ManagedGateway { overlays: Err("data[service]: x".into()), ..example() }, "data[service]: x"),
    ] {
        let error = template(&[]).render(&gateway).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let unknown = GatewayTemplate { bootstrap: Arc::new(|_| None), ..template(&[]) };
    assert!(matches!(unknown.render(&example()), Err(RenderError::NoAuthorities)));
    let new = |text: &str, value: &str| {
        let values = BTreeMap::from([(value.to_owned(), "1".to_owned())]);
        GatewayTemplate::new(text, values, Arc::new(|_| None), &Revision::default()).map(drop)
    };
    for (text, value, expected) in [
        (DEFAULT_TEMPLATE, "cpus", "has no value \"cpus\""),
        ("{{ cpu", "cpu", "the template of gateways: "),
        ("kind: Pod # cpu", "cpu", "kind \"Pod\""),
        ("kind: Service # cpu\n---\nkind: Service\n", "cpu", "more than one Service"),
        ("[1] # cpu", "cpu", "the template of gateways: its output: "),
    ] {
        let error = new(text, value).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
