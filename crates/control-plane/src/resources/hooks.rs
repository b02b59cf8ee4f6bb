//! Hooks of features that take part when clients connect.

use pilotfish_model::World;
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_translate::Proxy;
use pilotfish_xds::{
    CertificateStatus, CollectionState, ConnectError, PeerInfo, PrivateSecret, SecretsChanged,
};
use std::sync::Arc;

/// Client that connects, as far as it is accepted.
pub struct ConnectingClient<'a> {
    /// Node of its first request.
    pub node: &'a Node,
    /// Address and proven identities of its connection.
    pub peer: &'a PeerInfo,
    /// Proxy of the node, with its accepted identity.
    pub proxy: &'a mut Proxy,
    /// Newest world that is served.
    pub world: &'a Arc<World>,
}

/// Feature that accepts or refuses connecting clients, and keeps state for each.
pub trait ConnectHook: Send + Sync {
    /// Returns the state of the feature for a client; `None` if the feature does not concern the client.
    ///
    /// # Errors
    /// When the client is refused; the text reaches it.
    fn connect(
        &self,
        client: &mut ConnectingClient<'_>,
    ) -> Result<Option<Box<dyn ClientState>>, ConnectError>;

    /// `control_plane` of the responses of a collection, if this feature answers it.
    fn control_plane(&self, _type_url: &str) -> Option<&str> {
        None
    }

    /// Names of Secrets that this feature makes for each client.
    fn private_secrets(&self) -> &'static [&'static str] {
        &[]
    }
}

/// State of a feature for a connected client, dropped when the client is gone.
pub trait ClientState: Send + Sync {
    /// Notes that the client subscribes to Secrets. Called at each read of its view.
    fn subscribes_to_secrets(&self) {}

    /// True if this feature sends the client a certificate of its workload.
    fn has_certificate(&self) -> bool {
        false
    }

    /// Secret that this feature makes for the client, if the name is one of its.
    fn private_secret(&self, _name: &str, _changed: &SecretsChanged) -> Option<PrivateSecret> {
        None
    }

    /// Certificate that this feature made for the client.
    fn workload_certificate(&self) -> Option<CertificateStatus> {
        None
    }

    /// Notes the health of the client's workload: `Some` with the problem, `None` if it is healthy.
    fn reported_health(&self, _problem: Option<&str>) {}

    /// True if this feature answers a type that is not an xDS type.
    ///
    /// # Errors
    /// When the client may not have it; the text reaches the client.
    fn serves_collection(&self, _type_url: &str, _names: &[&str]) -> Result<bool, ConnectError> {
        Ok(false)
    }

    /// State of a collection; `None` for types that this feature does not answer.
    fn collection(&self, _type_url: &str) -> Option<CollectionState> {
        None
    }
}
