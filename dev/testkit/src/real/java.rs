//! Programs on the Java virtual machine: the projects in `crates/pilotfish/tests/java`.

use super::{LIMIT, Program, Tool};
use std::path::PathBuf;
use std::time::Duration;
use tokio::process::Command;

/// Timeout of a program's start: a JVM compiles much on a loaded machine.
pub(super) const START: Duration = LIMIT.saturating_mul(3);

/// A compiled project with its programs.
#[derive(Clone, Debug)]
pub struct Java {
    jvm: PathBuf,
    class_path: String,
    heap: &'static str,
}

impl Java {
    /// Finds the project of this name. `None` when it or a JVM is missing and is not required; in CI that is
    /// a failure.
    ///
    /// # Panics
    /// When something is missing although `CI` is set.
    #[must_use]
    pub fn find(project: &'static str) -> Option<Self> {
        let (jdk, project) = (Tool::Jdk.find()?, Tool::JavaProject(project).find()?);
        let class_path = format!("{}:{}/*", project.join("classes").display(), project.join("lib").display());
        Some(Self { jvm: jdk.join("bin/java"), class_path, heap: "256m" })
    }

    /// Sets the heap size, such as `2g`.
    #[must_use]
    pub fn with_heap(self, heap: &'static str) -> Self {
        Self { heap, ..self }
    }

    /// A command that runs a class; arguments can be added, but properties (`-D`) come first: see
    /// `properties`. The JVM is small, starts quickly, and uses IPv4 only, so that listeners without an
    /// address can be found.
    #[must_use]
    pub fn command(&self, properties: &[(&str, &str)], main: &str) -> Command {
        let mut command = Command::new(&self.jvm);
        command.arg(format!("-Xmx{}", self.heap));
        command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]);
        command.args(["-Djava.net.preferIPv4Stack=true", "-Djava.security.egd=file:/dev/urandom"]);
        command.args(properties.iter().map(|(name, value)| format!("-D{name}={value}")));
        command.arg("-cp").arg(&self.class_path).arg(main);
        command
    }
}

impl Program {
    /// Waits until it has printed a text.
    ///
    /// # Panics
    /// When it ends before, or on a timeout: with its output.
    pub async fn until_printed(&mut self, text: &str) {
        let deadline = tokio::time::Instant::now() + START;
        loop {
            let printed = self.printed();
            if printed.contains(text) {
                return;
            }
            let why = match self.is_running() {
                true if tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
                true => format!("not after {START:?}"),
                false => "it ended".to_owned(),
            };
            let tail: Vec<&str> = printed.lines().rev().take(40).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            panic!("it did not print {text:?} ({why}); its last lines:\n{}", tail.join("\n"));
        }
    }
}
