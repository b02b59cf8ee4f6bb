//! The process itself: its memory, its processors, its log.

use serde::{Deserialize, Serialize};

/// What the memory of a control plane is for: `/api/v1/memory`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// Bytes of the process that are in memory.
    pub resident: usize,
    /// How many of them are no file's: what is allocated, what the allocator keeps for later, and stacks. The rest is the program itself.
    #[serde(default)]
    pub anonymous: usize,
    /// The most bytes that were in memory at a time.
    #[serde(default)]
    pub peak: usize,
    /// What is known of them, by kind.
    pub kinds: Vec<MemoryKind>,
}

/// Things of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryKind {
    /// The kind.
    pub kind: String,
    /// How many there are.
    pub count: usize,
    /// Their bytes, where those are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
}

/// What took the processors for a while: `/api/v1/profile?seconds=5`; since the process began: `?seconds=0`, which is answered at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Profile {
    /// For how long it was looked at.
    pub seconds: f64,
    /// Seconds of processors in that time, of all threads.
    pub cpu_seconds: f64,
    /// The threads that took some, the most first.
    pub threads: Vec<ThreadTime>,
}

/// What one thread took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThreadTime {
    /// Its number, as `top -H` and `perf record -t` name it.
    pub id: u64,
    /// Its name: `control` is the control loop, `tokio-...` are streams.
    pub name: String,
    /// Seconds in user mode.
    pub user_seconds: f64,
    /// Seconds in the kernel.
    pub system_seconds: f64,
}

/// Which logs are written: `/api/v1/log`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogFilter {
    /// The filter in force: a level, or levels by module. A POST of this changes it; an empty one goes back to what is configured.
    pub filter: String,
    /// What `--log` says.
    #[serde(default)]
    pub configured: String,
}

/// Losses that operators accept before their second read: a POST to `/api/v1/guard`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuardAcceptance {
    /// The registry or source, as `/debug/registryz?registries=true` names it.
    pub source: String,
}
