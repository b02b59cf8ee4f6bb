//! Proxies in Pods, with the nodes that Istio's agent makes there.

use super::proxies::{DOMAIN, IstiodProxy};
use serde_json::{Map, Value, json};

/// Container of the proxy, in the list of containers or of init containers.
const PROXY: &str = "istio-proxy";
/// Prefixes of environment variables that are metadata, as text and as a JSON object.
const TEXT: &str = "ISTIO_META_";
const OBJECT: &str = "ISTIO_METAJSON_";
/// Annotation with a copy of the object, which the agent leaves out.
const COPY: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Proxy of a Pod; `None` for a Pod without one, or that does not run.
pub(super) fn of_pod(pod: &Value) -> Option<IstiodProxy> {
    let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let containers = ["containers", "initContainers"].map(|list| pod.pointer(&format!("/spec/{list}")));
    let mut containers = containers.into_iter().flatten().filter_map(Value::as_array).flatten();
    let container = containers.find(|container| container["name"] == PROXY)?;
    let is_running =
        text("/status/phase") == "Running" && pod.pointer("/metadata/deletionTimestamp").is_none();
    let ip = text("/status/podIP");
    if !is_running || ip.is_empty() {
        return None;
    }
    let (name, namespace) = (text("/metadata/name"), text("/metadata/namespace"));
    let kind = kind(container);
    let name = format!("{name}.{namespace}");
    let id = format!("{kind}~{ip}~{name}~{namespace}.{DOMAIN}");
    match metadata(pod, container) {
        Ok(metadata) => {
            let node =
                json!({"id": id, "cluster": service_cluster(&metadata, namespace), "metadata": metadata});
            Some(IstiodProxy { name, kind, node: Some(node), ..IstiodProxy::default() })
        }
        Err(problem) => Some(IstiodProxy { name, kind, problem: Some(problem), ..IstiodProxy::default() }),
    }
}

/// Cluster of the node: that of its configuration, else of its app or workload.
fn service_cluster(metadata: &Value, namespace: &str) -> String {
    let text = |pointer: &str| metadata.pointer(pointer).and_then(Value::as_str).filter(|it| !it.is_empty());
    match text("/PROXY_CONFIG/serviceCluster").filter(|name| *name != PROXY) {
        Some(name) => name.to_owned(),
        None => format!("{}.{namespace}", text("/LABELS/app").or(text("/WORKLOAD_NAME")).unwrap_or(PROXY)),
    }
}

/// Type of the proxy: the argument after `proxy`.
fn kind(container: &Value) -> String {
    let arguments = ["command", "args"].map(|list| container.get(list).and_then(Value::as_array));
    let mut arguments = arguments.into_iter().flatten().flatten().filter_map(Value::as_str);
    let after = arguments.by_ref().find(|argument| *argument == "proxy").and_then(|_| arguments.next());
    after.filter(|kind| !kind.starts_with('-')).unwrap_or("sidecar").to_owned()
}

