//! CustomResourceDefinitions of the kinds that are read, for clusters without Istio.
//!
//! ```text
//! type ── trace ──▶ Shape ── schema ──▶ OpenAPI ── limits ──▶ with constraints of single fields
//!                                                └─ facts, status ──▶ CustomResourceDefinition
//! ```
//!
//! The schema is derived from the type that reads the kind, so the API server accepts exactly what the reader
//! accepts. `limits` adds the rules of validation that a schema can express; other rules between fields, and
//! those between objects, are left to the validating webhook.

mod descriptions;
mod facts;
mod limits;
mod schema;
mod status;
mod trace;

use pilotfish_config::{KindVisitor, Place, served, visit_kind};
use pilotfish_model::Kind;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use trace::{Shape, trace};

/// Value of the annotation `api-approved.kubernetes.io`, which the API server requires of a group below
/// `.k8s.io`. It states that Kubernetes' maintainers did not approve the definition.
const APPROVAL: (&str, &str) =
    ("api-approved.kubernetes.io", "unapproved, schemas of the Gateway API by Pilotfish");

/// Kinds that have definitions, sorted by name.
#[must_use]
pub fn defined_kinds() -> Vec<Kind> {
    let mut kinds: Vec<_> = Kind::ALL.iter().copied().filter(|kind| facts::facts(*kind).is_some()).collect();
    kinds.sort_by_key(|kind| (kind.group(), kind.plural()));
    kinds
}

/// Definitions of all kinds that have one, in the order of [`defined_kinds`].
pub fn definitions() -> impl Iterator<Item = Value> {
    defined_kinds().into_iter().filter_map(definition)
}

/// Served versions of a kind, the storage version first; empty for kinds without a definition.
#[must_use]
pub fn served_versions(kind: Kind) -> &'static [&'static str] {
    facts::facts(kind).map_or(&[], |facts| facts.versions)
}

/// CustomResourceDefinition of a kind (`apiextensions.k8s.io/v1`) as JSON; `None` for built-in kinds of
/// Kubernetes and for mesh settings.
///
/// # Panics
/// Never for a kind of this crate: its types and tables are fixed, and a test covers them all.
#[must_use]
#[allow(clippy::panic, reason = "depends on this crate's own types and tables alone, which a test tries")]
pub fn definition(kind: Kind) -> Option<Value> {
    let facts = facts::facts(kind)?;
    let (group, plural) = (kind.group(), kind.plural());
    let schema = object_schema(kind, facts.description).unwrap_or_else(|error| panic!("{kind}: {error}"));
    let versions = facts.versions.iter().enumerate().map(|(index, version)| {
        let mut entry = json!({
            "name": version, "served": true, "storage": index == 0,
            "additionalPrinterColumns": columns(&facts),
            "schema": {"openAPIV3Schema": schema},
        });
        if status::status(kind).is_some() {
            entry["subresources"] = json!({"status": {}});
        }
        entry
    });
    let mut metadata = json!({
        "name": format!("{plural}.{group}"),
        "labels": {"app.kubernetes.io/name": "pilotfish", "app.kubernetes.io/component": "crds"},
    });
    if group.ends_with(".k8s.io") {
        metadata["annotations"] = json!({APPROVAL.0: APPROVAL.1});
    }
    let mut names = json!({
        "kind": kind.name(), "listKind": format!("{}List", kind.name()), "plural": plural,
        "singular": kind.name().to_lowercase(),
        "categories": categories(group),
    });
    if !facts.short_names.is_empty() {
        names["shortNames"] = json!(facts.short_names);
    }
    Some(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": group,
            "names": names,
            "scope": if served(kind).is_some_and(|it| it.namespaced) { "Namespaced" } else { "Cluster" },
            "versions": versions.collect::<Vec<_>>(),
        },
    }))
}

/// Schema of whole objects of a kind without `metadata`, also for kinds without a definition. Tests generate
/// valid objects from it. Mesh settings are whole documents.
///
/// # Panics
/// Never, as [`definition`].
#[must_use]
#[allow(clippy::panic, reason = "depends on this crate's own types and tables alone, which a test tries")]
pub fn read_schema(kind: Kind) -> Value {
    let schema = object_schema(kind, "").unwrap_or_else(|error| panic!("{kind}: {error}"));
    match visit_kind(kind, PlaceOf) {
        Place::Document => schema["properties"]["spec"].clone(),
        Place::Object | Place::Partial | Place::Spec => schema,
    }
}

/// Place of a kind's content in its objects.
struct PlaceOf;

impl KindVisitor for PlaceOf {
    type Output = Place;

    fn visit<T: DeserializeOwned>(self, place: Place) -> Place {
        place
    }
}

/// Visitor that returns the place of a kind's content and the shape of its type.
struct Trace;

impl KindVisitor for Trace {
    type Output = Result<(Place, Shape), serde::de::value::Error>;

    fn visit<T: DeserializeOwned>(self, place: Place) -> Self::Output {
        trace::<T>().map(|shape| (place, shape))
    }
}

/// Schema of whole objects of a kind.
fn object_schema(kind: Kind, description: &str) -> Result<Value, String> {
    let (place, shape) = visit_kind(kind, Trace).map_err(|error| error.to_string())?;
    let mut schema = match place {
        Place::Object | Place::Partial => schema::schema(&shape),
        Place::Spec | Place::Document => {
            json!({"type": "object", "properties": {"spec": schema::schema(&shape)}})
        }
    };
    schema["description"] = description.into();
    if let Some(status) = status::status(kind) {
        schema["properties"]["status"] = status;
    }
    limits::apply(kind, &mut schema).map_err(|path| format!("no field is at {path}"))?;
    descriptions::describe(kind.name(), &mut schema);
    Ok(schema)
}

fn columns(facts: &facts::Facts) -> Vec<Value> {
    let own = facts.columns.iter().map(|column| {
        json!({
            "name": column.name, "type": "string", "jsonPath": column.path, "description": column.description,
        })
    });
    let age = json!({
        "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
        "description": "How long the object has been there",
    });
    own.chain([age]).collect()
}

/// Categories of a group's kinds, by which kubectl lists them (`kubectl get istio-io`).
fn categories(group: &str) -> Vec<String> {
    match group.strip_suffix(".istio.io") {
        Some(area) => vec!["istio-io".to_owned(), format!("{area}-istio-io")],
        None if group.ends_with(".k8s.io") => vec!["gateway-api".to_owned()],
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_schema_of_what_is_read() {
        for kind in Kind::ALL {
            let schema = read_schema(*kind);
            let fields = schema["properties"].as_object();
            assert!(
                fields.is_some_and(|fields| !fields.is_empty()) || *kind == Kind::ServiceExport,
                "{kind}: {schema}"
            );
        }
        assert!(read_schema(Kind::MeshConfig)["properties"]["trustDomain"].is_object());
        assert!(read_schema(Kind::Pod)["properties"]["spec"]["properties"]["serviceAccountName"].is_object());
    }
}
