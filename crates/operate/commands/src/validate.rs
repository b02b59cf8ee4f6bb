//! `pilotfish validate`: checks the objects of files, and the references between them, without serving them.

use super::plan::world_of_objects;
use super::plan_files::{is_standard_input, standard_input};
use anyhow::Result;
use clap::Args;
use pilotfish_api as api;
use pilotfish_cli::{CliError, Output, counted};
use pilotfish_config::networking::Gateway;
use pilotfish_config::status::Controllers;
use pilotfish_config::{Limits, ProblemReport, Severity, lines_of};
use pilotfish_files::{FileSourceSettings, STANDARD_INPUT, ValidateSummary, validate_with_input};
use pilotfish_model::{ChangeSet, ClusterDomain, Kind, Object, ObjectKey, World};
use pilotfish_runtime::read_regular_file;
use pilotfish_translate::{Analyzer, Completeness, Finding, Known, Level};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

/// Checks files without serving them: each object, and references between objects.
#[derive(Args, Clone, Debug)]
pub struct Validate {
    /// Folders and files with Kubernetes and Istio YAML; - is standard input
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Istio's MeshConfig, checked as well
    #[arg(long, value_name = "FILE")]
    mesh_config: Option<PathBuf>,
    /// Istio's MeshNetworks, checked as well
    #[arg(long, value_name = "FILE")]
    mesh_networks: Option<PathBuf>,
    /// The files are all that there is: a service or a Secret that they name and do not have is missing.
    /// Without it, only where they have others like it
    #[arg(long)]
    complete: bool,
    #[command(flatten)]
    output: Output,
}

/// Files and lines of objects.
type Origins = BTreeMap<ObjectKey, Arc<str>>;

/// Result of the checks.
struct Outcome {
    summary: ValidateSummary,
    /// Findings of the analysis, such as missing references, with their places.
    findings: Vec<(Finding, String)>,
    /// Notes on checks that were not made.
    notes: Vec<&'static str>,
}

impl Validate {
    /// Checks, writes the result to stdout, and returns true if there is no error.
    ///
    /// # Errors
    /// When a path does not exist or stdout cannot be written.
    pub fn run(&self) -> Result<bool> {
        let input = self.input()?;
        let files = self.paths.iter().filter(|path| !is_standard_input(path));
        let settings = FileSourceSettings {
            mesh_config: self.mesh_config.clone(),
            mesh_networks: self.mesh_networks.clone(),
            checks: vec![pilotfish_translate::check_object],
            ..FileSourceSettings::new(files.cloned().collect())
        };
        let mut summary = validate_with_input(&settings, input.as_deref())?;
        let objects = std::mem::take(&mut summary.in_force);
        // Registries keep some kinds for themselves.
        let origins: Origins =
            objects.iter().map(|object| (object.key().clone(), object.meta.origin.clone())).collect();
        let world = world_of_objects(objects)?;
        let findings = self.analyse(&world, &origins, input.as_deref());
        let notes = if self.complete { Vec::new() } else { notes(&world) };
        let outcome = Outcome { summary, findings, notes };
        if outcome.has_nothing() {
            let paths: Vec<String> = self.paths.iter().map(|path| path.display().to_string()).collect();
            let error =
                CliError::new(format!("there is nothing to check in {}", one_line(&paths.join(", "))));
            return Err(error.hint("files of YAML and JSON are read: *.yaml, *.yml, *.json").into());
        }
        self.output.write(&outcome.json(), |_| outcome.text())?;
        Ok(outcome.summary.is_ok())
    }

    /// Reads standard input, if it is one of the paths.
    fn input(&self) -> Result<Option<String>, CliError> {
        let limit = Limits::default().file_bytes;
        if !self.paths.iter().any(|path| is_standard_input(path)) {
            return Ok(None);
        }
        let text = standard_input(limit)?;
        let too_large = || CliError::new(format!("{STANDARD_INPUT} has more than {} MiB", limit >> 20));
        text.ok_or_else(too_large).map(Some)
    }

    /// Runs the analysis, which finds references to missing objects.
    fn analyse(&self, world: &Arc<World>, origins: &Origins, input: Option<&str>) -> Vec<(Finding, String)> {
        let how = if self.complete { Completeness::Whole } else { Completeness::Partly };
        let known = Known { services: how, secrets: how };
        let mut analyzer =
            Analyzer::new(ClusterDomain::default(), "Kubernetes".into(), Controllers::default(), known);
        analyzer.advance(world, &ChangeSet::default());
        placed(analyzer.findings().cloned().collect(), origins, input)
    }
}

/// Adds the lines of their fields to findings.
fn placed(findings: Vec<Finding>, origins: &Origins, input: Option<&str>) -> Vec<(Finding, String)> {
    let mut by_file: BTreeMap<String, Vec<(u32, Finding)>> = BTreeMap::new();
    for finding in findings {
        let origin = origins.get(&finding.object).map_or("", |origin| &**origin);
        let (file, line) = origin.rsplit_once(':').unwrap_or((origin, ""));
        by_file.entry(file.to_owned()).or_default().push((line.parse().unwrap_or(0), finding));
    }
    let mut out = Vec::new();
    for (file, findings) in by_file {
        // For a file that was deleted meanwhile, the lines of its objects count.
        let bytes = match input.filter(|_| file == STANDARD_INPUT) {
            Some(text) => text.into(),
            None => read_regular_file(file.as_ref(), Limits::default().file_bytes).unwrap_or_default(),
        };
        let fields: Vec<_> = findings.iter().map(|(line, finding)| (*line, finding.path.as_str())).collect();
        let lines = lines_of(&bytes, &Limits::default(), &fields);
        let mut placed: Vec<_> =
            lines.into_iter().zip(findings.into_iter().map(|(_, finding)| finding)).collect();
        placed.sort();
        out.extend(placed.into_iter().map(|(line, finding)| (finding, format!("{file}:{line}"))));
    }
    out
}

