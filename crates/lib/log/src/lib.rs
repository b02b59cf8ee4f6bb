//! Structured logs of a process.

mod queue;

use crate::queue::{LogQueue, LogWriter};
use anyhow::Context;
use clap::{Args, ValueEnum};
use parking_lot::Mutex;
use pilotfish_runtime::is_control;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::{self, Write};
use std::io::IsTerminal;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::{MakeVisitor, VisitFmt, VisitOutput};
use tracing_subscriber::fmt::format::Writer;

/// Log control of this process, one like its subscriber; unset if logging was not started.
static CONTROL: OnceLock<LogControl> = OnceLock::new();

/// Log queue of this process; unset if logging was not started.
static QUEUE: OnceLock<Arc<LogQueue>> = OnceLock::new();

/// Time limit for writing the rest of the log when the process ends.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Control of the log filter at run time.
pub struct LogControl {
    /// Filter from the start of the process.
    configured: String,
    /// Filter that is in force at present.
    current: Mutex<String>,
    reload: Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>,
}

/// Filter that a SIGHUP turns on, and the next one off.
const AT_SIGHUP: &str = "debug";

/// Returns the log control of this process.
pub fn control() -> Option<&'static LogControl> {
    CONTROL.get()
}

/// Returns the number of dropped log lines of this process.
pub fn dropped_lines() -> u64 {
    QUEUE.get().map_or(0, |queue| queue.dropped())
}

/// Waits for the rest of the log to be written, with a short timeout in case that nobody reads it.
pub fn flush() {
    if let Some(queue) = QUEUE.get() {
        // The process ends either way.
        let _ = queue.flush(LAST_LINES);
    }
}

/// Prints a line to stderr, in order with the log if there is one.
pub fn print(line: &str) {
    match QUEUE.get() {
        Some(queue) => queue.push(format!("{line}\n").as_bytes()),
        None => {
            // A closed stderr is ignored.
            let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("{line}\n").as_bytes());
        }
    }
}

/// Logs panics through the queue, because the default hook would block on a stderr that nobody reads.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("unnamed");
        let backtrace = Backtrace::capture();
        let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
        tracing::error!(thread, backtrace, "{panic}");
    }));
}

impl LogControl {
    /// Returns the filter from the start of the process.
    pub fn configured(&self) -> &str {
        &self.configured
    }

    /// Returns the filter in force.
    pub fn current(&self) -> String {
        self.current.lock().clone()
    }

    /// Changes the filter.
    ///
    /// # Errors
    /// When the filter cannot be read.
    pub fn set(&self, filter: &str) -> anyhow::Result<()> {
        let parsed = parse(filter)?;
        let mut current = self.current.lock();
        let before = std::mem::replace(&mut *current, filter.to_owned());
        // Logged before and after the change, because either filter may suppress it.
        tracing::info!(before, now = filter, "the log level changes");
        (self.reload)(parsed).map_err(|error| anyhow::anyhow!("the log level cannot be changed: {error}"))
    }

    /// Switches from the filter of the start to `debug`, or back.
    pub fn toggle(&self) {
        let filter = if self.current() == self.configured { AT_SIGHUP } else { &self.configured };
        if let Err(error) = self.set(filter) {
            tracing::error!(%error, "SIGHUP");
        }
    }
}

/// Level and format of logs.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Logging")]
pub struct Logging {
    /// Logs to write: a level, or levels by module as in `info,pilotfish_xds=debug`
    #[arg(long, env = "PILOTFISH_LOG", value_name = "FILTER", default_value = "info", global = true)]
    pub log: String,
    /// Format of log lines
    #[arg(long, env = "PILOTFISH_LOG_FORMAT", value_enum, default_value = "text", global = true)]
    pub log_format: Format,
}

/// The format of logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One readable line each; coloured on a terminal.
    Text,
    /// One JSON object each.
    Json,
}

/// Levels, from the least to the most verbose.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Reduced levels of dependencies, unless the filter names them. The Kubernetes client logs every failed
/// request as an error, which its caller logs once with its meaning. HTTP and TLS libraries warn of each bad
/// frame that a client sends.
const QUIET: [(&str, &str); 4] =
    [("kube_client", "off"), ("h2", "error"), ("hyper", "error"), ("rustls", "error")];

/// Lines about changes of state by operators, which no filter turns off.
const AUDIT: (&str, &str) = ("audit", "info");

impl Logging {
    /// # Errors
    /// When the filter cannot be parsed, or has a single word that is neither a level nor a module, with
    /// which nothing would be logged.
    fn filter(&self) -> anyhow::Result<EnvFilter> {
        parse(&self.log).map_err(|error| error.context(format!("--log {:?}", self.log)))
    }

