//! Whether an instance can be used, and why not.

use crate::{Record, RecordState};
use std::sync::Arc;

/// Whether an instance can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Health {
    /// It can.
    Healthy,
    /// It can: its lease has lapsed, together with most of its service's, so that this is believed of none of them.
    Preserved,
    /// Its client says that it cannot.
    Reported,
    /// Its lease was not renewed.
    Lapsed,
    /// An active check failed.
    CheckFailed,
    /// It was deregistered and is in its grace time.
    Draining,
}

impl Health {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Healthy, Self::Preserved, Self::Reported, Self::Lapsed, Self::CheckFailed, Self::Draining];

    /// Whether requests may be sent to it.
    #[must_use]
    pub fn is_usable(self) -> bool {
        matches!(self, Self::Healthy | Self::Preserved)
    }

    /// Its name in the API, logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Preserved => "preserved",
            Self::Reported => "reported",
            Self::Lapsed => "lapsed",
            Self::CheckFailed => "check-failed",
            Self::Draining => "draining",
        }
    }
}

/// An instance as everybody sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct InstanceView {
    /// What the store has.
    pub record: Arc<Record>,
    /// Whether it can be used.
    pub health: Health,
}

/// What is known of an instance beside its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Signs {
    /// Its lease has lapsed.
    pub(crate) lapsed: bool,
    /// The lapse is not believed.
    pub(crate) preserved: bool,
    /// An active check fails.
    pub(crate) check_failed: bool,
    /// It was deregistered, which the store cannot record yet.
    pub(crate) withdrawn: bool,
}

impl Signs {
    pub(crate) fn health(self, record: &Record) -> Health {
        match record.state {
            RecordState::Draining => Health::Draining,
            RecordState::Serving if self.withdrawn => Health::Draining,
            RecordState::Serving if !record.instance.healthy => Health::Reported,
            RecordState::Serving if self.check_failed => Health::CheckFailed,
            RecordState::Serving if self.lapsed && self.preserved => Health::Preserved,
            RecordState::Serving if self.lapsed => Health::Lapsed,
            RecordState::Serving => Health::Healthy,
        }
    }
}
