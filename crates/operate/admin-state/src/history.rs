//! Answers about published changes, and about earlier revisions.

use super::AdminState;
use super::operations::object_key;
use super::plan::subject;
use super::proxies::{find, not_acknowledged};
use super::standing::{Standing, Standings};
use super::waiting::check_known;
use pilotfish_admin::HistoryQuery;
use pilotfish_api::v1::{self as api, Changed, Failure, FailureKind, History, NotAcknowledged, Page};
use pilotfish_control_plane::control::time;
use pilotfish_control_plane::history::{Change, Item, ItemKind};
use pilotfish_explain::{Held, held, unified};
use pilotfish_kube_writer::lease::replica_name;
use pilotfish_model::{ChangeSet, Kind, Object, World};
use pilotfish_proto::ResourceType;
use pilotfish_translate::Translator;
use pilotfish_xds::ConnectionStatus;
use serde_json::{Value, json};
use std::sync::Arc;

/// Size limit of the diffs of an answer, in bytes.
const DIFF_BYTES: usize = 4 << 20;
/// Limit on the proxies that are named as not having acknowledged a change.
const LISTED: usize = 100;

/// Returns the changes that match a query, the newest first.
pub(super) fn changes(state: &AdminState, query: &HistoryQuery) -> Result<History, Failure> {
    let object = query.object.as_deref().map(object_key).transpose()?.map(|key| key.to_string());
    let client = match &query.proxy {
        Some(proxy) => Some(find(&state.fanout.connections(), proxy)?.client),
        None => None,
    };
    let mut list = state.shared.history().changes();
    list.retain(|change| {
        client.is_none_or(|client| !change.types_of(client).is_empty())
            && object.as_ref().is_none_or(|object| change.items.iter().any(|item| item.concerns(object)))
            && (query.endpoints
                || change.items.is_empty()
                || change.is_configuration()
                || object.is_some()
                || client.is_some())
    });
    if let (Some(object), true) = (&query.object, list.is_empty()) {
        // Either the object changed before the oldest kept change, or it never existed.
        check_known(state, object)?;
    }
    let Page { items, total, next, .. } = Page::of(list, query.offset, query.limit);
    let standings = Standings::new(state);
    let items = items.iter().map(|change| shown(change, &standings)).collect();
    let page = Page { items, total, next, replica: replica_name() };
    let (oldest, current) = state.shared.history().span();
    let (bytes, most_bytes) = state.shared.history().bytes();
    Ok(History { page, current, oldest, bytes, most_bytes })
}

/// Returns a change with its diffs, and with the proxies that have not acknowledged it.
pub(super) fn change(state: &AdminState, revision: u64) -> Result<api::Change, Failure> {
    let change = state.shared.history().change(revision)?;
    let mut answer = shown(&change, &Standings::new(state));
    if !change.is_first {
        let before = state.shared.history().world_at(revision.saturating_sub(1))?;
        let after = state.shared.history().world_at(revision)?;
        let mut bytes = 0;
        for (item, changed) in change.items.iter().zip(&mut answer.changes) {
            if bytes < DIFF_BYTES {
                changed.diff = diff(item, &before, &after);
                bytes += changed.diff.len();
            }
        }
    }
    if answer.missing > 0 || answer.outcome == api::Outcome::Pending {
        answer.missing_proxies = missing(&state.fanout.acknowledgements().1, &change);
    }
    Ok(answer)
}

fn missing(connections: &[ConnectionStatus], change: &Change) -> Vec<NotAcknowledged> {
    let missing = connections.iter().flat_map(|connection| {
        let missing = connection.missing(change.revision, change.types_of(connection.client));
        missing.map(|(ty, status)| not_acknowledged(connection, ty, status))
    });
    missing.take(LISTED).collect()
}

/// Returns the diff of an object in YAML; empty for other items.
fn diff(item: &Item, before: &World, after: &World) -> String {
    let ItemKind::Object(key) = &item.kind else { return String::new() };
    if key.kind == Kind::Secret {
        return String::new();
    }
    unified(&object(before.object(key)), &object(after.object(key)))
}

fn object(object: Option<&Object>) -> Value {
    let Some(object) = object else { return Value::Null };
    let mut shown = json!({"spec": pilotfish_config::spec_json(object)});
    let meta = &object.meta;
    if !meta.labels.is_empty() {
        shown["labels"] =
            meta.labels.iter().map(|(key, value)| (key.to_string(), Value::from(&**value))).collect();
    }
    if !meta.annotations.is_empty() {
        shown["annotations"] =
            meta.annotations.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect();
    }
    shown
}

fn shown(change: &Arc<Change>, standings: &Standings) -> api::Change {
    let Standing { outcome, after, missing, refusals } = standings.of(change);
    api::Change {
        revision: change.revision,
        at: time(change.at),
        summary: change.summary(),
        changes: change.items.iter().map(changed).collect(),
        more: change.more,
        proxies: change.concerned.len(),
        outcome,
        in_force_seconds: after.filter(|_| !change.concerned.is_empty()).map(|after| after.as_secs_f64()),
        missing,
        missing_proxies: Vec::new(),
        refusals,
    }
}

fn changed(item: &Item) -> Changed {
    Changed {
        what: item.what.to_string(),
        action: item.action.word().to_owned(),
        source: item.source.to_string(),
        generation: (item.generation > 0).then_some(item.generation),
        made_by: item.made_by.iter().map(ToString::to_string).collect(),
        detail: item.detail.clone(),
        diff: String::new(),
    }
}

/// Returns a separate translator for a world, which leaves the streams of proxies alone.
pub(super) fn translator_of(state: &AdminState, world: Arc<World>) -> Translator {
    let translator = state.translator.scratch();
    translator.publish(world, &ChangeSet::default());
    translator
}

/// Computes the resources that a connected proxy would have had at a revision. Its subscriptions by name
/// follow from the resources of then.
pub(super) fn held_at(
    state: &AdminState,
    connection: &ConnectionStatus,
    revision: u64,
) -> Result<Held, Failure> {
    let translator = translator_of(state, state.shared.history().world_at(revision)?);
    let gone = || Failure::new(FailureKind::NotFound, "the proxy has just left");
    let mut subject = subject(&state.translator.proxies(), connection).ok_or_else(gone)?;
    subject.names.retain(|ty, _| matches!(ty, ResourceType::Secret | ResourceType::ExtensionConfig));
    Ok(held(&translator, &[subject]).pop().unwrap_or_default())
}

/// Returns the proxy of a connection.
pub(super) fn proxy_of(
    state: &AdminState,
    connection: &ConnectionStatus,
) -> Result<Arc<pilotfish_translate::Proxy>, Failure> {
    let proxy = state.translator.proxies().remove(&pilotfish_translate::ClientId(connection.client.0));
    proxy.ok_or_else(|| {
        Failure::new(FailureKind::NotFound, format!("{} has just left", connection.proxy_name()))
    })
}
