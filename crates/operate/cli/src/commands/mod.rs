mod ca;
pub(crate) mod compare;
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
    /// List connected proxies: resources in sync, pending and refused
    #[command(after_help = proxies::EXAMPLES)]
    Proxies(proxies::Proxies),
    /// List services, with their ports, endpoints and the objects that made them
    #[command(after_help = services::EXAMPLES)]
    Services(services::Services),
    /// List endpoints, with health, locality, weight and the objects that made them
    #[command(after_help = endpoints::EXAMPLES)]
    Endpoints(endpoints::Endpoints),
    /// List objects whose newest version is not in force, or that are doubtful
    #[command(after_help = problems::EXAMPLES)]
    Problems(problems::Problems),
    /// Show the configuration of one proxy, in Envoy's YAML, with the objects that made it
    #[command(after_help = config::EXAMPLES)]
    Config(config::Config),
    /// Compare what istiod sends to its proxies, or what they have, with what Pilotfish would send them
    #[command(after_help = compare::EXAMPLES)]
    Compare(compare::Compare),
    /// List latest changes: by which source, for which proxies, and when they were in force
    #[command(after_help = history::EXAMPLES)]
    History(history::History),
    /// Show how a control plane uses its memory
    Memory(process::Memory),
    /// Show the CPU time of the threads of a control plane
    #[command(after_help = process::PROFILE_EXAMPLES)]
    Profile(process::Profile),
    /// Show or change the log level of a control plane
    #[command(after_help = process::LOG_EXAMPLES)]
    Log(process::Log),
    /// Write the history into a file, for `replay` and for reports of defects
    #[command(after_help = record::EXAMPLES)]
    Record(record::Record),
    /// Show readiness, refusals, failing sources and objects that are not in force
    #[command(after_help = status::EXAMPLES)]
    Status(status::Status),
    /// Watch a control plane: proxies, changes, registries, CPU
    #[command(after_help = top::EXAMPLES)]
    Top(top::Top),
    /// Wait until all proxies have acknowledged a change, or name those that have not
    #[command(after_help = wait::EXAMPLES)]
    Wait(wait::Wait),
    /// Explain where a request goes, or which services an address is an endpoint of
    #[command(after_help = why::EXAMPLES, args_conflicts_with_subcommands = true)]
    Why(Box<why::Why>),
}

pub use ca::{rotate as rotate_ca, show_roots as show_ca_roots, show_status as show_ca_status};
/// Shows the registries of a running control plane.
pub use registries::show as show_registries;
pub use shown::Shown;

impl Commands {
    /// Sends the request, prints the response, and returns the exit code.
    ///
    /// # Errors
    /// If the request fails.
    pub async fn run(self) -> Result<ExitCode, CliError> {
        match self {
            Self::Proxies(proxies) => proxies.run().await,
            Self::Services(services) => services.run().await,
            Self::Endpoints(endpoints) => endpoints.run().await,
            Self::Problems(problems) => problems.run().await,
            Self::Config(config) => config.run().await,
            Self::Compare(compare) => compare.run().await,
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

/// Origin in words, such as `EndpointSlice shop/web-1`.
fn made_by(from: &pilotfish_api::Provenance) -> String {
    match (from.kind.is_empty(), from.namespace.is_empty()) {
        (true, _) => format!("{} {}", from.registry, from.id).trim().to_owned(),
        (false, true) => format!("{} {}", from.kind, from.name),
        (false, false) => format!("{} {}/{}", from.kind, from.namespace, from.name),
    }
}
