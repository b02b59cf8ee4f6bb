//! A real ZooKeeper, and clients that write its nodes.

use super::{Dialogue, Java, Program, Tool, eventually, free_port};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::timeout;

/// A running ZooKeeper on its own port, which it keeps when it is restarted.
pub struct ZooKeeper {
    program: Option<Program>,
    jvm: PathBuf,
    jars: PathBuf,
    folder: TempDir,
    port: u16,
    secure_port: Option<u16>,
}

impl ZooKeeper {
    /// Starts a server. `None` when it or a JVM is missing and is not required; in CI that is a failure.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start() -> Option<Self> {
        Self::start_with(None).await
    }

    /// Starts a server with an additional TLS port: certificates of authorities, then certificate and key of
    /// the server, in PEM. Clients need a certificate.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start_secure(authorities: &str, server: &str) -> Option<Self> {
        Self::start_with(Some((authorities, server))).await
    }

    async fn start_with(tls: Option<(&str, &str)>) -> Option<Self> {
        let (jdk, jars) = (Tool::Jdk.find()?, Tool::ZooKeeper.find()?);
        let folder = tempfile::tempdir().expect("a folder can be made");
        let secure_port = tls.map(|_| free_port());
        let mut settings = format!(
            "tickTime=500\nminSessionTimeout=500\nmaxClientCnxns=0\ndataDir={}\n",
            folder.path().join("data").display()
        );
        let port = free_port();
        let _ = write!(
            settings,
            "clientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n4lw.commands.whitelist=*\n"
        );
        if let (Some((authorities, server)), Some(port)) = (tls, secure_port) {
            let file = |name: &str, text: &str| {
                let path = folder.path().join(name);
                std::fs::write(&path, text).expect("a file can be written");
                path.display().to_string()
            };
            let _ = write!(
                settings,
                "secureClientPort={port}\nsecureClientPortAddress=127.0.0.1\n\
                 serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
                 ssl.keyStore.location={}\nssl.keyStore.type=PEM\nssl.trustStore.location={}\nssl.trustStore.type=PEM\n",
                file("server.pem", server),
                file("authorities.pem", authorities),
            );
        }
        std::fs::write(folder.path().join("zoo.cfg"), settings).expect("a file can be written");
        let jvm = jdk.join("bin/java");
        let mut started = Self { program: None, jvm, jars, folder, port, secure_port };
        started.start_again().await;
        Some(started)
    }

    /// Restarts it after [`ZooKeeper::kill`], and waits until it serves.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start_again(&mut self) {
        let mut command = Command::new(&self.jvm);
        command.args([
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Djava.net.preferIPv4Stack=true",
        ]);
        command.args(["-Dzookeeper.jmx.log4j.disable=true", "-Dzookeeper.admin.enableServer=false", "-cp"]);
        command
            .arg(format!("{}/*", self.jars.display()))
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain");
        command.arg(self.folder.path().join("zoo.cfg"));
        self.program = Some(Program::start(&mut command, self.folder.path().join("log")));
        eventually("ZooKeeper serves", || async {
            match self.command("srvr").await {
                Ok(text) if text.contains("Mode:") => Ok(()),
                other => Err((other, self.printed())),
            }
        })
        .await;
    }

    /// Response to a four-letter command.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub async fn command(&self, word: &str) -> std::io::Result<String> {
        let exchange = async {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
            stream.write_all(word.as_bytes()).await?;
            let mut text = String::new();
            stream.read_to_string(&mut text).await?;
            Ok(text)
        };
        // A connection that is accepted just before the server is ready is never answered.
        timeout(Duration::from_secs(2), exchange).await?
    }

    /// A value of its `mntr` command.
    ///
    /// # Panics
    /// When it does not respond, or there is no such value.
    pub async fn figure(&self, name: &str) -> f64 {
        let text = eventually("ZooKeeper shows its figures", || self.command("mntr")).await;
        let found = text.lines().filter_map(|line| line.split_once('\t')).find(|(key, _)| *key == name);
        found
            .and_then(|(_, value)| value.trim().parse().ok())
            .unwrap_or_else(|| panic!("no {name} in {text}"))
    }

    /// Kills it like a crash.
    ///
    /// # Panics
    /// When it does not run.
    pub async fn kill(&mut self) {
        self.program().kill().await;
    }

    /// Removes all of its data. It must be killed first.
    ///
    /// # Panics
    /// When a folder cannot be removed.
    pub fn lose_state(&self) {
        std::fs::remove_dir_all(self.folder.path().join("data")).expect("the folder can be removed");
    }

    /// Process of the server.
    ///
    /// # Panics
    /// When it was never started.
    pub fn program(&mut self) -> &mut Program {
        self.program.as_mut().expect("it was started")
    }

    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Address of the TLS port as `HOST:PORT`.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn secure_address(&self) -> String {
        format!("127.0.0.1:{}", self.secure_port.expect("it was started with TLS"))
    }

    /// Output so far.
    #[must_use]
    pub fn printed(&self) -> String {
        self.program.as_ref().map(Program::printed).unwrap_or_default()
    }

    /// Folder with the lifetime of the server.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts a client that writes nodes, with `USER:PASSWORD` if required. `None` as for [`Java::find`].
    pub async fn nodes(&self, secret: Option<&str>) -> Option<Nodes> {
        let java = Java::find("dubbo")?;
        let quiet = [("org.slf4j.simpleLogger.defaultLogLevel", "error")];
        let mut command = java.command(&quiet, "pilotfish.dubbo.Nodes");
        command.arg(self.address()).args(secret);
        Some(Nodes(Dialogue::start(&mut command).await))
    }
}

/// Writes nodes with ZooKeeper's own client, and Curator's: see `Nodes.java`.
pub struct Nodes(Dialogue);

impl Nodes {
    /// Runs a command.
    ///
    /// # Panics
    /// When it fails.
    pub async fn run(&mut self, command: &str) {
        assert_eq!(self.0.ask(command).await, "ok", "{command}");
    }
}
