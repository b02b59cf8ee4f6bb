//! Sidecar injection into Pods and Pod templates.
//!
//! ```text
//!  Pod ─▶ rules ─▶ template (with the Pod's bootstrap) ─▶ merge ─▶ Pod with a sidecar ─▶ patch (webhook)
//!                                                                                    └─▶ document (files)
//! ```
//!
//! No IO.

mod dns_capture;
mod document;
mod json;
mod merge;
mod patch;
mod probes;
mod rules;
mod template;
pub mod traffic;

pub use document::{InjectError, Injected, inject_documents};
pub use json::{Fields, Json};
pub use patch::{Step, diff};
pub use probes::{Check, Probe, STATUS_PORT};
pub use rules::Left;
pub use template::{DEFAULT as DEFAULT_TEMPLATE, TemplateError};

use crate::review::{Request, Response};
use pilotfish_model::Revision;
use probes::Rewrite;
use std::collections::BTreeMap;
use std::sync::Arc;
use template::{Known, Template};

/// Annotation of a Pod for the traffic interception mode of its sidecar.
const INTERCEPTION: &str = "sidecar.istio.io/interceptionMode";

/// Properties of a Pod that its bootstrap depends on. Kubernetes fills in the rest when it starts the
/// container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload<'a> {
    pub labels: &'a BTreeMap<&'a str, &'a str>,
    /// Owner of the Pod, such as a Deployment, or the Pod itself; empty if it has no name yet.
    pub name: &'a str,
    /// Interception mode: `NONE`, `REDIRECT` or `TPROXY`.
    pub interception: &'a str,
    /// Port at which Envoy answers the probes.
    pub status_port: u16,
    /// Probes of the Pod's containers that Envoy answers.
    pub probes: &'a [Probe],
}

