//! A real etcd, and etcdctl to write to it.

use super::{Program, Tool, eventually, free_port};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tokio::process::Command;

/// Members of one cluster. They keep their ports when they are restarted.
pub struct Etcd {
    folder: TempDir,
    members: Vec<Member>,
    tls: Option<EtcdTls>,
    /// Additional arguments of `etcd`.
    arguments: Vec<String>,
    /// Generation of the data: members of different generations must not form a cluster.
    life: u32,
}

/// PEM files for TLS.
#[derive(Clone, Debug)]
pub struct EtcdTls {
    /// Certificate and key of the server.
    pub server: (PathBuf, PathBuf),
    /// Certificate of the authority that signed both ends.
    pub ca: PathBuf,
    /// Certificate and key of etcdctl; if set, the server requires client certificates.
    pub client: Option<(PathBuf, PathBuf)>,
}

struct Member {
    client: u16,
    peer: u16,
    program: Program,
}

impl Etcd {
    /// Starts one member without TLS. `None` where there is no etcd and it is not required.
    pub async fn start() -> Option<Self> {
        Self::start_with(1, None, &[]).await
    }

    /// Starts members with TLS or additional arguments.
    ///
    /// # Panics
    /// When they do not come up.
    pub async fn start_with(members: usize, tls: Option<EtcdTls>, arguments: &[&str]) -> Option<Self> {
        let (tool, _) = (Tool::Etcd.find()?, Tool::Etcdctl.find()?);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let ports: Vec<(u16, u16)> = (0..members).map(|_| (free_port(), free_port())).collect();
        let mut this = Self {
            folder,
            members: Vec::new(),
            tls,
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            life: 0,
        };
        for index in 0..members {
            let program = this.launch(&tool, index, &ports);
            let (client, peer) = ports[index];
            this.members.push(Member { client, peer, program });
        }
        this.answers().await;
        Some(this)
    }

    fn launch(&self, tool: &Path, index: usize, ports: &[(u16, u16)]) -> Program {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let (client, peer) = ports[index];
        let (client, peer) = (format!("{scheme}://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        let cluster: Vec<String> = ports
            .iter()
            .enumerate()
            .map(|(index, (_, peer))| format!("m{index}=http://127.0.0.1:{peer}"))
            .collect();
        let mut command = Command::new(tool);
        command.arg("--data-dir").arg(self.folder.path().join(format!("data-{}-{index}", self.life)));
        command.args(["--name", &format!("m{index}"), "--initial-cluster", &cluster.join(",")]);
        command.args(["--initial-cluster-token", &format!("life-{}", self.life)]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--log-level", "warn", "--logger", "zap"]).args(&self.arguments);
        if let Some(tls) = &self.tls {
            command.arg("--cert-file").arg(&tls.server.0).arg("--key-file").arg(&tls.server.1);
            command.arg("--trusted-ca-file").arg(&tls.ca);
            if tls.client.is_some() {
                command.arg("--client-cert-auth");
            }
        }
        Program::start(&mut command, self.folder.path().join(format!("etcd-{index}.log")))
    }

    /// Waits until it accepts writes.
    pub async fn answers(&self) {
        eventually("etcd answers", || async {
            let answer = self.try_ctl(&["endpoint", "health"]).await;
            answer.map_err(|error| format!("{error}\n{}", self.members[0].program.printed()))
        })
        .await;
    }

    /// Client port of a member.
    #[must_use]
    pub fn port(&self, member: usize) -> u16 {
        self.members[member].client
    }

    /// Process of a member.
    pub fn program(&mut self, member: usize) -> &mut Program {
        &mut self.members[member].program
    }

    /// Restarts a killed member with its data.
    ///
    /// # Panics
    /// When etcd was removed since the start.
    pub fn restart(&mut self, member: usize) {
        let tool = Tool::Etcd.find().expect("it was there before");
        let ports: Vec<_> = self.members.iter().map(|member| (member.client, member.peer)).collect();
        self.members[member].program = self.launch(&tool, member, &ports);
    }

    /// Kills all members and restarts them without data, as another cluster on the same ports.
    pub async fn lose_everything(&mut self) {
        for member in &mut self.members {
            member.program.kill().await;
        }
        self.life += 1;
        for member in 0..self.members.len() {
            self.restart(member);
        }
        self.answers().await;
    }

    /// Sets a key, once the members have a leader.
    pub async fn put(&self, key: &str, value: &str) {
        eventually("etcd takes a key", || async { self.try_ctl(&["put", "--", key, value]).await }).await;
    }

    /// Sets a key to the content of a file, which may be longer than an argument.
    ///
    /// # Panics
    /// When it fails.
    pub async fn put_file(&self, key: &str, value: &Path) {
        let mut command = self.command(&["put", "--", key]);
        command.stdin(std::fs::File::open(value).expect("the file is there"));
        let output = command.output().await.expect("etcdctl runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Removes a key, once the members have a leader.
    pub async fn delete(&self, key: &str) {
        eventually("etcd removes a key", || async { self.try_ctl(&["del", "--", key]).await }).await;
    }

    /// Runs etcdctl and returns its output.
    ///
    /// # Panics
    /// When it fails.
    pub async fn ctl(&self, arguments: &[&str]) -> String {
        let answer = self.try_ctl(arguments).await;
        answer.unwrap_or_else(|error| panic!("etcdctl {arguments:?}: {error}"))
    }

    /// Starts etcdctl, which runs until the program is dropped.
    #[must_use]
    pub fn start_ctl(&self, arguments: &[&str]) -> Program {
        Program::start(&mut self.command(arguments), self.folder.path().join("etcdctl.log"))
    }

    /// Runs puts and deletes in a transaction, so that all have one revision. A key without a value is
    /// deleted.
    ///
    /// # Panics
    /// When it fails.
    pub async fn transaction(&self, changes: &[(String, Option<String>)]) {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let line = |(key, value): &(String, Option<String>)| match value {
            Some(value) => format!("put {} {}\n", quoted(key), quoted(value)),
            None => format!("del {}\n", quoted(key)),
        };
        let text = format!("\n{}\n\n", changes.iter().map(line).collect::<String>());
        let file = self.folder.path().join("transaction");
        std::fs::write(&file, text).expect("the folder can be written");
        let mut command = self.command(&["txn"]);
        command.stdin(std::fs::File::open(&file).expect("it was written"));
        let output = command.output().await.expect("etcdctl runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    async fn try_ctl(&self, arguments: &[&str]) -> Result<String, String> {
        let output = self.command(arguments).output().await.map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let endpoints: Vec<String> =
            self.members.iter().map(|member| format!("{scheme}://127.0.0.1:{}", member.client)).collect();
        let mut command = Command::new(Tool::Etcdctl.find().expect("it was there before"));
        command.env("ETCDCTL_API", "3").arg(format!("--endpoints={}", endpoints.join(",")));
        if let Some(tls) = &self.tls {
            command.arg("--cacert").arg(&tls.ca);
            if let Some((certificate, key)) = &tls.client {
                command.arg("--cert").arg(certificate).arg("--key").arg(key);
            }
        }
        command.args(arguments);
        command
    }
}
