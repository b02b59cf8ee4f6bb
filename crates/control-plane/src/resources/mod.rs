//! Adapter between translation and xDS: the translator as the source of streams.

mod auto_registration;
mod configuration;
mod hooks;
mod node_claims;
mod revocation;
mod secret_access;
mod token_authenticator;
mod unread;

pub use auto_registration::ProxyRegistrar;
pub use configuration::{Configuration, ConfigurationClients};
pub use hooks::{ClientState, ConnectHook, ConnectingClient};
pub use node_claims::{MAX_NODE_CLAIMS, NodeClaims};
pub use revocation::revoke_orphans;
pub use secret_access::SecretRights;
pub use token_authenticator::TokenAuthenticator;

use crate::mesh::trust_domain;
use pilotfish_admission::LogLimit;
use pilotfish_identity::is_this_machine;
use pilotfish_model::SpiffeId;
use pilotfish_proto::ResourceType;
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_translate as translate;
use pilotfish_translate::{CertificateSource, NodeError, Proxy, Translator};
use pilotfish_xds as xds;
use pilotfish_xds::{Collection, CollectionState, ConnectError, Limit, LimitExceeded, PeerInfo};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use unread::UnreadPodPorts;

/// Source of streams with the translator's resources, once the first lists are complete.
pub struct Resources {
    translator: Arc<Translator>,
    trust_nodes: bool,
    ready: AtomicBool,
    hooks: Vec<Box<dyn ConnectHook>>,
    unread: UnreadPodPorts,
    /// Names of Secrets that hooks make for each client.
    private_secrets: Vec<&'static str>,
    log: LogLimit,
}

/// State of a connected client.
pub struct Client {
    proxy: translate::Client,
    /// Identity of its node, if that is trusted in place of a proven one.
    trusted: Option<String>,
    /// States of the features that it concerns, in the order of their hooks.
    states: Vec<Box<dyn ClientState>>,
}

impl Resources {
    /// Returns a source that is not ready yet. With `trust_nodes`, the identity in the node of a proxy on
    /// this machine is trusted, unless its connection proved another. Connecting clients pass the hooks in
    /// their order; the first one that answers a collection wins.
    #[must_use]
    pub fn new(translator: Arc<Translator>, trust_nodes: bool, hooks: Vec<Box<dyn ConnectHook>>) -> Self {
        let private_secrets = hooks.iter().flat_map(|hook| hook.private_secrets()).copied().collect();
        let (ready, log) = (AtomicBool::new(false), LogLimit::default());
        let unread = UnreadPodPorts::default();
        Self { translator, trust_nodes, ready, hooks, unread, private_secrets, log }
    }

    /// Treats a proxy as one without certificate, if its node names this control plane as the source and no
    /// feature sends it one: it would wait for ever.
    fn check_certificate(&self, proxy: &mut Proxy, states: &[Box<dyn ClientState>]) {
        let is_own = proxy.certificate_source == CertificateSource::ControlPlane;
        if !is_own || states.iter().any(|state| state.has_certificate()) {
            return;
        }
        proxy.certificate_source = CertificateSource::Nobody;
        if let Some(left_out) = self.log.allow(Instant::now()) {
            tracing::warn!(
                node = &*proxy.id,
                left_out,
                "a proxy requests a workload certificate and gets none: that needs a certificate authority \
                 (--ca) and an identity of the mesh, proven on the secure port"
            );
        }
    }

    /// Marks the source as ready, so that streams are served.
    pub fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    /// True if streams are served.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }
}

impl xds::ResourceSource for Resources {
    type Client = Client;
    type Snapshot<'a> = Snapshot<'a>;

    fn ready(&self) -> bool {
        self.is_ready()
    }

    fn reads_extension(&self, name: &str) -> bool {
        Proxy::reads_extension(name)
    }

