//! Injection into files with objects: workloads receive a sidecar, everything else stays as written.

use super::json::Json;
use super::{Injector, TemplateError};
use std::fmt::Write;

/// Maximum size of a document in bytes.
const LARGEST: usize = 16 << 20;
/// Maximum nesting of lists.
const DEEPEST: usize = 8;

/// Error of an injection into a file.
#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    /// A document is not valid YAML.
    #[error("document {document}: {why}")]
    Document {
        /// Index of the document, counted from 1.
        document: usize,
        why: String,
    },
    /// The template fails for an object.
    #[error("document {document}: {error}")]
    Template {
        /// Index of the document, counted from 1.
        document: usize,
        error: TemplateError,
    },
}

/// A file with sidecars.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Injected {
    pub text: String,
    /// Unsupported settings of its Pods, one sentence each, with the object.
    pub warnings: Vec<String>,
}

/// Adds sidecars to the workloads of a YAML or JSON text. Documents without workloads stay byte for byte; the
/// others only lose their comments.
///
/// # Errors
/// If a document cannot be parsed or the template fails.
pub fn inject_documents(injector: &Injector, text: &str) -> Result<Injected, InjectError> {
    let mut out = Injected { text: String::with_capacity(text.len() + 4096), warnings: Vec::new() };
    for (index, (separator, document)) in documents(text).into_iter().enumerate() {
        out.text.push_str(separator);
        match one(injector, document, index + 1, &mut out.warnings)? {
            Some(injected) => out.text.push_str(&injected),
            None => out.text.push_str(document),
        }
    }
    Ok(out)
}

/// Documents, each with the separator line before it.
fn documents(text: &str) -> Vec<(&str, &str)> {
    let mut documents = Vec::new();
    let (mut separator, mut start, mut position) = (0..0, 0, 0);
    for line in text.split_inclusive('\n') {
        let next = position + line.len();
        if line.trim_end() == "---" || line.starts_with("--- #") {
            documents.push((separator, start..position));
            (separator, start) = (position..next, next);
        }
        position = next;
    }
    documents.push((separator, start..text.len()));
    // Ranges are whole lines of the text.
    documents.into_iter().map(|(separator, document)| (&text[separator], &text[document])).collect()
}

/// A document with sidecars; `None` if it is unchanged.
fn one(
    injector: &Injector,
    text: &str,
    document: usize,
    warnings: &mut Vec<String>,
) -> Result<Option<String>, InjectError> {
    let fail = |why: String| InjectError::Document { document, why };
    if text.len() > LARGEST {
        return Err(fail(format!("larger than {LARGEST} bytes")));
    }
    // YAML in flow style is not necessarily JSON.
    let json = text.trim_start().starts_with('{').then(|| serde_json::from_str::<Json>(text).ok()).flatten();
    let is_json = json.is_some();
    let value: Option<Json> = match json {
        Some(json) => Some(json),
        None => {
            let options = serde_saphyr::options! { strict_booleans: true };
            serde_saphyr::from_str_with_options(text, options).map_err(|error| fail(error.to_string()))?
        }
    };
    let Some(mut value) = value else { return Ok(None) };
    let changed = object(injector, &mut value, DEEPEST, warnings);
    if !changed.map_err(|error| InjectError::Template { document, error })? {
        return Ok(None);
    }
    let mut printed = if is_json {
        serde_json::to_string_pretty(&value).map_err(|error| fail(error.to_string()))?
    } else {
        serde_saphyr::to_string(&value).map_err(|error| fail(error.to_string()))?
    };
    if !printed.ends_with('\n') {
        // Writing to a String cannot fail.
        let _ = writeln!(printed);
    }
    Ok(Some(printed))
}

/// Adds sidecars to an object, or to each item of a list. Returns true on a change.
fn object(
    injector: &Injector,
    value: &mut Json,
    deep: usize,
    warnings: &mut Vec<String>,
) -> Result<bool, TemplateError> {
    if value.word("kind").ends_with("List") && deep > 0 {
        let Some(Json::List(items)) = value.at_mut(&["items"]) else { return Ok(false) };
        let mut changed = false;
        for item in items {
            changed |= object(injector, item, deep - 1, warnings)?;
        }
        return Ok(changed);
    }
    let Some(path) = pod_template(value) else { return Ok(false) };
    let word = |field| value.at(&["metadata", field]).and_then(Json::text).unwrap_or_default().to_owned();
    let (name, namespace, kind) = (word("name"), word("namespace"), value.word("kind").to_owned());
    let Some(pod) = value.at_mut(path).filter(|pod| matches!(pod, Json::Map(_))) else { return Ok(false) };
    let Ok(found) = injector.inject(pod, &namespace, &name)? else { return Ok(false) };
    let place: String = path.iter().map(|field| format!("{field}.")).collect();
    warnings.extend(found.iter().map(|warning| format!("{kind} {name:?}: {place}{warning}")));
    Ok(true)
}

/// Path of an object's Pod template.
fn pod_template(value: &Json) -> Option<&'static [&'static str]> {
    let api_version = value.word("apiVersion");
    let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
    match (group, value.word("kind")) {
        ("", "Pod") => Some(&[]),
        ("", "ReplicationController")
        | ("apps", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
        | ("batch", "Job") => Some(&["spec", "template"]),
        ("batch", "CronJob") => Some(&["spec", "jobTemplate", "spec", "template"]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_the_text_again() {
        for text in ["", "---\n", "a: 1", "---\na: 1\n---\nb: |\n  ---\n---\n", "# c\n--- # d\na: 1\n---"] {
            let parts = documents(text);
            let again: String =
                parts.iter().flat_map(|(separator, document)| [*separator, *document]).collect();
            assert_eq!(again, text);
        }
        assert_eq!(documents("---\na: 1\n---\nb: |\n  ---\n").len(), 3);
    }
}
