//! Limits of registered data. docs/limits.md, "Of registration".

use std::time::Duration;

/// Limits of one instance, and of all instances together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `instances`: maximum number of instances.
    pub instances: usize,
    /// `service-instances`: of one service.
    pub service_instances: usize,
    /// `owner-instances`: of one identity.
    pub owner_instances: usize,
    /// `owner-bytes`: [estimated](crate::Instance::weight) bytes of the instances of one identity.
    pub owner_bytes: usize,
    /// `instance-bytes`: of all instances.
    pub instance_bytes: usize,
    /// `services`: with an instance.
    pub services: usize,
    /// `watches`: maximum number of open watches.
    pub watches: usize,
    /// `owner-watches`: of one identity.
    pub owner_watches: usize,
    /// `history-events`: changes that a watch can resume over.
    pub history_events: usize,
    /// `history-bytes`: approximate memory of these changes.
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

/// Maximum number of registrations, renewals or deregistrations in one batch.
pub const MAX_BATCH: usize = 1_000;
/// Maximum number of instances in one page of a list.
pub const MAX_PAGE: usize = 1_000;
/// Maximum number of addresses of an instance.
pub const MAX_ADDRESSES: usize = 16;
/// Maximum number of ports of an instance.
pub const MAX_PORTS: usize = 64;
/// Maximum number of labels of an instance.
pub const MAX_LABELS: usize = 64;
/// Maximum number of metadata entries of an instance.
pub const MAX_METADATA: usize = 64;
/// Maximum number of bytes of an instance's metadata, keys and values together.
pub const MAX_METADATA_BYTES: usize = 16 << 10;
/// Maximum number of active checks of an instance.
pub const MAX_CHECKS: usize = 8;
/// Maximum number of bytes of an instance's id.
pub const MAX_ID_BYTES: usize = 253;
/// Minimum TTL of a lease.
pub const MIN_TTL: Duration = Duration::from_secs(1);
/// Maximum TTL of a lease.
pub const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// Maximum drain time after deregistration.
pub const MAX_DRAIN: Duration = Duration::from_secs(60 * 60);
/// Maximum time from the lapse of a lease to the removal of its instance.
pub const MAX_REMOVE_AFTER: Duration = Duration::from_secs(72 * 60 * 60);
/// Maximum weight of an instance.
pub const MAX_WEIGHT: u32 = 1_000_000;
/// Minimum time between two checks.
pub const MIN_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum time between two checks.
pub const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(60 * 60);
/// Maximum threshold of a check.
pub const MAX_CHECK_THRESHOLD: u32 = 100;
/// Maximum number of bytes of any other text of an instance: network, service account, path of a check.
pub const MAX_TEXT_BYTES: usize = 1_024;
