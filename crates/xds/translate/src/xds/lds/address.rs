//! Addresses and names of listeners, and settings that all of them have.

use super::view::ListenerBase;
use crate::engine::Cx;
use crate::envoy::duration;
use pilotfish_proto::Duration;
use pilotfish_proto::envoy::config::core::v3::{Address, Pipe, SocketAddress, address, socket_address};
use pilotfish_proto::envoy::config::listener::v3::AdditionalAddress;
use pilotfish_proto::envoy::config::listener::v3::listener::ConnectionBalanceConfig;
use pilotfish_proto::envoy::config::listener::v3::listener::connection_balance_config::{
    BalanceType, ExactBalance,
};

/// The name of a listener: address and port; a Unix socket's path.
pub(crate) fn name(bind: &str, port: u32) -> String {
    if port == 0 { bind.to_owned() } else { format!("{bind}_{port}") }
}

/// The address of a listener; with port 0 a Unix socket.
pub(crate) fn of(bind: &str, port: u32) -> Address {
    let address = if port == 0 {
        let path = bind.strip_prefix("unix://").unwrap_or(bind);
        address::Address::Pipe(Pipe { path: path.to_owned(), mode: 0 })
    } else {
        address::Address::SocketAddress(SocketAddress {
            address: bind.to_owned(),
            port_specifier: Some(socket_address::PortSpecifier::PortValue(port)),
            ..Default::default()
        })
    };
    Address { address: Some(address) }
}

/// Returns the additional addresses of a listener for redirected traffic.
pub(super) fn other_redirected(base: &ListenerBase, port: u32) -> Vec<AdditionalAddress> {
    let others = if base.both_redirected { base.families.wildcards() } else { &[] };
    let others = others.iter().skip(1);
    others.map(|bind| AdditionalAddress { address: Some(of(bind, port)), ..Default::default() }).collect()
}

/// Returns the timeout of listener filters that wait for the first bytes of a client.
pub(crate) fn detection_timeout(cx: &Cx<'_>) -> Option<Duration> {
    cx.mesh().protocol_detection_timeout.map(duration)
}

/// Balancing of connections over threads.
pub(crate) fn exact_balance(wanted: bool) -> Option<ConnectionBalanceConfig> {
    wanted
        .then_some(ConnectionBalanceConfig { balance_type: Some(BalanceType::ExactBalance(ExactBalance {})) })
}
