//! `pilotfish registries`: available registries, and their options.

use anyhow::Result;
use clap::Args;
use pilotfish_cli::{CliError, Format, Shown, show_registries};
use pilotfish_registry::{Input, RegistryTable, RegistryType};
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;

/// Shows the registries that there are, and the options of one.
#[derive(Args, Clone, Debug)]
#[command(mut_arg("watch", |watch| watch.requires("status").conflicts_with("name")))]
pub(crate) struct Registries {
    /// Show this one with its options
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Shows how the registries of a running control plane are
    #[arg(long, conflicts_with = "name")]
    pub(crate) status: bool,
    /// Lets this source believe at once what its guard holds back, and shows the registries
    #[arg(long, value_name = "SOURCE", requires = "status")]
    accept: Option<String>,
    #[command(flatten)]
    shown: Shown,
}

impl Registries {
    /// Shows the registries of a running control plane.
    ///
    /// # Errors
    /// When the control plane does not answer.
    pub(crate) async fn show_status(&self) -> Result<ExitCode, CliError> {
        show_registries(&self.shown, self.accept.as_deref()).await
    }

    /// Writes the available registries, or one with its options, to `out`.
    ///
    /// # Errors
    /// When the name is unknown, or `out` cannot be written.
    pub(crate) fn run(&self, table: &RegistryTable, out: &mut impl Write) -> Result<()> {
        let shown: Vec<&RegistryType> = match &self.name {
            Some(name) => vec![table.find(name)?.1],
            None => table.iter().map(|(_, entry)| entry).collect(),
        };
        let all = || Value::from_iter(shown.iter().copied().map(as_json));
        match (self.shown.output.format, &self.name) {
            (Format::Json, _) => writeln!(out, "{:#}", all())?,
            (Format::Yaml, _) => write!(out, "{}", serde_saphyr::to_string(&all())?)?,
            (Format::Text, None) => write!(out, "{}", lines(&shown))?,
            (Format::Text, Some(_)) => shown.into_iter().try_for_each(|entry| write_options(entry, out))?,
        }
        Ok(())
    }
}

/// Returns a line for each registry: its syntax for `--registry`, and its description.
pub(crate) fn lines(types: &[&RegistryType]) -> String {
    let names: Vec<String> = types.iter().map(|entry| written(entry)).collect();
    let width = names.iter().map(String::len).max().unwrap_or_default();
    names.iter().zip(types).map(|(name, entry)| format!("  {name:width$}  {}\n", entry.about)).collect()
}

fn written(entry: &RegistryType) -> String {
    if entry.address.is_empty() {
        entry.name.to_owned()
    } else {
        format!("{}={}", entry.name.to_ascii_lowercase(), entry.address)
    }
}

fn write_options(entry: &RegistryType, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(out, "{}: {}", entry.name, entry.about)?;
    if matches!(entry.input, Input::Process) {
        return writeln!(
            out,
            "\nIt has no options of its own: pilotfish serve --registration-address HOST:PORT"
        );
    }
    if entry.address.is_empty() {
        return writeln!(out, "\nIt reads objects, from PATH or --kubernetes, and has no options.");
    }
    let name = entry.name.to_ascii_lowercase();
    writeln!(out, "\n  pilotfish serve --registry '{name}={}?OPTION=VALUE&...'\n\nOptions:", entry.address)?;
    let left = |name: &str, value: &str| format!("{name}={value}");
    let width =
        entry.all_options().map(|option| left(option.name, option.value).len()).max().unwrap_or_default();
    for option in entry.all_options() {
        writeln!(out, "  {:width$}  {}", left(option.name, option.value), option.about)?;
    }
    Ok(())
}

fn as_json(entry: &RegistryType) -> Value {
    let options = entry
        .all_options()
        .map(|option| json!({ "name": option.name, "value": option.value, "about": option.about }));
    json!({
        "name": entry.name,
        "about": entry.about,
        "address": entry.address,
        "options": options.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registries::table_with;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        registries: Registries,
    }

    fn command(name: Option<&str>, format: &str) -> Registries {
        let words = ["registries", "-o", format].into_iter().chain(name);
        <Line as clap::Parser>::parse_from(words).registries
    }

    fn shown(name: Option<&str>, format: &str) -> String {
        let mut out = Vec::new();
        let command = command(name, format);
        command.run(&table_with(&[]), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn registries_are_listed_and_one_is_shown_with_its_options() {
        let all = shown(None, "text");
        assert!(all.contains("  Kubernetes "), "{all}");
        let one = shown(Some("kubernetes"), "text");
        assert_eq!(
            one,
            "Kubernetes: Services, EndpointSlices and Pods of a cluster\n\nIt reads objects, from PATH or --kubernetes, and has no options.\n"
        );
        let json: Value = serde_json::from_str(&shown(None, "json")).unwrap();
        assert_eq!(json.as_array().map(Vec::len), Some(all.lines().count()));
        let unknown = command(Some("zoo"), "text");
        let error = unknown.run(&table_with(&[]), &mut Vec::new()).unwrap_err().to_string();
        assert!(error.starts_with("there is no registry \"zoo\"; known are Kubernetes, "), "{error}");
    }

    #[test]
    fn the_state_alone_is_shown_again_and_again() {
        let parse =
            |words: &[&str]| <Line as clap::Parser>::try_parse_from(words).map(|line| line.registries.status);
        assert!(parse(&["registries", "--status", "--watch=1s"]).unwrap());
        let error = parse(&["registries", "--watch"]).unwrap_err().to_string();
        assert!(error.contains("--status"), "{error}");
        // clap asks for no `--status` beside a NAME, because the two exclude each other.
        let error = parse(&["registries", "consul", "--watch"]).unwrap_err().to_string();
        assert!(error.contains("cannot be used with"), "{error}");
    }
}
