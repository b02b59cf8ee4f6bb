//! Losses held back by guards, for status output and acceptance by operators.

use crate::loss_guard::HeldLoss;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};
use tokio::sync::watch;

/// Maximum number of scopes in a summary.
const NAMED_SCOPES: usize = 4;

/// Losses held back by one source, by scope (a kind of objects), shared between the source and its readers.
#[derive(Clone, Debug)]
pub struct HeldLosses(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Number of acceptances by operators.
    accepted: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    held: BTreeMap<Arc<str>, (HeldLoss, ShownLoss)>,
    holds: u64,
}

/// A held loss with wall-clock times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownLoss {
    /// Kind of the missing things: `endpoints`, or the plural of an object kind.
    pub scope: Arc<str>,
    /// Time of its detection.
    pub since: SystemTime,
    /// Earliest time of a full read that confirms it.
    pub until: SystemTime,
    /// Number of things in force.
    pub before: usize,
    /// Number of things in the read.
    pub after: usize,
}

impl Default for HeldLosses {
    fn default() -> Self {
        Self(Arc::new(Shared { state: Mutex::default(), accepted: watch::Sender::new(0) }))
    }
}

impl HeldLosses {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic under the lock leaves a valid state: each change is a single step.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets or clears the held loss of a scope. Logs when a loss begins and ends.
    pub fn set(&self, source: &str, scope: &str, held: Option<HeldLoss>) {
        let mut state = self.state();
        let known = state.held.get(scope);
        let Some(held) = held else {
            if state.held.remove(scope).is_some() {
                tracing::info!(source, scope, "the guard released a held loss");
            }
            return;
        };
        if known.is_some_and(|(known, _)| *known == held) {
            return;
        }
        let now = SystemTime::now();
        let until = now + held.until.saturating_duration_since(Instant::now());
        let before = known.map(|(_, shown)| shown.since);
        let scope: Arc<str> = scope.into();
        let HeldLoss { before: in_force, after, .. } = held;
        let since = before.unwrap_or(now);
        let shown = ShownLoss { scope: scope.clone(), since, until, before: in_force, after };
        if before.is_none() {
            state.holds += 1;
            tracing::warn!(
                source,
                %scope,
                before = in_force,
                after,
                "a read lacks most known objects; keeping them until a second read confirms the loss"
            );
        }
        state.held.insert(scope, (held, shown));
    }

    /// Returns a summary of all held losses: all scopes, sums, the earliest `since` and the latest `until`.
    #[must_use]
    pub fn held(&self) -> Option<ShownLoss> {
        let state = self.state();
        let mut all = state.held.values().map(|(_, shown)| shown);
        let first = all.next()?.clone();
        let mut scopes = vec![first.scope.to_string()];
        let mut sum = all.fold(first, |sum, next| {
            scopes.push(next.scope.to_string());
            ShownLoss {
                since: sum.since.min(next.since),
                until: sum.until.max(next.until),
                before: sum.before + next.before,
                after: sum.after + next.after,
                ..sum
            }
        });
        let more = scopes.len().saturating_sub(NAMED_SCOPES);
        scopes.truncate(NAMED_SCOPES);
        sum.scope = match more {
            0 => scopes.join(", "),
            _ => format!("{} and {more} more kinds", scopes.join(", ")),
        }
        .into();
        Some(sum)
    }

    /// Number of losses held back since the start.
    #[must_use]
    pub fn holds(&self) -> u64 {
        self.state().holds
    }

    /// Makes the source read everything again now and accept the result. Returns the number of held losses.
    pub fn accept(&self) -> usize {
        let held = self.state().held.len();
        if held > 0 {
            self.0.accepted.send_modify(|count| *count += 1);
        }
        held
    }

    /// Returns the handle of one scope of `source`.
    #[must_use]
    pub fn scope(&self, source: String, scope: &str) -> HeldScope {
        HeldScope { losses: self.clone(), source, scope: scope.into(), acceptances: self.acceptances() }
    }

    /// Returns a receiver that changes with each acceptance.
    #[must_use]
    pub fn acceptances(&self) -> watch::Receiver<u64> {
        self.0.accepted.subscribe()
    }
}

/// The held loss of one scope, set by the reader that holds it back.
#[derive(Debug)]
pub struct HeldScope {
    losses: HeldLosses,
    source: String,
    scope: Arc<str>,
    acceptances: watch::Receiver<u64>,
}

