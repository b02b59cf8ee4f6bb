//! The commands.

mod config;
mod endpoints;
mod history;
pub(crate) mod plan;
mod problems;
mod process;
mod proxies;
mod registries;
mod services;
mod wait;
pub(crate) mod why;

use crate::error::CliError;
use crate::output::{Watch, clear};
use clap::Subcommand;
use std::process::ExitCode;
use std::time::Duration;

/// Commands that ask a running control plane.
#[derive(Subcommand, Debug)]
pub enum Commands {
    /// Shows connected proxies: what they have, what they lack, and what they refused
    #[command(after_help = proxies::EXAMPLES)]
    Proxies(proxies::Proxies),
    /// Shows services, with their ports, endpoints and what made them
    #[command(after_help = services::EXAMPLES)]
    Services(services::Services),
    /// Shows endpoints, with health, locality, weight and what made them
    #[command(after_help = endpoints::EXAMPLES)]
    Endpoints(endpoints::Endpoints),
    /// Shows objects whose newest version is not in force, or that are doubtful
    #[command(after_help = problems::EXAMPLES)]
    Problems(problems::Problems),
    /// Shows what one proxy was sent, in Envoy's YAML, with the objects that made it
    #[command(after_help = config::EXAMPLES)]
    Config(config::Config),
    /// Shows what changed lately, by which source, whom it concerned, and when it was in force
    #[command(after_help = history::EXAMPLES)]
    History(history::History),
    /// Shows what the memory of a control plane is for
    Memory(process::Memory),
    /// Shows which threads of a control plane take the processors
    #[command(after_help = process::PROFILE_EXAMPLES)]
    Profile(process::Profile),
    /// Shows or changes which logs a control plane writes
    #[command(after_help = process::LOG_EXAMPLES)]
    Log(process::Log),
    /// Waits until proxies have acknowledged a change, or names those that have not
    #[command(after_help = wait::EXAMPLES)]
    Wait(wait::Wait),
    /// Explains where a request of a proxy goes, or why an address is an endpoint of a service or is not
    #[command(after_help = why::EXAMPLES, args_conflicts_with_subcommands = true)]
    Why(why::Why),
}

/// The state of the registries of a running control plane.
pub use registries::show as show_registries;

impl Commands {
    /// Asks, prints the answer, and returns the exit code.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn run(self) -> Result<ExitCode, CliError> {
        match self {
            Self::Proxies(proxies) => proxies.run().await,
            Self::Services(services) => services.run().await,
            Self::Endpoints(endpoints) => endpoints.run().await,
            Self::Problems(problems) => problems.run().await,
            Self::Config(config) => config.run().await,
            Self::History(history) => history.run().await,
            Self::Memory(memory) => memory.run().await,
            Self::Profile(profile) => profile.run().await,
            Self::Log(log) => log.run().await,
            Self::Wait(wait) => wait.run().await,
            Self::Why(why) => why.run().await,
        }
    }
}

/// Shows an answer once, or again and again. What fails once it was shown is said and tried again.
async fn repeat<F: Future<Output = Result<ExitCode, CliError>>>(
    watch: Watch,
    mut show: impl FnMut() -> F,
) -> Result<ExitCode, CliError> {
    let Some(every) = watch.watch else { return show().await };
    clear()?;
    show().await?;
    loop {
        tokio::time::sleep(every.max(Duration::from_millis(100))).await;
        clear()?;
        if let Err(error) = show().await {
            if std::error::Error::source(&error).is_some_and(|cause| cause.is::<std::io::Error>()) {
                return Err(error);
            }
            // The control plane may come back.
            let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("error: {error}\n"));
        }
    }
}

/// What made something, in words: `EndpointSlice shop/web-1`.
fn made_by(from: &pilotfish_api::Provenance) -> String {
    match (from.kind.is_empty(), from.namespace.is_empty()) {
        (true, _) => format!("{} {}", from.registry, from.id).trim().to_owned(),
        (false, true) => format!("{} {}", from.kind, from.name),
        (false, false) => format!("{} {}/{}", from.kind, from.namespace, from.name),
    }
}

/// Says that a list goes on.
fn and_more(shown: usize, total: usize) -> String {
    if shown < total {
        format!("... {} more; --limit shows them, filters narrow it\n", total - shown)
    } else {
        String::new()
    }
}
