//! Validation of field values by the rules of Envoy's `.proto` files (`validate.rules`). Envoy refuses a
//! resource that violates one, also within a nested `Any`.
//!
//! Rules that stock Envoys do not enforce, or that no file uses (for timestamps, for email addresses), are
//! not checked.

mod scalar;

use prost_reflect::{
    DynamicMessage, FieldDescriptor, MessageDescriptor, OneofDescriptor, ReflectMessage, Value,
};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, RwLock};

/// Completeness of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Complete message: required fields have to be set.
    Whole,
    /// Part that will be merged into another message: only fields that are set are checked.
    Part,
}

/// Violation of a validation rule of Envoy's API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Field in the names of the `.proto` files, such as `filter_chains[0].name`; empty for the message
    /// itself.
    pub path: String,
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{} ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// Additional check of messages, called for each message after its nested ones.
pub type MessageCheck<'a> = &'a dyn Fn(&DynamicMessage) -> Option<String>;

/// Checks a message for its first fault.
///
/// # Errors
/// That fault.
pub fn check(message: &DynamicMessage, extent: Extent, also: MessageCheck<'_>) -> Result<(), Fault> {
    let mut walk = Walk { extent, also, path: Vec::new(), depth: 0 };
    walk.message(message)
        .map_err(|message| Fault { path: walk.path.concat().trim_start_matches('.').to_owned(), message })
}

/// Decodes the message in an `Any`; `None` if the type is unknown or the bytes are malformed.
#[must_use]
pub fn opened(any: &DynamicMessage) -> Option<DynamicMessage> {
    let (url, bytes) = (any.get_field_by_name("type_url")?, any.get_field_by_name("value")?);
    let name = url.as_str()?.rsplit('/').next()?;
    DynamicMessage::decode(crate::pool().get_message_by_name(name)?, &**bytes.as_bytes()?).ok()
}

/// Rules of one type.
struct TypeRules {
    /// Fields with their `validate.FieldRules`.
    fields: Vec<(FieldDescriptor, DynamicMessage)>,
    oneofs: Vec<OneofDescriptor>,
}

impl TypeRules {
    fn read(descriptor: &MessageDescriptor) -> Self {
        let fields = descriptor.fields().filter_map(|field| {
            let rules = extension(&field.options(), "validate.rules")?;
            Some((field, rules.as_message()?.clone()))
        });
        let is_required = |oneof: &OneofDescriptor| {
            extension(&oneof.options(), "validate.required")
                .and_then(|value| value.as_bool())
                .unwrap_or(false)
        };
        Self { fields: fields.collect(), oneofs: descriptor.oneofs().filter(is_required).collect() }
    }

    /// Cached, since reading options is slow, and there are few types.
    fn of(descriptor: &MessageDescriptor) -> Arc<Self> {
        static KNOWN: LazyLock<RwLock<HashMap<String, Arc<TypeRules>>>> = LazyLock::new(RwLock::default);
        let name = descriptor.full_name();
        if let Some(known) = KNOWN.read().ok().and_then(|known| known.get(name).cloned()) {
            return known;
        }
        let rules = Arc::new(Self::read(descriptor));
        if let Ok(mut known) = KNOWN.write() {
            known.insert(name.to_owned(), rules.clone());
        }
        rules
    }

    fn get(&self, field: &FieldDescriptor) -> Option<&DynamicMessage> {
        self.fields.iter().find(|(of, _)| of.number() == field.number()).map(|(_, rules)| rules)
    }
}

/// Extension of options; `None` if it is not set.
fn extension(options: &DynamicMessage, name: &str) -> Option<Value> {
    let extension = crate::pool().get_extension_by_name(name)?;
    options.has_extension(&extension).then(|| options.get_extension(&extension).into_owned())
}

/// Part of rules; `None` if it is not set.
fn part<'a>(rules: &'a DynamicMessage, name: &str) -> Option<std::borrow::Cow<'a, Value>> {
    let field = rules.descriptor().get_field_by_name(name)?;
    rules.has_field(&field).then(|| rules.get_field(&field))
}

fn is_set(rules: &DynamicMessage, name: &str) -> bool {
    part(rules, name).and_then(|value| value.as_bool()).unwrap_or(false)
}

/// True if a message field is required.
fn is_required(rules: &DynamicMessage) -> bool {
    ["message", "any", "duration", "timestamp"].iter().any(|kind| {
        part(rules, kind)
            .is_some_and(|rules| rules.as_message().is_some_and(|rules| is_set(rules, "required")))
    })
}

