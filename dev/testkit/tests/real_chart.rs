//! The Helm chart and the plain manifests say the same.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use pilotfish_testkit::istioctl;
use pilotfish_testkit::real::Tool;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};

/// The release of Kubernetes that a chart is rendered for where there is no cluster.
const RELEASE: &str = "1.34.0";

fn deploy() -> PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn helm(arguments: &[&str]) -> Option<Output> {
    let mut helm = Command::new(Tool::Helm.find()?);
    helm.args(arguments).current_dir(deploy().join("helm"));
    Some(helm.output().unwrap())
}

fn rendered(settings: &[&str]) -> Option<String> {
    let mut arguments =
        vec!["template", "pilotfish", "pilotfish", "--namespace=istio-system", "--kube-version", RELEASE];
    arguments.extend(settings);
    let output = helm(&arguments)?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Objects by kind and name.
fn objects(yaml: &str) -> BTreeMap<String, Value> {
    let options = serde_saphyr::options! { strict_booleans: true };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(yaml, options).unwrap();
    let named = documents.into_iter().filter(|document| !document.is_null()).map(|mut object| {
        if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
            // Who installed it, and with what.
            labels.retain(|label, _| {
                ["app.kubernetes.io/name", "app", "istio.io/rev", "istio.io/tag"].contains(&label.as_str())
            });
        }
        (
            format!("{} {}", object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap()),
            object,
        )
    });
    named.collect()
}

fn manifests() -> BTreeMap<String, Value> {
    let folder = deploy().join("kubernetes");
    let kustomization = std::fs::read_to_string(folder.join("kustomization.yaml")).unwrap();
    let kustomization: Value = serde_saphyr::from_str(&kustomization).unwrap();
    let listed: Vec<_> =
        kustomization["resources"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        // The others are for options that are off by default, and applied by themselves.
        .filter(|name| {
            let others = [
                "kustomization.yaml",
                "rbac-ca.yaml",
                "rbac-ca-signer.yaml",
                "rbac-exports.yaml",
                "rbac-gateways.yaml",
            ];
            !others.contains(&name.as_str())
        })
        .collect();
    files.sort();
    let mut sorted = listed.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, files, "kustomization.yaml lists every manifest");
    listed.iter().flat_map(|name| objects(&std::fs::read_to_string(folder.join(name)).unwrap())).collect()
}

#[test]
fn chart_and_manifests_are_equal() {
    let Some(chart) = rendered(&[]) else { return };
    let chart = objects(&chart);
    let mut manifests = manifests();
    manifests.remove("Namespace istio-system").expect("a release does not make its namespace");
    let names: Vec<_> = chart.keys().collect();
    assert_eq!(names, manifests.keys().collect::<Vec<_>>());
    for (name, manifest) in &manifests {
        assert_eq!(chart.get(name), Some(manifest), "{name}: chart and manifest differ");
    }
}

fn injectors(objects: &BTreeMap<String, Value>) -> Vec<Value> {
    let of_kind = objects.iter().filter(|(name, _)| name.starts_with("MutatingWebhookConfiguration "));
    of_kind.map(|(_, object)| object.clone()).collect()
}

const STABLE: &[&str] = &["--set=revision=stable", "--set=revisionTags={default,prod}"];
const CANARY: &[&str] = &["--set=revision=canary"];

#[test]
fn revisions_have_no_object_in_common() {
    let Some((plain, stable)) = rendered(&[]).zip(rendered(STABLE)) else { return };
    let canary = rendered(&[CANARY, &["--set=exportServices.enabled=true"]].concat()).unwrap();
    let all = [plain, stable, canary].map(|text| objects(&text));
    for (index, one) in all.iter().enumerate() {
        for other in &all[index + 1..] {
            let common: Vec<_> = one.keys().filter(|name| other.contains_key(*name)).collect();
            assert!(common.is_empty(), "{common:?}");
        }
    }
    for (objects, name) in all.iter().zip(["pilotfish", "pilotfish-stable", "pilotfish-canary"]) {
        let pods = &objects[&format!("Deployment {name}")]["spec"]["template"]["metadata"]["labels"];
        // A Service selects the Pods of its own revision.
        let services = objects.iter().filter(|(key, _)| key.starts_with("Service "));
        for (key, service) in services {
            for (label, value) in service["spec"]["selector"].as_object().unwrap() {
                assert_eq!(&pods[label], value, "{key}");
                assert_eq!(value, name, "{key}");
            }
        }
    }
    let arguments =
        &all[2]["Deployment pilotfish-canary"]["spec"]["template"]["spec"]["containers"][0]["args"];
    assert!(arguments.as_array().unwrap().contains(&"--revision=canary".into()), "{arguments}");
}

