//! Schemas of all kinds, built once.

use pilotfish_config::{Served, served};
use pilotfish_model::Kind;
use serde_json::Value;
use std::sync::LazyLock;

/// A kind with the schema of its objects.
pub(crate) struct Schema {
    pub(crate) kind: Kind,
    /// `apiVersion`s, the preferred one first; empty for mesh settings.
    pub(crate) api_versions: Vec<String>,
    pub(crate) is_namespaced: bool,
    pub(crate) content: Value,
}

static SCHEMAS: LazyLock<Vec<Schema>> = LazyLock::new(|| Kind::ALL.iter().copied().map(schema).collect());

fn schema(kind: Kind) -> Schema {
    let Served { versions, namespaced } = served(kind).unwrap_or(Served { versions: &[], namespaced: false });
    let group = kind.group();
    let api_version = |version: &&str| match group {
        "" => (*version).to_owned(),
        group => format!("{group}/{version}"),
    };
    Schema {
        kind,
        api_versions: versions.iter().map(api_version).collect(),
        is_namespaced: namespaced,
        content: pilotfish_crd::read_schema(kind),
    }
}

/// All schemas in the order of [`Kind::ALL`].
pub(crate) fn all() -> &'static [Schema] {
    &SCHEMAS
}

/// Schema of a kind.
pub(crate) fn of(kind: Kind) -> &'static Schema {
    let found = SCHEMAS.iter().find(|schema| schema.kind == kind);
    found.expect("there is one for every kind")
}