/// Metadata of the node.
fn metadata(pod: &Value, container: &Value) -> Result<Value, String> {
    let mut out = Map::new();
    let variables = container.get("env").and_then(Value::as_array).into_iter().flatten();
    for variable in variables {
        let name = variable.get("name").and_then(Value::as_str).unwrap_or_default();
        let Some(value) = value(pod, variable) else { continue };
        if let Some(name) = name.strip_prefix(TEXT) {
            out.insert(name.to_owned(), value.into());
        } else if name.starts_with(OBJECT) {
            let Ok(Value::Object(more)) = serde_json::from_str(&value) else {
                return Err(format!("its variable {name} is no JSON object"));
            };
            out.extend(more);
        } else if name == "PROXY_CONFIG" {
            let config =
                serde_saphyr::from_str(&value).map_err(|error| format!("its PROXY_CONFIG: {error}"))?;
            out.insert(name.to_owned(), config);
        }
    }
    let at = |pointer: &str| pod.pointer(pointer).cloned();
    let mut annotations = at("/metadata/annotations").unwrap_or_else(|| json!({}));
    annotations.as_object_mut().map(|annotations| annotations.remove(COPY));
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let known = [
        ("NAME", at("/metadata/name")),
        ("NAMESPACE", at("/metadata/namespace")),
        ("SERVICE_ACCOUNT", at("/spec/serviceAccountName").or_else(|| Some("default".into()))),
        ("NODE_NAME", at("/spec/nodeName")),
        ("INSTANCE_IPS", Some(addresses(pod).into())),
        ("LABELS", at("/metadata/labels").or_else(|| Some(json!({})))),
        ("ANNOTATIONS", Some(annotations)),
        ("ISTIO_VERSION", version(image).map(Into::into)),
    ];
    for (name, value) in known {
        if let Some(value) = value {
            // A variable of the template wins, as for the agent.
            out.entry(name).or_insert(value);
        }
    }
    if !out.contains_key("ISTIO_VERSION") {
        return Err(format!("its image {image:?} does not name Istio's version; --nodes takes its node"));
    }
    Ok(out.into())
}

/// Value of an environment variable; `None` if it comes from an object other than the Pod.
fn value(pod: &Value, variable: &Value) -> Option<String> {
    if let Some(value) = variable.get("value").and_then(Value::as_str) {
        return Some(value.to_owned());
    }
    let path = variable.pointer("/valueFrom/fieldRef/fieldPath")?.as_str()?;
    if let Some((list, key)) = path.split_once("['") {
        let key = key.strip_suffix("']")?;
        let list = pod.pointer(&format!("/{}", list.replace('.', "/")))?;
        return list.get(key)?.as_str().map(str::to_owned);
    }
    pod.pointer(&format!("/{}", path.replace('.', "/")))?.as_str().map(str::to_owned)
}

/// Addresses of the Pod, the first one first, as the agent writes them.
fn addresses(pod: &Value) -> String {
    let all = pod.pointer("/status/podIPs").and_then(Value::as_array).into_iter().flatten();
    let all: Vec<&str> = all.filter_map(|address| address.get("ip").and_then(Value::as_str)).collect();
    let first = pod.pointer("/status/podIP").and_then(Value::as_str).unwrap_or_default();
    if all.is_empty() { first.to_owned() } else { all.join(",") }
}

