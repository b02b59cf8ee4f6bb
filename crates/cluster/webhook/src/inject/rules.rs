//! Selection of Pods for injection. Namespaces are selected by the webhook's configuration.

use super::json::Json;

/// Label or annotation by which a Pod opts into or out of injection. The label takes precedence.
const INJECT: &str = "sidecar.istio.io/inject";
/// Annotation of Pods that have a sidecar.
const STATUS: &str = "sidecar.istio.io/status";
/// Container name of a sidecar, also one that was added by hand.
const CONTAINER: &str = "istio-proxy";
/// Namespaces of the cluster itself.
const SYSTEM: &[&str] = &["kube-system", "kube-public", "kube-node-lease", "local-path-storage"];

/// Reason why a Pod receives no sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It uses the network of its node, where a sidecar would intercept the traffic of others.
    HostNetwork,
    /// It already has a sidecar.
    Present,
    /// It opts out by label or annotation `sidecar.istio.io/inject`.
    Declined,
    /// It is in a system namespace.
    System,
}

/// Decides that a Pod or Pod template receives a sidecar.
///
/// # Errors
/// Reason why it receives none.
pub(crate) fn decide(pod: &Json, namespace: &str) -> Result<(), Left> {
    if pod.at(&["spec", "hostNetwork"]) == Some(&Json::Bool(true)) {
        return Err(Left::HostNetwork);
    }
    if SYSTEM.contains(&namespace) {
        return Err(Left::System);
    }
    let named = |list| {
        let containers = pod.at(&["spec", list]).map(Json::items).unwrap_or_default();
        containers.iter().any(|container| container.word("name") == CONTAINER)
    };
    let value = |of: &str, name| pod.at(&["metadata", of, name]).and_then(Json::text);
    if named("containers") || named("initContainers") || value("annotations", STATUS).is_some() {
        return Err(Left::Present);
    }
    match value("labels", INJECT).or_else(|| value("annotations", INJECT)).unwrap_or_default() {
        "" | "true" => Ok(()),
        _ => Err(Left::Declined),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn who_gets_a_sidecar() {
        let inject = |value: &str| json!({INJECT: value});
        for (pod, namespace, decision) in [
            (json!({"spec": {"containers": [{"name": "app"}]}}), "shop", Ok(())),
            (json!({}), "shop", Ok(())),
            (json!({"spec": {"hostNetwork": true}}), "shop", Err(Left::HostNetwork)),
            (json!({"spec": {"hostNetwork": false}}), "shop", Ok(())),
            (json!({}), "kube-system", Err(Left::System)),
            (json!({"spec": {"containers": [{"name": "istio-proxy"}]}}), "shop", Err(Left::Present)),
            (json!({"spec": {"initContainers": [{"name": "istio-proxy"}]}}), "shop", Err(Left::Present)),
            (json!({"metadata": {"annotations": {STATUS: "{}"}}}), "shop", Err(Left::Present)),
            (json!({"metadata": {"labels": inject("false")}}), "shop", Err(Left::Declined)),
            (json!({"metadata": {"labels": inject("maybe")}}), "shop", Err(Left::Declined)),
            (json!({"metadata": {"annotations": inject("false")}}), "shop", Err(Left::Declined)),
            (json!({"metadata": {"labels": inject("true"), "annotations": inject("false")}}), "shop", Ok(())),
        ] {
            let value: Json = serde_json::from_value(pod.clone()).unwrap();
            assert_eq!(decide(&value, namespace), decision, "{pod} in {namespace}");
        }
    }
}
