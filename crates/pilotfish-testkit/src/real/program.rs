//! Programs that tests start.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::process::{Child, Command};

/// Ports that no system gives to outgoing connections: one of those could take a port between its choice and its use.
const PORTS: std::ops::Range<u32> = 20_000..32_000;

/// A port of loopback that was free a moment ago, and that this process has not given out before.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Tests of two checkouts at a time begin at different places.
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

/// What `cargo xtask tools` brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// Envoy.
    Envoy,
    /// Python with grpcio and the xDS messages.
    Python,
    /// The store of a Kubernetes API server.
    Etcd,
    /// The client of that store, by which people write to it.
    Etcdctl,
    /// A Kubernetes API server.
    KubeApiserver,
    /// Node's packages with gRPC and its xDS; `node` itself is the machine's.
    NodePackages,
    /// Helm, which renders the chart.
    Helm,
    /// Promtool, which checks and tests rules for Prometheus.
    Promtool,
    /// A folder with iptables and iproute2.
    Iptables,
    /// The library that gives programs other clocks.
    Faketime,
    /// A folder with BIND's `named` and `nsupdate`.
    Bind,
    /// A server that speaks as Nacos does.
    Rnacos,
    /// A JDK.
    Jdk,
    /// A project of `crates/pilotfish/tests/java`, compiled, with its jars.
    JavaProject(&'static str),
    /// The folder with the jars of ZooKeeper.
    ZooKeeper,
    /// What unpacks images.
    Umoci,
    /// What runs containers.
    Runc,
    /// The layout of the image, which `cargo xtask image` makes.
    Image,
}

impl Tool {
    /// The program, or the folder of packages. `None` when it is missing and is not required; in CI that is a failure.
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

/// A running program, its output in a file. Killed when dropped.
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

    /// How many files and sockets it has open.
    ///
    /// # Panics
    /// When it has ended, or where there is no `/proc`.
    #[must_use]
    pub fn open_files(&self) -> usize {
        let id = self.child.id().expect("it runs");
        std::fs::read_dir(format!("/proc/{id}/fd")).expect("Linux has /proc").count()
    }

    /// The file to which it prints.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// What it has printed so far.
    #[must_use]
    pub fn printed(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its process id; 0 when it has ended.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// Kills it at once, as a crash would, and waits until it is gone.
    pub async fn kill(&mut self) {
        // It may have ended already, which is what was wanted.
        let _ = self.child.kill().await;
    }

    /// Asks it to stop (SIGTERM).
    ///
    /// # Panics
    /// When there is no `kill`.
    pub async fn terminate(&mut self) {
        self.signal("-TERM").await;
    }

    /// Freezes it (SIGSTOP): it does nothing any more, and does not know.
    ///
    /// # Panics
    /// When there is no `kill`.
    pub async fn freeze(&mut self) {
        self.signal("-STOP").await;
    }

    /// Lets it go on after [`freeze`](Self::freeze).
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

    /// Waits for its end and gives the exit code.
    ///
    /// # Panics
    /// When it does not end in time.
    pub async fn ended(&mut self) -> Option<i32> {
        let end = tokio::time::timeout(super::LIMIT, self.child.wait()).await;
        end.expect("it ends in time").expect("it can be waited for").code()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}
