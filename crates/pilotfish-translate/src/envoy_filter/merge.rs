//! Merging messages as protobuf does it: set fields replace, messages merge, lists append, entries of maps are
//! replaced. A false, a zero or an empty text is not set and so changes nothing. Durations are replaced as a
//! whole.

use super::value::{decode, encode};
use pilotfish_proto::Any;
use prost::{Message, Name};
use prost_reflect::{DynamicMessage, ReflectMessage, Value};

/// Merges a patch into a message. A message that does not fit stays as it is.
pub(super) fn merge_into<M: Message + Name + Default>(target: &mut M, patch: &DynamicMessage) {
    merge_all(target, [patch]);
}

/// Merges patches into a message, one after the other. The message is read and written once for all of them.
pub(super) fn merge_all<'p, M: Message + Name + Default>(
    target: &mut M,
    patches: impl IntoIterator<Item = &'p DynamicMessage>,
) {
    let mut patches = patches.into_iter().peekable();
    if patches.peek().is_none() {
        return;
    }
    let Some(mut dynamic) = decode(&M::full_name(), &target.encode_to_vec()) else { return };
    for patch in patches {
        if dynamic.descriptor() == patch.descriptor() {
            merge(&mut dynamic, patch);
        }
    }
    if let Ok(merged) = M::decode(&*encode(&dynamic)) {
        *target = merged;
    }
}

/// Merges what two `Any`s hold. The patch is read as the target's type, whatever type it names: older names of a type
/// fit newer ones. `None` when the type is not known or the patch is not of it.
pub(super) fn merge_any(target: &Any, patch: &Any) -> Option<Any> {
    let mut message = decode(&target.type_url, &target.value)?;
    merge(&mut message, &decode(&target.type_url, &patch.value)?);
    Some(Any { type_url: target.type_url.clone(), value: encode(&message) })
}

fn merge(target: &mut DynamicMessage, patch: &DynamicMessage) {
    for (field, value) in patch.fields() {
        if !target.has_field(&field) {
            target.set_field(&field, value.clone());
            continue;
        }
        match (target.get_field_mut(&field), value) {
            (Value::Message(held), Value::Message(new)) if !is_duration(new) => merge(held, new),
            (Value::List(held), Value::List(new)) => held.extend(new.iter().cloned()),
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
