//! A real DNS server, BIND, with zones that tests change.

use super::{Program, Tool, eventually, free_port};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// An authoritative server for `example.com`, and for `broken.example.org`, whose zone it cannot load, so
/// that it responds with `SERVFAIL`.
pub struct NameServer {
    programs: PathBuf,
    folder: TempDir,
    program: Program,
    port: u16,
}

impl NameServer {
    /// Starts a server with these lines in the zone `example.com`, with a TTL of 1 s, also for negative
    /// responses. `None` without BIND.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start(lines: &str) -> Option<Self> {
        let (programs, port) = (Tool::Bind.find()?, free_port());
        let folder = tempfile::tempdir().expect("a folder can be made");
        write(folder.path(), "named.conf", &configuration(folder.path(), port));
        write_zone(folder.path(), lines);
        let program = run(&programs, folder.path()).await;
        Some(Self { programs, folder, program, port })
    }

    /// Changes the zone by lines for `nsupdate`, such as `add web.example.com 1 A 10.0.0.1` and `delete
    /// web.example.com A`.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn update(&self, lines: &[&str]) {
        let mut text = format!("server 127.0.0.1 {}\nzone example.com\n", self.port);
        for line in lines {
            let _ = writeln!(text, "update {line}");
        }
        text.push_str("send\n");
        let mut command = Command::new(self.programs.join("nsupdate"));
        command
            .arg("-v")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().expect("nsupdate starts");
        let mut input = child.stdin.take().expect("it is piped");
        input.write_all(text.as_bytes()).await.expect("it reads");
        drop(input);
        let output = child.wait_with_output().await.expect("it ends");
        assert!(output.status.success(), "{text}: {}", String::from_utf8_lossy(&output.stderr));
    }

    pub async fn kill(&mut self) {
        self.program.kill().await;
    }

    /// Restarts it with another zone, without earlier changes.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn restart(&mut self, lines: &str) {
        let journal = self.folder.path().join("example.com.zone.jnl");
        if journal.exists() {
            std::fs::remove_file(journal).expect("it can be removed");
        }
        write_zone(self.folder.path(), lines);
        self.program = run(&self.programs, self.folder.path()).await;
    }

    pub async fn freeze(&mut self) {
        self.program.freeze().await;
    }

    pub async fn thaw(&mut self) {
        self.program.thaw().await;
    }

    /// Port on 127.0.0.1, for UDP and TCP.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

async fn run(programs: &Path, folder: &Path) -> Program {
    let log = folder.join("named.log");
    if log.exists() {
        std::fs::remove_file(&log).expect("it can be removed");
    }
    let mut command = Command::new(programs.join("named"));
    command.args(["-g", "-c"]).arg(folder.join("named.conf"));
    let mut program = Program::start(&mut command, log);
    program.until_printed(" running\n").await;
    // It prints that before it listens on all addresses.
    eventually("named runs", || async {
        if program.printed().contains("all zones loaded") { Ok(()) } else { Err(()) }
    })
    .await;
    program
}

fn configuration(folder: &Path, port: u16) -> String {
    let folder = folder.display();
    format!(
        r#"options {{
            directory "{folder}"; pid-file none; session-keyfile none; managed-keys-directory "{folder}";
            listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }};
            recursion no; dnssec-validation no; notify no; empty-zones-enable no;
            max-udp-size 1232; minimal-responses yes;
        }};
        controls {{ }};
        zone "example.com" {{ type primary; file "example.com.zone"; allow-update {{ 127.0.0.1; }}; }};
        zone "broken.example.org" {{ type primary; file "not-there.zone"; }};
        "#
    )
}

fn write_zone(folder: &Path, lines: &str) {
    let head = "$TTL 1\n@ SOA ns hostmaster 1 3600 600 86400 1\n@ NS ns\nns A 127.0.0.1\n";
    write(folder, "example.com.zone", &format!("{head}{lines}\n"));
}

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).expect("the folder can be written");
}
