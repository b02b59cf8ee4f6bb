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
}

/// Health, metrics and debug pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdminSettings {
    pub(crate) address: SocketAddr,
}

impl AdminArgs {
    pub(super) fn check(self, check: &mut Check) -> AdminSettings {
        let address = check.parse("--admin-address", self.admin_address.as_deref(), parse::address);
        AdminSettings { address: address.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 15014))) }
    }
}
