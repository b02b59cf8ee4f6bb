//! The mesh-wide settings: the services of providers.

use super::Known;
use super::finding::Report;
use super::hosts::{self, Lookup};
use crate::policy::provider::provider_service;
use pilotfish_config::mesh::MeshConfig;
use pilotfish_model::Hostname;
use serde_json::Value;

/// Checks all references of the mesh-wide settings.
pub(super) fn check(report: &mut Report<'_, '_>, known: Known, mesh: &MeshConfig) {
    for (index, provider) in mesh.extension_providers.iter().enumerate() {
        // A provider serializes to an object with its type as the key; most types have a service.
        let Ok(Value::Object(types)) = serde_json::to_value(provider) else { continue };
        for (field, settings) in &types {
            let Some(service) = settings.get("service").and_then(Value::as_str) else { continue };
            if service.is_empty() || provider_service(report.cx, service, 0).is_some() {
                continue;
            }
            let path = format!("extensionProviders[{index}].{field}.service");
            check_service(report, known, &path, service);
        }
    }
}

fn check_service(report: &mut Report<'_, '_>, known: Known, path: &str, service: &str) {
    let Ok(host) = Hostname::parse(service.rsplit('/').next().unwrap_or(service)) else { return };
    match hosts::look_up(report.cx, known, &host) {
        Lookup::Unknown => {}
        Lookup::Absent(hint) => report.absent(path, format!("no service has the host {service:?}"), hint),
        Lookup::Services(_) => {
            let message = format!("{service:?} is none, or several namespaces have it");
            report.absent(path, message, Some("write it as NAMESPACE/HOST".to_owned()));
        }
    }
}
