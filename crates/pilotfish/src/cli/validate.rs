//! `pilotfish validate`: checks files without serving them.

use anyhow::Result;
use clap::{Args, ValueEnum};
use pilotfish_config::Severity;
use pilotfish_config::file::{FileSourceSettings, ValidateSummary, validate_paths};
use std::io::Write;
use std::path::PathBuf;

/// Checks files without serving them.
#[derive(Args, Clone, Debug)]
pub(crate) struct Validate {
    /// Folders and files with Kubernetes and Istio YAML
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Istio's MeshConfig, checked as well
    #[arg(long, value_name = "FILE")]
    mesh_config: Option<PathBuf>,
    /// Istio's MeshNetworks, checked as well
    #[arg(long, value_name = "FILE")]
    mesh_networks: Option<PathBuf>,
    /// How results are written
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
}

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A line each.
    Text,
    /// One JSON object.
    Json,
}

impl Validate {
    /// Checks, writes what was found to `out`, and returns whether there is no error.
    ///
    /// # Errors
    /// When a path does not exist or `out` cannot be written.
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<bool> {
        let settings = FileSourceSettings {
            mesh_config: self.mesh_config.clone(),
            mesh_networks: self.mesh_networks.clone(),
            checks: vec![pilotfish_translate::check_object],
            ..FileSourceSettings::new(self.paths.clone())
        };
        let summary = validate_paths(&settings)?;
        match self.output {
            Output::Text => text(&summary, out)?,
            Output::Json => writeln!(out, "{}", json(&summary))?,
        }
        Ok(summary.is_ok())
    }
}

fn text(summary: &ValidateSummary, out: &mut impl Write) -> Result<()> {
    for report in &summary.problems.reports {
        let severity = match report.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        writeln!(out, "{severity}: {report}")?;
    }
    for (kind, count) in &summary.problems.ignored {
        writeln!(out, "ignored: {count} x {kind}")?;
    }
    let objects: usize = summary.objects.values().sum();
    let (errors, all) = (summary.problems.errors(), summary.problems.reports.len());
    let files = summary.files;
    writeln!(out, "{files} files, {objects} good objects, {errors} errors, {} warnings", all - errors)?;
    Ok(())
}

fn json(summary: &ValidateSummary) -> serde_json::Value {
    let problems: Vec<_> = summary.problems.reports.iter().map(crate::admin::problem).collect();
    let objects: std::collections::BTreeMap<_, _> =
        summary.objects.iter().map(|(kind, count)| (kind.name(), count)).collect();
    serde_json::json!({
        "files": summary.files, "objects": objects, "ignored": summary.problems.ignored,
        "errors": summary.problems.errors(), "problems": problems,
    })
}
