//! The proof that the API server asks us: an object that only we refuse, which is never stored.

use crate::registration::Webhook;
use crate::trouble::Trouble;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use pilotfish_config::served;
use pilotfish_model::Kind;
use serde_json::json;

const DOING: &str = "trying whether an invalid object is refused";

/// Whether the validator refuses an invalid WorkloadEntry in that namespace. WorkloadEntries are what Pilotfish may create anyway, so
/// that the proof needs no further right.
///
/// # Errors
/// When the object was not refused, or not by us.
pub(crate) async fn refuses(
    client: &Client,
    namespace: &str,
    webhooks: &[Webhook<'_>],
) -> Result<(), Trouble> {
    let kind = Kind::WorkloadEntry;
    let versions = served(kind).map_or(&[][..], |served| served.versions);
    let mut last = None;
    for version in versions {
        match create(client, namespace, kind, version).await {
            // The cluster has the kind in another version, or not at all.
            Err(kube::Error::Api(status)) if status.code == 404 => {
                last = Some(Trouble::other(DOING, format!("{kind} is not served: {}", status.message)));
            }
            Err(kube::Error::Api(status)) if is_ours(&status.message, webhooks) => return Ok(()),
            Err(error) => return Err(Trouble::new(DOING, &error)),
            Ok(_) => return Err(Trouble::other(DOING, "the API server took it without asking")),
        }
    }
    Err(last.unwrap_or_else(|| Trouble::other(DOING, "there is no version of WorkloadEntry")))
}

async fn create(client: &Client, namespace: &str, kind: Kind, version: &str) -> kube::Result<DynamicObject> {
    let gvk = GroupVersionKind::gvk(kind.group(), version, kind.name());
    let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let object = DynamicObject::new("pilotfish-invalid-on-purpose", &resource)
        .data(json!({"spec": {"address": "no address, on purpose"}}));
    api.create(&PostParams { dry_run: true, ..PostParams::default() }, &object).await
}

/// Whether the refusal is the word of one of our webhooks.
fn is_ours(message: &str, webhooks: &[Webhook<'_>]) -> bool {
    webhooks.iter().any(|webhook| {
        message.starts_with(&format!("admission webhook {:?} denied the request", webhook.name))
    })
}
