//! `pilotfish plan`: plans against a running control plane, or between folders.

use super::plan_files;
use anyhow::{Context, Result};
use pilotfish_admin_state::{object_key, read_plan};
use pilotfish_api::v1::Plan;
use pilotfish_cli::{CliError, PlanArgs, counted, one_line, show_plan};
use pilotfish_config::{Limits, MeshFile, SourceEvent, read_mesh_file};
use pilotfish_explain::{Planned, plan, subjects_of_change};
use pilotfish_model::{Object, ObjectKey, Update, World, WorldWriter};
use pilotfish_registry::{
    AggregateController, AggregateSettings, Input, KUBERNETES, RegistrySettings, RegistryTable, RegistryType,
    SERVICE_ENTRY, WhatIf,
};
use pilotfish_translate::Translator;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// Registries that read objects, in their order of precedence.
const READERS: [&RegistryType; 2] = [&KUBERNETES, &SERVICE_ENTRY];

/// Name of the only source.
const SOURCE: &str = "plan";

/// Computes and prints the plan.
///
/// # Errors
/// When the plan cannot be computed.
pub async fn run(args: &PlanArgs) -> Result<ExitCode> {
    let plan = match &args.base {
        Some(base) => of_folders(args, base)?,
        None => args.ask(plan_files::of_paths(&args.paths)?).await?,
    };
    show_plan(&plan, args.output, args.lines)?;
    Ok(args.code(&plan))
}

/// Computes the plan between folders, for a sidecar of each workload, and a router for each workload that a
/// gateway selects.
fn of_folders(args: &PlanArgs, base: &Path) -> Result<Plan> {
    let base = plan_files::of_folder(base)?;
    let files = plan_files::of_paths(&args.paths)?;
    let (base, files) = match (read_plan(&base), read_plan(&files)) {
        (Err(broken), _) | (_, Err(broken)) => return Ok(*broken),
        (Ok(base), Ok(files)) => (base, files),
    };
    let mut objects: BTreeMap<ObjectKey, Option<Object>> = BTreeMap::new();
    if args.replace {
        objects.extend(base.keys().map(|key| (key.clone(), None)));
    }
    for deleted in &args.delete {
        objects.insert(object_key(deleted).map_err(CliError::from)?, None);
    }
    objects.extend(files.into_iter().map(|(key, object)| (key, Some(object))));
    let mut all: Vec<Object> = base.into_values().collect();
    all.extend(mesh_settings(args.mesh_config.as_deref(), args.mesh_networks.as_deref())?);
    let planned = suppose(all, objects)?;
    let empty = Translator::new();
    let subjects = subjects_of_change(&empty, &planned.before, &planned.after);
    Ok(plan(&empty, &planned, &subjects))
}

/// Computes the world of a folder with these mesh settings, by the registries that read objects.
///
/// # Errors
/// When the files have errors.
pub(super) fn world_of(folder: &Path, settings: Vec<Object>) -> Result<Arc<World>> {
    let files = plan_files::of_folder(folder)?;
    let objects = read_plan(&files).map_err(|plan| {
        let first = plan.problems.first();
        let first = first.map(|problem| format!("{}: {} {}", problem.place, problem.object, problem.message));
        CliError::new(format!(
            "{} has {}: {}",
            folder.display(),
            counted(plan.problems.len(), "error"),
            one_line(&first.unwrap_or_default())
        ))
        .hint("pilotfish validate shows all of them")
    })?;
    world_of_objects(objects.into_values().chain(settings).collect())
}

/// Reads the files of `--mesh-config` and `--mesh-networks`.
///
/// # Errors
/// When a file cannot be read or used.
pub(super) fn mesh_settings(config: Option<&Path>, networks: Option<&Path>) -> Result<Vec<Object>> {
    let config = config.map(|file| mesh_file(MeshFile::Config, "--mesh-config", file));
    let networks = networks.map(|file| mesh_file(MeshFile::Networks, "--mesh-networks", file));
    config.into_iter().chain(networks).collect()
}

fn mesh_file(which: MeshFile, flag: &str, file: &Path) -> Result<Object> {
    let name = file.display().to_string();
    let bytes = std::fs::read(file).with_context(|| format!("{flag} {name}"))?;
    let read = read_mesh_file(which, &name, &bytes, &Limits::default());
    let wrong = read.rejected.first().and_then(|rejected| rejected.problems.first());
    if let Some(problem) = wrong {
        anyhow::bail!("{flag} {name}: {problem:?}");
    }
    let first = read.objects.into_iter().next();
    first.map(|read| read.object).with_context(|| format!("{flag} {name} is empty"))
}

/// Computes the world of these objects, by the registries that read objects.
///
/// # Errors
/// Never: there is no other source.
pub(super) fn world_of_objects(objects: Vec<Object>) -> Result<Arc<World>> {
    Ok(suppose(objects, BTreeMap::new())?.before)
}

/// Computes the worlds of `base`, and with `objects` in the place of its own, by the registries that read
/// objects.
fn suppose(base: Vec<Object>, objects: BTreeMap<ObjectKey, Option<Object>>) -> Result<Planned> {
    let settings = AggregateSettings::default();
    let feed: Arc<str> = settings.config_feed.clone();
    let mut controller = AggregateController::new(settings);
    controller.add_source(&feed, SOURCE);
    for (provider, registry) in RegistryTable::new(READERS).iter() {
        if let Input::Objects(new) = registry.input {
            controller.add_registry(new(provider, RegistrySettings::default()), &feed);
        }
    }
    let events = base.into_iter().map(SourceEvent::Apply).chain([SourceEvent::Listed]);
    for event in events {
        controller.source_event(&feed, SOURCE, event)?;
    }
    let mut writer = WorldWriter::new();
    let publish = |writer: &mut WorldWriter, updates: Vec<Update>| {
        updates.into_iter().for_each(|update| writer.apply(update));
        writer.publish()
    };
    let (before, _) = publish(&mut writer, controller.settle()).unwrap_or_default();
    let WhatIf { updates, objects } = controller.what_if(objects);
    let (after, changes) = publish(&mut writer, updates)
        .unwrap_or_else(|| (before.clone(), pilotfish_model::ChangeSet::default()));
    Ok(Planned { before, after, changes, objects })
}
