//! Running other programs.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::workspace;

/// A command in the root of the repository without standard input.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(workspace::root()).stdin(Stdio::null());
    command
}

/// The Cargo that runs this task, so that the pinned toolchain is used.
pub(crate) fn cargo() -> Command {
    let mut command = command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Set by the `cargo run` of this task. Build scripts that read them would run again, and with them most
    // crates be compiled again, each time that Cargo is called here after a shell and the reverse.
    let is_of_run = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_of_run) {
            command.env_remove(name);
        }
    }
    command
}

/// Command line for messages.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    std::iter::once(program)
        .chain(command.get_args())
        .map(|part| {
            let part = part.to_string_lossy();
            if part.is_empty() || part.contains([' ', '\'', '*', '{']) {
                format!("'{part}'")
            } else {
                part.into()
            }
        })
        .collect::<Vec<_>>()
        .join(" ")
}

/// Runs a command with its output on the terminal. `Ok(false)` when it ran and failed.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn succeeds(command: &mut Command) -> Result<bool> {
    let status = command.status().with_context(|| format!("cannot start `{}`", shown(command)))?;
    Ok(status.success())
}

/// Runs a command with its output on the terminal.
///
/// # Errors
/// When it cannot be started or fails.
pub(crate) fn check(command: &mut Command) -> Result<()> {
    if !succeeds(command)? {
        bail!("`{}` failed", shown(command));
    }
    Ok(())
}

/// Runs a command and returns its stdout.
///
/// # Errors
/// When it cannot be started or fails; the message has the end of its stderr.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start `{}`", shown(command)))?;
    if !output.status.success() {
        let all = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = all.trim().lines().collect();
        let tail =
            lines.iter().skip(lines.len().saturating_sub(12)).copied().collect::<Vec<_>>().join("\n  ");
        bail!("`{}` failed ({}):\n  {tail}", shown(command), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a command, passes its stdout on line by line, and passes each line to `on_line`.
///
/// # Errors
/// When it cannot be started or its output cannot be read.
pub(crate) fn watch(command: &mut Command, mut on_line: impl FnMut(&str)) -> Result<bool> {
    let name = shown(command);
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start `{name}`"))?;
    let stdout = child.stdout.take().context("the output of the command was not captured")?;
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line.with_context(|| format!("cannot read the output of `{name}`"))?;
        let line = String::from_utf8_lossy(&line);
        on_line(&line);
        writeln!(std::io::stdout(), "{line}").context("cannot write to stdout")?;
    }
    Ok(child.wait().with_context(|| format!("cannot wait for `{name}`"))?.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_command_can_be_typed_again() {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["score.py", "--only", "vs-*", ""]);
        assert_eq!(shown(&command), "python3 score.py --only 'vs-*' ''");
    }

    #[test]
    fn a_failure_has_the_output_of_the_program() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo words >&2; exit 3"]);
        let error = output(&mut command).expect_err("exit 3").to_string();
        assert!(error.contains("words"), "{error}");
    }
}