    fn connect(&self, node: &Node, peer: &PeerInfo) -> Result<Self::Client, ConnectError> {
        let proxy = Proxy::from_node(node).map_err(refusal)?;
        let proxy = proxy.with_identities(peer.identities.iter().map(String::as_str));
        let mut proxy = proxy.map_err(|error| ConnectError::PermissionDenied(error.to_string()))?;
        // The lock of the snapshot is released before hooks run.
        let world = self.translator.snapshot().world().clone();
        let is_trusted = self.trust_nodes && peer.identities.is_empty() && is_local(peer);
        let trusted = is_trusted.then(|| {
            let identity = proxy.identity.insert(proxy.claimed_identity());
            let (namespace, account) = (identity.namespace.as_str(), &identity.service_account);
            SpiffeId::new(&trust_domain(&world), namespace, account).to_string()
        });
        let mut client = ConnectingClient { node, peer, proxy: &mut proxy, world: &world };
        let mut states = Vec::new();
        for hook in &self.hooks {
            states.extend(hook.connect(&mut client)?);
        }
        self.unread.log(node);
        self.check_certificate(&mut proxy, &states);
        Ok(Client { proxy: self.translator.connect(proxy), trusted, states })
    }

    fn client_id(&self, client: &Self::Client) -> xds::ClientId {
        xds::ClientId(client.proxy.id().0)
    }

    fn identity(&self, client: &Self::Client, peer: &PeerInfo) -> Option<String> {
        peer.identities.first().or(client.trusted.as_ref()).cloned()
    }

    fn weight(&self, client: &Self::Client) -> usize {
        client.proxy.proxy().weight()
    }

    fn reported_health(&self, client: &Self::Client, problem: Option<&str>) {
        client.states.iter().for_each(|state| state.reported_health(problem));
    }

    fn unsubscribed(&self, view: xds::ViewId, names: &[Arc<str>], is_subscribed: &dyn Fn(&str) -> bool) {
        self.translator.unsubscribed(translate::ViewId(view.0), names, is_subscribed);
    }

    fn serves_collection(
        &self,
        client: &Self::Client,
        type_url: &str,
        names: &[&str],
    ) -> Result<bool, ConnectError> {
        for state in &client.states {
            if state.serves_collection(type_url, names)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn collection(&self, client: &Self::Client, type_url: &str) -> CollectionState {
        let answer = client.states.iter().find_map(|state| state.collection(type_url));
        answer.unwrap_or_else(|| CollectionState::Is(Collection::new()))
    }

    fn control_plane(&self, type_url: &str) -> Option<&str> {
        self.hooks.iter().find_map(|hook| hook.control_plane(type_url))
    }

    fn private_secrets(&self) -> &[&str] {
        &self.private_secrets
    }

    fn private_secret(
        &self,
        client: &Self::Client,
        name: &str,
        changed: &xds::SecretsChanged,
    ) -> xds::PrivateSecret {
        let made = client.states.iter().find_map(|state| state.private_secret(name, changed));
        made.unwrap_or(xds::PrivateSecret::Absent)
    }

    fn workload_certificate(&self, client: &Self::Client) -> Option<xds::CertificateStatus> {
        client.states.iter().find_map(|state| state.workload_certificate())
    }

    fn snapshot(&self) -> Snapshot<'_> {
        Snapshot(self.translator.snapshot())
    }
}

/// Converts the reason why a node is refused.
fn refusal(error: NodeError) -> ConnectError {
    let limit = |limit: Limit, asked, allowed| LimitExceeded { limit, asked, allowed }.into();
    match error {
        NodeError::TooManyAddresses(asked) => limit(Limit::NodeAddresses, asked, translate::MAX_ADDRESSES),
        NodeError::TooManyLabels(asked) => limit(Limit::NodeLabels, asked, translate::MAX_LABELS),
        error => ConnectError::InvalidArgument(error.to_string()),
    }
}

/// Snapshot of a world for streams.
pub struct Snapshot<'a>(translate::Snapshot<'a>);

