//! Programs that tests start.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::process::{Child, Command};

/// Ports outside of the ephemeral range: the system could assign those to outgoing connections between their
/// choice and their use.
const PORTS: std::ops::Range<u32> = 20_000..32_000;

/// A loopback port that was free just now, and that this process has not returned before.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Different start for concurrent tests of two checkouts.
    let first = std::process::id().wrapping_mul(331);
    let ports = PORTS.end - PORTS.start;
    for _ in 0..ports {
        let number = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % ports + PORTS.start;
        let port = u16::try_from(number).expect("the range is one of ports");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no port of {PORTS:?} is free on loopback")
}

/// Tools of `cargo xtask tools`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    Envoy,
    /// Python with grpcio and the xDS messages.
    Python,
    /// Store of a Kubernetes API server.
    Etcd,
    /// Command-line client of etcd.
    Etcdctl,
    KubeApiserver,
    /// Packages for Node.js with gRPC and its xDS; `node` itself is the machine's.
    NodePackages,
    /// Helm, which renders the chart.
    Helm,
    /// Promtool, which checks and tests rules for Prometheus.
    Promtool,
    /// Folder with iptables and iproute2.
    Iptables,
    /// Library that changes the clocks of programs.
    Faketime,
    /// Folder with BIND's `named` and `nsupdate`.
    Bind,
    /// A server that is compatible with Nacos.
    Rnacos,
    Jdk,
    /// A project in `crates/pilotfish/tests/java`, compiled, with its jars.
    JavaProject(&'static str),
    /// Folder with the jars of ZooKeeper.
    ZooKeeper,
    /// Tool that unpacks images.
    Umoci,
    /// Tool that runs containers.
    Runc,
    /// Folder with `chromium`, a headless browser.
    Chromium,
    /// Packages of the dashboard and of its tests.
    DashboardPackages,
    /// Layout of the image that `cargo xtask image` builds.
    Image,
}

impl Tool {
    /// Path of the program, or of the folder. `None` when it is missing and is not required; in CI that is a
    /// failure.
    ///
    /// # Panics
    /// When it is missing although `CI` is set.
    #[must_use]
    pub fn find(self) -> Option<PathBuf> {
        let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools");
        let tools = std::env::var_os("PILOTFISH_TOOLS").map_or(tools, PathBuf::from);
        let path = match self {
            Self::Envoy => tools.join("envoy"),
            Self::Python => tools.join("venv/bin/python"),
            Self::Etcd => tools.join("etcd"),
            Self::Etcdctl => tools.join("etcdctl"),
            Self::KubeApiserver => tools.join("kube-apiserver"),
            Self::NodePackages => tools.join("node/node_modules"),
            Self::Helm => tools.join("helm"),
            Self::Promtool => tools.join("promtool"),
            Self::Iptables => tools.join("iptables"),
            Self::Faketime => tools.join("libfaketime.so.1"),
            Self::Bind => tools.join("bind"),
            Self::Rnacos => tools.join("rnacos/bin/rnacos"),
            Self::Jdk => tools.join("java/jdk"),
            Self::ZooKeeper => tools.join("zookeeper"),
            Self::JavaProject(name) => tools.join("java").join(name),
            Self::Umoci => tools.join("umoci"),
            Self::Runc => tools.join("runc"),
            Self::Chromium => tools.join("chromium"),
            Self::DashboardPackages => tools.join("dashboard/node_modules"),
            Self::Image => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/image/oci"),
        };
        if path.exists() {
            return Some(path);
        }
        let task = if self == Self::Image { "image" } else { "tools" };
        assert!(std::env::var_os("CI").is_none(), "{} is missing: run `cargo xtask {task}`", path.display());
        None
    }
}

/// A running program with its output in a file. Killed on drop.
pub struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    /// Starts it with its output going to `log`.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(command: &mut Command, log: PathBuf) -> Self {
        let file = File::options().create(true).append(true).open(&log).expect("the log can be written");
        let copy = file.try_clone().expect("a file can be shared");
        let child = command.stdin(Stdio::null()).stdout(file).stderr(copy).kill_on_drop(true).spawn();
        Self { child: child.expect("the program starts"), log }
    }

    /// Number of its open files and sockets.
    ///
    /// # Panics
    /// When it has ended, or where there is no `/proc`.
    #[must_use]
    pub fn open_files(&self) -> usize {
        let id = self.child.id().expect("it runs");
        std::fs::read_dir(format!("/proc/{id}/fd")).expect("Linux has /proc").count()
    }

    /// File with its output.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Output so far.
    #[must_use]
    pub fn printed(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Process id; 0 when it has ended.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// Kills it like a crash, and waits for its end.
    pub async fn kill(&mut self) {
        // Fails if it has already ended.
        let _ = self.child.kill().await;
    }

    /// Sends SIGTERM.
    ///
    /// # Panics
    /// When there is no `kill`.
    pub async fn terminate(&mut self) {
        self.signal("-TERM").await;
    }

    /// Freezes it with SIGSTOP.
    ///
    /// # Panics
    /// When there is no `kill`.
    pub async fn freeze(&mut self) {
        self.signal("-STOP").await;
    }

    /// Resumes it after [`freeze`](Self::freeze).
    ///
    /// # Panics
    /// When there is no `kill`.
    pub async fn thaw(&mut self) {
        self.signal("-CONT").await;
    }

    async fn signal(&mut self, signal: &str) {
        if let Some(id) = self.child.id() {
            let kill = Command::new("kill").args([signal, &id.to_string()]).status().await;
            kill.expect("a Unix has `kill`");
        }
    }

    /// Waits for its end and returns the exit code.
    ///
    /// # Panics
    /// On a timeout.
    pub async fn ended(&mut self) -> Option<i32> {
        let end = tokio::time::timeout(super::LIMIT, self.child.wait()).await;
        end.expect("it ends in time").expect("it can be waited for").code()
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}
