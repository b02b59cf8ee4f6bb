//! Programs that answer each input line with one output line.

use super::LIMIT;
use super::java::START;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// A running program. Its input is closed, and it is killed, on drop.
pub struct Dialogue {
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Dialogue {
    /// Starts it and waits until it has printed the line `ready`.
    ///
    /// # Panics
    /// When it cannot be started, or is not ready in time.
    pub async fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("the program starts");
        let input = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut dialogue = Self { _child: child, input, output };
        while dialogue.line(START).await != "ready" {}
        dialogue
    }

    /// Response to a line.
    ///
    /// # Panics
    /// When there is none in time.
    pub async fn ask(&mut self, line: &str) -> String {
        self.input.write_all(format!("{line}\n").as_bytes()).await.expect("the program reads");
        self.line(LIMIT).await
    }

    async fn line(&mut self, limit: Duration) -> String {
        let line = timeout(limit, self.output.next_line()).await.expect("the program answers in time");
        line.expect("its output can be read").expect("it goes on")
    }
}