impl HeldScope {
    /// Sets or clears the held loss.
    pub fn set(&mut self, held: Option<HeldLoss>) {
        // Earlier acceptances were for other scopes or losses.
        if held.is_some() && !self.losses.state().held.contains_key(&self.scope) {
            self.acceptances.mark_unchanged();
        }
        self.losses.set(&self.source, &self.scope, held);
    }

    /// Resolves when an operator accepts the loss; never while none is held.
    pub async fn accepted(&mut self) {
        if self.acceptances.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

impl Drop for HeldScope {
    /// Clears the loss of a dropped reader.
    fn drop(&mut self) {
        self.losses.set(&self.source, &self.scope, None);
    }
}

/// The held losses of all sources that read objects, by source name.
#[derive(Clone, Debug, Default)]
pub struct GuardBoard(Arc<Mutex<BTreeMap<Arc<str>, HeldLosses>>>);

impl GuardBoard {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, HeldLosses>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the held losses of a source; adds a new source.
    #[must_use]
    pub fn of(&self, source: &str) -> HeldLosses {
        self.all().entry(source.into()).or_default().clone()
    }

    /// Removes a source that is no longer configured.
    pub fn remove(&self, source: &str) {
        self.all().remove(source);
    }

    /// Returns the sources, sorted by name.
    #[must_use]
    pub fn sources(&self) -> Vec<(Arc<str>, HeldLosses)> {
        self.all().iter().map(|(name, losses)| (name.clone(), losses.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn loss(after: usize) -> HeldLoss {
        HeldLoss { until: Instant::now() + Duration::from_secs(10), before: 10, after }
    }

    #[test]
    fn hold_that_changes_stays_one_hold() {
        let losses = HeldLosses::default();
        losses.set("files", "objects", Some(loss(2)));
        let since = losses.held().unwrap().since;
        losses.set("files", "objects", Some(loss(1)));
        let held = losses.held().unwrap();
        assert_eq!((held.since, held.after, losses.holds()), (since, 1, 1));
        losses.set("files", "objects", None);
        assert_eq!(losses.held(), None);
        losses.set("files", "objects", Some(loss(0)));
        assert_eq!((losses.held().is_some(), losses.holds()), (true, 2));
    }

    #[test]
    fn scopes_are_summed_and_the_first_are_named() {
        let losses = HeldLosses::default();
        ["a", "b"].into_iter().for_each(|scope| losses.set("c", scope, Some(loss(2))));
        let held = losses.held().unwrap();
        assert_eq!((&*held.scope, held.before, held.after), ("a, b", 20, 4));
        ["c", "d", "e", "f"].into_iter().for_each(|scope| losses.set("c", scope, Some(loss(2))));
        assert_eq!(&*losses.held().unwrap().scope, "a, b, c, d and 2 more kinds");
    }

    #[tokio::test]
    async fn acceptance_counts_for_the_losses_that_are_held_then_and_for_no_later_one() {
        let losses = HeldLosses::default();
        let [mut services, mut slices] = ["services", "slices"].map(|kind| losses.scope("c".into(), kind));
        services.set(Some(loss(2)));
        assert_eq!(losses.accept(), 1);
        services.accepted().await;
        services.set(None);
        for scope in [&mut services, &mut slices] {
            scope.set(Some(loss(1)));
            tokio::select! {
                biased;
                () = scope.accepted() => panic!("the acceptance was of the loss before"),
                () = std::future::ready(()) => {}
            }
            assert_eq!(losses.accept(), 1);
            scope.accepted().await;
            scope.set(None);
        }
        drop(slices);
        assert_eq!((losses.held(), losses.holds()), (None, 3));
    }

    #[test]
    fn acceptance_reaches_the_source_only_while_something_is_held() {
        let losses = GuardBoard::default().of("files");
        let mut acceptances = losses.acceptances();
        assert_eq!(losses.accept(), 0);
        assert!(!acceptances.has_changed().unwrap());
        losses.set("files", "objects", Some(loss(0)));
        assert_eq!(losses.accept(), 1);
        assert!(acceptances.has_changed().unwrap());
        assert_eq!(*acceptances.borrow_and_update(), 1);
    }

    #[test]
    fn board_has_one_entry_for_each_source() {
        let board = GuardBoard::default();
        board.of("files").set("files", "objects", Some(loss(0)));
        assert_eq!(board.of("files").holds(), 1);
        assert_eq!(board.sources().len(), 1);
        board.remove("files");
        assert!(board.sources().is_empty());
    }
}
