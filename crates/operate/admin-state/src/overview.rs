//! Overview and status of the control plane.

use super::{AdminState, proxies, refusals, verdict};
use crate::VERSION;
use pilotfish_admin::ControlPlane;
use pilotfish_api::Registry;
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
        control_plane_revision: control_plane_revision(state),
        left_to_other_revisions: state.shared.left_to_other_revisions(),
        ready: readiness.ready,
        verdict: verdict::verdict(state),
        waiting_for: readiness.waiting_for,
        registries_state: registries_state(&registries),
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

/// Returns the status of the control plane.
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
        control_plane_revision: control_plane_revision(state),
        left_to_other_revisions: state.shared.left_to_other_revisions(),
        ready: readiness.ready,
        verdict: verdict::verdict(state),
        waiting_for: readiness.waiting_for,
        proxies: counts.proxies,
        pending: counts.proxies_pending,
        rejected: counts.proxies_rejected,
        refused: refusals::refused(state).list.clone(),
        sources: state.shared.registry_problems(),
        objects: errors.map(ToString::to_string).collect(),
        unserved: state.shared.unserved(),
        findings: state.shared.findings().summary().into_iter().collect(),
    }
}

fn control_plane_revision(state: &AdminState) -> String {
    state.shared.revision().name().unwrap_or_default().to_owned()
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

/// Hashes the state of registries, without counters that grow continuously, to detect changes.
fn registries_state(registries: &[Registry]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for one in registries {
        (&one.name, one.synced, &one.failure, &one.failing_since, one.given_up, one.replacing)
            .hash(&mut hasher);
        (one.services, one.endpoints, one.workloads, one.losers.len()).hash(&mut hasher);
        if let Some(source) = &one.source {
            let held = source.held.as_ref().map(|held| (&held.since, held.would_leave, &held.until));
            (&source.last_answer, source.failures, held, source.objects, source.problem_count)
                .hash(&mut hasher);
        }
    }
    short(&hasher)
}

/// Returns 53 bits of the hash, the integers that JavaScript reads exactly.
fn short(hasher: &DefaultHasher) -> u64 {
    hasher.finish() >> 11
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
    overview.proxies_state = short(&hasher);
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_api::RegistrySource;

    #[test]
    fn what_grows_by_itself_is_no_news_of_registries() {
        let source = |source: RegistrySource| Registry { source: Some(source), ..Registry::default() };
        let first = registries_state(&[source(RegistrySource::default())]);
        let older = RegistrySource { lag_seconds: Some(3.0), requests: 7, ..RegistrySource::default() };
        assert_eq!(registries_state(&[source(older)]), first);
        let answered = RegistrySource { last_answer: Some("then".into()), ..RegistrySource::default() };
        for news in [
            vec![],
            vec![source(answered)],
            vec![Registry { synced: true, ..source(RegistrySource::default()) }],
            vec![Registry { failure: Some("refused".into()), ..source(RegistrySource::default()) }],
        ] {
            assert_ne!(registries_state(&news), first, "{news:?}");
        }
    }
}