impl xds::Snapshot<Client> for Snapshot<'_> {
    fn revision(&self) -> u64 {
        self.0.revision()
    }

    fn is_waited_for(&self) -> bool {
        self.0.is_waited_for()
    }

    fn parts(&self, view: xds::ViewId) -> Arc<[xds::ViewId]> {
        self.0.parts(translate::ViewId(view.0)).iter().map(|part| xds::ViewId(part.0)).collect()
    }

    fn prepare(&self, view: xds::ViewId) -> bool {
        self.0.prepare(translate::ViewId(view.0))
    }

    fn prepare_names(&self, view: xds::ViewId, names: &[Arc<str>]) {
        self.0.prepare_names(translate::ViewId(view.0), names);
    }

    fn view(&self, client: &Client, ty: ResourceType) -> Option<xds::ViewId> {
        if ty == ResourceType::Secret {
            client.states.iter().for_each(|state| state.subscribes_to_secrets());
        }
        self.0.view(&client.proxy, ty).map(|view| xds::ViewId(view.0))
    }

    fn is_undecided(&self, client: &Client, ty: ResourceType) -> bool {
        // A client with an identity gets a view of secrets as soon as its access review is done.
        let has_identity = client.proxy.proxy().identity.is_some();
        ty == ResourceType::Secret && has_identity && self.0.view(&client.proxy, ty).is_none()
    }

    fn names(&self, view: xds::ViewId) -> Arc<[Arc<str>]> {
        self.0.names(translate::ViewId(view.0))
    }

    fn get(&self, view: xds::ViewId, name: &str) -> Option<xds::Resource> {
        let resource = self.0.get(translate::ViewId(view.0), name)?;
        Some(xds::Resource {
            name: resource.name,
            version: resource.version,
            body: resource.body,
            changed_at: resource.changed_at,
            stands_in: resource.stands_in,
        })
    }
}

/// Converts changes of the translation for xDS.
#[must_use]
pub fn publication(changes: translate::Changes) -> xds::Publication {
    let change = |change: translate::Change| xds::Change {
        view: xds::ViewId(change.view.0),
        ty: change.resource_type,
        name: change.name,
        kind: if change.removed { xds::ChangeKind::Remove } else { xds::ChangeKind::Upsert },
    };
    xds::Publication {
        revision: changes.revision,
        changes: changes.changes.into_iter().map(change).collect(),
        view_changed: changes.view_changed.into_iter().map(|client| xds::ClientId(client.0)).collect(),
    }
}

