//! Connected proxies, as shown to operators.

use super::text;
use pilotfish_api::v1::{
    Failure, FailureKind, NotAcknowledged, Proxy, ProxyCertificate, ProxyType, Rejection, State,
};
use pilotfish_control_plane::control::Shared;
use pilotfish_control_plane::control::time;
use pilotfish_control_plane::likely_causes::{self, Refused};
use pilotfish_explain::section;
use pilotfish_proto::ResourceType;
use pilotfish_translate::{Snapshot, ViewId};
use pilotfish_xds::{ConnectionStatus, Nack, Names, Protocol, TypeStatus};
use std::time::SystemTime;

/// Limit on the listed resources of a refusal, and on the objects that made them.
const LISTED: usize = 100;
/// Limit on the proxies for which `/ready` and lists name the objects behind their refusals.
pub(super) const REFUSALS: usize = 20;

/// Finds a connection by name.
///
/// # Errors
/// When no connection has the name, or several do.
pub(super) fn find<'a>(
    connections: &'a [ConnectionStatus],
    wanted: &str,
) -> Result<&'a ConnectionStatus, Failure> {
    let exact: Vec<_> = connections
        .iter()
        .filter(|known| known.id == wanted || known.node.id == wanted || known.proxy_name() == wanted)
        .collect();
    let begins =
        || connections.iter().filter(|known| !wanted.is_empty() && known.proxy_name().starts_with(wanted));
    let found = if exact.is_empty() { begins().collect() } else { exact };
    match found.as_slice() {
        [one] => Ok(one),
        [] => {
            let failure =
                Failure::unknown("proxy", wanted, connections.iter().map(ConnectionStatus::proxy_name));
            Err(if failure.names.is_empty() {
                failure.hint(
                    "pilotfish proxies lists those that are connected here; another replica may have it",
                )
            } else {
                failure
            })
        }
        several => {
            let failure = Failure::new(
                FailureKind::Ambiguous,
                format!("{} proxies are named {wanted:?}", several.len()),
            );
            let by_name = several.iter().any(|known| known.proxy_name() != several[0].proxy_name());
            let label = |known: &&&ConnectionStatus| {
                if by_name { known.proxy_name().to_owned() } else { known.id.clone() }
            };
            Err(failure.names(several.iter().map(|known| label(&known))))
        }
    }
}

/// Converts a connection for operators.
pub(super) fn proxy(connection: &ConnectionStatus, current: u64) -> Proxy {
    let types: Vec<ProxyType> =
        connection.types.iter().map(|(ty, status)| proxy_type(*ty, status, current)).collect();
    let node = &connection.node;
    let kind = match (node.id.split('~').next().unwrap_or_default(), text(node, "GENERATOR").as_str()) {
        (_, "grpc") => "grpc".to_owned(),
        (kind, _) => kind.to_owned(),
    };
    Proxy {
        name: connection.proxy_name().to_owned(),
        connection: connection.id.clone(),
        kind,
        cluster: text(node, "CLUSTER_ID"),
        version: version(connection),
        address: connection.peer.address.to_string(),
        identities: connection.peer.identities.clone(),
        certificate: certificate(connection),
        connected_at: time(connection.connected_at),
        protocol: match connection.protocol {
            Protocol::Delta => "delta".into(),
            Protocol::Sotw => "sotw".into(),
        },
        state: types.iter().map(|ty| ty.state).max().unwrap_or_default(),
        revision: types.iter().map(|ty| ty.revision).min().unwrap_or_default(),
        types,
    }
}

/// Returns the certificate that was made for the proxy, or else the one with which it connected.
fn certificate(connection: &ConnectionStatus) -> Option<ProxyCertificate> {
    let shown = |identity: &str, expires, source: &str| ProxyCertificate {
        identity: identity.to_owned(),
        expires: time(expires),
        source: source.to_owned(),
    };
    let peer = &connection.peer;
    match (&connection.certificate, peer.identities.first(), peer.certificate_expires) {
        (Some(made), ..) => Some(shown(&made.identity, made.expires, "sds")),
        (None, Some(identity), Some(expires)) => Some(shown(identity, expires, "connection")),
        _ => None,
    }
}