/// Istio's version by the tag of an image, such as `1.31.0` of `istio/proxyv2:1.31.0-distroless`.
fn version(image: &str) -> Option<String> {
    let image = image.split('@').next().unwrap_or_default();
    let (_, tag) = image.rsplit('/').next()?.split_once(':')?;
    let tag = tag.strip_prefix('v').unwrap_or(tag);
    let end = tag.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(tag.len());
    let number = tag.get(..end)?.trim_end_matches('.');
    let parts: Vec<&str> = number.split('.').collect();
    let is_version = parts.len() >= 2 && parts.iter().all(|part| !part.is_empty());
    is_version.then(|| number.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(change: impl FnOnce(&mut Value)) -> Value {
        let field =
            |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
        let mut pod = json!({
            "metadata": {"name": "web-0", "namespace": "shop", "labels": {"app": "web"},
                "annotations": {"a": "b", COPY: "{}"}},
            "spec": {"serviceAccountName": "web", "nodeName": "n1", "containers": [
                {"name": "app", "image": "app:1.2"},
                {"name": PROXY, "image": "docker.io/istio/proxyv2:1.31.0-distroless@sha256:00",
                 "args": ["proxy", "sidecar", "--domain", "$(POD_NAMESPACE).svc.cluster.local"],
                 "env": [
                    {"name": "ISTIO_META_CLUSTER_ID", "value": "east"},
                    {"name": "ISTIO_META_WORKLOAD_NAME", "value": "web"},
                    {"name": "ISTIO_META_POD_PORTS", "value": "[\n]"},
                    {"name": "ISTIO_METAJSON_STATS", "value": "{\"sidecar.istio.io/statsInclusionPrefixes\": \"x\"}"},
                    {"name": "PROXY_CONFIG", "value": "{\"concurrency\": 2}"},
                    {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                    field("ISTIO_META_APP", "metadata.labels['app']"),
                    field("ISTIO_META_NODE", "spec.nodeName"),
                 ]},
            ]},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]},
        });
        change(&mut pod);
        pod
    }

    #[test]
    fn nodes_of_pods_are_those_of_the_agent() {
        let proxy = of_pod(&pod(|_| ())).unwrap();
        assert_eq!((&*proxy.name, &*proxy.kind, proxy.check()), ("web-0.shop", "sidecar", Ok(())));
        let expected = json!({
            "id": "sidecar~10.0.0.1~web-0.shop~shop.svc.cluster.local", "cluster": "web.shop",
            "metadata": {
                "NAME": "web-0", "NAMESPACE": "shop", "SERVICE_ACCOUNT": "web", "NODE_NAME": "n1",
                "INSTANCE_IPS": "10.0.0.1,fd00::1", "LABELS": {"app": "web"}, "ANNOTATIONS": {"a": "b"},
                "ISTIO_VERSION": "1.31.0", "CLUSTER_ID": "east", "WORKLOAD_NAME": "web", "POD_PORTS": "[\n]",
                "sidecar.istio.io/statsInclusionPrefixes": "x", "PROXY_CONFIG": {"concurrency": 2},
                "APP": "web", "NODE": "n1",
            },
        });
        assert_eq!(proxy.node, Some(expected));
    }

    #[test]
    fn gateways_and_native_sidecars_are_found_and_others_are_not() {
        let router = pod(|pod| pod["spec"]["containers"][1]["args"][1] = "router".into());
        assert_eq!(of_pod(&router).unwrap().kind, "router");
        let native = pod(|pod| {
            let container = pod["spec"]["containers"][1].clone();
            pod["spec"]["containers"] = json!([]);
            pod["spec"]["initContainers"] = json!([container]);
        });
        assert!(of_pod(&native).is_some());
        let waypoint = pod(|pod| pod["spec"]["containers"][1]["args"][1] = "waypoint".into());
        assert!(of_pod(&waypoint).unwrap().check().unwrap_err().contains("ambient"));
        for (pointer, value) in [
            ("/spec/containers/1/name", json!("other")),
            ("/status/phase", json!("Pending")),
            ("/status/podIP", json!("")),
        ] {
            assert!(of_pod(&pod(|pod| *pod.pointer_mut(pointer).unwrap() = value)).is_none(), "{pointer}");
        }
        assert!(of_pod(&pod(|pod| pod["metadata"]["deletionTimestamp"] = "now".into())).is_none());
    }

    #[test]
    fn a_node_that_is_not_certain_is_no_node() {
        let image = pod(|pod| pod["spec"]["containers"][1]["image"] = "mirror:5000/proxy:latest".into());
        let broken = pod(|pod| pod["spec"]["containers"][1]["env"][4]["value"] = "{".into());
        for (pod, expected) in [(image, "does not name Istio's version"), (broken, "PROXY_CONFIG")] {
            let proxy = of_pod(&pod).unwrap();
            assert!(proxy.node.is_none() && proxy.check().unwrap_err().contains(expected), "{proxy:?}");
        }
    }

    #[test]
    fn versions_are_read_off_images() {
        for (image, expected) in [
            ("istio/proxyv2:1.31.0", Some("1.31.0")),
            ("r:5000/proxyv2:v1.30.2-debug", Some("1.30.2")),
            ("r/proxyv2:1.31-alpha.4f", Some("1.31")),
            ("r/proxyv2", None),
            ("r:5000/proxyv2", None),
            ("r/proxyv2:latest", None),
            ("r/proxyv2:7", None),
        ] {
            assert_eq!(version(image).as_deref(), expected, "{image}");
        }
    }
}