    /// Starts logging for the whole process. A separate thread writes the lines to `out`.
    ///
    /// # Errors
    /// When the filter cannot be read, or the thread cannot be started.
    pub fn start(&self, out: impl std::io::Write + Send + 'static) -> anyhow::Result<()> {
        let filter = self.filter()?;
        let queue = LogQueue::start(out).context("starting the thread that writes the log")?;
        // Logging is started once.
        let _ = QUEUE.set(queue.clone());
        let writer = move || LogWriter(queue.clone());
        // A line that cannot be written is lost: an error message on stderr would panic if stderr is on the
        // same full disk.
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
                let builder = builder.fmt_fields(Fields).with_filter_reloading();
                let handle = builder.reload_handle();
                builder.init();
                self.control(move |filter| handle.reload(filter).map_err(|error| error.to_string()));
            }
        }
        log_panics();
        Ok(())
    }

    fn control(&self, reload: impl Fn(EnvFilter) -> Result<(), String> + Send + Sync + 'static) {
        let current = Mutex::new(self.log.clone());
        let control = LogControl { configured: self.log.clone(), current, reload: Box::new(reload) };
        // Logging is started once.
        let _ = CONTROL.set(control);
    }
}

/// Formatter of the fields of a line. Values may be texts of others, such as the error message of a proxy, so
/// they are escaped: each event is one line without terminal escape sequences. The JSON format escapes values
/// already.
struct Fields;

impl<'a> MakeVisitor<Writer<'a>> for Fields {
    type Visitor = Line<'a>;

    fn make_visitor(&self, writer: Writer<'a>) -> Line<'a> {
        Line { writer, is_begun: false, result: Ok(()) }
    }
}

/// Writes `name=value`, or the message alone, with blanks between them.
struct Line<'a> {
    writer: Writer<'a>,
    is_begun: bool,
    result: fmt::Result,
}

impl Line<'_> {
    fn write(&mut self, name: &str, value: &dyn fmt::Debug) -> fmt::Result {
        if std::mem::replace(&mut self.is_begun, true) {
            self.writer.write_char(' ')?;
        }
        if name != "message" {
            if self.writer.has_ansi_escapes() {
                // Italic name, and a dim equals sign.
                write!(self.writer, "\u{1b}[3m{name}\u{1b}[0m\u{1b}[2m=\u{1b}[0m")?;
            } else {
                write!(self.writer, "{name}=")?;
            }
        }
        write!(Escaping(&mut self.writer), "{value:?}")
    }
}

/// Fields that are omitted if they are zero.
const SILENT_AT_ZERO: [&str; 4] = ["left_out", "after", "slowest", "registrations"];

/// Formatted zeros of numbers and durations.
const ZEROS: [&str; 2] = ["0", "0ns"];

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let is_silent = SILENT_AT_ZERO.contains(&field.name()) && ZEROS.contains(&&*format!("{value:?}"));
        if self.result.is_ok() && !is_silent {
            self.result = self.write(field.name(), value);
        }
    }

    fn record_error(&mut self, field: &Field, error: &(dyn std::error::Error + 'static)) {
        self.record_debug(field, &format_args!("{}", with_causes(error)));
    }
}

impl VisitOutput<fmt::Result> for Line<'_> {
    fn finish(self) -> fmt::Result {
        self.result
    }
}

impl VisitFmt for Line<'_> {
    fn writer(&mut self) -> &mut dyn fmt::Write {
        &mut self.writer
    }
}

/// Formats an error and its causes in one line. A cause with which the text before ends is not repeated,
/// because many errors include their cause.
pub fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.map(ToString::to_string).fold(error.to_string(), |text, cause| {
        if text.ends_with(&cause) { text } else { format!("{text}: {cause}") }
    })
}

/// Writes control characters, also those that turn the direction of writing, as Rust's literals have them:
/// `\u{1b}`, `\n`.
struct Escaping<'a, 'b>(&'a mut Writer<'b>);

impl fmt::Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if !text.contains(is_control) {
            return self.0.write_str(text);
        }
        text.chars().try_for_each(|c| {
            if is_control(c) { write!(self.0, "{}", c.escape_default()) } else { self.0.write_char(c) }
        })
    }
}

