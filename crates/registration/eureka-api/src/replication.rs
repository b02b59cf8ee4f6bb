//! Batches of another server, which replicates what its clients do.

use crate::calls::{Beat, EurekaApi};
use crate::catalog::Action;
use crate::path::Target;
use pilotfish_eureka_wire::{InstanceInfo, Status, Text};
use pilotfish_registration::limits::MAX_BATCH;
use pilotfish_registration_server::{AdapterAnswer, AdapterClient, Failure};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Batch<'a> {
    /// Decoded after they were counted.
    #[serde(borrow)]
    replication_list: Vec<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Item {
    app_name: Text,
    id: Text,
    last_dirty_timestamp: Option<u64>,
    overridden_status: Text,
    status: Text,
    instance_info: Option<InstanceInfo>,
    action: Text,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answers {
    response_list: Vec<Answered>,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answered {
    status_code: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_entity: Option<InstanceInfo>,
}

impl Answered {
    fn of(status_code: u16) -> Self {
        Self { status_code, response_entity: None }
    }
}

/// Answers a batch: items of one instance in their order, different instances at the same time.
pub(crate) async fn answer(api: &EurekaApi, client: &AdapterClient, body: &[u8]) -> AdapterAnswer {
    let batch: Batch<'_> = serde_json::from_slice(body)
        .map_err(|error| Failure::invalid(format!("the body is no batch in JSON: {error}")))?;
    let count = batch.replication_list.len();
    if count > MAX_BATCH {
        return Err(Failure::too_many(format!("{count} items: a batch has at most {MAX_BATCH}")));
    }
    let mut instances: BTreeMap<(String, String), Vec<(usize, Item)>> = BTreeMap::new();
    let mut answered = Vec::with_capacity(count);
    for (index, raw) in batch.replication_list.into_iter().enumerate() {
        match item(raw) {
            Ok(item) => {
                let name = (item.app_name.0.to_uppercase(), item.id.0.clone());
                instances.entry(name).or_default().push((index, item));
            }
            Err(failure) => answered.push((index, Answered::of(failure.http_status()))),
        }
    }
    let of_instance = |items: Vec<(usize, Item)>| async move {
        let mut answers = Vec::with_capacity(items.len());
        for (index, item) in items {
            answers.push((index, item_answer(api, client, item).await));
        }
        answers
    };
    let of_instances = futures::future::join_all(instances.into_values().map(of_instance)).await;
    answered.extend(of_instances.into_iter().flatten());
    answered.sort_by_key(|(index, _)| *index);
    let response_list = answered.into_iter().map(|(_, answer)| answer).collect();
    let body = serde_json::to_string(&Answers { response_list })
        .map_err(|error| Failure::invalid(format!("the answer has no JSON form: {error}")))?;
    Ok(crate::answer::json(body))
}

fn item(raw: &RawValue) -> Result<Item, Failure> {
    crate::wire::check_length(raw.get().len())?;
    serde_json::from_str(raw.get())
        .map_err(|error| Failure::invalid(format!("an item of the batch is not one: {error}")))
}

async fn item_answer(api: &EurekaApi, client: &AdapterClient, item: Item) -> Answered {
    match apply(api, client, item).await {
        Ok(Some(entity)) => Answered { status_code: 409, response_entity: Some(entity) },
        Ok(None) => Answered::of(200),
        Err(failure) => Answered::of(failure.http_status()),
    }
}

/// Applies an item. Returns the newer state of an instance of which the peer knows an older one.
async fn apply(api: &EurekaApi, client: &AdapterClient, item: Item) -> Result<Option<InstanceInfo>, Failure> {
    let target = Target { app: item.app_name.0, id: item.id.0 };
    let status = |text: &Text| Some(Status::parse(&text.0)).filter(|status| *status != Status::Unknown);
    match &*item.action.0 {
        "Register" => {
            let info = item.instance_info.ok_or_else(|| Failure::invalid("instanceInfo: it is missing"))?;
            api.register(client, &target.app, info).await?;
        }
        "Heartbeat" => {
            let beat = api.heartbeat(client, &target, item.last_dirty_timestamp, true).await?;
            if let Beat::Older(entry) = beat {
                return Ok(Some(entry.info(Action::Modified)));
            }
            let known = status(&item.overridden_status);
            if let Some(status) = known {
                api.set_status(client, &target, status).await?;
            }
        }
        "Cancel" => api.cancel(client, &target).await?,
        "StatusUpdate" => {
            let status = status(&item.status).ok_or_else(|| Failure::invalid("status: it is no status"))?;
            api.set_status(client, &target, status).await?;
        }
        "DeleteStatusOverride" => api.remove_status(client, &target, status(&item.status)).await?,
        other => return Err(Failure::invalid(format!("action: {other:?} is not known"))),
    }
    Ok(None)
}