/// Returns notes on checks that are not made in files that may be only a part of the configuration.
fn notes(world: &World) -> Vec<&'static str> {
    let mut notes = Vec::new();
    let routes = [Kind::VirtualService, Kind::DestinationRule]
        .into_iter()
        .any(|kind| world.objects(kind).next().is_some());
    if routes && world.service_count() == 0 {
        notes.push(
            "these files have no services, so the hosts that they name are not looked for; --complete does",
        );
    }
    let secret = |object: &Object| {
        let with_secret = |gateway: &Gateway| {
            gateway
                .servers
                .iter()
                .any(|server| server.tls.as_ref().is_some_and(|tls| !tls.credential_name.is_empty()))
        };
        object.typed::<Gateway>().as_deref().is_some_and(with_secret)
    };
    if world.objects(Kind::Secret).next().is_none() && world.objects(Kind::Gateway).any(secret) {
        notes.push(
            "these files have no Secrets, so those that Gateways name are not looked for; --complete does",
        );
    }
    notes
}

/// Text with line breaks escaped: names of files and values of fields may have some.
fn one_line(text: &str) -> String {
    text.replace('\r', "\\r").replace('\n', "\\n")
}

impl Outcome {
    /// True if no object was found, good or bad.
    fn has_nothing(&self) -> bool {
        let summary = &self.summary;
        summary.objects.values().sum::<usize>() == 0
            && summary.problems.reports.is_empty()
            && summary.problems.ignored.is_empty()
    }

    /// Reports of single objects that are warnings.
    fn warnings(&self) -> usize {
        let of_objects = |report: &&ProblemReport| report.severity == Severity::Warning;
        let of_analysis = |(finding, _): &&(Finding, String)| finding.code.level() == Level::Warning;
        self.summary.problems.reports.iter().filter(of_objects).count()
            + self.findings.iter().filter(of_analysis).count()
    }

    fn text(&self) -> String {
        let summary = &self.summary;
        // A text takes everything.
        let mut out = String::new();
        for report in &summary.problems.reports {
            let _ = writeln!(out, "{}: {}", report.severity, one_line(&report.to_string()));
        }
        for (finding, place) in &self.findings {
            let line = one_line(&format!("{place}: {finding}"));
            let _ = writeln!(out, "{}: {line}", finding.code.level().as_str());
        }
        for (kind, count) in &summary.problems.ignored {
            let _ = writeln!(out, "ignored: {count} x {}", one_line(kind));
        }
        for note in &self.notes {
            let _ = writeln!(out, "note: {note}");
        }
        let objects: usize = summary.objects.values().sum();
        let (files, errors, warnings) = (summary.files, summary.problems.errors(), self.warnings());
        let _ = writeln!(
            out,
            "{}, {}, {}, {}",
            counted(files, "file"),
            counted(objects, "good object"),
            counted(errors, "error"),
            counted(warnings, "warning")
        );
        out
    }

    fn json(&self) -> serde_json::Value {
        let summary = &self.summary;
        let reports = summary.problems.reports.iter().map(pilotfish_admin_state::problem);
        let findings = self
            .findings
            .iter()
            .map(|(finding, place)| pilotfish_admin_state::finding(finding, place.clone()));
        let problems: Vec<api::Problem> = reports.chain(findings).collect();
        let objects: BTreeMap<_, _> =
            summary.objects.iter().map(|(kind, count)| (kind.name(), count)).collect();
        serde_json::json!({
            "files": summary.files, "objects": objects, "ignored": summary.problems.ignored,
            "errors": summary.problems.errors(), "warnings": self.warnings(), "notes": self.notes,
            "problems": problems,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_line_breaks_are_escaped() {
        let folder = tempfile::tempdir().unwrap();
        let texts = [
            ("a\nERROR: b.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: 7up}\n"),
            (
                "c\r\nignored: d.yaml",
                "kind: \"Foo\\nnote: 1\"\napiVersion: \"a/v1\\r\"\nmetadata: {name: a}\n",
            ),
            (
                "e.yaml",
                "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: a}\nspec: {\"f\\nnote: g\": 1}\n",
            ),
        ];
        for (name, text) in texts {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let settings = FileSourceSettings::new(vec![folder.path().to_owned()]);
        let summary = validate_with_input(&settings, None).unwrap();
        let text = Outcome { summary, findings: Vec::new(), notes: Vec::new() }.text();
        let folder = folder.path().display().to_string();
        let lines: Vec<&str> = text.lines().collect();
        let (last, reports) = lines.split_last().unwrap();
        assert!(last.starts_with("3 files, "), "{text}");
        assert!(reports.iter().any(|line| line.contains(r"/a\nERROR: b.yaml:1: ")), "{text}");
        assert!(
            reports.iter().any(|line| line.starts_with("ignored: 1 x ") && line.contains("note: 1")),
            "{text}"
        );
        for line in reports {
            let begins = line.starts_with("ignored: 1 x a/v1") || line.contains(&format!(": {folder}/"));
            assert!(begins && !line.contains('\r'), "{line:?} in {text}");
        }
    }
}
