//! Structured logs.

use clap::{Args, ValueEnum};
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// How logs are written.
#[derive(Args, Clone, Debug)]
pub struct Logging {
    /// Which logs: a level, or levels by module as in `info,pilotfish_xds=debug`
    #[arg(long, env = "PILOTFISH_LOG", value_name = "FILTER", default_value = "info", global = true)]
    pub log: String,
    /// How logs look
    #[arg(long, env = "PILOTFISH_LOG_FORMAT", value_enum, default_value = "text", global = true)]
    pub log_format: Format,
}

/// How logs look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One readable line each; coloured on a terminal.
    Text,
    /// One JSON object each.
    Json,
}

impl Logging {
    /// Turns logging on for the whole process; `writer` is where lines go.
    ///
    /// # Errors
    /// When the filter cannot be read.
    pub fn start<W>(&self, writer: W) -> anyhow::Result<()>
    where
        W: for<'a> tracing_subscriber::fmt::MakeWriter<'a> + Send + Sync + 'static,
    {
        // The client of Kubernetes logs every failed request as an error; its caller says once what that means.
        let quiet = if self.log.contains("kube_client") { "" } else { ",kube_client=off" };
        let filter = EnvFilter::try_new(format!("{}{quiet}", self.log)).map_err(|error| {
            anyhow::anyhow!("--log {:?}: {error} (a level such as info or debug)", self.log)
        })?;
        let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
        match self.log_format {
            Format::Json => builder.json().init(),
            Format::Text => builder.with_ansi(std::io::stderr().is_terminal()).with_target(false).init(),
        }
        Ok(())
    }
}
