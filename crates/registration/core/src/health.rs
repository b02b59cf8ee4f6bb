//! Health of an instance.

use crate::{Record, RecordState};
use std::sync::Arc;

/// Health of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Health {
    /// Usable without restriction: no other variant applies.
    Healthy,
    /// Usable: its lease has lapsed, together with most of its service's, so that self-preservation ignores
    /// these lapses.
    Preserved,
    /// Unhealthy according to its client.
    Reported,
    /// Its lease has lapsed.
    Lapsed,
    /// An active check failed.
    CheckFailed,
    /// Deregistered and in its drain time.
    Draining,
}

impl Health {
    pub const ALL: [Self; 6] =
        [Self::Healthy, Self::Preserved, Self::Reported, Self::Lapsed, Self::CheckFailed, Self::Draining];

    /// True if requests may be sent to it.
    #[must_use]
    pub fn is_usable(self) -> bool {
        matches!(self, Self::Healthy | Self::Preserved)
    }

    /// Returns the name in the API, logs and metrics.
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

/// An instance with its health, as returned by lists and watches.
#[derive(Clone, Debug, PartialEq)]
pub struct InstanceView {
    pub record: Arc<Record>,
    pub health: Health,
}

/// Health signals of an instance, other than its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Signs {
    /// Its lease has lapsed.
    pub(crate) lapsed: bool,
    /// Self-preservation ignores the lapse.
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
