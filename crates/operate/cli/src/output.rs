//! Output formats and colours.

use crate::error::CliError;
use crate::terminal::{cleaned, one_line};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// Output format (flag `--output`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables and sentences for people.
    #[default]
    Text,
    Json,
    Yaml,
}

/// The flags of all commands that print an answer.
#[derive(Args, Clone, Copy, Debug)]
pub struct Output {
    /// Format of the output
    #[arg(short = 'o', long = "output", value_enum, default_value = "text", value_name = "FORMAT")]
    pub format: Format,
}

/// The flag of commands that can go on.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Watch {
    /// Shows the answer again and again, every 2s or as often as this says, until Ctrl-C
    #[arg(
        short, long, value_name = "EVERY", num_args = 0..=1, require_equals = true,
        default_missing_value = "2s", value_parser = crate::time::parse_duration
    )]
    pub(crate) watch: Option<Duration>,
}

/// Meaning of a colour; terminals map it to an escape sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    Good,
    Doubtful,
    Bad,
    Faint,
}

/// Output target: a terminal has colours.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// True if colours are supported.
    pub(crate) colour: bool,
}

impl Screen {
    /// Returns standard output, with colours if it is a terminal and `NO_COLOR` and `TERM` allow them.
    #[must_use]
    pub fn stdout() -> Self {
        let wants = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let can = std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self { colour: wants && can && std::io::stdout().is_terminal() }
    }

    #[cfg(test)]
    pub(crate) fn plain() -> Self {
        Self { colour: false }
    }

    /// Text without characters that the terminal would interpret.
    pub(crate) fn cleaned<'a>(&self, text: &'a str) -> std::borrow::Cow<'a, str> {
        cleaned(text, self.colour)
    }

    /// Colours a line if the screen has colours.
    pub(crate) fn paint(&self, text: &str, colour: Colour) -> String {
        if !self.colour {
            return text.to_owned();
        }
        let code = match colour {
            Colour::Good => 32,
            Colour::Doubtful => 33,
            Colour::Bad => 31,
            Colour::Faint => 2,
        };
        format!("\u{1b}[{code}m{}\u{1b}[0m", one_line(text))
    }
}

impl Output {
    /// Writes a response to stdout; `text` renders the text format.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write<T: Serialize>(
        &self,
        answer: &T,
        text: impl FnOnce(&Screen) -> String,
    ) -> Result<(), CliError> {
        let out = match self.format {
            Format::Text => {
                let screen = Screen::stdout();
                screen.cleaned(&text(&screen)).into_owned()
            }
            Format::Json => json(answer)? + "\n",
            Format::Yaml => yaml(answer)?,
        };
        Ok(std::io::stdout().lock().write_all(out.as_bytes())?)
    }
}

/// Prints a message on stderr.
pub(crate) fn say(text: &str) {
    // Fails if stderr is closed; the message is lost then.
    let _ = writeln!(std::io::stderr(), "{}", cleaned(text, false));
}

fn json<T: Serialize>(answer: &T) -> Result<String, CliError> {
    let text = serde_json::to_string_pretty(answer)
        .map_err(|error| CliError::new("the answer is no JSON").caused_by(error))?;
    // JSON escapes ASCII control characters. The others occur in strings only, where an escape is equivalent.
    let is_raw = |c: char| matches!(c, '\u{7f}'..='\u{9f}');
    if !text.contains(is_raw) {
        return Ok(text);
    }
    let escaped = |c: char| if is_raw(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    Ok(text.chars().map(escaped).collect())
}

/// Encodes a response as YAML.
pub(crate) fn yaml<T: Serialize>(answer: &T) -> Result<String, CliError> {
    let text = serde_saphyr::to_string(answer);
    let text =
        text.map_err(|error| CliError::new(format!("the answer cannot be written as YAML: {error}")))?;
    Ok(if text.ends_with('\n') { text } else { text + "\n" })
}

/// Clears the terminal before an answer is shown again.
pub(crate) fn clear() -> Result<(), CliError> {
    if std::io::stdout().is_terminal() {
        std::io::stdout().lock().write_all(b"\x1b[H\x1b[2J\x1b[3J")?;
    }
    Ok(())
}
