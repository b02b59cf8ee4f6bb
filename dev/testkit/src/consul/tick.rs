//! Timeouts of checks, services and sessions.

use super::server::Shared;
use tokio::time::Instant;

/// Applies timeouts. [agent/check, TTL] A check that was not refreshed in time becomes critical.
/// [agent/check, `DeregisterCriticalServiceAfter`] A service whose check was critical for that time is
/// deregistered. [session, TTL] A session that was not renewed becomes invalid.
pub(super) fn tick(shared: &Shared) {
    let now = Instant::now();
    let mut state = shared.lock();
    let mut changed = false;
    for store in state.stores.values_mut() {
        let expired: Vec<_> =
            store.ttls.iter().filter(|(_, ttl)| ttl.deadline <= now).map(|(key, _)| key.clone()).collect();
        for (node, id) in expired {
            if let Some(ttl) = store.ttls.get_mut(&(node.clone(), id.clone())) {
                ttl.deadline = now + ttl.every;
            }
            store.set_status(&node, &id, "critical", "TTL expired");
            changed = true;
        }
        if store.reaped + shared.options.reap_every <= now {
            store.reaped = now;
            changed |= store.reap(now);
        }
        let ended: Vec<_> = store
            .sessions
            .iter()
            .filter(|(_, session)| session.deadline.is_some_and(|deadline| deadline <= now))
            .map(|(id, _)| id.clone())
            .collect();
        for id in ended {
            store.destroy_session(&id);
            changed = true;
        }
    }
    drop(state);
    if changed {
        shared.changed();
    }
}
