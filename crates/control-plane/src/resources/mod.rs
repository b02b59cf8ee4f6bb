//! Adapter between translation and xDS: the translator as the source of streams.

use crate::configuration::{Configuration, ConfigurationClient, ConfigurationClients};
use crate::istioctl::{Asker, Questions};
use crate::serve::auto_registration::ProxyRegistrar;
use crate::serve::node_claims::{ClaimedByNode, NodeClaims};
use crate::serve::secret_access::{SecretClient, SecretRights};
use pilotfish_config::mesh::{self, MeshConfig};
use pilotfish_identity::is_this_machine;
use pilotfish_kube_writer::auto_registration::Registration;
use pilotfish_model::Namespace;
use pilotfish_proto::ResourceType;
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_translate as translate;
use pilotfish_translate::{NodeError, Proxy, Translator};
use pilotfish_xds as xds;
use pilotfish_xds::{ConnectError, Limit, LimitExceeded, PeerInfo};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Source of streams with the translator's resources, once the first lists are complete.
pub struct Resources {
    translator: Arc<Translator>,
    trust_nodes: bool,
    ready: AtomicBool,
    /// `None` if auto-registration is disabled.
    registrar: Option<Arc<ProxyRegistrar>>,
    /// `None` if there is no API server to review access to Secrets.
    secret_rights: Option<SecretRights>,
    configuration: Configuration,
    node_claims: NodeClaims,
    /// `None` if tools are not answered.
    questions: Option<Questions>,
}

/// State of a connected client.
pub struct Client {
    proxy: translate::Client,
    /// Set if the client has a WorkloadEntry by auto-registration.
    registration: Option<Registration>,
    /// Set if an API server decides on its access to Secrets.
    secrets: Option<SecretClient>,
    configuration: ConfigurationClient,
    /// Questions of the client as a tool.
    asker: Option<Asker>,
    /// Claims of its node, released on disconnection.
    _claimed: ClaimedByNode,
}

impl Resources {
    /// Returns a source that is not ready yet. With `trust_nodes`, the identity in the node of a proxy on
    /// this machine is trusted, unless its connection proved another.
    #[must_use]
    pub fn new(translator: Arc<Translator>, trust_nodes: bool) -> Self {
        let configuration = Configuration::new(ConfigurationClients::Nobody);
        let ready = AtomicBool::new(false);
        let node_claims = NodeClaims::default();
        Self {
            translator,
            trust_nodes,
            ready,
            registrar: None,
            secret_rights: None,
            configuration,
            node_claims,
            questions: None,
        }
    }

    /// Accepts questions of tools.
    #[must_use]
    pub(crate) fn with_questions(self, questions: Questions) -> Self {
        Self { questions: Some(questions), ..self }
    }

    /// Serves configuration to these other control planes.
    #[must_use]
    pub(crate) fn with_configuration(self, clients: ConfigurationClients) -> Self {
        Self { configuration: Configuration::new(clients), ..self }
    }

    /// Returns the configuration for other control planes.
    pub(crate) fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// Enables auto-registration of workloads that connect.
    #[must_use]
    pub(crate) fn with_registrar(self, registrar: Option<Arc<ProxyRegistrar>>) -> Self {
        Self { registrar, ..self }
    }

    /// Restricts access to Secrets by these rules.
    #[must_use]
    pub(crate) fn with_secret_rights(self, secret_rights: Option<SecretRights>) -> Self {
        Self { secret_rights, ..self }
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
        if self.trust_nodes && peer.identities.is_empty() && is_local(peer) {
            proxy.identity = Some(proxy.claimed_identity());
        }
        if let (Some(rights), Some(identity)) = (&self.secret_rights, &proxy.identity) {
            proxy.secret_access = rights.of(identity, peer.cluster.as_deref());
        }
        let (claimed, mesh) = {
            let snapshot = self.translator.snapshot();
            let claimed = self.node_claims.enter(&proxy, peer, snapshot.world())?;
            (claimed, snapshot.world().typed::<MeshConfig>(&Namespace::default(), mesh::OBJECT_NAME))
        };
        let secrets = self.secret_rights.as_ref().and_then(|rights| rights.client(&proxy.secret_access));
        let registration = match &self.registrar {
            Some(registrar) => registrar.connect(&proxy, peer)?,
            None => None,
        };
        let cluster = peer.cluster.as_deref();
        let is_foreign = self.secret_rights.as_ref().is_some_and(|rights| rights.is_foreign(cluster));
        let usual = MeshConfig::default();
        let mesh = mesh.as_deref().unwrap_or(&usual);
        let configuration = self.configuration.connect(node, peer, is_foreign, mesh);
        let asker = self.questions.as_ref().map(|questions| questions.connect(peer));
        let proxy = self.translator.connect(proxy);
        Ok(Client { proxy, registration, secrets, configuration, asker, _claimed: claimed })
    }

