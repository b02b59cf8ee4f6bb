//! Sidecar template.

use super::json::Json;
use crate::yaml_template::{YamlTemplate, YamlTemplateError};
use minijinja::context;
use std::collections::BTreeMap;

/// Template of the sidecar's containers and volumes, unless another one is configured.
pub const DEFAULT: &str = include_str!("default.yaml.j2");

/// Failure of a template.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The template is invalid, or uses a missing value.
    #[error("the template of sidecars: {0}")]
    Template(String),
    /// The output is not valid YAML.
    #[error("the template of sidecars makes no YAML: {0}")]
    Yaml(String),
    /// The output is not a part of a Pod.
    #[error(
        "the template of sidecars makes no part of a Pod: it needs `spec` or `metadata` and nothing else"
    )]
    NoPod,
    /// A value for all Pods is invalid.
    #[error("the value {name}: {why}")]
    Value { name: &'static str, why: String },
    /// A value for all Pods is not used by the template.
    #[error("the template of sidecars has no value {0:?}")]
    UnknownValue(String),
    /// An annotation of the Pod is invalid.
    #[error("metadata.annotations[{name:?}]: {why}")]
    Annotation { name: &'static str, why: String },
}

/// Values of a template.
pub(crate) struct Known<'a> {
    pub(crate) bootstrap: &'a serde_json::Value,
    pub(crate) interception: &'a str,
    /// Port of the sidecar that answers rewritten probes, if there are any.
    pub(crate) status_port: Option<u16>,
    pub(crate) revision: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) annotations: &'a BTreeMap<&'a str, &'a str>,
    pub(crate) labels: &'a BTreeMap<&'a str, &'a str>,
    pub(crate) values: &'a BTreeMap<String, String>,
}

pub(crate) struct Template(YamlTemplate);

impl Template {
    pub(crate) fn new(text: &str) -> Result<Self, TemplateError> {
        Ok(Self(YamlTemplate::new(text)?))
    }

    pub(crate) fn text(&self) -> &str {
        self.0.text()
    }

    /// True if the template may use a value of that name.
    pub(crate) fn mentions(&self, name: &str) -> bool {
        self.0.mentions(name)
    }

    /// Renders a part of a Pod.
    pub(crate) fn render(&self, known: &Known<'_>) -> Result<Json, TemplateError> {
        let Known { bootstrap, interception, revision, namespace, annotations, labels, values, status_port } =
            known;
        let context = context! { bootstrap, interception, revision, namespace, annotations, labels, values,
        statusPort => status_port };
        let part: Json = self.0.render(&context)?;
        let is_part =
            |name: &str, value: &Json| matches!(name, "metadata" | "spec") && matches!(value, Json::Map(_));
        match &part {
            Json::Map(fields) if fields.iter().all(|(name, value)| is_part(name, value)) => Ok(part),
            _ => Err(TemplateError::NoPod),
        }
    }
}

impl From<YamlTemplateError> for TemplateError {
    fn from(error: YamlTemplateError) -> Self {
        match error {
            YamlTemplateError::Template(why) => Self::Template(why),
            YamlTemplateError::Yaml(why) => Self::Yaml(why),
        }
    }
}
