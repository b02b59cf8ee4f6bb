//! `pilotfish why --files`: explanations for the sidecar of a Pod in a folder.

use super::plan::{mesh_settings, world_of};
use anyhow::Result;
use pilotfish_api::v1::Failure;
use pilotfish_cli::{CliError, Why};
use pilotfish_explain::{Request, gateways_of, subjects_of, why};
use pilotfish_model::ChangeSet;
use pilotfish_translate::Translator;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// Explains and prints the explanation.
///
/// # Errors
/// When the files have errors, or no Pod has the name.
pub fn run(asked: &Why) -> Result<ExitCode> {
    let folder = asked.files.as_deref().unwrap_or(Path::new("."));
    let settings = mesh_settings(asked.mesh_config.as_deref(), asked.mesh_networks.as_deref())?;
    let world = world_of(folder, settings)?;
    let (name, to, path, method, headers) = asked.question();
    let request = Request::parse(to, path, method, headers).map_err(CliError::from)?;
    let subjects = if asked.gateway { gateways_of(&world) } else { subjects_of(&[&world]) };
    let subject = subjects.iter().find(|subject| subject.name == name);
    let unknown =
        || Failure::unknown("Pod of the folder", name, subjects.iter().map(|one| one.name.as_str()));
    let proxy = subject.ok_or_else(unknown).map_err(CliError::from)?.proxy.clone();
    let translator = Translator::new();
    translator.publish(world, &ChangeSet::default());
    let answer = why(&translator, &Arc::new(proxy), &request, &[]).map_err(CliError::from)?;
    Ok(asked.show(&answer)?)
}