#[test]
fn istioctl_finds_revisions_and_tags() {
    let Some((plain, stable)) = rendered(&[]).zip(rendered(STABLE)) else { return };
    let canary = rendered(CANARY).unwrap();
    let [plain, stable, canary] = [plain, stable, canary].map(|text| injectors(&objects(&text)));
    assert_eq!(
        istioctl::injector_list(&plain),
        BTreeMap::from([("pilotfish-sidecar-injector", "pilotfish")])
    );
    let pair = [stable, canary.clone()].concat();
    assert_eq!(
        istioctl::injector_list(&pair),
        BTreeMap::from([
            ("istio-revision-tag-default", "stable"),
            ("istio-revision-tag-prod", "stable"),
            ("pilotfish-sidecar-injector-canary", "canary"),
            ("pilotfish-sidecar-injector-stable", "stable"),
        ])
    );
    assert_eq!(istioctl::tag_list(&pair), BTreeMap::from([("default", "stable"), ("prod", "stable")]));
    let next = istioctl::tag_set(&canary, "next", "canary").unwrap();
    assert_eq!(next["webhooks"][0]["clientConfig"]["service"]["name"], "istiod-canary");
    assert!(istioctl::tag_set(&plain, "next", "canary").is_err());
    istioctl::tag_set(&plain, "next", "pilotfish").unwrap();
}

#[test]
fn one_revision_injects_each_pod() {
    let Some((plain, stable)) = rendered(&[]).zip(rendered(STABLE)) else { return };
    let canary = rendered(CANARY).unwrap();
    let [plain, stable, canary] = [plain, stable, canary].map(|text| injectors(&objects(&text)));
    let pair = [stable, canary].concat();
    let yes = ("sidecar.istio.io/inject", "true");
    let no = ("sidecar.istio.io/inject", "false");
    let asks = ("istio-injection", "enabled");
    let rev = |name| ("istio.io/rev", name);
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a [(&'a str, &'a str)], Option<&'a str>, Option<&'a str>);
    let cases: &[Case<'_>] = &[
        // Labels of the namespace and the Pod; who injects without revisions, and with two.
        (&[], &[], None, None),
        (&[asks], &[], Some("pilotfish"), Some("stable")),
        (&[asks], &[no], None, None),
        (&[asks, rev("canary")], &[], Some("pilotfish"), Some("stable")),
        (&[("istio-injection", "disabled"), rev("canary")], &[], None, None),
        (&[rev("stable")], &[], None, Some("stable")),
        (&[rev("canary")], &[], None, Some("canary")),
        (&[rev("canary")], &[no], None, None),
        (&[rev("prod")], &[], None, Some("stable")),
        (&[rev("default")], &[], None, Some("stable")),
        (&[rev("pilotfish")], &[], Some("pilotfish"), None),
        (&[rev("other")], &[yes], None, None),
        (&[], &[yes], Some("pilotfish"), Some("stable")),
        (&[], &[rev("canary")], None, Some("canary")),
        (&[], &[rev("canary"), yes], None, Some("canary")),
        (&[], &[rev("prod")], None, Some("stable")),
        (&[], &[rev("pilotfish"), no], None, None),
    ];
    for (namespace, pod, alone, of_two) in cases {
        for (configurations, expected) in [(&plain, alone), (&pair, of_two)] {
            let found = istioctl::check_inject(configurations, namespace, pod);
            let revisions: Vec<_> = found.values().copied().collect();
            assert_eq!(revisions, Vec::from_iter(*expected), "{namespace:?} {pod:?}: {found:?}");
        }
    }
    assert_eq!(istioctl::injected_revision(&pair, &[rev("canary")]), Some("canary"));
    assert_eq!(istioctl::injected_revision(&pair, &[asks]), Some("stable"));
    assert_eq!(istioctl::injected_revision(&pair, &[rev("other")]), None);
}

