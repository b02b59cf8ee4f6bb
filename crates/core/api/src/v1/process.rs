//! Process of the control plane: memory, CPU time, log.

use serde::{Deserialize, Serialize};

/// Memory use of a control plane: `/api/v1/memory`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// Resident memory in bytes.
    pub resident: usize,
    /// Anonymous part of the resident memory: allocations, memory cached by the allocator, and stacks. The
    /// rest is the program itself.
    #[serde(default)]
    pub anonymous: usize,
    /// Peak of the resident memory.
    #[serde(default)]
    pub peak: usize,
    /// Known parts, by kind.
    pub kinds: Vec<MemoryKind>,
}

/// Memory use of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryKind {
    pub kind: String,
    pub count: usize,
    /// Size in bytes; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
}

/// CPU time during an interval: `/api/v1/profile?seconds=5`; since the process began, without waiting:
/// `?seconds=0`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Profile {
    /// Length of the interval.
    pub seconds: f64,
    /// CPU seconds of all threads in the interval.
    pub cpu_seconds: f64,
    /// Threads with CPU time, in descending order.
    pub threads: Vec<ThreadTime>,
}

/// CPU time of one thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThreadTime {
    /// Thread id, as in `top -H` and `perf record -t`.
    pub id: u64,
    /// Thread name: `control` is the control loop, `tokio-...` are streams.
    pub name: String,
    /// CPU seconds in user mode.
    pub user_seconds: f64,
    /// CPU seconds in the kernel.
    pub system_seconds: f64,
}

/// Log filter of the process: `/api/v1/log`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogFilter {
    /// Filter in force: a level, or levels by module. A POST changes it; an empty one restores the configured
    /// filter.
    pub filter: String,
    /// Filter given by `--log`, which an empty filter restores.
    #[serde(default)]
    pub configured: String,
}

/// Acceptance of a loss before its second read: a POST to `/api/v1/guard`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuardAcceptance {
    /// Name of the registry or source in `/debug/registryz?registries=true`.
    pub source: String,
}
