//! Decoder and validation of each kind.

use super::checks;
use crate::input::Input;
use crate::{generate, render, schemas};
use pilotfish_config::{Limits, Problem, ReadObject, Rejected, read, read_live, spec_json};
use pilotfish_model::Kind;
use std::sync::Arc;

pub(super) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let all = schemas::all();
    let Some(schema) = all.get(input.below(all.len())).filter(|schema| !schema.api_versions.is_empty())
    else {
        return;
    };
    let object = generate::object(schema, &mut input);
    let json = render::json(&object);
    let live = read_live(schema.kind, &Arc::from("cluster"), json.as_bytes());
    match &live {
        Ok(object) => checks::object(object),
        Err(rejected) => checks::rejected(rejected),
    }
    let live = live.as_ref().map(outcome).map_err(reasons);
    for text in [&json, &render::yaml(&object)] {
        let mut file = read("a.yaml", text.as_bytes(), &Limits::default());
        checks::file(&file);
        assert!(file.ignored.is_empty() && !file.incomplete, "{text}: {file:?}");
        let read = match (file.objects.pop(), file.rejected.pop()) {
            (Some(object), None) => Ok(outcome(&object)),
            (None, Some(rejected)) => Err(reasons(&rejected)),
            other => panic!("one object or the reason why not, and not {other:?}"),
        };
        assert_eq!(read, live, "from a file and from an API server: {text}");
    }
}

/// Result for an object, without its origin.
fn outcome(read: &ReadObject) -> (String, serde_json::Value, Vec<String>) {
    let meta = &read.object.meta;
    let meta = format!("{} {:?} {:?} {:?}", read.object.key(), meta.labels, meta.annotations, meta.created);
    let mut warnings = texts(&read.warnings);
    if matches!(
        read.object.key().kind,
        Kind::Service | Kind::EndpointSlice | Kind::Ingress | Kind::IngressClass
    ) {
        // Unknown fields of these kinds are reported for files alone.
        warnings.retain(|text| !text.contains("unknown to this version: it is ignored"));
    }
    (meta, spec_json(&read.object), warnings)
}

fn reasons(rejected: &Rejected) -> (Option<String>, Vec<String>, Option<serde_json::Value>) {
    (
        rejected.key.as_ref().map(ToString::to_string),
        texts(&rejected.problems),
        rejected.closed.as_ref().map(spec_json),
    )
}

fn texts(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(|problem| Problem { line: None, ..problem.clone() }.to_string()).collect()
}