struct Walk<'a> {
    extent: Extent,
    also: MessageCheck<'a>,
    /// Current path; after a fault it is that of the fault.
    path: Vec<String>,
    /// Number of enclosing messages.
    depth: usize,
}

/// Maximum depth of nested messages: Envoy's configuration has fewer levels.
const MOST_DEPTH: usize = 100;

impl Walk<'_> {
    fn message(&mut self, message: &DynamicMessage) -> Result<(), String> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err("is nested too deeply".to_owned());
        }
        self.parts(message)?;
        self.depth -= 1;
        Ok(())
    }

    fn parts(&mut self, message: &DynamicMessage) -> Result<(), String> {
        let descriptor = message.descriptor();
        if descriptor.full_name() == "google.protobuf.Any" {
            return opened(message).map_or(Ok(()), |inner| self.message(&inner));
        }
        if descriptor.full_name().starts_with("google.protobuf.") {
            return Ok(());
        }
        let rules = TypeRules::of(&descriptor);
        if self.extent == Extent::Whole {
            self.missing(message, &rules)?;
        }
        for (field, value) in message.fields() {
            self.step(format!(".{}", field.name()), |walk| walk.field(&field, value, rules.get(&field)))?;
        }
        (self.also)(message).map_or(Ok(()), Err)
    }

    /// Descends into a field. After a fault the path stays.
    fn step(
        &mut self,
        step: String,
        inside: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        self.path.push(step);
        inside(self)?;
        self.path.pop();
        Ok(())
    }

    /// Checks for required fields that are not set.
    fn missing(&mut self, message: &DynamicMessage, rules: &TypeRules) -> Result<(), String> {
        for oneof in &rules.oneofs {
            if !oneof.fields().any(|field| message.has_field(&field)) {
                let fields: Vec<String> = oneof.fields().map(|field| field.name().to_owned()).collect();
                return Err(format!("must have one of {}", fields.join(", ")));
            }
        }
        // Other fields of a oneof are not missing.
        let is_open =
            |field: &FieldDescriptor| !message.has_field(field) && field.containing_oneof().is_none();
        for (field, rules) in rules.fields.iter().filter(|(field, _)| is_open(field)) {
            self.step(format!(".{}", field.name()), |_| {
                if is_required(rules) {
                    return Err("must be set".to_owned());
                }
                match (field.is_list() || field.is_map(), field.supports_presence()) {
                    (true, _) => scalar::count(0, rules),
                    (false, true) => Ok(()),
                    (false, false) => scalar::value(&field.kind(), &message.get_field(field), rules),
                }
            })?;
        }
        Ok(())
    }

    fn field(
        &mut self,
        field: &FieldDescriptor,
        value: &Value,
        rules: Option<&DynamicMessage>,
    ) -> Result<(), String> {
        let of = |kind: &str, name: &str| -> Option<DynamicMessage> {
            let of_kind = part(rules?, kind)?;
            Some(part(of_kind.as_message()?, name)?.as_message()?.clone())
        };
        match (value, rules) {
            (Value::List(items), rules) => {
                if let (Some(rules), Extent::Whole) = (rules, self.extent) {
                    scalar::count(items.len(), rules)?;
                }
                let inner = of("repeated", "items");
                for (index, item) in items.iter().enumerate() {
                    self.step(format!("[{index}]"), |walk| walk.single(field, item, inner.as_ref()))?;
                }
                Ok(())
            }
            (Value::Map(entries), rules) => {
                if let (Some(rules), Extent::Whole) = (rules, self.extent) {
                    scalar::count(entries.len(), rules)?;
                }
                let inner = of("map", "values");
                let mut entries: Vec<_> = entries.iter().collect();
                // Sorted, so that the first fault is deterministic.
                entries.sort_by_key(|(key, _)| *key);
                for (key, item) in entries {
                    let key: Value = key.clone().into();
                    let name = key.as_str().map_or_else(|| format!("{key:?}"), ToOwned::to_owned);
                    self.step(format!("[{name}]"), |walk| walk.single(field, item, inner.as_ref()))?;
                }
                Ok(())
            }
            (value, rules) => self.single(field, value, rules),
        }
    }

    fn single(
        &mut self,
        field: &FieldDescriptor,
        value: &Value,
        rules: Option<&DynamicMessage>,
    ) -> Result<(), String> {
        if let Some(rules) = rules {
            scalar::value(&field.kind(), value, rules)?;
            let of_message = part(rules, "message");
            if of_message.is_some_and(|rules| rules.as_message().is_some_and(|rules| is_set(rules, "skip"))) {
                return Ok(());
            }
        }
        value.as_message().map_or(Ok(()), |inner| self.message(inner))
    }
}

#[cfg(test)]
mod tests;
