//! `pilotfish memory`, `pilotfish profile` and `pilotfish log`: the process of the control plane itself.

use crate::client::Connection;
use crate::error::CliError;
use crate::output::{Output, Screen};
use crate::table::Table;
use crate::time::parse_duration;
use clap::Args;
use pilotfish_api::v1::{LogFilter, Memory as Heap, Profile as Times};
use std::process::ExitCode;
use std::time::Duration;

pub(super) const LOG_EXAMPLES: &str = "Examples:
  pilotfish log                                    which logs are written
  pilotfish log debug
  pilotfish log info,pilotfish_xds=debug
  pilotfish log --reset                            what --log of the control plane says

A SIGHUP turns debug logs on, and the next one off again.";

pub(super) const PROFILE_EXAMPLES: &str = "Examples:
  pilotfish profile                                5 s, by thread: `control` computes changes,
                                                   `tokio` threads serve streams
  pilotfish profile --for 30s

By function, where perf is there: perf record -g -p $(pidof pilotfish) -- sleep 5";

/// Shows what memory is for.
#[derive(Args, Clone, Debug)]
pub struct Memory {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

/// Shows which threads take the processors.
#[derive(Args, Clone, Debug)]
pub struct Profile {
    /// Duration of the measurement, at most 30s
    #[arg(long = "for", value_name = "DURATION", default_value = "5s", value_parser = parse_duration)]
    time: Duration,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

/// Shows or changes which logs are written.
#[derive(Args, Clone, Debug)]
pub struct Log {
    /// From now on: a level, or levels by module
    filter: Option<String>,
    /// Goes back to what the control plane was started with
    #[arg(long, conflicts_with = "filter")]
    reset: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

impl Memory {
    pub(super) async fn run(self) -> Result<ExitCode, CliError> {
        let memory: Heap = self.connection.client().get("memory", &[]).await?;
        self.output.write(&memory, |screen| memory_text(&memory, screen))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Profile {
    pub(super) async fn run(mut self) -> Result<ExitCode, CliError> {
        let seconds = self.time.as_secs_f64().to_string();
        self.connection.timeout += self.time;
        let profile: Times = self.connection.client().get("profile", &[("seconds", &seconds)]).await?;
        self.output.write(&profile, |screen| profile_text(&profile, screen))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Log {
    pub(super) async fn run(self) -> Result<ExitCode, CliError> {
        let client = self.connection.client();
        let filter: LogFilter = match (&self.filter, self.reset) {
            (None, false) => client.get("log", &[]).await?,
            (filter, _) => {
                let filter = filter.clone().unwrap_or_default();
                client.post("log", &LogFilter { filter, configured: String::new() }).await?
            }
        };
        self.output.write(&filter, |_| {
            if filter.filter == filter.configured {
                format!("{}\n", filter.filter)
            } else {
                format!("{} (configured: {})\n", filter.filter, filter.configured)
            }
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

fn memory_text(memory: &Heap, screen: &Screen) -> String {
    let mut table = Table::new(["what", "count", "bytes"]);
    for kind in &memory.kinds {
        let bytes = kind.bytes.map(mib).unwrap_or_default();
        table.row([kind.kind.as_str().into(), kind.count.to_string().into(), bytes.into()]);
    }
    let mut first = format!("{} in memory", mib(memory.resident));
    if memory.anonymous > 0 {
        let (anonymous, peak) = (mib(memory.anonymous), mib(memory.peak));
        first.push_str(&format!(
            ", {anonymous} of it allocated, kept for later or stacks; {peak} at most until now"
        ));
    }
    format!("{first}\n{}", table.text(screen))
}

fn mib(bytes: usize) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn profile_text(profile: &Times, screen: &Screen) -> String {
    let mut table = Table::new(["thread", "id", "cpu", "user", "kernel"]);
    let share = |seconds: f64| format!("{:.0} %", 100.0 * seconds / profile.seconds.max(0.001));
    for thread in &profile.threads {
        table.row([
            thread.name.as_str().into(),
            thread.id.to_string().into(),
            share(thread.user_seconds + thread.system_seconds).into(),
            share(thread.user_seconds).into(),
            share(thread.system_seconds).into(),
        ]);
    }
    // Kernel counters are coarse, so a difference of zero may be slightly negative.
    let used = profile.cpu_seconds.max(0.0).abs();
    let all = format!("{used:.2} s of CPU time in {:.1} s\n", profile.seconds);
    if table.is_empty() { all } else { all + &table.text(screen) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_api::v1::{MemoryKind, ThreadTime};

    #[test]
    fn memory_and_threads_are_tables() {
        let kinds = vec![MemoryKind { kind: "encoded resources".into(), count: 12, bytes: Some(3 << 20) }];
        let heap = Heap { resident: 64 << 20, anonymous: 48 << 20, peak: 80 << 20, kinds };
        let text = memory_text(&heap, &Screen::plain());
        assert_eq!(
            text,
            "64.0 MiB in memory, 48.0 MiB of it allocated, kept for later or stacks; 80.0 MiB at most until now\nWHAT               COUNT  BYTES\nencoded resources  12     3.0 MiB\n"
        );
        let threads =
            vec![ThreadTime { id: 7, name: "control".into(), user_seconds: 1.0, system_seconds: 0.5 }];
        let text = profile_text(&Times { seconds: 5.0, cpu_seconds: 1.5, threads }, &Screen::plain());
        assert!(text.ends_with("control  7   30 %  20 %  10 %\n"), "{text}");
        for cpu_seconds in [-0.004, -0.0, 0.0] {
            let idle = Times { seconds: 5.0, cpu_seconds, threads: Vec::new() };
            assert_eq!(profile_text(&idle, &Screen::plain()), "0.00 s of CPU time in 5.0 s\n");
        }
    }
}
