//! How fast may be written: some writes at once, and then one now and then. So who writes the opposite of what we write, another
//! process with other settings or a tool that puts back what it knows, is answered, but not for ever as fast as both can.

use std::time::{Duration, Instant};

/// What a write costs.
const EACH: Duration = Duration::from_secs(10);
/// What may be spent at once: all that a start, a rotation and a repair write together, several times over.
const AT_ONCE: Duration = Duration::from_secs(10 * 20);

/// See the module's description.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// When everything that was spent has been earned again.
    even: Option<Instant>,
}

impl Pace {
    /// Something was written.
    pub(crate) fn wrote(&mut self, now: Instant) {
        self.even = Some(self.even.map_or(now, |even| even.max(now)) + EACH);
    }

    /// How long the next write has to wait.
    pub(crate) fn wait(&self, now: Instant) -> Duration {
        let owed = self.even.map(|even| even.saturating_duration_since(now)).unwrap_or_default();
        (owed + EACH).saturating_sub(AT_ONCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_free_and_a_fight_is_slow() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        let mut at_once = 0;
        while pace.wait(now).is_zero() {
            pace.wrote(now);
            at_once += 1;
        }
        assert_eq!(at_once, 20);
        let began = now;
        for _ in 0..50 {
            now += pace.wait(now);
            pace.wrote(now);
        }
        assert_eq!(now - began, EACH * 50);
        now += AT_ONCE;
        assert!(pace.wait(now).is_zero(), "what is quiet for a while is free again");
    }
}
