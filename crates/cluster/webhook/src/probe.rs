//! Proof that the API server calls this webhook: a request for an object that only this webhook refuses,
//! which is never stored.

use crate::error::StepError;
use crate::registration::Webhook;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use pilotfish_config::served;
use pilotfish_kube::request::RequestError;
use pilotfish_model::{Kind, REVISION_LABEL, Revision};
use pilotfish_runtime::ErrorClass;
use serde_json::json;
use std::collections::BTreeMap;

const DOING: &str = "trying whether an invalid object is refused";

/// Tries to create an invalid WorkloadEntry of that revision in that namespace, which the validator must
/// refuse. Pilotfish may create WorkloadEntries anyway, so the proof needs no further permission.
///
/// # Errors
/// If the object was not refused, or not by this webhook.
pub(crate) async fn refuses(
    client: &Client,
    namespace: &str,
    revision: &Revision,
    webhooks: &[Webhook<'_>],
) -> Result<(), StepError> {
    let kind = Kind::WorkloadEntry;
    let versions = served(kind).map_or(&[][..], |served| served.versions);
    let mut last = None;
    for version in versions {
        match create(client, namespace, revision, version).await.map_err(RequestError::from) {
            // The cluster has another version of the kind, or none.
            Err(error) if error.class == ErrorClass::Gone => {
                last = Some(StepError::local(DOING, format!("{kind} is not served: {}", error.message)));
            }
            Err(error) if is_ours(&error.message, webhooks) => return Ok(()),
            Err(error) => return Err(StepError::request(DOING, error)),
            Ok(_) => {
                return Err(StepError::local(
                    DOING,
                    "the API server accepted it without a call of the webhook",
                ));
            }
        }
    }
    Err(last.unwrap_or_else(|| StepError::local(DOING, "there is no version of WorkloadEntry")))
}

async fn create(
    client: &Client,
    namespace: &str,
    revision: &Revision,
    version: &str,
) -> kube::Result<DynamicObject> {
    let kind = Kind::WorkloadEntry;
    let gvk = GroupVersionKind::gvk(kind.group(), version, kind.name());
    let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let mut object = DynamicObject::new("pilotfish-invalid-on-purpose", &resource)
        .data(json!({"spec": {"address": "no address, on purpose"}}));
    let label = revision.name().map(|name| (REVISION_LABEL.to_owned(), name.to_owned()));
    object.metadata.labels = label.map(|label| BTreeMap::from([label]));
    api.create(&PostParams { dry_run: true, ..PostParams::default() }, &object).await
}

/// True if the message is a refusal by one of our webhooks.
fn is_ours(message: &str, webhooks: &[Webhook<'_>]) -> bool {
    webhooks.iter().any(|webhook| {
        message.starts_with(&format!("admission webhook {:?} denied the request", webhook.name))
    })
}
