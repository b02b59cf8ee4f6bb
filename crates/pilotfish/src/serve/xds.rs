//! Subsystem of the xDS server.

use super::descriptors;
use super::subsystem::{StopOrder, Subsystem, with_flag};
use crate::settings::XdsSettings;
use anyhow::Result;
use pilotfish_control_plane::resources::Resources;
use pilotfish_xds::{Bound, Fanout, Server, ServerConfig, ServerError, TlsListenerConfig};
use std::sync::Arc;

/// Binds the addresses. With registration, open files are reserved for its connections.
///
/// # Errors
/// When an address is taken.
pub(super) fn bind(
    settings: &XdsSettings,
    fanout: Arc<Fanout<Resources>>,
    secure: Option<TlsListenerConfig>,
    with_registration: bool,
) -> Result<Bound<Resources>> {
    let default = ServerConfig::default();
    let ports = 1 + usize::from(secure.is_some()) + usize::from(with_registration);
    let max_connections = descriptors::connections(settings.max_connections, default.max_connections, ports);
    let config = ServerConfig {
        max_message: settings.max_request_bytes,
        max_connections,
        address_connections: (max_connections / 4).max(1),
        max_streams: settings.max_streams,
        address_streams: (settings.max_streams / 4).max(1),
        identity_streams: (settings.max_streams / 2).max(1),
        max_identity_age: settings.max_identity_age,
        drain_timeout: settings.drain_deadline,
        ..default
    };
    let bound = Server::new(fanout, config).with_secure(secure).bind(settings.address);
    bound.map_err(|error| match &error {
        ServerError::Bind { .. } => with_flag(error, "--xds-address"),
        ServerError::BindSecure { .. } => with_flag(error, "--secure-xds-address"),
    })
}

/// Returns the subsystem, which serves until the stop signal and ends streams at its own deadline.
pub(super) fn subsystem(bound: Bound<Resources>) -> Subsystem {
    Subsystem::new("the xDS server", StopOrder::First).task(|stop| async {
        bound.run(stop.requested()).await;
        Ok(())
    })
}
