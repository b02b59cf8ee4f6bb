//! Structured logs.

use clap::{Args, ValueEnum};
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// How logs are written.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Logging")]
pub(crate) struct Logging {
    /// Which logs: a level, or levels by module as in `info,pilotfish_xds=debug`
    #[arg(long, env = "PILOTFISH_LOG", value_name = "FILTER", default_value = "info", global = true)]
    pub(crate) log: String,
    /// How logs look
    #[arg(long, env = "PILOTFISH_LOG_FORMAT", value_enum, default_value = "text", global = true)]
    pub(crate) log_format: Format,
}

/// The format of logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// One readable line each; coloured on a terminal.
    Text,
    /// One JSON object each.
    Json,
}

/// The levels, from the least to the most.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Modules of others that say less than the rest, unless they are named. The client of Kubernetes logs every failed request as an error; its
/// caller logs once what that means. Those of HTTP and TLS warn of each frame that a client had better not sent, as often as it sends one.
const QUIET: [(&str, &str); 4] =
    [("kube_client", "off"), ("h2", "error"), ("hyper", "error"), ("rustls", "error")];

impl Logging {
    /// # Errors
    /// When the filter cannot be read, or has a single word that is neither a level nor a module: nothing would be logged.
    fn filter(&self) -> anyhow::Result<EnvFilter> {
        let words = self.log.split(',').map(str::trim);
        if let Some(word) = words.into_iter().find(|word| is_misspelt_level(word)) {
            anyhow::bail!(
                "--log {:?}: {word:?} is not a level: {}; levels by module are written as in info,pilotfish_xds=debug",
                self.log,
                LEVELS.join(", ")
            );
        }
        let quiet = QUIET.iter().filter(|(module, _)| !self.log.contains(module));
        let quiet: String = quiet.map(|(module, level)| format!(",{module}={level}")).collect();
        EnvFilter::try_new(format!("{}{quiet}", self.log))
            .map_err(|error| anyhow::anyhow!("--log {:?}: {error} (a level such as info or debug)", self.log))
    }

    /// Turns logging on for the whole process; `writer` is where lines go.
    ///
    /// # Errors
    /// When the filter cannot be read.
    pub(crate) fn start<W>(&self, writer: W) -> anyhow::Result<()>
    where
        W: for<'a> tracing_subscriber::fmt::MakeWriter<'a> + Send + Sync + 'static,
    {
        let filter = self.filter()?;
        // A line that cannot be written is lost: to complain of that on stderr panics where stderr is on the same full disk.
        let builder = tracing_subscriber::fmt().log_internal_errors(false);
        let builder = builder.with_env_filter(filter).with_writer(writer);
        match self.log_format {
            Format::Json => builder.json().init(),
            Format::Text => builder.with_ansi(std::io::stderr().is_terminal()).with_target(false).init(),
        }
        Ok(())
    }
}

/// Whether a directive of a filter is a word that tracing would take for a module, and that is none: a module of ours or of a
/// dependency has an underscore or a path, but for a few short ones.
fn is_misspelt_level(directive: &str) -> bool {
    const MODULES: [&str; 10] =
        ["pilotfish", "axum", "h2", "hyper", "kube", "notify", "rustls", "tokio", "tonic", "tower"];
    let is_level = LEVELS.iter().any(|level| directive.eq_ignore_ascii_case(level));
    let is_number = directive.parse::<u8>().is_ok_and(|number| number <= 5);
    let is_word = directive.chars().all(|c| c.is_ascii_alphanumeric());
    is_word && !directive.is_empty() && !is_level && !is_number && !MODULES.contains(&directive)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(log: &str) -> Result<(), String> {
        let logging = Logging { log: log.to_owned(), log_format: Format::Text };
        logging.filter().map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn what_clients_can_make_others_say_is_not_logged_unless_it_is_asked_for() {
        let filter = |log: &str| {
            let logging = Logging { log: log.to_owned(), log_format: Format::Text };
            logging.filter().unwrap().to_string()
        };
        for (module, level) in QUIET {
            assert!(filter("info").contains(&format!("{module}={level}")), "{module}");
            let asked = filter(&format!("info,{module}=debug"));
            assert!(
                asked.contains(&format!("{module}=debug")) && !asked.contains(&format!("{module}={level}"))
            );
        }
    }

    #[test]
    fn a_word_that_is_no_level_is_refused() {
        for good in
            ["info", "DEBUG", "off", "info,pilotfish_xds=debug", "pilotfish", "warn,h2=trace", "", "3"]
        {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for wrong in ["verbose", "info,verbose", "warning"] {
            let error = check(wrong).unwrap_err();
            assert!(error.contains("is not a level: off, error, warn, info, debug, trace"), "{error}");
        }
        assert!(check("pilotfish_xds=verbose").is_err());
    }
}
