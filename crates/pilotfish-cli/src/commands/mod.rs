//! The commands.

mod config;
mod endpoints;
mod envoy;
mod history;
pub(crate) mod plan;
mod problems;
mod process;
mod proxies;
mod record;
mod registries;
mod services;
mod shown;
mod status;
mod top;
mod wait;
pub(crate) mod why;

use crate::error::CliError;
use clap::Subcommand;
use std::process::ExitCode;

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
    /// Writes what is kept of the past into a file, for `replay` and for reports of defects
    #[command(after_help = record::EXAMPLES)]
    Record(record::Record),
    /// Shows whether all is well: readiness, what proxies refuse, sources that fail, objects that are not in force
    #[command(after_help = status::EXAMPLES)]
    Status(status::Status),
    /// Shows a control plane at a glance, again and again: proxies, changes, registries, processors
    #[command(after_help = top::EXAMPLES)]
    Top(top::Top),
    /// Waits until proxies have acknowledged a change, or names those that have not
    #[command(after_help = wait::EXAMPLES)]
    Wait(wait::Wait),
    /// Explains where a request of a proxy goes, or why an address is an endpoint of a service or is not
    #[command(after_help = why::EXAMPLES, args_conflicts_with_subcommands = true)]
    Why(Box<why::Why>),
}

/// The state of the registries of a running control plane.
pub use registries::show as show_registries;
pub use shown::Shown;

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
            Self::Record(record) => record.run().await,
            Self::Status(status) => status.run().await,
            Self::Top(top) => top.run().await,
            Self::Wait(wait) => wait.run().await,
            Self::Why(why) => why.run().await,
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