/// # Errors
/// When the filter cannot be read, has a single word that is neither a level nor a module, or names the
/// target of the audit log: with fields, such a directive would count before that of [`AUDIT`].
fn parse(log: &str) -> anyhow::Result<EnvFilter> {
    let (audit, _) = AUDIT;
    if log.split(',').any(|directive| directive.split(['[', '=']).next().map(str::trim) == Some(audit)) {
        anyhow::bail!("the target {audit:?} is that of the audit log, which no filter changes");
    }
    if let Some(word) = log.split(',').map(str::trim).find(|word| is_misspelt_level(word)) {
        anyhow::bail!(
            "{word:?} is not a level: {}; levels by module are written as in info,pilotfish_xds=debug",
            LEVELS.join(", ")
        );
    }
    let quiet = QUIET.iter().filter(|(module, _)| !log.contains(module));
    let quiet: String = quiet.chain([&AUDIT]).map(|(module, level)| format!(",{module}={level}")).collect();
    EnvFilter::try_new(format!("{log}{quiet}"))
        .map_err(|error| anyhow::anyhow!("{error} (a level such as info or debug)"))
}

/// True if a directive of a filter is a word that tracing would take for a module although there is none:
/// module names have an underscore or a path, except for a few short ones.
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
    fn no_filter_turns_the_audit_log_off() {
        for log in ["off", "info", "off,[{action}]=off", "info,audi[{action}]=off", "debug,pilotfish_xds=off"]
        {
            let kept = Kept::default();
            let writer = kept.clone();
            let subscriber = tracing_subscriber::fmt()
                .with_env_filter(parse(log).unwrap())
                .with_ansi(false)
                .with_writer(move || writer.clone())
                .finish();
            tracing::subscriber::with_default(
                subscriber,
                || tracing::info!(target: "audit", action = 1, "a change"),
            );
            let text = String::from_utf8(kept.0.lock().clone()).unwrap();
            assert!(text.contains("a change"), "{log}: {text:?}");
        }
        for log in ["audit", "audit=off", "off, audit=error", "info,audit[{action}]=off", "audit[a]=off"] {
            let error = parse(log).unwrap_err().to_string();
            assert!(error.contains("which no filter changes"), "{log}: {error}");
        }
    }

    /// Keeps what is logged.
    #[derive(Clone, Default)]
    struct Kept(std::sync::Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Text that the log has of these lines.
    fn logged(log: impl FnOnce()) -> String {
        let kept = Kept::default();
        let writer = kept.clone();
        let builder = tracing_subscriber::fmt().with_writer(move || writer.clone()).without_time();
        let subscriber = builder.with_ansi(false).with_target(false).fmt_fields(Fields).finish();
        tracing::subscriber::with_default(subscriber, log);
        let bytes = kept.0.lock().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn zeros_that_say_nothing_are_not_logged() {
        let text = logged(|| {
            for (left_out, after) in
                [(0_u64, std::time::Duration::ZERO), (3, std::time::Duration::from_millis(20))]
            {
                tracing::info!(left_out, ?after, slowest = ?after, count = 0, "in force");
            }
        });
        assert_eq!(
            text,
            " INFO in force count=0\n INFO in force left_out=3 after=20ms slowest=20ms count=0\n"
        );
    }

    #[test]
    fn causes_that_an_error_shows_itself_are_not_repeated() {
        let io = || std::io::Error::from_raw_os_error(2);
        let doubled = anyhow::Error::new(io()).context(format!("reading x: {}", io()));
        assert_eq!(with_causes(doubled.as_ref()), "reading x: No such file or directory (os error 2)");
        let plain = anyhow::Error::new(io()).context("reading x");
        assert_eq!(with_causes(plain.as_ref()), "reading x: No such file or directory (os error 2)");
    }

    #[test]
    fn words_of_others_cannot_write_to_the_terminal_nor_a_line_of_their_own() {
        let kept = Kept::default();
        let writer = kept.clone();
        let builder = tracing_subscriber::fmt().with_writer(move || writer.clone()).without_time();
        let subscriber = builder.with_ansi(false).with_target(false).fmt_fields(Fields).finish();
        tracing::subscriber::with_default(subscriber, || {
            let words = "no\u{1b}[2J\u{9b}such\u{202e}\nERROR filter";
            let span = tracing::info_span!("stream", peer = %words);
            let _entered = span.enter();
            tracing::warn!(reason = %words, count = 1, "{words}");
            let error = anyhow::anyhow!("inner\u{7}").context("outer");
            tracing::info!(error = &*error as &dyn std::error::Error, "failed");
        });
        let text = String::from_utf8(kept.0.lock().clone()).unwrap();
        let clean = "no\\u{1b}[2J\\u{9b}such\\u{202e}\\nERROR filter";
        let span = format!("stream{{peer={clean}}}");
        assert_eq!(
            text,
            format!(
                " WARN {span}: {clean} reason={clean} count=1\n INFO {span}: failed error=outer: inner\\u{{7}}\n"
            )
        );
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