const WITH_SIGNER: &str = "certificateAuthority.enabled=true,certificateAuthority.signer=clusterissuers.cert-manager.io/mesh,\
    certificateAuthority.signerRootsConfigMap=mesh-roots";

#[test]
fn options_that_are_off_by_default_bring_their_rights() {
    for (value, manifest, argument) in [
        ("exportServices.enabled=true", "rbac-exports.yaml", "--export-services"),
        ("certificateAuthority.enabled=true", "rbac-ca.yaml", "--ca=secret"),
        (WITH_SIGNER, "rbac-ca.yaml", "--ca-signer-roots="),
        (WITH_SIGNER, "rbac-ca-signer.yaml", "--ca-signer=clusterissuers.cert-manager.io/mesh"),
        ("gatewayDeployments.enabled=true", "rbac-gateways.yaml", "--gateway-deployments=on"),
    ] {
        let Some(chart) = rendered(&[&format!("--set={value}")]) else { return };
        let chart = objects(&chart);
        let rights = std::fs::read_to_string(deploy().join("kubernetes").join(manifest)).unwrap();
        for (name, manifest) in &objects(&rights) {
            assert_eq!(chart.get(name), Some(manifest), "{name}: chart and manifest differ");
        }
        let container = &chart["Deployment pilotfish"]["spec"]["template"]["spec"]["containers"][0];
        let arguments = container["args"].as_array().unwrap().iter().filter_map(Value::as_str);
        assert!(arguments.clone().any(|given| given.starts_with(argument)), "{argument}");
    }
}

#[test]
fn parts_can_be_left_out() {
    let switches = [
        "--set=gatewaySecrets.enabled=false,validator.enabled=false,injector.enabled=false",
        "--set=autoscaling.enabled=false,podDisruptionBudget.enabled=false,networkPolicy.enabled=false",
    ];
    let Some(chart) = rendered(&switches) else { return };
    let objects = objects(&chart);
    let names: Vec<_> = objects.keys().map(String::as_str).collect();
    let left = [
        "ClusterRole pilotfish",
        "ClusterRoleBinding pilotfish",
        "Deployment pilotfish",
        "Role pilotfish",
        "RoleBinding pilotfish",
        "Service pilotfish",
        "ServiceAccount pilotfish",
    ];
    assert_eq!(names, left);
    let deployment = &objects["Deployment pilotfish"]["spec"];
    assert_eq!(deployment["replicas"], 2);
    let arguments = deployment["template"]["spec"]["containers"][0]["args"].to_string();
    assert!(!arguments.contains("webhook"), "{arguments}");
}

#[test]
fn names_can_be_istiods() {
    let Some(chart) = rendered(&["--set=istiodNames.enabled=true"]) else { return };
    let objects = objects(&chart);
    let template = &objects["Deployment istiod"]["spec"]["template"];
    assert_eq!(template["spec"]["containers"][0]["name"], "discovery");
    // istioctl looks for `app` and the revision, which is `default` where no other is asked for.
    for (label, value) in [("app", "istiod"), ("istio", "pilot"), ("istio.io/rev", "default")] {
        assert_eq!(template["metadata"]["labels"][label], value, "{label}");
    }
    assert_eq!(objects["HorizontalPodAutoscaler pilotfish"]["spec"]["scaleTargetRef"]["name"], "istiod");
}

