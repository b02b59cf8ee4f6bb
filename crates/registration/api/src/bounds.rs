//! Limits of an encoded request, checked before it is decoded: an empty item is two bytes on the wire and
//! some hundred in memory.

use crate::descriptor::pool;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost_reflect::{Kind, MessageDescriptor};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Items in one batch, or in one request of a heartbeat stream (limit `batch-items`).
pub const MAX_ITEMS: usize = 1_000;

/// Values in one request, at all levels together (limit `request-values`).
pub const MAX_VALUES: usize = 100_000;

/// A request exceeds a limit of items or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BoundExceeded {
    #[error("too many items in a batch: at most {MAX_ITEMS} are allowed (limit batch-items)")]
    Items,
    #[error("too many values in a request: at most {MAX_VALUES} are allowed (limit request-values)")]
    Values,
}

impl BoundExceeded {
    #[must_use]
    pub fn limit(self) -> &'static str {
        match self {
            Self::Items => "batch-items",
            Self::Values => "request-values",
        }
    }
}

/// Reason for rejecting an encoded request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error(transparent)]
    Bound(#[from] BoundExceeded),
    #[error("not a message of this type: {0}")]
    Malformed(#[from] prost::DecodeError),
}

/// The message fields of a message type; all other fields are values.
#[derive(Debug, Default)]
struct Shape {
    messages: BTreeMap<u32, Shape>,
    /// True if no field repeats or is a message, so that the encoded size bounds the memory.
    flat: bool,
}

impl Shape {
    fn of(message: &MessageDescriptor) -> Self {
        let flat = message
            .fields()
            .all(|field| !field.is_list() && !field.is_map() && field.kind().as_message().is_none());
        let messages = message.fields().filter_map(|field| match field.kind() {
            Kind::Message(inner) => Some((field.number(), Self::of(&inner))),
            _ => None,
        });
        Self { messages: messages.collect(), flat }
    }
}

/// Shapes of all requests, by full name. No message of the API is recursive.
static REQUESTS: LazyLock<BTreeMap<String, Shape>> = LazyLock::new(|| {
    let methods = pool().services().flat_map(|service| service.methods().collect::<Vec<_>>());
    methods.map(|method| (method.input().full_name().to_owned(), Shape::of(&method.input()))).collect()
});

/// Checks an encoded request of this type; messages that are no requests pass.
pub(crate) fn check_encoded(full_name: &str, encoded: &[u8]) -> Result<(), Refused> {
    let Some(shape) = REQUESTS.get(full_name) else { return Ok(()) };
    let mut items = BTreeMap::<u32, usize>::new();
    let mut values = 0;
    walk(encoded, shape, &mut values, &mut |number| {
        let count = items.entry(number).or_default();
        *count += 1;
        if *count > MAX_ITEMS { Err(BoundExceeded::Items) } else { Ok(()) }
    })
}

/// Counts the fields of a message and of nested ones in `values`; calls `item` with the field number of each
/// direct submessage.
fn walk(
    mut encoded: &[u8],
    shape: &Shape,
    values: &mut usize,
    item: &mut dyn FnMut(u32) -> Result<(), BoundExceeded>,
) -> Result<(), Refused> {
    while !encoded.is_empty() {
        let (number, wire) = decode_key(&mut encoded)?;
        *values += 1;
        if *values > MAX_VALUES {
            return Err(BoundExceeded::Values.into());
        }
        match (wire, shape.messages.get(&number)) {
            (WireType::LengthDelimited, Some(inner)) => {
                item(number)?;
                let length = usize::try_from(decode_varint(&mut encoded)?).unwrap_or(usize::MAX);
                let Some((message, rest)) = encoded.split_at_checked(length) else {
                    return Err(truncated().into());
                };
                if !inner.flat {
                    walk(message, inner, values, &mut |_| Ok(()))?;
                }
                encoded = rest;
            }
            _ => skip_field(wire, number, &mut encoded, DecodeContext::default())?,
        }
    }
    Ok(())
}

/// The error that prost returns for a truncated message.
fn truncated() -> prost::DecodeError {
    let mut short: &[u8] = &[0x80];
    decode_varint(&mut short).expect_err("a varint goes on after this byte")
}

/// Checks the text of a JSON body: each value but the first follows a comma, a colon or a bracket.
pub(crate) fn check_json(text: &[u8]) -> Result<(), BoundExceeded> {
    let (mut values, mut in_string, mut escaped) = (0, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b',' | b':' | b'[' | b'{' if !in_string => values += 1,
            _ => {}
        }
    }
    // Each member counts twice: its name and its value.
    if values > 2 * MAX_VALUES { Err(BoundExceeded::Values) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{BatchRegisterRequest, BatchRenewRequest, Instance, RegisterRequest, RenewRequest};
    use prost::{Message, Name};

    fn outcome<M: Message + Name>(message: &M) -> Option<BoundExceeded> {
        match check_encoded(&M::full_name(), &message.encode_to_vec()) {
            Ok(()) => None,
            Err(Refused::Bound(bound)) => Some(bound),
            Err(Refused::Malformed(error)) => unreachable!("{error}"),
        }
    }

    #[test]
    fn items_of_a_batch_are_counted() {
        let batch = |count| BatchRenewRequest { requests: vec![RenewRequest::default(); count] };
        assert_eq!(outcome(&batch(MAX_ITEMS)), None);
        assert_eq!(outcome(&batch(MAX_ITEMS + 1)), Some(BoundExceeded::Items));
        assert_eq!(outcome(&batch(2_000_000)), Some(BoundExceeded::Items), "empty items of two bytes");
    }

    #[test]
    fn values_inside_of_items_are_counted() {
        let request = |addresses| {
            let instance = Instance { addresses: vec![String::new(); addresses], ..Instance::default() };
            RegisterRequest { instance: Some(instance), expected_revision: None }
        };
        assert_eq!(outcome(&request(MAX_VALUES - 1)), None);
        assert_eq!(outcome(&request(MAX_VALUES)), Some(BoundExceeded::Values));
        let batch = BatchRegisterRequest { requests: vec![request(200); 900] };
        assert_eq!(outcome(&batch), Some(BoundExceeded::Values), "all items share them");
    }

    #[test]
    fn bytes_that_are_no_message_are_refused() {
        let name = BatchRegisterRequest::full_name();
        for bytes in [
            &[0x0a_u8, 5, 1][..],
            &[0x0a],
            &[0xff; 12],
            &[0x0b; 300],
            &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
        ] {
            assert!(matches!(check_encoded(&name, bytes), Err(Refused::Malformed(_))), "{bytes:?}");
        }
    }

    #[test]
    fn responses_pass() {
        assert!(
            check_encoded("pilotfish.registration.v1.BatchRenewResponse", &[0x0a, 0].repeat(5_000)).is_ok()
        );
    }

    #[test]
    fn values_of_json_are_counted_outside_of_texts() {
        assert_eq!(check_json(br#"{"a":["b,,,,\",,",1]}"#), Ok(()));
        assert_eq!(
            check_json(format!("[{}]", "{},".repeat(2 * MAX_VALUES)).as_bytes()),
            Err(BoundExceeded::Values)
        );
        assert_eq!(check_json(format!("\"{}\"", ",".repeat(3 * MAX_VALUES)).as_bytes()), Ok(()));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_check_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let name = BatchRegisterRequest::full_name();
            let checked = check_encoded(&name, &bytes);
            // Whatever prost accepts is well-formed here too.
            if BatchRegisterRequest::decode(&bytes[..]).is_ok() {
                proptest::prop_assert!(!matches!(checked, Err(Refused::Malformed(_))));
            }
        }
    }
}
