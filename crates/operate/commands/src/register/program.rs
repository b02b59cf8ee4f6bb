//! Child process of `pilotfish register`: start, signals and exit.

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use tokio::process::{Child, Command};
use tokio::signal::unix::{self, SignalKind};

/// Offset that shells add to the number of a fatal signal for the exit code.
const ENDED_BY_SIGNAL: i32 = 128;

/// Signals that are passed on to the program.
const PASSED_ON: [Signal; 6] =
    [Signal::TERM, Signal::INT, Signal::QUIT, Signal::HUP, Signal::USR1, Signal::USR2];

/// Child process of the command.
pub(super) struct Program {
    name: String,
    child: Child,
}

impl Program {
    /// Starts a command that inherits standard input and outputs, with the variable `PORT`. Dropping the
    /// value kills it.
    ///
    /// # Errors
    /// When the command does not exist or cannot be run.
    pub(super) fn start(command: &[OsString], port: u16) -> Result<Self> {
        let (program, arguments) = command.split_first().context("no command was given")?;
        let name = program.to_string_lossy().into_owned();
        let child =
            Command::new(program).args(arguments).env("PORT", port.to_string()).kill_on_drop(true).spawn();
        Ok(Self { child: child.with_context(|| format!("starting {name}"))?, name })
    }

    /// Returns its name for messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Waits for the program's end. Cancel-safe.
    ///
    /// # Errors
    /// When waiting for the process fails.
    pub(super) async fn ended(&mut self) -> Result<ExitStatus> {
        self.child.wait().await.with_context(|| format!("waiting for {}", self.name))
    }

    /// Sends a signal to the program, unless it has ended.
    pub(super) fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let Some(pid) = pid else { return };
        if let Err(error) = rustix::process::kill_process(pid, signal) {
            tracing::warn!(program = self.name, ?signal, %error, "the signal could not be passed on");
        }
    }
}

/// Returns the program's exit code, or 128 plus the number of the fatal signal, as shells do.
pub(super) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|number| ENDED_BY_SIGNAL + number));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// Handlers of the signals that this process receives.
pub(super) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Installs the handlers.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn listen() -> Result<Self> {
        let listen = |signal: Signal| {
            let kind = SignalKind::from_raw(signal.as_raw());
            Ok((signal, unix::signal(kind).with_context(|| format!("listening for {signal:?}"))?))
        };
        PASSED_ON.into_iter().map(listen).collect::<Result<_>>().map(Self)
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) -> Signal {
        let waiting = self.0.iter_mut().map(|(signal, stream)| {
            let signal = *signal;
            Box::pin(async move {
                // The stream ends only with the runtime.
                match stream.recv().await {
                    Some(()) => signal,
                    None => std::future::pending().await,
                }
            })
        });
        futures::future::select_all(waiting).await.0
    }
}

/// True for signals that end programs, before which the service must be deregistered.
pub(super) fn ends(signal: Signal) -> bool {
    matches!(signal, Signal::TERM | Signal::INT | Signal::QUIT | Signal::HUP)
}

/// True if a terminal has sent the program the same signal already: signals of keys are sent to all
/// foreground processes.
pub(super) fn is_sent_by_terminal(signal: Signal) -> bool {
    let stdin = std::io::stdin();
    matches!(signal, Signal::INT | Signal::QUIT)
        && stdin.is_terminal()
        && rustix::termios::tcgetpgrp(&stdin).is_ok_and(|foreground| foreground == rustix::process::getpgrp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        Program::start(&["sh".into(), "-c".into(), script.into()], 8001).unwrap()
    }

    #[tokio::test]
    async fn the_exit_code_is_that_of_the_program() {
        for (script, expected) in
            [("exit 0", 0), ("exit 7", 7), ("exit $((PORT - 8000))", 1), ("kill -9 $$", 137)]
        {
            assert_eq!(exit_code(shell(script).ended().await.unwrap()), expected, "{script}");
        }
    }

    #[tokio::test]
    async fn signals_reach_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let ready = folder.path().join("ready");
        let trap = "trap 'exit 3' USR1; : >";
        let mut program = shell(&format!("{trap} {}; while :; do sleep 0.01; done", ready.display()));
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !ready.exists() && std::time::Instant::now() < deadline {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        program.signal(Signal::USR1);
        assert_eq!(exit_code(program.ended().await.unwrap()), 3);
        program.signal(Signal::TERM);
    }

    #[test]
    fn a_command_that_is_not_there_is_named() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        let error = Program::start(&["no-such-program".into()], 1).err().unwrap();
        assert!(format!("{error:#}").starts_with("starting no-such-program: "), "{error:#}");
    }
}
