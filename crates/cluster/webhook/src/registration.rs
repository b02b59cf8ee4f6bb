//! Desired webhook configurations of the API server, and patches towards them. No IO.

use crate::certificate::certificates;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use serde_json::{Value, json};

/// Name of the ValidatingWebhookConfiguration, followed by the revision if there is one.
pub const VALIDATOR: &str = "pilotfish-validator";
/// Name of the MutatingWebhookConfiguration, followed by the revision if there is one.
pub const INJECTOR: &str = "pilotfish-sidecar-injector";

/// Suffix of the names of injecting webhooks, by which istioctl finds those of a revision or tag.
const INJECTION: &str = "sidecar-injector.istio.io";

/// Desired fields of every webhook of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DesiredWebhook<'a> {
    /// Authorities of its certificate, in PEM.
    pub(crate) authorities: &'a str,
    /// URL for API servers outside of the cluster's network; `None` to keep the Service.
    pub(crate) url: Option<&'a str>,
    pub(crate) policy: Policy,
}

/// Failure policy of a webhook, for times when no replica answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Keeps the configured policy, except for `Ignore` where the API server would refuse objects only
    /// because it trusts other authorities.
    Careful,
    /// Objects are refused: `Fail`.
    Fail,
    /// Objects are accepted without checks: `Ignore`.
    Ignore,
    /// Keeps the policy of the configuration's author.
    Written,
}

/// One webhook of a configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Webhook<'a> {
    pub(crate) name: &'a str,
    client: &'a WebhookClientConfig,
    pub(crate) policy: &'a str,
}

impl<'a> Webhook<'a> {
    fn new(name: &'a str, client: &'a WebhookClientConfig, policy: Option<&'a str>) -> Self {
        // Default of the API server.
        Self { name, client, policy: policy.unwrap_or("Fail") }
    }
}

/// Webhooks of a validator.
pub(crate) fn validating(configuration: &ValidatingWebhookConfiguration) -> Vec<Webhook<'_>> {
    let webhooks = configuration.webhooks.iter().flatten();
    webhooks
        .map(|webhook| Webhook::new(&webhook.name, &webhook.client_config, webhook.failure_policy.as_deref()))
        .collect()
}

/// Webhooks of an injector.
pub(crate) fn mutating(configuration: &MutatingWebhookConfiguration) -> Vec<Webhook<'_>> {
    let webhooks = configuration.webhooks.iter().flatten();
    webhooks
        .map(|webhook| Webhook::new(&webhook.name, &webhook.client_config, webhook.failure_policy.as_deref()))
        .collect()
}

/// Injecting webhooks of a tag. Other webhooks of the configuration belong to its author.
pub(crate) fn injecting(configuration: &MutatingWebhookConfiguration) -> Vec<Webhook<'_>> {
    mutating(configuration).into_iter().filter(|webhook| webhook.name.ends_with(INJECTION)).collect()
}

