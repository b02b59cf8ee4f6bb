//! Jinja templates that make YAML, for sidecars and gateways.

use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Write;

/// Maximum size of a template's output in bytes.
const LARGEST: usize = 1 << 20;

/// Failure of a template.
#[derive(Debug, thiserror::Error)]
pub enum YamlTemplateError {
    /// The template is invalid, or uses a missing value.
    #[error("{0}")]
    Template(String),
    /// The output is not the expected YAML.
    #[error("its output: {0}")]
    Yaml(String),
}

/// Template with its text.
pub struct YamlTemplate {
    environment: Environment<'static>,
    text: String,
}

impl YamlTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// If it is invalid.
    pub fn new(text: &str) -> Result<Self, YamlTemplateError> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
        environment
            .add_template_owned("template", text.to_owned())
            .map_err(|error| YamlTemplateError::Template(chain(&error)))?;
        Ok(Self { environment, text: text.to_owned() })
    }

    /// Text of the template.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// True if the template may use a value of that name. Names may be computed, so this only searches for
    /// the word.
    #[must_use]
    pub fn mentions(&self, name: &str) -> bool {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        self.text.split(|c| !is_part(c)).any(|word| word == name)
    }

    /// Renders one document.
    ///
    /// # Errors
    /// If the template fails, or its output is no such document.
    pub fn render<T: DeserializeOwned>(&self, context: &impl Serialize) -> Result<T, YamlTemplateError> {
        let options = serde_saphyr::options! { strict_booleans: true };
        serde_saphyr::from_str_with_options(&self.output(context)?, options)
            .map_err(|error| YamlTemplateError::Yaml(error.to_string()))
    }

    /// Renders several documents.
    ///
    /// # Errors
    /// If the template fails, or its output is no list of such documents.
    pub fn render_all<T: DeserializeOwned>(
        &self,
        context: &impl Serialize,
    ) -> Result<Vec<T>, YamlTemplateError> {
        let options = serde_saphyr::options! { strict_booleans: true };
        serde_saphyr::from_multiple_with_options(&self.output(context)?, options)
            .map_err(|error| YamlTemplateError::Yaml(error.to_string()))
    }

    fn output(&self, context: &impl Serialize) -> Result<String, YamlTemplateError> {
        let failed = |error: minijinja::Error| YamlTemplateError::Template(chain(&error));
        let template = self.environment.get_template("template").map_err(failed)?;
        let text = template.render(context).map_err(failed)?;
        if text.len() > LARGEST {
            return Err(YamlTemplateError::Yaml(format!("more than {LARGEST} bytes")));
        }
        Ok(text)
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
