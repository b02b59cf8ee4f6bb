//! Where operators look.

use super::check::Check;
use super::parse;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[command(next_help_heading = "Admin")]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct AdminArgs {
    /// Where health, metrics and debug pages are [default: 127.0.0.1:15014]
    #[arg(long, env = "PILOTFISH_ADMIN_ADDRESS", value_name = "HOST:PORT")]
    pub(crate) admin_address: Option<String>,
    /// Shows the debug pages to other machines as well: they hold the configuration of all namespaces. Without it, only health and metrics
    /// are answered there
    #[arg(long, env = "PILOTFISH_ALLOW_REMOTE_DEBUG")]
    pub(crate) allow_remote_debug: bool,
}

/// Health, metrics and debug pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdminSettings {
    pub(crate) address: SocketAddr,
    /// Whether other machines see more than health and metrics.
    pub(crate) allow_remote_debug: bool,
}

impl AdminArgs {
    pub(super) fn check(self, check: &mut Check) -> AdminSettings {
        let address = check.parse("--admin-address", self.admin_address.as_deref(), parse::address);
        AdminSettings {
            address: address.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 15014))),
            allow_remote_debug: self.allow_remote_debug,
        }
    }
}
