//! A server process: its start, end and costs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

const START_LIMIT: Duration = Duration::from_secs(60);
/// Interval of readiness checks.
const ASK_AGAIN: Duration = Duration::from_millis(5);

/// A running server. Dropping it kills the process.
pub struct Server {
    child: Child,
    pid: u32,
    pub xds: SocketAddr,
    /// Time from the start of the process until it was ready.
    pub start: Duration,
    admin: Option<SocketAddr>,
}

/// CPU time of a process: of each running thread, and of all threads that ever ran.
#[derive(Default)]
pub struct CpuTimes {
    threads: BTreeMap<u32, Duration>,
    all: Duration,
}

/// Maximum error of the time of the whole process, which is counted in hundredths of a second.
const TICKS: Duration = Duration::from_millis(20);

impl CpuTimes {
    /// CPU time of this process, the load client.
    ///
    /// # Errors
    /// If the system has no `/proc`.
    pub fn own() -> Result<Self> {
        Self::of("self")
    }

    /// CPU time of a process on this machine.
    ///
    /// # Errors
    /// If it has ended, or the system has no `/proc`.
    pub fn of(process: &str) -> Result<Self> {
        let folder = format!("/proc/{process}/task");
        let tasks = std::fs::read_dir(&folder).with_context(|| format!("cannot read {folder}"))?;
        let mut times = BTreeMap::new();
        for task in tasks.flatten() {
            // A thread that ended since the directory was listed has no file any more.
            let Ok(text) = std::fs::read_to_string(task.path().join("schedstat")) else { continue };
            let thread = task.file_name().to_string_lossy().parse();
            let used = text.split(' ').next().and_then(|word| word.parse().ok());
            if let (Ok(thread), Some(used)) = (thread, used) {
                times.insert(thread, Duration::from_nanos(used));
            }
        }
        let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        Ok(Self { threads: times, all: Self::parse(&text).unwrap_or_default() })
    }

    /// User and system time from `/proc/PID/stat`. The name of the command, in parentheses, may contain
    /// anything.
    fn parse(text: &str) -> Option<Duration> {
        let (_, rest) = text.rsplit_once(')')?;
        let mut words = rest.split_whitespace().skip(11);
        let user: u64 = words.next()?.parse().ok()?;
        let system: u64 = words.next()?.parse().ok()?;
        Some(Duration::from_millis(user.saturating_add(system).saturating_mul(10)))
    }

    /// CPU time since `before`. The time of ended threads is included if it exceeds the resolution of the
    /// whole process's time.
    #[must_use]
    pub fn since(&self, before: &Self) -> Duration {
        let used = |(thread, now): (&u32, &Duration)| {
            now.saturating_sub(before.threads.get(thread).copied().unwrap_or_default())
        };
        let threads: Duration = self.threads.iter().map(used).sum();
        let all = self.all.saturating_sub(before.all);
        if all > threads + TICKS { all } else { threads }
    }
}

/// CPU times of the whole machine: busy time and total time.
#[derive(Clone, Copy, Debug)]
pub struct MachineTimes {
    busy: Duration,
    all: Duration,
}

impl MachineTimes {
    /// Current times.
    ///
    /// # Errors
    /// If the system has no `/proc`.
    pub fn now() -> Result<Self> {
        let text = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        Self::parse(&text).context("/proc/stat has an unexpected form")
    }

    /// Parses the first line: user, nice, system, idle, iowait, irq, softirq and steal, in hundredths of a
    /// second.
    fn parse(text: &str) -> Option<Self> {
        let words = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        let times: Vec<u64> = words.take(8).filter_map(|word| word.parse().ok()).collect();
        let [_, _, _, idle, waiting, ..] = times.as_slice() else { return None };
        let all: u64 = times.iter().sum();
        let hundredths = |count: u64| Duration::from_millis(count.saturating_mul(10));
        Some(Self { busy: hundredths(all.saturating_sub(idle + waiting)), all: hundredths(all) })
    }

    /// Share of the machine, 0 to 1, that was busy since `before`, without the time `known`.
    #[must_use]
    pub fn foreign_since(&self, before: &Self, known: Duration) -> f64 {
        let busy = self.busy.saturating_sub(before.busy).saturating_sub(known);
        let all = self.all.saturating_sub(before.all);
        if all.is_zero() { 0.0 } else { busy.as_secs_f64() / all.as_secs_f64() }
    }
}

