//! Sidecar template.

use super::json::Json;
use minijinja::{Environment, UndefinedBehavior, context};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Template of the sidecar's containers and volumes, unless another one is configured.
pub const DEFAULT: &str = include_str!("default.yaml.j2");

/// Maximum size of a template's output in bytes.
const LARGEST: usize = 1 << 20;

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

pub(crate) struct Template {
    environment: Environment<'static>,
    text: String,
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

impl Template {
    pub(crate) fn new(text: &str) -> Result<Self, TemplateError> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
        environment
            .add_template_owned("template", text.to_owned())
            .map_err(|error| TemplateError::Template(chain(&error)))?;
        Ok(Self { environment, text: text.to_owned() })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// True if the template may use a value of that name. Names may be computed, so this only searches for
    /// the word.
    pub(crate) fn mentions(&self, name: &str) -> bool {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        self.text.split(|c| !is_part(c)).any(|word| word == name)
    }

    /// Renders a part of a Pod.
    pub(crate) fn render(&self, known: &Known<'_>) -> Result<Json, TemplateError> {
        let Known { bootstrap, interception, revision, namespace, annotations, labels, values, status_port } =
            known;
        let context = context! { bootstrap, interception, revision, namespace, annotations, labels, values,
        statusPort => status_port };
        let template = self
            .environment
            .get_template("template")
            .map_err(|error| TemplateError::Template(chain(&error)))?;
        let text = template.render(context).map_err(|error| TemplateError::Template(chain(&error)))?;
        if text.len() > LARGEST {
            return Err(TemplateError::Yaml(format!("more than {LARGEST} bytes")));
        }
        let options = serde_saphyr::options! { strict_booleans: true };
        let part: Json = serde_saphyr::from_str_with_options(&text, options)
            .map_err(|error| TemplateError::Yaml(error.to_string()))?;
        let is_part =
            |name: &str, value: &Json| matches!(name, "metadata" | "spec") && matches!(value, Json::Map(_));
        match &part {
            Json::Map(fields) if fields.iter().all(|(name, value)| is_part(name, value)) => Ok(part),
            _ => Err(TemplateError::NoPod),
        }
    }
}

/// Text of an error with its causes.
fn chain(error: &minijinja::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        // Writing to a String cannot fail.
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}