#[test]
fn the_operator_of_prometheus_gets_the_rules_that_are_tested() {
    let settings = [
        "--set=monitoring.serviceMonitor.enabled=true,monitoring.rules.enabled=true,monitoring.labels.release=prometheus",
    ];
    let Some(chart) = rendered(&settings) else { return };
    assert_eq!(chart.matches("release: prometheus").count(), 2);
    let objects = objects(&chart);
    let read = |name: &str| std::fs::read_to_string(deploy().join(name)).unwrap();
    assert_eq!(read("helm/pilotfish/files/rules.yaml"), read("prometheus/rules.yaml"));
    let rules: Value = serde_saphyr::from_str(&read("prometheus/rules.yaml")).unwrap();
    assert_eq!(objects["PrometheusRule pilotfish"]["spec"], rules);
    let monitor = &objects["ServiceMonitor pilotfish"]["spec"];
    let service = &objects["Service pilotfish"]["spec"];
    assert_eq!(monitor["selector"]["matchLabels"], service["selector"]);
    let port = &monitor["endpoints"][0]["port"];
    assert!(service["ports"].as_array().unwrap().iter().any(|known| &known["name"] == port));
}

#[test]
fn the_namespace_is_the_releases() {
    let Some(chart) = rendered(&["--namespace=mesh"]) else { return };
    assert!(!chart.contains("istio-system"), "{chart}");
    assert!(chart.contains("--root-namespace=mesh"));
}

#[test]
fn the_chart_is_clean_and_refuses_unknown_values() {
    let Some(lint) = helm(&["lint", "--strict", "--kube-version", RELEASE, "pilotfish"]) else { return };
    assert!(lint.status.success(), "{}", String::from_utf8_lossy(&lint.stdout));
    let arguments = ["template", "pilotfish", "--kube-version", RELEASE, "--set=replica=3"];
    let output = helm(&arguments).unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && message.contains("replica"), "{message}");
}

const SYNC: &str = "pilotfish-polaris-sync";

fn rendered_sync(settings: &[&str]) -> Option<String> {
    let mut arguments = vec!["template", SYNC, SYNC, "--namespace=polaris-system", "--kube-version", RELEASE];
    arguments.extend(settings);
    let output = helm(&arguments)?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn the_chart_of_the_sync_and_its_manifests_are_equal() {
    let Some(chart) = rendered_sync(&[]) else { return };
    let chart = objects(&chart);
    let text = |name| std::fs::read_to_string(deploy().join("polaris-sync").join(name)).unwrap();
    let mut manifests = objects(&text("rbac.yaml"));
    manifests.extend(objects(&text("deployment.yaml")));
    manifests.remove("Namespace polaris-system").expect("a release does not make its namespace");
    assert_eq!(chart.keys().collect::<Vec<_>>(), manifests.keys().collect::<Vec<_>>());
    for (name, manifest) in &manifests {
        assert_eq!(chart.get(name), Some(manifest), "{name}: chart and manifest differ");
    }
}

#[test]
fn the_chart_of_the_sync_takes_a_secret_and_refuses_unknown_values() {
    let settings = ["--set=existingSecret=mine", "--set=mode=demand", "--set=extraArgs={--resync=5m}"];
    let Some(chart) = rendered_sync(&settings) else { return };
    let objects = objects(&chart);
    assert!(!objects.contains_key("Secret pilotfish-polaris-sync"));
    let spec = &objects["Deployment pilotfish-polaris-sync"]["spec"]["template"]["spec"];
    assert_eq!(spec["volumes"][0]["secret"]["secretName"], "mine");
    let arguments = spec["containers"][0]["args"].as_array().unwrap();
    assert!(arguments.contains(&"--mode=demand".into()) && arguments.contains(&"--resync=5m".into()));
    let lint = helm(&["lint", "--strict", "--kube-version", RELEASE, SYNC]).unwrap();
    assert!(lint.status.success(), "{}", String::from_utf8_lossy(&lint.stdout));
    for wrong in ["--set=replica=3", "--set=mode=some", "--set=clusterName=a\\,b"] {
        let output = helm(&["template", SYNC, "--kube-version", RELEASE, wrong]).unwrap();
        assert!(!output.status.success(), "{wrong}");
    }
}
