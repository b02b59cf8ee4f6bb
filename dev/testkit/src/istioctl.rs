//! Rules of `istioctl` for webhook configurations: `tag list`, `tag set`, `x injector list` and `x
//! check-inject` of Istio 1.24 to 1.31. Configurations are their JSON.

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Labels of a namespace or of a Pod.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// Suffix of the names of webhooks that inject sidecars.
const INJECTION: &str = "sidecar-injector.istio.io";

/// Label of a configuration; empty if it is missing.
#[must_use]
pub fn label<'a>(configuration: &'a Value, name: &str) -> &'a str {
    configuration["metadata"]["labels"][name].as_str().unwrap_or_default()
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn webhooks(configuration: &Value) -> impl Iterator<Item = &Value> {
    configuration["webhooks"].as_array().into_iter().flatten()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// `x injector list`: listed configurations, by name with their revision.
#[must_use]
pub fn injector_list(configurations: &[Value]) -> BTreeMap<&str, &str> {
    let shown = configurations.iter().filter(|one| label(one, "app") == "sidecar-injector");
    shown.map(|one| (name(one), label(one, "istio.io/rev"))).collect()
}

/// `x injector list`: revision of the sidecars in a namespace, from the first configuration that selects it.
#[must_use]
pub fn injected_revision<'a>(configurations: &'a [Value], namespace: Labels<'_>) -> Option<&'a str> {
    let shown = configurations.iter().filter(|one| label(one, "app") == "sidecar-injector");
    let mut selecting =
        shown.filter(|one| webhooks(one).any(|webhook| selects(&webhook["namespaceSelector"], namespace)));
    selecting.next().map(|one| label(one, "istio.io/rev"))
}

/// `x check-inject`: configurations that inject a sidecar into a Pod, by name with their revision.
#[must_use]
pub fn check_inject<'a>(
    configurations: &'a [Value],
    namespace: Labels<'_>,
    pod: Labels<'_>,
) -> BTreeMap<&'a str, &'a str> {
    let is_istios = |webhook: &Value| webhook["name"].as_str().is_some_and(|name| name.ends_with("istio.io"));
    let injects = |webhook: &Value| {
        selects(&webhook["namespaceSelector"], namespace) && selects(&webhook["objectSelector"], pod)
    };
    let known = configurations.iter().filter(|one| webhooks(one).any(is_istios));
    known
        .filter(|one| webhooks(one).any(injects))
        .map(|one| (name(one), label(one, "istio.io/rev")))
        .collect()
}

/// `tag list`: tags with their revisions.
#[must_use]
pub fn tag_list(configurations: &[Value]) -> BTreeMap<&str, &str> {
    let tags = configurations.iter().filter(|one| !label(one, "istio.io/tag").is_empty());
    tags.map(|one| (label(one, "istio.io/tag"), label(one, "istio.io/rev"))).collect()
}

/// `tag set TAG --revision REVISION`: the written configuration, derived from that of the revision.
///
/// # Errors
/// When there is no configuration of the revision, or none with an injecting webhook.
pub fn tag_set(configurations: &[Value], tag: &str, revision: &str) -> Result<Value, String> {
    let is_canonical =
        |one: &&Value| label(one, "istio.io/rev") == revision && label(one, "istio.io/tag").is_empty();
    let canonical = configurations.iter().find(is_canonical);
    let canonical =
        canonical.ok_or_else(|| format!("cannot modify tag: no configuration of revision {revision}"))?;
    let is_injecting =
        |webhook: &&Value| webhook["name"].as_str().is_some_and(|name| name.ends_with(INJECTION));
    let webhook = webhooks(canonical).find(is_injecting);
    let webhook =
        webhook.ok_or_else(|| format!("could not find sidecar-injector webhook in {}", name(canonical)))?;
    let known = &webhook["clientConfig"];
    let mut client = json!({"caBundle": known["caBundle"]});
    match known["url"].as_str() {
        Some(url) => client["url"] = json!(url),
        None => {
            let path = known["service"]["path"].as_str().unwrap_or("/inject");
            client["service"] = json!({"name": format!("istiod-{revision}"), "namespace": "istio-system",
                "path": path, "port": 443});
        }
    }
    let injecting = |name: &str, namespace: Value, object: Value| {
        json!({"name": format!("{name}.{INJECTION}"), "clientConfig": client, "sideEffects": "None",
            "failurePolicy": "Fail", "admissionReviewVersions": ["v1"],
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
            "namespaceSelector": {"matchExpressions": namespace}, "objectSelector": {"matchExpressions": object}})
    };
    let absent = |key: &str| json!({"key": key, "operator": "DoesNotExist"});
    let accepts = json!({"key": "sidecar.istio.io/inject", "operator": "NotIn", "values": ["false"]});
    let named = json!({"key": "istio.io/rev", "operator": "In", "values": [tag]});
    let (revision_label, injection) = (absent("istio.io/rev"), absent("istio-injection"));
    Ok(json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": format!("istio-revision-tag-{tag}"),
            "labels": {"istio.io/tag": tag, "istio.io/rev": revision, "app": "sidecar-injector"}},
        "webhooks": [
            injecting("rev.namespace", json!([named, injection]), json!([accepts])),
            injecting("rev.object", json!([revision_label, injection]), json!([accepts, named])),
        ],
    }))
}

/// True if a label selector matches these labels.
fn selects(selector: &Value, labels: Labels<'_>) -> bool {
    let value_of = |key: &str| labels.iter().find(|(known, _)| *known == key).map(|(_, value)| *value);
    let meets = |expression: &Value| {
        let value = value_of(expression["key"].as_str().unwrap_or_default());
        let is_named = || value.is_some_and(|value| items(&expression["values"]).any(|known| known == value));
        match expression["operator"].as_str() {
            Some("In") => is_named(),
            Some("NotIn") => !is_named(),
            Some("Exists") => value.is_some(),
            Some("DoesNotExist") => value.is_none(),
            _ => false,
        }
    };
    let equal = selector["matchLabels"].as_object().into_iter().flatten();
    items(&selector["matchExpressions"]).all(meets)
        && equal.into_iter().all(|(key, value)| value_of(key) == value.as_str())
}
