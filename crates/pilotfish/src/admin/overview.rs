//! Everything in numbers.

use super::{AdminState, proxies, refusals};
use crate::serve::VERSION;
use pilotfish_admin::ControlPlane;
use pilotfish_api::v1::{Overview, State, Status};
use pilotfish_config::Severity;
use pilotfish_kube_writer::lease::replica_name;
use pilotfish_model::{HealthStatus, World};
use pilotfish_xds::ConnectionStatus;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

pub(super) fn overview(state: &AdminState) -> Overview {
    let readiness = state.readiness();
    let world = state.shared.world();
    let registries = state.shared.registries();
    let problems = state.problems();
    let errors = problems.iter().filter(|problem| problem.severity == "error").count();
    let mut overview = Overview {
        version: VERSION.to_owned(),
        revision: world.revision(),
        ready: readiness.ready,
        waiting_for: readiness.waiting_for,
        registries: registries.len(),
        registries_well: registries.iter().filter(|one| one.synced && one.failure.is_none()).count(),
        errors,
        warnings: problems.len() - errors,
        ..Overview::default()
    };
    count_services(&world, &mut overview);
    count_proxies(&state.fanout.acknowledgements().1, &mut overview);
    overview
}

/// Whether all is well.
pub(super) fn status(state: &AdminState) -> Status {
    let readiness = state.readiness();
    let mut counts = Overview::default();
    count_proxies(&state.fanout.acknowledgements().1, &mut counts);
    let problems = state.shared.problems();
    let errors = problems.iter().filter(|report| report.severity == Severity::Error);
    Status {
        replica: replica_name(),
        version: VERSION.to_owned(),
        revision: state.fanout.revision(),
        ready: readiness.ready,
        waiting_for: readiness.waiting_for,
        proxies: counts.proxies,
        pending: counts.proxies_pending,
        rejected: counts.proxies_rejected,
        refused: refusals::refused(state).list.clone(),
        sources: state.shared.registry_problems(),
        objects: errors.map(ToString::to_string).collect(),
        findings: state.shared.findings().summary().into_iter().collect(),
    }
}

fn count_services(world: &World, overview: &mut Overview) {
    let mut namespaces = BTreeSet::new();
    for (key, services) in world.services() {
        namespaces.insert(&key.namespace);
        overview.services += services.len();
        let (mut endpoints, mut healthy) = (0, 0);
        for endpoint in world.endpoints_of(key).into_iter().flat_map(|all| all.iter()) {
            endpoints += 1;
            healthy += usize::from(matches!(endpoint.health, HealthStatus::Healthy | HealthStatus::Unknown));
        }
        overview.endpoints += endpoints;
        overview.healthy += healthy;
        match (endpoints, healthy) {
            (0, _) => overview.services_empty += services.len(),
            (_, 0) => overview.services_unhealthy += services.len(),
            _ => {}
        }
    }
    overview.namespaces = namespaces.len();
}

fn count_proxies(connections: &[ConnectionStatus], overview: &mut Overview) {
    let mut hasher = DefaultHasher::new();
    for connection in connections {
        let mut worst = State::default();
        connection.client.0.hash(&mut hasher);
        for (ty, status) in &connection.types {
            let state = proxies::state(status);
            (*ty, state as u8).hash(&mut hasher);
            worst = worst.max(state);
        }
        let count = match worst {
            State::Synced => &mut overview.proxies_synced,
            State::Pending => &mut overview.proxies_pending,
            State::Rejected => &mut overview.proxies_rejected,
        };
        *count += 1;
    }
    overview.proxies = connections.len();
    // JavaScript reads whole numbers of 53 bits.
    overview.proxies_state = hasher.finish() >> 11;
}