/// True if all have the failure policy `Fail`.
pub(crate) fn all_fail(webhooks: &[Webhook<'_>]) -> bool {
    webhooks.iter().all(|webhook| webhook.policy == "Fail")
}

/// Strategic merge patch to the desired state; `None` without a difference. Applies to this version of the
/// configuration only.
pub(crate) fn patch(
    webhooks: &[Webhook<'_>],
    version: Option<&str>,
    wanted: &DesiredWebhook<'_>,
) -> Option<Value> {
    let changed: Vec<_> = webhooks.iter().filter_map(|webhook| change(webhook, wanted)).collect();
    (!changed.is_empty()).then(|| {
        let mut patch = json!({"webhooks": changed});
        if let Some(version) = version {
            patch["metadata"] = json!({"resourceVersion": version});
        }
        patch
    })
}

fn change(webhook: &Webhook<'_>, wanted: &DesiredWebhook<'_>) -> Option<Value> {
    let mut client = json!({});
    let bundle = webhook.client.ca_bundle.as_ref().map_or(&[][..], |bundle| &bundle.0);
    if bundle != wanted.authorities.as_bytes() {
        client["caBundle"] = json!(ByteString(wanted.authorities.as_bytes().to_vec()));
    }
    if let Some(url) = wanted.url {
        if webhook.client.url.as_deref() != Some(url) {
            client["url"] = json!(url);
        }
        if webhook.client.service.is_some() {
            client["service"] = Value::Null;
        }
    }
    let policy = match wanted.policy {
        Policy::Careful => (!trusts(bundle, wanted.authorities)).then_some("Ignore"),
        Policy::Fail => Some("Fail"),
        Policy::Ignore => Some("Ignore"),
        Policy::Written => None,
    };
    let mut change = json!({"name": webhook.name});
    if client.as_object().is_some_and(|client| !client.is_empty()) {
        change["clientConfig"] = client;
    }
    if let Some(policy) = policy.filter(|policy| *policy != webhook.policy) {
        change["failurePolicy"] = json!(policy);
    }
    (change.as_object().is_some_and(|change| change.len() > 1)).then_some(change)
}

/// True if the bundle contains one of our authorities.
fn trusts(bundle: &[u8], authorities: &str) -> bool {
    let bundle = certificates(std::str::from_utf8(bundle).unwrap_or_default());
    certificates(authorities).iter().any(|ours| bundle.contains(ours))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::{CertificateLifetimes, Material, Need, make};
    use std::collections::BTreeSet;
    use std::time::{Duration, UNIX_EPOCH};

    fn material() -> Material {
        let now = UNIX_EPOCH + Duration::from_secs(1_900_000_000);
        make(None, &Need::Nothing, &BTreeSet::from(["a".to_owned()]), &CertificateLifetimes::default(), now)
            .unwrap()
    }

    fn client(bundle: &str, url: Option<&str>) -> WebhookClientConfig {
        let service = json!({"name": "pilotfish", "namespace": "istio-system"});
        let service = url.is_none().then(|| serde_json::from_value(service).unwrap());
        let ca_bundle = (!bundle.is_empty()).then(|| ByteString(bundle.as_bytes().to_vec()));
        WebhookClientConfig { ca_bundle, url: url.map(str::to_owned), service }
    }

    fn change_of(client: &WebhookClientConfig, policy: &str, wanted: &DesiredWebhook<'_>) -> Option<Value> {
        let patch = patch(&[Webhook::new("v", client, Some(policy))], Some("7"), wanted)?;
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let mut change = patch["webhooks"][0].clone();
        assert_eq!(change.as_object_mut().unwrap().remove("name"), Some("v".into()));
        Some(change)
    }

    #[test]
    fn a_bundle_that_is_not_ours_is_replaced_and_nothing_refused_meanwhile() {
        let (ours, theirs) = (material().authorities, material().authorities);
        let wanted = DesiredWebhook { authorities: &ours, url: None, policy: Policy::Careful };
        let bundle = json!(ByteString(ours.clone().into_bytes()));
        for written in ["", "garbage", &theirs] {
            let change = change_of(&client(written, None), "Fail", &wanted).unwrap();
            assert_eq!(change, json!({"clientConfig": {"caBundle": bundle}, "failurePolicy": "Ignore"}));
        }
        assert_eq!(change_of(&client(&ours, None), "Fail", &wanted), None);
        assert_eq!(change_of(&client(&ours, None), "Ignore", &wanted), None, "not before it is proven");
    }

    #[test]
    fn a_further_authority_does_not_loosen_the_policy() {
        let (old, new) = (material().authorities, material().authorities);
        let both = format!("{new}{old}");
        let wanted = DesiredWebhook { authorities: &both, url: None, policy: Policy::Careful };
        let change = change_of(&client(&old, None), "Fail", &wanted).unwrap();
        assert_eq!(change.get("failurePolicy"), None);
    }

    #[test]
    fn the_policy_follows_what_is_wanted() {
        let ours = material().authorities;
        let change = |policy, written| {
            let wanted = DesiredWebhook { authorities: &ours, url: None, policy };
            change_of(&client(&ours, None), written, &wanted)
        };
        assert_eq!(change(Policy::Fail, "Ignore"), Some(json!({"failurePolicy": "Fail"})));
        assert_eq!(change(Policy::Fail, "Fail"), None);
        assert_eq!(change(Policy::Ignore, "Fail"), Some(json!({"failurePolicy": "Ignore"})));
        assert_eq!(change(Policy::Written, "Fail"), None);
    }

    #[test]
    fn only_injecting_webhooks_of_a_tag_are_ours() {
        let webhook = |name: &str| json!({"name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": {}});
        let names = [
            "rev.namespace.sidecar-injector.istio.io",
            "quota.example.com",
            "object.sidecar-injector.istio.io",
        ];
        let configuration =
            json!({"metadata": {"name": "istio-revision-tag-prod"}, "webhooks": names.map(webhook)});
        let configuration: MutatingWebhookConfiguration = serde_json::from_value(configuration).unwrap();
        let found: Vec<_> = injecting(&configuration).iter().map(|webhook| webhook.name).collect();
        assert_eq!(found, [names[0], names[2]]);
    }

    #[test]
    fn an_address_replaces_the_service() {
        let ours = material().authorities;
        let url = "https://192.0.2.1:15017/validate";
        let wanted = DesiredWebhook { authorities: &ours, url: Some(url), policy: Policy::Careful };
        let change = change_of(&client(&ours, None), "Ignore", &wanted).unwrap();
        assert_eq!(change, json!({"clientConfig": {"url": url, "service": null}}));
        assert_eq!(change_of(&client(&ours, Some(url)), "Ignore", &wanted), None);
    }
}
