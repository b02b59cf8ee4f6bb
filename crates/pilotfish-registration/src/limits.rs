//! What a client can make us keep. docs/limits.md, "Of registration".

use std::time::Duration;

/// Limits of one instance, and of instances together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `instances`: in all.
    pub instances: usize,
    /// `service-instances`: of one service.
    pub service_instances: usize,
    /// `owner-instances`: of one identity.
    pub owner_instances: usize,
    /// `owner-bytes`: [estimated](crate::Instance::weight) bytes of the instances of one identity.
    pub owner_bytes: usize,
    /// `instance-bytes`: of all instances.
    pub instance_bytes: usize,
    /// `services`: that have an instance.
    pub services: usize,
    /// `watches`: in all.
    pub watches: usize,
    /// `owner-watches`: of one identity.
    pub owner_watches: usize,
    /// `history-events`: changes that a watch can resume over.
    pub history_events: usize,
    /// `history-bytes`: about what they may keep in memory.
    pub history_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            instances: 1_000_000,
            service_instances: 20_000,
            owner_instances: 100_000,
            owner_bytes: 64 << 20,
            instance_bytes: 1 << 30,
            services: 100_000,
            watches: 1_000,
            owner_watches: 100,
            history_events: 100_000,
            history_bytes: 64 << 20,
        }
    }
}

/// Registrations, renewals or deregistrations in one batch.
pub const MAX_BATCH: usize = 1_000;
/// Instances in one page of a list.
pub const MAX_PAGE: usize = 1_000;
/// Addresses of an instance.
pub const MAX_ADDRESSES: usize = 16;
/// Ports of an instance.
pub const MAX_PORTS: usize = 64;
/// Labels of an instance.
pub const MAX_LABELS: usize = 64;
/// Entries of an instance's metadata.
pub const MAX_METADATA: usize = 64;
/// Bytes of an instance's metadata, keys and values together.
pub const MAX_METADATA_BYTES: usize = 16 << 10;
/// Active checks of an instance.
pub const MAX_CHECKS: usize = 8;
/// Bytes of an instance's id.
pub const MAX_ID_BYTES: usize = 253;
/// The shortest lease.
pub const MIN_TTL: Duration = Duration::from_secs(1);
/// The longest lease.
pub const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest grace at deregistration.
pub const MAX_DRAIN: Duration = Duration::from_secs(60 * 60);
/// The highest weight.
pub const MAX_WEIGHT: u32 = 1_000_000;
/// The shortest time from one check to the next.
pub const MIN_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The longest time from one check to the next.
pub const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(60 * 60);
/// The highest threshold of a check.
pub const MAX_CHECK_THRESHOLD: u32 = 100;
/// Bytes of any other text of an instance: network, service account, path of a check.
pub const MAX_TEXT_BYTES: usize = 1_024;