/// Function that builds the bootstrap of a Pod's Envoy.
pub type BootstrapOf = Arc<dyn Fn(&Workload<'_>) -> serde_json::Value + Send + Sync>;

pub struct Injector {
    template: Template,
    values: BTreeMap<String, String>,
    bootstrap: BootstrapOf,
    /// Label `istio.io/rev` of injected Pods.
    revision: String,
}

impl Injector {
    /// Creates an injector with that template, and tests it on a Pod without annotations.
    ///
    /// # Errors
    /// If the template fails.
    pub fn new(
        template: &str,
        values: BTreeMap<String, String>,
        bootstrap: BootstrapOf,
    ) -> Result<Self, TemplateError> {
        if let Some((name, why)) =
            traffic::wrong(|name| values.get(traffic::value_of(name)).map(String::as_str))
        {
            return Err(TemplateError::Value { name: traffic::value_of(name), why });
        }
        if let Some(why) = values.get(probes::REWRITE_VALUE).and_then(|text| probes::wrong_switch(text)) {
            return Err(TemplateError::Value { name: probes::REWRITE_VALUE, why });
        }
        let template = Template::new(template)?;
        if let Some(unknown) = values.keys().find(|name| !is_ours(name) && !template.mentions(name)) {
            return Err(TemplateError::UnknownValue(unknown.clone()));
        }
        let revision = Revision::default().label().to_owned();
        let this = Self { template, values, bootstrap, revision };
        this.addition(&Json::Map(Fields::new()), ("", "example"), &Rewrite::default())?;
        Ok(this)
    }

    /// Sets the control plane's revision, a value of the template.
    #[must_use]
    pub fn with_revision(self, revision: &Revision) -> Self {
        Self { revision: revision.label().to_owned(), ..self }
    }

    /// Adds a sidecar to a Pod or Pod template. `owner` names the workload. Returns the unsupported settings
    /// of the Pod, one sentence each.
    ///
    /// # Errors
    /// If the template fails for this Pod.
    pub fn inject(
        &self,
        pod: &mut Json,
        namespace: &str,
        owner: &str,
    ) -> Result<Result<Vec<String>, Left>, TemplateError> {
        if let Err(left) = rules::decide(pod, namespace) {
            return Ok(Err(left));
        }
        let rewrite = self.rewrite(pod);
        let addition = self.addition(pod, (namespace, owner), &rewrite)?;
        let mut warnings = self.warnings(pod);
        rewrite.apply(pod);
        warnings.extend(rewrite.warnings);
        if let Json::Map(fields) = pod {
            merge::merge(fields, addition);
        }
        Ok(Ok(warnings))
    }

    fn warnings(&self, pod: &Json) -> Vec<String> {
        if dns_capture::MENTIONED.iter().any(|name| self.template.mentions(name)) {
            return Vec::new();
        }
        Vec::from_iter(dns_capture::warning(&texts(pod, "annotations")))
    }

    /// Probes to rewrite; none if the template excludes no port for them from interception.
    fn rewrite(&self, pod: &Json) -> Rewrite {
        match self.template.mentions("statusPort") {
            true => Rewrite::of(pod, &texts(pod, "annotations"), &self.values),
            false => Rewrite::default(),
        }
    }

    fn addition(
        &self,
        pod: &Json,
        (namespace, owner): (&str, &str),
        rewrite: &Rewrite,
    ) -> Result<Json, TemplateError> {
        let (labels, annotations) = (texts(pod, "labels"), texts(pod, "annotations"));
        if let Some((name, why)) = traffic::wrong(|name| annotations.get(name).copied()) {
            return Err(TemplateError::Annotation { name, why });
        }
        let wanted = annotations.get(INTERCEPTION).copied();
        let wanted = wanted.or_else(|| self.values.get("interception").map(String::as_str));
        let interception = match wanted.unwrap_or_default().to_ascii_uppercase().as_str() {
            "REDIRECT" => "REDIRECT",
            "TPROXY" => "TPROXY",
            _ => "NONE",
        };
        let bootstrap = (self.bootstrap)(&Workload {
            labels: &labels,
            name: owner,
            interception,
            status_port: rewrite.port,
            probes: &rewrite.probes,
        });
        let known = Known {
            bootstrap: &bootstrap,
            interception,
            status_port: (!rewrite.probes.is_empty()).then_some(rewrite.port),
            revision: &self.revision,
            namespace,
            annotations: &annotations,
            labels: &labels,
            values: &self.values,
        };
        self.template.render(&known)
    }

    #[must_use]
    pub fn template(&self) -> &str {
        self.template.text()
    }

    /// Answers a review with the patch that adds a sidecar. A failing template is an error, so that no Pod
    /// starts without its sidecar unnoticed.
    #[must_use]
    pub(crate) fn review(&self, request: &Request<'_>) -> Response {
        let is_pod =
            request.kind.group.is_empty() && request.kind.kind == "Pod" && request.operation == "CREATE";
        let Some(object) = request.object.filter(|_| is_pod) else {
            return Response::allowed(request.uid.as_str());
        };
        let before: Json = match serde_json::from_str(object.get()) {
            Ok(before) => before,
            Err(error) => return Response::failed(request.uid.as_str(), format!("not a Pod: {error}")),
        };
        let mut after = before.clone();
        let owner = owner(&before);
        match self.inject(&mut after, &request.namespace, owner) {
            Ok(Ok(warnings)) => {
                // Warnings in the response are not shown for Pods of controllers such as ReplicaSets.
                for warning in &warnings {
                    tracing::warn!(namespace = request.namespace, workload = owner, "{warning}");
                }
                Response { warnings, ..Response::patched(request.uid.as_str(), &diff(&before, &after)) }
            }
            Ok(Err(_)) => Response::allowed(request.uid.as_str()),
            Err(error @ TemplateError::Annotation { .. }) => {
                Response::bad(request.uid.as_str(), error.to_string())
            }
            Err(error) => Response::failed(request.uid.as_str(), error.to_string()),
        }
    }
}

/// True for values with a meaning independent of the template.
fn is_ours(value: &str) -> bool {
    // Pilotfish sets `tokenAudience` for templates that mount a token, and `workloadCertificates` for those
    // that label Pods.
    matches!(value, "interception" | "tokenAudience" | "workloadCertificates" | probes::REWRITE_VALUE)
}

/// Workload of a Pod: its owner, without the suffixes that ReplicaSets and Jobs append to the name of their
/// own owner, or the Pod itself.
fn owner(pod: &Json) -> &str {
    let own = |field| pod.at(&["metadata", field]).and_then(Json::text);
    let owners = pod.at(&["metadata", "ownerReferences"]).map(Json::items).unwrap_or_default();
    let controller = owners.iter().find(|owner| owner.get("controller") == Some(&Json::Bool(true)));
    let Some(controller) = controller else {
        let generated = || own("generateName").map(|name| name.trim_end_matches('-'));
        return own("name").filter(|name| !name.is_empty()).or_else(generated).unwrap_or_default();
    };
    let name = controller.word("name");
    let maker = match controller.word("kind") {
        "ReplicaSet" => {
            let hash = pod.at(&["metadata", "labels", "pod-template-hash"]).and_then(Json::text);
            hash.filter(|hash| !hash.is_empty()).and_then(|hash| name.strip_suffix(hash)?.strip_suffix('-'))
        }
        // CronJobs name their Jobs by the minute.
        "Job" => name.rsplit_once('-').filter(|(_, minute)| is_minute(minute)).map(|(maker, _)| maker),
        _ => None,
    };
    maker.unwrap_or(name)
}

fn is_minute(text: &str) -> bool {
    (8..=10).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A string map in the metadata.
fn texts<'a>(pod: &'a Json, field: &str) -> BTreeMap<&'a str, &'a str> {
    match pod.at(&["metadata", field]) {
        Some(Json::Map(fields)) => {
            fields.iter().filter_map(|(name, value)| Some((name.as_str(), value.text()?))).collect()
        }
        _ => BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use proptest::prelude::*;
    use serde_json::json;

    fn injector() -> Injector {
        let bootstrap: BootstrapOf = Arc::new(
            |workload| json!({"app": workload.name, "labels": workload.labels, "mode": workload.interception}),
        );
        Injector::new(DEFAULT_TEMPLATE, BTreeMap::new(), bootstrap).unwrap()
    }

    fn review(operation: &str, kind: &str, pod: &str) -> Response {
        let body = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"7","operation":"{operation}",
            "namespace":"shop","kind":{{"group":"","version":"v1","kind":"{kind}"}},"object":{pod}}}}}"#
        );
        injector().review(&crate::review::parse(body.as_bytes()).unwrap())
    }

    #[test]
    fn a_patch_adds_and_nothing_else() {
        let pod = r#"{"metadata": {"name": "a"}, "spec": {"containers": [{"name": "app"}]}}"#;
        let response = review("CREATE", "Pod", pod);
        assert_eq!((response.allowed, response.patch_type), (true, Some("JSONPatch")));
        let patch = base64::engine::general_purpose::STANDARD.decode(response.patch.unwrap()).unwrap();
        let patch: serde_json::Value = serde_json::from_slice(&patch).unwrap();
        let steps: Vec<_> =
            patch.as_array().unwrap().iter().map(|step| (&step["op"], &step["path"])).collect();
        assert_eq!(
            steps,
            [
                (&json!("add"), &json!("/metadata/annotations")),
                (&json!("add"), &json!("/spec/initContainers"))
            ]
        );
    }

    #[test]
    fn pod_with_a_certificate_accepts_mutual_tls_unless_it_says_otherwise() {
        let of = |values: &[(&str, &str)], labels: serde_json::Value| {
            let values = values.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            let injector = Injector::new(DEFAULT_TEMPLATE, values, Arc::new(|_| json!({}))).unwrap();
            let pod = json!({"metadata": {"labels": labels}, "spec": {"containers": []}});
            let mut pod: Json = serde_json::from_value(pod).unwrap();
            injector.inject(&mut pod, "shop", "web").unwrap().unwrap();
            let label = pod.at(&["metadata", "labels", "security.istio.io/tlsMode"]).and_then(Json::text);
            label.map(str::to_owned)
        };
        let with = [("workloadCertificates", "ads"), ("interception", "REDIRECT")];
        assert_eq!(of(&with[1..], json!({"app": "web"})), None);
        assert_eq!(of(&with[..1], json!({"app": "web"})), None, "its programs get the connections");
        assert_eq!(of(&with, json!({"app": "web"})).as_deref(), Some("istio"));
        let own = json!({"security.istio.io/tlsMode": "disabled"});
        assert_eq!(of(&with, own).as_deref(), Some("disabled"));
    }

    #[test]
    fn what_is_no_new_pod_is_left_alone() {
        for (operation, kind, pod) in [
            ("UPDATE", "Pod", "{}"),
            ("CREATE", "Service", "{}"),
            ("DELETE", "Pod", "null"),
            ("CREATE", "Pod", r#"{"spec": {"hostNetwork": true}}"#),
        ] {
            assert_eq!(review(operation, kind, pod), Response::allowed("7"), "{operation} {kind} {pod}");
        }
    }

    #[test]
    fn capture_of_dns_is_not_silently_left_out() {
        let config = r#"{"metadata": {"annotations": {"proxy.istio.io/config": "proxyMetadata: {ISTIO_META_DNS_CAPTURE: 'true'}"}}}"#;
        let response = review("CREATE", "Pod", config);
        assert!(response.allowed && response.patch.is_some());
        assert!(response.warnings[0].contains("ISTIO_META_DNS_CAPTURE: not captured"), "{response:?}");
        let template =
            "spec: {containers: [{name: istio-proxy, env: [{name: ISTIO_META_DNS_CAPTURE, value: 'true'}]}]}";
        let own = Injector::new(template, BTreeMap::new(), Arc::new(|_| json!({}))).unwrap();
        let mut pod: Json = serde_json::from_str(config).unwrap();
        assert_eq!(
            own.inject(&mut pod, "shop", "web").unwrap(),
            Ok(Vec::new()),
            "a template that brings an agent"
        );
    }

    #[test]
    fn the_owner_of_a_pod_is_named_without_its_hash() {
        let owner_of = |pod: serde_json::Value| owner(&serde_json::from_value(pod).unwrap()).to_owned();
        let owned = |kind: &str, name: &str| {
            json!({"metadata": {"name": "p", "labels": {"pod-template-hash": "7d9f"},
            "ownerReferences": [{"kind": "X", "name": "x"}, {"kind": kind, "name": name, "controller": true}]}})
        };
        assert_eq!(owner_of(owned("ReplicaSet", "catalog-7d9f")), "catalog");
        assert_eq!(owner_of(owned("ReplicaSet", "catalog")), "catalog");
        assert_eq!(owner_of(owned("StatefulSet", "store")), "store");
        assert_eq!(owner_of(json!({"metadata": {"name": "p"}})), "p");
        assert_eq!(owner_of(json!([])), "");
        assert_eq!(owner_of(owned("Job", "report-29384716")), "report");
        assert_eq!(owner_of(owned("Job", "report-2024")), "report-2024");
        assert_eq!(owner_of(json!({"metadata": {"generateName": "catalog-"}})), "catalog");
        assert_eq!(owner_of(json!({"metadata": {"name": "", "generateName": "catalog-"}})), "catalog");
    }

    #[test]
    fn a_template_that_fails_refuses_the_pod() {
        let template = "{% if namespace == 'shop' %}- a list{% else %}spec: {}{% endif %}";
        let injector = Injector::new(template, BTreeMap::new(), Arc::new(|_| json!({}))).unwrap();
        let body = br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"7","operation":"CREATE",
            "namespace":"shop","kind":{"kind":"Pod"},"object":{}}}"#;
        let response = injector.review(&crate::review::parse(body).unwrap());
        assert!(!response.allowed);
        assert!(response.status.unwrap().message.contains("no part of a Pod"));
    }

    #[test]
    fn what_would_never_start_is_refused() {
        let pod =
            r#"{"metadata": {"annotations": {"traffic.sidecar.istio.io/excludeInboundPorts": "http"}}}"#;
        let status = review("CREATE", "Pod", pod).status.unwrap();
        assert_eq!(status.code, 400);
        let message = status.message;
        assert!(
            message.contains("traffic.sidecar.istio.io/excludeInboundPorts") && message.contains("no port"),
            "{message}"
        );
        let declined = pod.replace("{\"traffic", "{\"sidecar.istio.io/inject\": \"false\", \"traffic");
        assert!(review("CREATE", "Pod", &declined).allowed);
        let new = |name: &str, value: &str| {
            let values = BTreeMap::from([(name.to_owned(), value.to_owned())]);
            Injector::new(DEFAULT_TEMPLATE, values, Arc::new(|_| json!({}))).map(drop)
        };
        new("interception", "tproxy").unwrap();
        let wrong = new("interception", "REDIRCT").unwrap_err().to_string();
        assert!(wrong.starts_with("the value interception: "), "{wrong}");
        new("excludeOutboundIPRanges", "10.0.0.1").unwrap_err();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn garbage_never_panics(text in "[-{}\\[\\]:,a \n\"|#]{0,60}", kind in "(Pod|Deployment|List)", part in "(\\[\\]|\\{\\}|7|null)") {
            let injector = injector();
            let _ = inject_documents(&injector, &text);
            let api = if kind == "Deployment" { "apps/v1" } else { "v1" };
            let odd = format!("apiVersion: {api}\nkind: {kind}\nmetadata: {part}\nspec: {part}\nitems: {part}\n---\n{text}");
            let _ = inject_documents(&injector, &odd);
        }
    }
}
