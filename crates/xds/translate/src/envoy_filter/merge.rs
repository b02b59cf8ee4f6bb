//! Merging messages as protobuf does it: set fields replace, messages merge, lists append, entries of maps
//! are replaced. A false, a zero or an empty text is not set and so changes nothing. Durations are replaced
//! as a whole.

use super::value::{decode, encode};
use pilotfish_config::networking::PatchOperation;
use pilotfish_proto::Any;
use prost::{Message, Name};
use prost_reflect::{DynamicMessage, ReflectMessage, Value};

/// Treatment of lists that both a message and its patch have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lists {
    /// The patch's entries follow.
    Append,
    /// The patch's entries take the place of the others.
    Replace,
}

impl Lists {
    /// The handling of lists by an operation; `None` if it does not merge.
    pub(super) fn of(operation: PatchOperation) -> Option<Self> {
        match operation {
            PatchOperation::Merge => Some(Self::Append),
            PatchOperation::MergeAndReplaceList => Some(Self::Replace),
            _ => None,
        }
    }
}

/// Merges a patch into a message. A message that does not fit stays as it is.
pub(super) fn merge_into<M: Message + Name + Default>(target: &mut M, patch: &DynamicMessage, lists: Lists) {
    merge_all(target, [(patch, lists)]);
}

/// Merges patches into a message, one after the other. The message is read and written once for all of them.
pub(super) fn merge_all<'p, M: Message + Name + Default>(
    target: &mut M,
    patches: impl IntoIterator<Item = (&'p DynamicMessage, Lists)>,
) {
    let mut patches = patches.into_iter().peekable();
    if patches.peek().is_none() {
        return;
    }
    let Some(mut dynamic) = decode(&M::full_name(), &target.encode_to_vec()) else { return };
    for (patch, lists) in patches {
        if dynamic.descriptor() == patch.descriptor() {
            merge(&mut dynamic, patch, lists);
        }
    }
    if let Ok(merged) = M::decode(&*encode(&dynamic)) {
        *target = merged;
    }
}

/// Merges what two `Any`s hold. The patch is read as the target's type, whatever type it names: older names
/// of a type fit newer ones. `None` when the type is not known or the patch is not of it.
pub(super) fn merge_any(target: &Any, patch: &Any) -> Option<Any> {
    let mut message = decode(&target.type_url, &target.value)?;
    merge(&mut message, &decode(&target.type_url, &patch.value)?, Lists::Append);
    Some(Any { type_url: target.type_url.clone(), value: encode(&message) })
}

fn merge(target: &mut DynamicMessage, patch: &DynamicMessage, lists: Lists) {
    for (field, value) in patch.fields() {
        if !target.has_field(&field) {
            target.set_field(&field, value.clone());
            continue;
        }
        match (target.get_field_mut(&field), value) {
            (Value::Message(held), Value::Message(new)) if !is_duration(new) => merge(held, new, lists),
            (Value::List(held), Value::List(new)) if lists == Lists::Append => {
                held.extend(new.iter().cloned())
            }
            (Value::Map(held), Value::Map(new)) => {
                held.extend(new.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
            (held, new) => *held = new.clone(),
        }
    }
}

fn is_duration(message: &DynamicMessage) -> bool {
    message.descriptor().full_name() == "google.protobuf.Duration"
}
