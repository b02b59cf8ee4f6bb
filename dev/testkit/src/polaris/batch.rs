//! Batches of writes.

use super::aliases::ALIAS_FIELDS;
use super::codes::{Refusal, info, refusal};
use super::element::{
    ANSWER_FIELDS, Element, INSTANCE_FIELDS, NAMESPACE_FIELDS, SERVICE_FIELDS, instance_id, shaped,
};
use super::http::Answer;
use super::server::Server;
use super::store::Store;
use serde_json::{Value, json};

/// [console] Maximum size of a batch.
pub(super) const MAX_BATCH: usize = 100;

/// Type of a batch's elements.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Namespaces,
    Services,
    Instances,
    Aliases,
}

impl Of {
    pub(super) fn field(self) -> &'static str {
        match self {
            Self::Namespaces => "namespace",
            Self::Services => "service",
            Self::Instances => "instance",
            Self::Aliases => "alias",
        }
    }

    pub(super) fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Namespaces => NAMESPACE_FIELDS,
            Self::Services => SERVICE_FIELDS,
            Self::Instances => INSTANCE_FIELDS,
            Self::Aliases => ALIAS_FIELDS,
        }
    }
}

pub(super) fn element_answer(of: Of, (code, info): &Refusal, echo: Option<&Element>) -> Value {
    let mut values = Element::new();
    // [rec aliases] A response may omit the element.
    if let Some(echo) = echo.filter(|echo| !echo.is_empty()) {
        values.insert(of.field().to_owned(), shaped(of.fields(), echo));
    }
    let mut answer = Element::from_iter([("code".to_owned(), json!(code)), ("info".to_owned(), json!(info))]);
    if let Value::Object(fields) = shaped(ANSWER_FIELDS, &values) {
        answer.extend(fields);
    }
    Value::Object(answer)
}

pub(super) fn batch_answer(code: u32, responses: &[Value]) -> Answer {
    let body = json!({"code": code, "info": info(code), "size": responses.len(), "responses": responses});
    Answer::coded(code, &body)
}

/// [rec instances-batch] Code of a whole batch.
pub(super) fn top(of: Of, codes: &[u32]) -> u32 {
    let most = codes.iter().copied().max().unwrap_or_default();
    match codes.first() {
        // [rec namespaces] Namespaces never collapse.
        _ if of == Of::Namespaces => most,
        Some(first) if codes.iter().all(|code| code == first) => *first,
        _ if most >= 500_000 => 500_000,
        _ if most >= 400_000 => 400_000,
        _ => 200_000,
    }
}

pub(super) type Write = fn(&mut Store, &Element) -> (Refusal, Element);
pub(super) type Check = fn(&Element) -> Option<u32>;

/// Writes a batch, or refuses it as a whole.
pub(super) fn batch(
    server: &Server,
    of: Of,
    body: &[u8],
    check: Check,
    write: Write,
    is_limited: bool,
) -> Answer {
    let elements: Vec<Element> = match serde_json::from_slice(body) {
        Ok(elements) => elements,
        Err(error) => {
            return Answer::coded(
                400_001,
                &json!({"code": 400_001, "info": format!("{}: {error}", info(400_001)), "size": 0, "responses": []}),
            );
        }
    };
    if elements.is_empty() || elements.len() > MAX_BATCH {
        return batch_answer(if elements.is_empty() { 400_002 } else { 400_003 }, &[]);
    }
    // [rec services-create, instances-limits] One invalid element refuses all; then services list an empty
    // response for valid ones, instances only the invalid ones.
    let checked: Vec<Option<u32>> = elements.iter().map(check).collect();
    if let Some(most) = checked.iter().flatten().max() {
        let answers = elements.iter().zip(&checked).filter_map(|(element, code)| match (code, of) {
            (Some(code), _) => Some(element_answer(of, &refusal(*code), Some(element))),
            (None, Of::Services) => {
                let nothing = Element::new();
                let Value::Object(mut empty) = shaped(ANSWER_FIELDS, &nothing) else { return None };
                empty.extend(["code", "info"].map(|name| (name.to_owned(), Value::Null)));
                Some(Value::Object(empty))
            }
            (None, _) => None,
        });
        return batch_answer(*most, &answers.collect::<Vec<_>>());
    }
    let mut store = server.store();
    if let Some(limit) = server.options.instance_limit.filter(|_| is_limited) {
        let over = elements.iter().find(|element| !store.take_token(&instance_id(element), limit));
        if let Some(element) = over {
            return batch_answer(429_001, &[element_answer(of, &refusal(429_001), Some(element))]);
        }
    }
    // [rec instances-batch] One of two equal instances in a batch is refused.
    let mut seen = std::collections::BTreeSet::new();
    let mut write = |element: &Element| {
        if of == Of::Instances && is_limited && !seen.insert(instance_id(element)) {
            return (refusal(400_208), element.clone());
        }
        write(&mut store, element)
    };
    let written: Vec<(Refusal, Element)> = elements.iter().map(&mut write).collect();
    let codes: Vec<u32> = written.iter().map(|((code, _), _)| *code).collect();
    let answers: Vec<Value> =
        written.iter().map(|(refusal, echo)| element_answer(of, refusal, Some(echo))).collect();
    batch_answer(top(of, &codes), &answers)
}
