//! Validity of workload certificates.

use crate::SignError;
use std::time::Duration;

/// Default and maximum validity of workload certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Validity where a client requests none.
    pub default: Duration,
    /// Longest validity that a client may request.
    pub max: Duration,
}

impl Default for Lifetimes {
    /// 24 hours and 90 days, as istiod.
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(86_400);
        Self { default: DAY, max: DAY * 90 }
    }
}

impl Lifetimes {
    /// Returns the validity for a requested number of seconds; 0 and negative numbers request none.
    ///
    /// # Errors
    /// When it is longer than the maximum.
    pub fn of(&self, asked: i64) -> Result<Duration, SignError> {
        let wanted = match u64::try_from(asked) {
            Ok(0) | Err(_) => self.default,
            Ok(seconds) => Duration::from_secs(seconds),
        };
        if wanted > self.max {
            return Err(SignError::Lifetime { asked, max: self.max });
        }
        Ok(wanted)
    }
}