impl Server {
    /// Starts Pilotfish on a directory with additional arguments, and waits until it is ready.
    ///
    /// # Errors
    /// If it cannot be started, ends, or is not ready in time; the message has the end of its log.
    pub async fn pilotfish(
        executable: &Path,
        folder: &Path,
        more: &[OsString],
        log: PathBuf,
    ) -> Result<Self> {
        let (xds, admin) = (free_address()?, free_address()?);
        let file = std::fs::File::create(&log).context("cannot make a log file")?;
        let began = Instant::now();
        let mut child = Command::new(executable)
            .arg("serve")
            .arg(folder)
            .args(more)
            .args(["--xds-address", &xds.to_string(), "--admin-address", &admin.to_string()])
            .stdin(Stdio::null())
            .stdout(file.try_clone().context("cannot share the log file")?)
            .stderr(file)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", executable.display()))?;
        while get(admin, "/ready").await.is_err() {
            if let Some(status) = child.try_wait()? {
                bail!("pilotfish ended with {status} before it was ready:\n{}", tail(&log));
            }
            if began.elapsed() > START_LIMIT {
                bail!("pilotfish is not ready after {START_LIMIT:?}:\n{}", tail(&log));
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
        let pid = child.id().context("the server has ended")?;
        Ok(Self { child, pid, xds, start: began.elapsed(), admin: Some(admin) })
    }

    /// A server that was started otherwise and serves ADS at this address.
    ///
    /// # Errors
    /// If it has ended.
    pub fn started(child: Child, xds: SocketAddr, start: Duration) -> Result<Self> {
        let pid = child.id().context("the server has ended")?;
        Ok(Self { child, pid, xds, start, admin: None })
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Times of Pilotfish's pushes from the publication of a change until it was sent: their sum and their
    /// number. `None` for a broadcast server.
    ///
    /// # Errors
    /// If the metrics cannot be read.
    pub async fn push_times(&self) -> Result<Option<(Duration, u64)>> {
        if self.admin.is_none() {
            return Ok(None);
        }
        let metrics = self.admin("/metrics").await?;
        let value = |name: &str| -> Option<f64> {
            metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
        };
        let sum =
            value("pilot_proxy_convergence_time_sum").and_then(|sum| Duration::try_from_secs_f64(sum).ok());
        // A count is a whole number, and far below 2^53.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let count = value("pilot_proxy_convergence_time_count").map(|count| count as u64);
        Ok(sum.zip(count))
    }

    /// Content of the page at `path` of the admin address.
    ///
    /// # Errors
    /// If there is none or it does not respond with 200.
    pub async fn admin(&self, path: &str) -> Result<String> {
        get(self.admin.context("no admin address")?, path).await
    }

    /// CPU time of each thread.
    ///
    /// # Errors
    /// If the process has ended, or the system has no `/proc`.
    pub fn cpu(&self) -> Result<CpuTimes> {
        CpuTimes::of(&self.pid.to_string())
    }

    /// Current and peak resident memory in bytes.
    ///
    /// # Errors
    /// If the process has ended, or the system has no `/proc`.
    pub fn memory(&self) -> Result<(u64, u64)> {
        memory_of(self.pid)
    }

    /// Kills the process.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub async fn stop(mut self) -> Result<()> {
        self.child.kill().await.context("cannot end the server")
    }
}

/// Current and peak resident memory of a process in bytes.
///
/// # Errors
/// If the process has ended, or the system has no `/proc`.
pub fn memory_of(pid: u32) -> Result<(u64, u64)> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let kilobytes = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let (now, most) = (kilobytes("VmRSS:"), kilobytes("VmHWM:"));
    Ok((now.context("no VmRSS")? * 1024, most.context("no VmHWM")? * 1024))
}

fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot find a free port")?;
    listener.local_addr().context("cannot find a free port")
}

/// End of a log, for error messages.
fn tail(log: &Path) -> String {
    let mut text = String::new();
    if let Ok(file) = std::fs::File::open(log) {
        // An unreadable log must not hide the reported error.
        let _ = file.take(1 << 20).read_to_string(&mut text);
    }
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(8)..).unwrap_or_default().join("\n")
}

/// Requests a page and returns its body.
async fn get(address: SocketAddr, path: &str) -> Result<String> {
    let ask = async {
        let mut connection = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = tokio::time::timeout(Duration::from_secs(10), ask).await.context("no answer")??;
    let (head, body) = answer.split_once("\r\n\r\n").context("not an HTTP answer")?;
    if !head.starts_with("HTTP/1.1 200") {
        bail!("{path} answered {}", head.lines().next().unwrap_or_default());
    }
    Ok(body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_of_others_is_what_is_neither_idle_nor_known() {
        let at = |text: &str| MachineTimes::parse(text).expect("the form of /proc/stat");
        let (before, after) =
            (at("cpu  100 0 0 100 0 0 0 0 0 0\n"), at("cpu  200 0 50 150 0 0 0 0 0 0\ncpu0 1\n"));
        let foreign = after.foreign_since(&before, Duration::from_millis(500));
        assert!((foreign - 0.5).abs() < 1e-9, "1.5 s busy, 0.5 s known, 2 s in all: {foreign}");
        assert!(MachineTimes::parse("nothing").is_none());
    }

    #[test]
    fn cpu_time_is_counted_by_thread() {
        let times = |rows: &[(u32, u64)], all| CpuTimes {
            threads: rows.iter().map(|(thread, used)| (*thread, Duration::from_millis(*used))).collect(),
            all: Duration::from_millis(all),
        };
        let before = times(&[(1, 10), (2, 5)], 10);
        let since = |rows: &[(u32, u64)], all| times(rows, all).since(&before).as_millis();
        assert_eq!(since(&[(1, 12), (3, 4)], 20), 6, "a new thread counts, one that ended does not");
        assert_eq!(since(&[(1, 12), (3, 4)], 110), 100, "unless it used more than a few hundredths");
    }

    #[test]
    fn the_time_of_a_process_is_read_whatever_its_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 9 0 0 0 12 3 0 0 20 0 1 0 100 0 0";
        assert_eq!(CpuTimes::parse(stat), Some(Duration::from_millis(150)));
        assert_eq!(CpuTimes::parse("7 (a"), None);
    }
}
