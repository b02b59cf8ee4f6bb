//! Metrics of this process from the operating system, with the names of Prometheus' client libraries.

use crate::catalogue::Catalogue;
use prometheus::{Counter, IntGauge};
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) struct ProcessMetrics {
    resident: IntGauge,
    size: IntGauge,
    cpu: Counter,
    open_files: IntGauge,
    most_files: IntGauge,
}

impl ProcessMetrics {
    pub(crate) fn new(r: &Catalogue) -> Result<Self, prometheus::Error> {
        let started =
            r.float("process_start_time_seconds", "When the process started, in seconds since 1970")?;
        started.set(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
        Ok(Self {
            resident: r.gauge("process_resident_memory_bytes", "Resident memory")?,
            size: r.gauge(
                "process_virtual_memory_bytes",
                "Addresses that are mapped, with and without memory behind them",
            )?,
            cpu: r.register(Counter::new("process_cpu_seconds_total", "CPU seconds of user and system"))?,
            open_files: r.gauge("process_open_fds", "Open files and connections")?,
            most_files: r.gauge("process_max_fds", "The most files and connections that may be open")?,
        })
    }

    /// Reads the figures of the process into the metrics.
    pub(crate) fn read(&self) {
        let usage = Usage::read();
        self.resident.set(usage.resident);
        self.size.set(usage.size);
        self.cpu.inc_by((usage.cpu - self.cpu.get()).max(0.0));
        self.open_files.set(usage.open_files);
        self.most_files.set(usage.most_files);
    }
}

/// Bytes of memory, seconds of CPU time and numbers of files; zero without `/proc`.
#[derive(Default)]
pub(crate) struct Usage {
    pub(crate) resident: i64,
    size: i64,
    pub(crate) cpu: f64,
    open_files: i64,
    most_files: i64,
}

impl Usage {
    /// Reads Linux's `/proc`: pages of 4 KiB, ticks of 10 ms.
    pub(crate) fn read() -> Self {
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
        let text = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        let (statm, stat, limits) = (text("statm"), text("stat"), text("limits"));
        let mut pages = statm.split_whitespace();
        // The second field is the name in parentheses, which may have spaces.
        let mut after = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let user = number(after.nth(11));
        let system = number(after.next());
        let most = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
        Self {
            size: number(pages.next()) * 4096,
            resident: number(pages.next()) * 4096,
            cpu: (user + system) as f64 / 100.0,
            open_files: open_files(),
            most_files: number(most.and_then(|line| line.split_whitespace().next())),
        }
    }
}

/// Number of open files. Linux since 6.2 reports it as the size of the directory; otherwise its entries are
/// counted.
fn open_files() -> i64 {
    const FOLDER: &str = "/proc/self/fd";
    let size = std::fs::metadata(FOLDER).map_or(0, |folder| folder.len());
    let count =
        if size > 0 { size } else { std::fs::read_dir(FOLDER).map_or(0, |files| files.count() as u64) };
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_has_memory_and_files() {
        let before = Usage::read();
        let held: Vec<_> = (0..200).map(|_| std::fs::File::open("/proc/self/stat").unwrap()).collect();
        let after = Usage::read();
        // Tests beside this one close files, too, but not that many.
        let few = 100;
        assert!(after.open_files >= before.open_files + held.len() as i64 - few, "{}", after.open_files);
        assert!(before.size > before.resident && before.resident > 0, "{} {}", before.size, before.resident);
        assert!(after.most_files >= after.open_files, "{} of {}", after.open_files, after.most_files);
    }
}
