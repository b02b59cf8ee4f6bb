//! Listener for operators: health, metrics and debug pages.

use super::check::Check;
use super::parse;
use clap::Args;
use pilotfish_control_plane::history::DEFAULT_BYTES;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[command(next_help_heading = "Admin")]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct AdminArgs {
    /// Listen address of health, metrics and debug pages [default: 127.0.0.1:15014]
    #[arg(long, env = "PILOTFISH_ADMIN_ADDRESS", value_name = "HOST:PORT")]
    pub(crate) admin_address: Option<String>,
    /// Shows the debug pages to other machines as well: they hold the configuration of all namespaces. By
    /// default, other machines get health and metrics only
    #[arg(long, env = "PILOTFISH_ALLOW_REMOTE_DEBUG")]
    pub(crate) allow_remote_debug: bool,
    /// Memory for earlier versions, for `pilotfish history` and `--at`, in bytes [default: 33554432]
    #[arg(long, env = "PILOTFISH_HISTORY_BYTES", value_name = "N")]
    pub(crate) history_bytes: Option<String>,
}

/// Health, metrics and debug pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdminSettings {
    pub(crate) address: SocketAddr,
    /// True if other machines may read debug pages, beside health and metrics.
    pub(crate) allow_remote_debug: bool,
    /// Bytes of earlier versions that are kept.
    pub(crate) history_bytes: usize,
}

impl AdminArgs {
    pub(super) fn check(self, check: &mut Check) -> AdminSettings {
        let address = check.parse("--admin-address", self.admin_address.as_deref(), parse::address);
        let bytes =
            |text: &str| text.parse().map_err(|_| "not a number of bytes; 0 keeps nothing".to_owned());
        let history_bytes = check.parse("--history-bytes", self.history_bytes.as_deref(), bytes);
        AdminSettings {
            address: address.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 15014))),
            allow_remote_debug: self.allow_remote_debug,
            history_bytes: history_bytes.unwrap_or(DEFAULT_BYTES),
        }
    }
}
