//! Memory and threads of this process, from Linux's `/proc`.

use crate::process_metrics::Usage;
use pilotfish_api::v1::{Memory, Profile, ThreadTime};
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// Clock ticks per second in `/proc`.
const TICKS: f64 = 100.0;
/// Maximum number of listed threads.
const LISTED: usize = 50;

/// Resident memory of this process in bytes, without kinds; 0 if it is unknown.
pub(crate) fn memory() -> Memory {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
        kib.unwrap_or(0) * 1_024
    };
    Memory { resident: bytes("VmRSS"), anonymous: bytes("RssAnon"), peak: bytes("VmHWM"), kinds: Vec::new() }
}

/// Uptime of this process in seconds; 0 if it is unknown.
fn running_seconds() -> f64 {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let up = read("/proc/uptime").split_whitespace().next().and_then(|up| up.parse::<f64>().ok());
    let stat = read("/proc/self/stat");
    // Field 22, counted after the name, which may have spaces.
    let began =
        stat.rsplit(')').next().and_then(|fields| fields.split_whitespace().nth(19)?.parse::<f64>().ok());
    up.zip(began).map_or(0.0, |(up, began)| (up - began / TICKS).max(0.0))
}

/// CPU time of threads since they began.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Threads(BTreeMap<u64, Taken>);

#[derive(Clone, Debug, Default, PartialEq)]
struct Taken {
    name: String,
    user: u64,
    system: u64,
}

impl Threads {
    /// Current CPU times; empty if `/proc` cannot be read.
    pub(crate) fn read() -> Self {
        let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let taken = tasks.filter_map(|task| {
            let stat = fs::read_to_string(task.path().join("stat")).ok()?;
            Some((task.file_name().to_str()?.parse().ok()?, Taken::parse(&stat)?))
        });
        Self(taken.collect())
    }

    /// CPU time since the process began, including that of ended threads.
    pub(crate) fn since_start(&self) -> Profile {
        let all = self.since(&Self::default(), Duration::ZERO);
        Profile { seconds: running_seconds(), cpu_seconds: Usage::read().cpu, ..all }
    }

    /// CPU time since an earlier reading.
    pub(crate) fn since(&self, before: &Self, time: Duration) -> Profile {
        let seconds = |ticks: u64| ticks as f64 / TICKS;
        let thread = |(id, now): (&u64, &Taken)| {
            let none = Taken::default();
            let before = before.0.get(id).unwrap_or(&none);
            ThreadTime {
                id: *id,
                name: now.name.clone(),
                user_seconds: seconds(now.user.saturating_sub(before.user)),
                system_seconds: seconds(now.system.saturating_sub(before.system)),
            }
        };
        let taken = |thread: &ThreadTime| thread.user_seconds + thread.system_seconds;
        let mut threads: Vec<ThreadTime> = self.0.iter().map(thread).collect();
        threads.retain(|thread| taken(thread) > 0.0);
        threads.sort_by(|a, b| taken(b).total_cmp(&taken(a)).then_with(|| a.id.cmp(&b.id)));
        let cpu_seconds = threads.iter().map(taken).sum();
        threads.truncate(LISTED);
        Profile { seconds: time.as_secs_f64(), cpu_seconds, threads }
    }
}

impl Taken {
    /// Parses a line of `/proc/PID/task/TID/stat`. The name is in parentheses, and may have spaces and
    /// parentheses itself.
    fn parse(stat: &str) -> Option<Self> {
        let (name, fields) = stat.split_once('(')?.1.rsplit_once(')')?;
        let mut fields = fields.split_whitespace().skip(11).map(|field| field.parse().ok());
        Some(Self { name: name.to_owned(), user: fields.next()??, system: fields.next()?? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "17 (tokio (a) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 3 0 100 1 1";

    #[test]
    fn a_profile_is_what_threads_took_meanwhile() {
        let taken = Taken::parse(STAT).unwrap();
        assert_eq!((taken.name.as_str(), taken.user, taken.system), ("tokio (a) b", 250, 50));
        let quiet = Taken { name: "quiet".into(), user: 7, system: 0 };
        let now = Threads([(17, taken.clone()), (18, quiet.clone())].into());
        let before = Threads([(17, Taken { user: 50, ..taken }), (18, quiet)].into());
        let profile = now.since(&before, Duration::from_secs(5));
        assert_eq!((profile.seconds, profile.cpu_seconds, profile.threads.len()), (5.0, 2.0, 1));
        assert_eq!(profile.threads[0].user_seconds, 2.0);
        assert_eq!(Taken::parse("17 (x"), None);
    }

    #[test]
    fn this_process_has_threads_and_memory() {
        let memory = memory();
        assert!(!Threads::read().0.is_empty() && memory.resident > 1 << 20, "{memory:?}");
        assert!(memory.peak >= memory.resident && memory.resident > memory.anonymous, "{memory:?}");
        let (profile, again) = (Threads::read().since_start(), Threads::read().since_start());
        assert!(again.cpu_seconds >= profile.cpu_seconds && again.seconds >= profile.seconds);
        // The clock of Linux has ticks of 10 ms here.
        assert!(profile.seconds < 3_600.0, "{} s: tests do not take that long", profile.seconds);
    }
}