    fn client_id(&self, client: &Self::Client) -> xds::ClientId {
        xds::ClientId(client.proxy.id().0)
    }

    fn identity(&self, client: &Self::Client, peer: &PeerInfo) -> Option<String> {
        // With `--trust-nodes`, the accepted identity is the node's.
        let accepted = client.proxy.proxy().identity.as_ref();
        peer.identities.first().cloned().or_else(|| accepted.map(|identity| format!("{identity:?}")))
    }

    fn weight(&self, client: &Self::Client) -> usize {
        client.proxy.proxy().weight()
    }

    fn reported_health(&self, client: &Self::Client, problem: Option<&str>) {
        if let Some(registration) = &client.registration {
            registration.report(problem.map_or(Ok(()), |problem| Err(problem.to_owned())));
        }
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
        if let (Some(questions), Some(asker)) = (&self.questions, &client.asker)
            && questions.ask(asker, type_url, names)?
        {
            return Ok(true);
        }
        self.configuration.serves(&client.configuration, type_url)
    }

    fn collection(&self, client: &Self::Client, type_url: &str) -> xds::CollectionState {
        let tool = self.questions.as_ref().zip(client.asker.as_ref());
        let answer = tool.and_then(|(questions, asker)| questions.answer(asker, type_url));
        answer.unwrap_or_else(|| self.configuration.collection(type_url))
    }

    fn control_plane(&self, type_url: &str) -> Option<&str> {
        self.questions.as_ref()?.answerer(type_url)
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
        if ty == ResourceType::Secret
            && let Some(secrets) = &client.secrets
        {
            secrets.asks();
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
pub(crate) fn is_local(peer: &PeerInfo) -> bool {
    let address = peer.address.parse::<SocketAddr>();
    // Peers of a Unix socket are on this machine.
    let is_near = address.map_or(!peer.address.is_empty(), |address| is_this_machine(address.ip()));
    is_near && !peer.is_forwarded
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_xds::{ResourceSource, Snapshot as _};

    fn peer(address: &str, identities: &[&str]) -> PeerInfo {
        let identities = identities.iter().map(|id| (*id).to_owned()).collect();
        PeerInfo { address: address.to_owned(), identities, ..PeerInfo::default() }
    }

    fn is_served_secrets(trust_nodes: bool, peer: &PeerInfo) -> Result<bool, ConnectError> {
        let resources = Resources::new(Arc::new(Translator::new()), trust_nodes);
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

    #[test]
    fn trusted_nodes_are_those_on_this_machine() {
        for (address, is_trusted) in [
            ("[::1]:4000", true),
            ("[::ffff:127.0.0.1]:4000", true),
            ("/var/run/xds.sock", true),
            // Source of the requests that a sidecar passes on, which may come from anywhere.
            ("127.0.0.6:4000", false),
            ("[::ffff:127.0.0.6]:4000", false),
            ("10.0.0.1:4000", false),
            ("", false),
        ] {
            assert_eq!(is_served_secrets(true, &peer(address, &[])), Ok(is_trusted), "{address}");
        }
        let forwarded = PeerInfo { is_forwarded: true, ..peer("127.0.0.1:4000", &[]) };
        assert_eq!(is_served_secrets(true, &forwarded), Ok(false));
    }
}