fn version(connection: &ConnectionStatus) -> String {
    use pilotfish_proto::envoy::config::core::v3::BuildVersion;
    use pilotfish_proto::envoy::config::core::v3::node::UserAgentVersionType;
    let node = &connection.node;
    match &node.user_agent_version_type {
        Some(UserAgentVersionType::UserAgentVersion(version)) => {
            format!("{} {version}", node.user_agent_name).trim().to_owned()
        }
        Some(UserAgentVersionType::UserAgentBuildVersion(BuildVersion {
            version: Some(version), ..
        })) => {
            let (major, minor, patch) = (version.major_number, version.minor_number, version.patch);
            format!("{} {major}.{minor}.{patch}", node.user_agent_name).trim().to_owned()
        }
        _ => {
            let istio = text(node, "ISTIO_VERSION");
            let istio = if istio.is_empty() { istio } else { format!("istio {istio}") };
            format!("{} {istio}", node.user_agent_name).trim().to_owned()
        }
    }
}

/// Returns the state of a type at a proxy.
pub(super) fn state(status: &TypeStatus) -> State {
    match (&status.rejection, status.in_sync()) {
        (Some(_), _) => State::Rejected,
        (None, true) => State::Synced,
        (None, false) => State::Pending,
    }
}

/// Returns the time since which a type is in its state.
fn since(status: &TypeStatus) -> Option<SystemTime> {
    match state(status) {
        State::Rejected => status.rejection.as_ref().map(|rejection| rejection.at),
        State::Synced => status.acked_at.or(status.sent_at),
        State::Pending => status.sent_at,
    }
}

fn proxy_type(ty: ResourceType, status: &TypeStatus, current: u64) -> ProxyType {
    let state = state(status);
    let since = since(status);
    let lag = since
        .filter(|_| state != State::Synced)
        .and_then(|since| SystemTime::now().duration_since(since).ok());
    ProxyType {
        name: section(ty).as_str().to_owned(),
        state,
        since: since.map(time).unwrap_or_default(),
        lag_seconds: lag.map(|lag| (lag.as_secs_f64() * 1_000.0).round() / 1_000.0),
        resources: status.resources,
        subscribed: match &status.names {
            Names::Wildcard => None,
            Names::Named(names) => Some(names.len()),
        },
        revision: if state == State::Synced { current } else { status.acked_revision },
        view: (status.view.0 != u32::MAX).then_some(status.view.0.into()),
        shared_with: None,
        rejection: status.rejection.as_ref().map(|rejection| self::rejection(ty, rejection)),
    }
}

/// Adds the number of other proxies that share each view.
pub(super) fn add_sharers(proxy: &mut Proxy, connection: &ConnectionStatus, all: &[ConnectionStatus]) {
    for (ty, known) in proxy.types.iter_mut().zip(&connection.types) {
        let has = |other: &&ConnectionStatus| {
            other.types.iter().any(|(ty, status)| *ty == *known.0 && status.view == known.1.view)
        };
        ty.shared_with =
            ty.view.map(|_| all.iter().filter(|other| other.id != connection.id).filter(has).count());
    }
}

fn rejection(ty: ResourceType, rejection: &pilotfish_xds::Rejection) -> Rejection {
    let nack = Nack::new(ty, "", &rejection.names, &rejection.error);
    Rejection {
        at: time(rejection.at),
        reason: nack.reason(),
        error: rejection.error.clone(),
        resources: nack.refused().iter().take(LISTED).map(ToString::to_string).collect(),
        made_by: Vec::new(),
    }
}

/// Adds the objects behind the refusals of a proxy, the most likely cause first.
pub(super) fn add_objects(
    proxy: &mut Proxy,
    connection: &ConnectionStatus,
    snapshot: &Snapshot<'_>,
    shared: &Shared,
) {
    for (ty, status) in &connection.types {
        let word = section(*ty).as_str();
        let shown = proxy.types.iter_mut().find(|ty| ty.name == word).and_then(|ty| ty.rejection.as_mut());
        let (Some(shown), Some(rejection)) = (shown, &status.rejection) else { continue };
        let refused = Refused {
            view: ViewId(status.view.0),
            names: &shown.resources,
            after: status.acked_revision,
            until: rejection.revision,
            reason: &shown.reason,
        };
        let mut made_by = likely_causes::of(&refused, snapshot, shared);
        made_by.truncate(LISTED);
        shown.made_by = made_by;
    }
}

pub(super) fn not_acknowledged(
    connection: &ConnectionStatus,
    ty: ResourceType,
    status: &TypeStatus,
) -> NotAcknowledged {
    let reason = status.rejection.as_ref().map(|rejection| self::rejection(ty, rejection).reason);
    NotAcknowledged {
        proxy: connection.proxy_name().to_owned(),
        resource_type: section(ty).as_str().to_owned(),
        state: state(status),
        since: since(status).map(time).unwrap_or_default(),
        reason: reason.unwrap_or_default(),
    }
}
