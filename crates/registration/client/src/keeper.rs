//! The next step of a registration: a state machine without IO.

use crate::Error;
use crate::client::Registered;
use crate::registration::State;
use pilotfish_runtime::{Backoff, BackoffPolicy, Jitter};
use std::time::Duration;

/// Backoff after a failure: short at first, because the lease keeps running.
const RETRY: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(100), Duration::from_secs(5));
/// Retry interval after the server refused the instance: its rules may change.
const REFUSED: Duration = Duration::from_secs(30);

/// The next call to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Register,
    Renew,
}

/// State machine that keeps one instance registered.
#[derive(Debug)]
pub(crate) struct Keeper {
    state: State,
    next: Step,
    ttl: Duration,
    backoff: Backoff,
    jitter: Jitter,
}

impl Keeper {
    /// Creates a keeper whose first step is to register.
    pub(crate) fn new(jitter: Jitter) -> Self {
        let backoff = Backoff::new(RETRY, jitter.fork("retry"));
        Self {
            state: State::Registering { error: None },
            next: Step::Register,
            ttl: crate::DEFAULT_TTL,
            backoff,
            jitter,
        }
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    pub(crate) fn next(&self) -> Step {
        self.next
    }

    /// Registers a changed instance next.
    pub(crate) fn changed(&mut self) {
        self.next = Step::Register;
        self.backoff.reset();
    }

    /// Handles the result of a registration. Returns the wait before the next step.
    pub(crate) fn registered(&mut self, result: Result<Registered, Error>) -> Duration {
        match result {
            Ok(Registered { revision, ttl }) => {
                self.ttl = ttl;
                self.state = State::Registered { revision };
                self.renewal()
            }
            Err(error) => self.failed(error),
        }
    }

    /// Handles the result of a renewal. Returns the wait before the next step.
    pub(crate) fn renewed(&mut self, result: Result<(), Error>) -> Duration {
        match result {
            Ok(()) => self.renewal(),
            // The server has no lease of this instance: it expired, or the server lost it.
            Err(Error::NotFound(_)) => {
                self.next = Step::Register;
                Duration::ZERO
            }
            Err(error) => self.failed(error),
        }
    }

    /// A third of the lease, up to a tenth earlier, so that what was started together does not renew
    /// together.
    fn renewal(&mut self) -> Duration {
        self.backoff.reset();
        self.next = Step::Renew;
        (self.ttl / 3).mul_f64(1.0 - 0.1 * self.jitter.fraction())
    }

    /// The registration stays until its lease ends; the state carries the error.
    fn failed(&mut self, error: Error) -> Duration {
        if error.is_transient() {
            // After a failed renewal the server may be another one, or the lease gone: registering is a
            // renewal, too.
            self.next = Step::Register;
            self.state = State::Registering { error: Some(error) };
            return self.backoff.wait();
        }
        self.next = Step::Register;
        self.state = State::Refused { error };
        REFUSED
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    fn keeper() -> Keeper {
        Keeper::new(Jitter::seeded(7))
    }

    fn registered(revision: u64) -> Result<Registered, Error> {
        Ok(Registered { revision, ttl: Duration::from_secs(9) })
    }

    #[test]
    fn a_lease_is_renewed_in_its_first_third() {
        let mut keeper = keeper();
        assert_eq!(keeper.next(), Step::Register);
        let wait = keeper.registered(registered(4));
        assert!((Duration::from_millis(2_700)..=Duration::from_secs(3)).contains(&wait), "{wait:?}");
        assert_eq!(keeper.next(), Step::Renew);
        assert!(matches!(keeper.state(), State::Registered { revision: 4 }));
        let wait = keeper.renewed(Ok(()));
        assert!(wait <= Duration::from_secs(3) && keeper.next() == Step::Renew);
    }

    #[test]
    fn a_lost_lease_is_registered_again_at_once() {
        let mut keeper = keeper();
        keeper.registered(registered(1));
        assert_eq!(keeper.renewed(Err(Error::NotFound("gone".into()))), Duration::ZERO);
        assert_eq!(keeper.next(), Step::Register);
    }

    #[test]
    fn a_server_that_is_away_is_tried_more_and_more_slowly() {
        let mut keeper = keeper();
        keeper.registered(registered(1));
        let away = || Error::Unavailable("refused".into());
        let waits: Vec<Duration> = (0..12).map(|_| keeper.renewed(Err(away()))).collect();
        assert!(
            waits[0] <= Duration::from_millis(100) && waits[11] >= Duration::from_millis(2_500),
            "{waits:?}"
        );
        assert!(matches!(keeper.state(), State::Registering { error: Some(_) }));
        assert_eq!(keeper.next(), Step::Register, "the server may have forgotten it");
        keeper.registered(registered(2));
        assert!(keeper.renewed(Err(away())) <= Duration::from_millis(100), "the first failure again");
    }

    #[test]
    fn a_refusal_is_shown_and_tried_again_slowly() {
        let mut keeper = keeper();
        let refused = Error::Refused { code: Code::PermissionDenied, message: "no".into(), fields: vec![] };
        assert_eq!(keeper.registered(Err(refused)), REFUSED);
        assert!(matches!(keeper.state(), State::Refused { .. }));
        keeper.changed();
        assert_eq!(keeper.next(), Step::Register);
    }
}
