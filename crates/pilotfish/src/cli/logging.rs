//! Structured logs.

use clap::{Args, ValueEnum};
use parking_lot::Mutex;
use std::io::IsTerminal;
use std::sync::OnceLock;
use tracing_subscriber::EnvFilter;

/// The one of this process, as its subscriber is: `None` where logging was not turned on.
static CONTROL: OnceLock<LogControl> = OnceLock::new();

/// Changes which logs are written while the process runs.
pub(crate) struct LogControl {
    /// What was asked for at the start.
    configured: String,
    /// What is in force.
    current: Mutex<String>,
    reload: Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>,
}

/// What a SIGHUP turns on, and the next one off again.
const AT_SIGHUP: &str = "debug";

/// The control of this process's logs.
pub(crate) fn control() -> Option<&'static LogControl> {
    CONTROL.get()
}

impl LogControl {
    /// What was asked for at the start.
    pub(crate) fn configured(&self) -> &str {
        &self.configured
    }

    /// What is in force.
    pub(crate) fn current(&self) -> String {
        self.current.lock().clone()
    }

    /// Changes it.
    ///
    /// # Errors
    /// When the filter cannot be read.
    pub(crate) fn set(&self, filter: &str) -> anyhow::Result<()> {
        let parsed = parse(filter)?;
        let mut current = self.current.lock();
        let before = std::mem::replace(&mut *current, filter.to_owned());
        // In both states, so that it is seen whichever of them leaves it out.
        tracing::info!(before, now = filter, "the log level changes");
        (self.reload)(parsed).map_err(|error| anyhow::anyhow!("the log level cannot be changed: {error}"))
    }

    /// From what was asked for at the start to more, or back to it.
    pub(crate) fn toggle(&self) {
        let filter = if self.current() == self.configured { AT_SIGHUP } else { &self.configured };
        if let Err(error) = self.set(filter) {
            tracing::error!(%error, "SIGHUP");
        }
    }
}

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
        parse(&self.log).map_err(|error| error.context(format!("--log {:?}", self.log)))
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
            Format::Json => {
                let builder = builder.json().with_filter_reloading();
                let handle = builder.reload_handle();
                builder.init();
                self.control(move |filter| handle.reload(filter).map_err(|error| error.to_string()));
            }
            Format::Text => {
                let builder = builder.with_ansi(std::io::stderr().is_terminal()).with_target(false);
                let builder = builder.with_filter_reloading();
                let handle = builder.reload_handle();
                builder.init();
                self.control(move |filter| handle.reload(filter).map_err(|error| error.to_string()));
            }
        }
        Ok(())
    }

    fn control(&self, reload: impl Fn(EnvFilter) -> Result<(), String> + Send + Sync + 'static) {
        let current = Mutex::new(self.log.clone());
        let control = LogControl { configured: self.log.clone(), current, reload: Box::new(reload) };
        // Logging is turned on once.
        let _ = CONTROL.set(control);
    }
}

/// # Errors
/// When the filter cannot be read, or has a single word that is neither a level nor a module.
fn parse(log: &str) -> anyhow::Result<EnvFilter> {
    if let Some(word) = log.split(',').map(str::trim).find(|word| is_misspelt_level(word)) {
        anyhow::bail!(
            "{word:?} is not a level: {}; levels by module are written as in info,pilotfish_xds=debug",
            LEVELS.join(", ")
        );
    }
    let quiet = QUIET.iter().filter(|(module, _)| !log.contains(module));
    let quiet: String = quiet.map(|(module, level)| format!(",{module}={level}")).collect();
    EnvFilter::try_new(format!("{log}{quiet}"))
        .map_err(|error| anyhow::anyhow!("{error} (a level such as info or debug)"))
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
        logging.filter().map(drop).map_err(|error| format!("{error:#}"))
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
