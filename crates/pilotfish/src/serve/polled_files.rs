//! Files that are polled, compared, and put in force if they are valid.

use anyhow::Result;
use std::time::Duration;

/// Polling interval of files. Certificates are replaced long before they expire, so it need not be short. A
/// poll reads a few thousand bytes, and works where notifications do not (swapped mounts, network file
/// systems).
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Result of a poll of the files.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing changed, or nothing must be reported yet.
    Unchanged,
    /// New contents are in force.
    Reloaded,
    /// The files cannot be used, with the reason.
    Failed(String),
}

/// State of polled files with contents `T`.
pub(crate) struct PolledFiles<T> {
    in_force: T,
    /// Set if the files could not be used at the last poll; inside, the reason if it was reported.
    failure: Option<Option<String>>,
}

impl<T: PartialEq> PolledFiles<T> {
    /// Returns the state with contents in force.
    pub(crate) fn new(in_force: T) -> Self {
        Self { in_force, failure: None }
    }

    /// True if the files could not be used for two polls, which is longer than it takes to write them.
    pub(crate) fn is_failing(&self) -> bool {
        matches!(self.failure, Some(Some(_)))
    }

    /// Returns the contents in force; those of the files may be newer and unusable.
    pub(crate) fn in_force(&self) -> &T {
        &self.in_force
    }

    /// Reason why the newest files cannot be used, if that has lasted for two polls.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_ref()?.as_deref()
    }

    /// Compares the contents read with those in force. A failure is reported only if it lasts until the next
    /// poll, because certificate and key do not match while they are written one after the other.
    pub(crate) fn step(
        &mut self,
        read: Result<T, String>,
        put_in_force: impl FnOnce(&T) -> Result<()>,
    ) -> Outcome {
        let texts = match read {
            Ok(texts) if self.in_force == texts => {
                self.failure = None;
                return Outcome::Unchanged;
            }
            Ok(texts) => texts,
            Err(reason) => return self.fail(reason),
        };
        match put_in_force(&texts) {
            Ok(()) => {
                *self = Self::new(texts);
                Outcome::Reloaded
            }
            Err(error) => self.fail(format!("{error:#}")),
        }
    }

    fn fail(&mut self, reason: String) -> Outcome {
        let Some(reported) = &mut self.failure else {
            self.failure = Some(None);
            return Outcome::Unchanged;
        };
        if reported.as_ref() == Some(&reason) {
            return Outcome::Unchanged;
        }
        *reported = Some(reason.clone());
        Outcome::Failed(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_put_in_force_once_and_a_lasting_failure_is_reported_once() {
        let mut state = PolledFiles::new("one");
        let steps = [
            (Ok("one"), Ok(()), Outcome::Unchanged, 0),
            (Ok("two"), Ok(()), Outcome::Reloaded, 1),
            (Ok("two"), Ok(()), Outcome::Unchanged, 0),
            // For a moment, the parts do not fit.
            (Ok("half"), Err("odd"), Outcome::Unchanged, 1),
            (Ok("three"), Ok(()), Outcome::Reloaded, 1),
            // Broken for longer.
            (Ok("bad"), Err("odd"), Outcome::Unchanged, 1),
            (Ok("bad"), Err("odd"), Outcome::Failed("odd".into()), 1),
            (Ok("bad"), Err("odd"), Outcome::Unchanged, 1),
            (Err("gone".into()), Ok(()), Outcome::Failed("gone".into()), 0),
            (Err("gone".into()), Ok(()), Outcome::Unchanged, 0),
            // As before: nothing to reload, and no failure any more.
            (Ok("three"), Ok(()), Outcome::Unchanged, 0),
            (Ok("bad"), Err("odd"), Outcome::Unchanged, 1),
            (Ok("four"), Ok(()), Outcome::Reloaded, 1),
        ];
        for (index, (read, good, outcome, tried)) in steps.into_iter().enumerate() {
            let mut tries = 0;
            let found = state.step(read, |_| {
                tries += 1;
                good.map_err(|reason: &str| anyhow::anyhow!(reason.to_owned()))
            });
            assert_eq!((found, tries), (outcome, tried), "step {index}");
        }
        assert!(!state.is_failing());
    }
}