/// True for a client on this machine whose request no proxy forwarded.
#[must_use]
pub fn is_local(peer: &PeerInfo) -> bool {
    is_this_machine(peer.address.ip()) && !peer.is_forwarded
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_proto::{Struct, Value, ValueKind};
    use pilotfish_xds::{ResourceSource, Snapshot as _};

    fn peer(address: &str, identities: &[&str]) -> PeerInfo {
        let identities = identities.iter().map(|id| (*id).to_owned()).collect();
        PeerInfo { address: address.parse().unwrap(), identities, ..PeerInfo::default() }
    }

    fn is_served_secrets(trust_nodes: bool, peer: &PeerInfo) -> Result<bool, ConnectError> {
        let resources = Resources::new(Arc::new(Translator::new()), trust_nodes, Vec::new());
        let id = "router~10.0.0.1~gateway-0.edge~edge.svc.cluster.local".to_owned();
        let client = resources.connect(&Node { id, ..Node::default() }, peer)?;
        let view = resources.snapshot().view(&client, ResourceType::Secret);
        Ok(view.is_some())
    }

    #[test]
    fn secrets_need_an_identity() {
        const LOCAL: &str = "127.0.0.1:4000";
        let own = peer(LOCAL, &["spiffe://cluster.local/ns/edge/sa/gateway"]);
        assert_eq!(is_served_secrets(false, &peer(LOCAL, &[])), Ok(false));
        assert_eq!(is_served_secrets(false, &own), Ok(true));
        assert_eq!(is_served_secrets(true, &peer(LOCAL, &[])), Ok(true));
        for other in ["another", "spiffe://cluster.local/ns/other/sa/gateway"] {
            let refused = is_served_secrets(true, &peer(LOCAL, &[other]));
            // The node does not make up for the proof of another identity.
            assert!(matches!(refused, Err(ConnectError::PermissionDenied(_))), "{other}");
        }
    }

    /// Feature that sends certificates to clients with an identity.
    struct Certificates;

    impl ConnectHook for Certificates {
        fn connect(
            &self,
            client: &mut ConnectingClient<'_>,
        ) -> Result<Option<Box<dyn ClientState>>, ConnectError> {
            let has_identity = !client.peer.identities.is_empty();
            Ok(has_identity.then(|| Box::new(Self) as Box<dyn ClientState>))
        }
    }

    impl ClientState for Certificates {
        fn has_certificate(&self) -> bool {
            true
        }
    }

    #[test]
    fn proxy_that_is_sent_no_certificate_is_treated_as_one_without() {
        let text = |text: &str| Value { kind: Some(ValueKind::StringValue(text.into())) };
        let (key, value) = (translate::CERTIFICATES_KEY, translate::CERTIFICATES_OVER_ADS);
        let fields = [(key.to_owned(), text(value))].into();
        let id = "sidecar~10.0.0.1~web-0.shop~shop.svc.cluster.local".to_owned();
        let node = Node { id, metadata: Some(Struct { fields }), ..Node::default() };
        let source = |has_feature: bool, identities: &[&str]| {
            let hooks: Vec<Box<dyn ConnectHook>> =
                if has_feature { vec![Box::new(Certificates)] } else { Vec::new() };
            let resources = Resources::new(Arc::new(Translator::new()), true, hooks);
            let client = resources.connect(&node, &peer("127.0.0.1:4000", identities)).unwrap();
            client.proxy.proxy().certificate_source
        };
        let proven = &["spiffe://cluster.local/ns/shop/sa/web"][..];
        assert_eq!(source(true, proven), CertificateSource::ControlPlane);
        assert_eq!(source(false, proven), CertificateSource::Nobody);
        assert_eq!(source(true, &[]), CertificateSource::Nobody, "a trusted node proves nothing");
    }

    #[test]
    fn trusted_nodes_are_those_on_this_machine() {
        for (address, is_trusted) in [
            ("[::1]:4000", true),
            ("[::ffff:127.0.0.1]:4000", true),
            // Source of the requests that a sidecar passes on, which may come from anywhere.
            ("127.0.0.6:4000", false),
            ("[::ffff:127.0.0.6]:4000", false),
            ("10.0.0.1:4000", false),
        ] {
            assert_eq!(is_served_secrets(true, &peer(address, &[])), Ok(is_trusted), "{address}");
        }
        let forwarded = PeerInfo { is_forwarded: true, ..peer("127.0.0.1:4000", &[]) };
        assert_eq!(is_served_secrets(true, &forwarded), Ok(false));
    }

    #[test]
    fn a_trusted_node_is_charged_as_its_proven_identity() {
        let resources = Resources::new(Arc::new(Translator::new()), true, Vec::new());
        let charged_to = |peer: &PeerInfo| {
            let fields =
                [("SERVICE_ACCOUNT".to_owned(), Value { kind: Some(ValueKind::StringValue("gw".into())) })];
            let id = "router~10.0.0.1~gateway-0.edge~edge.svc.cluster.local".to_owned();
            let node = Node { id, metadata: Some(Struct { fields: fields.into() }), ..Node::default() };
            let client = resources.connect(&node, peer).unwrap();
            resources.identity(&client, peer)
        };
        let proven = "spiffe://cluster.local/ns/edge/sa/gw";
        assert_eq!(charged_to(&peer("127.0.0.1:4000", &[proven])).as_deref(), Some(proven));
        assert_eq!(charged_to(&peer("127.0.0.1:4000", &[])).as_deref(), Some(proven));
        assert_eq!(charged_to(&peer("10.0.0.1:4000", &[])), None, "a node elsewhere is not trusted");
    }
}
