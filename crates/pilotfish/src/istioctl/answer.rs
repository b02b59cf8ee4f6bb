//! The answers.

use super::messages::{
    ClientConfig, ConfigDump, ConfigStatus, DynamicListener, GenericXdsConfig, ListenersConfigDump,
    Timestamp, UpdateFailureState, Versioned,
};
use super::{Question, Queue, Subject};
use crate::admin::{is_proxy, resources_of};
use crate::resources::Resources;
use axum::Router;
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::{Any, ResourceType};
use pilotfish_translate::{EncodedResource, Proxy, Translator};
use pilotfish_xds::{Collection, ConnectionStatus, Fanout, Resource, TypeStatus};
use prost::Message;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::SystemTime;

/// Bytes of a page at most.
const LARGEST: usize = 64 << 20;

/// Answers questions, one after the other.
pub(crate) struct Answerer {
    /// The admin API.
    pub(crate) pages: Router,
    /// The connected clients.
    pub(crate) fanout: Arc<Fanout<Resources>>,
    /// What makes resources.
    pub(crate) translator: Arc<Translator>,
}

impl Answerer {
    /// Answers until nobody can ask any more.
    pub(crate) async fn run(self: Arc<Self>, mut questions: Queue) {
        while let Some(Question { subject, answer }) = questions.recv().await {
            let collection = match subject {
                Subject::Page(path) => self.page(&path).await,
                subject => {
                    let this = Arc::clone(&self);
                    let made = tokio::task::spawn_blocking(move || this.made(&subject));
                    made.await.unwrap_or_default()
                }
            };
            // It is asked once.
            let _ = answer.set(collection);
            self.fanout.publish_collections();
        }
    }

    /// A debug page as it is shown to those on this machine, also where it says that there is none.
    async fn page(&self, path: &str) -> Collection {
        let (_, body) = pilotfish_admin::page(&self.pages, &format!("/debug/{path}"), LARGEST).await;
        let any = Any { type_url: "istio.io/debug".to_owned(), value: body.into() };
        collection([(path.to_owned(), any)])
    }

    fn made(&self, subject: &Subject) -> Collection {
        let connections = self.fanout.connections();
        match subject {
            Subject::Connections => collection(proxies(&connections).map(|connection| {
                let node = Node::clone(&connection.node);
                (connection.id.clone(), packed("envoy.config.core.v3.Node", &node))
            })),
            Subject::ConfigDump(proxy) => self.dump(&connections, proxy),
            Subject::Syncz | Subject::Page(_) => collection(proxies(&connections).map(|connection| {
                let config = packed("envoy.service.status.v3.ClientConfig", &client_config(connection));
                (connection.id.clone(), config)
            })),
        }
    }

    /// The sections of a dump, as the proxy's own admin port has them.
    fn dump(&self, connections: &[ConnectionStatus], proxy: &str) -> Collection {
        let Some(connection) =
            connections.iter().find(|connection| crate::admin::is_named(connection, proxy))
        else {
            return not_connected();
        };
        let Ok(proxy) = Proxy::from_node(&connection.node) else { return not_connected() };
        let client = self.translator.connect(proxy);
        let read = |ty| resources_of(&self.translator, &client, connection, ty);
        let dynamic = |ty| ConfigDump { dynamic: read(ty).iter().map(versioned).collect() };
        let listeners = read(ResourceType::Listener);
        let listener = |resource: &EncodedResource| DynamicListener {
            name: resource.name.to_string(),
            active_state: Some(versioned(resource)),
        };
        let listeners = ListenersConfigDump { dynamic_listeners: listeners.iter().map(listener).collect() };
        let section = |name: &str, any: Any| (name.to_owned(), any);
        collection([
            section("clusters", packed("envoy.admin.v3.ClustersConfigDump", &dynamic(ResourceType::Cluster))),
            section(
                "endpoints",
                packed("envoy.admin.v3.EndpointsConfigDump", &dynamic(ResourceType::Endpoint)),
            ),
            section("listeners", packed("envoy.admin.v3.ListenersConfigDump", &listeners)),
            section("routes", packed("envoy.admin.v3.RoutesConfigDump", &dynamic(ResourceType::Route))),
        ])
    }
}

/// The one resource by which `istioctl` knows that it has to ask another replica. It takes an empty answer for the proxy's configuration.
fn not_connected() -> Collection {
    let any = Any { type_url: "istio.io/debug".to_owned(), value: pilotfish_admin::NOT_CONNECTED.into() };
    collection([("config_dump".to_owned(), any)])
}

fn proxies(connections: &[ConnectionStatus]) -> impl Iterator<Item = &ConnectionStatus> {
    connections.iter().filter(|connection| is_proxy(connection))
}

fn versioned(resource: &EncodedResource) -> Versioned {
    Versioned {
        version_info: format!("{:016x}", resource.version),
        resource: Any::decode(resource.body.clone()).ok(),
    }
}

fn packed(name: &str, message: &impl Message) -> Any {
    Any { type_url: format!("type.googleapis.com/{name}"), value: message.encode_to_vec() }
}

fn collection(resources: impl IntoIterator<Item = (String, Any)>) -> Collection {
    let resource = |(name, any): (String, Any)| {
        let (name, body) = (Arc::<str>::from(name), any.encode_to_vec());
        let mut hasher = DefaultHasher::new();
        body.hash(&mut hasher);
        let resource = Resource {
            name: name.clone(),
            version: hasher.finish().max(1),
            body: body.into(),
            changed_at: 0,
        };
        (name, Arc::new(resource))
    };
    resources.into_iter().map(resource).collect()
}

fn client_config(connection: &ConnectionStatus) -> ClientConfig {
    let mut parts = connection.node.id.split('~');
    let name = parts.nth(2).filter(|name| !name.is_empty()).unwrap_or(&connection.node.id);
    let types = connection.types.iter().map(|(ty, status)| xds_config(*ty, status));
    ClientConfig {
        node: Some(Node {
            id: name.to_owned(),
            metadata: connection.node.metadata.clone(),
            ..Node::default()
        }),
        generic_xds_configs: types.collect(),
    }
}

fn xds_config(ty: ResourceType, status: &TypeStatus) -> GenericXdsConfig {
    let config_status = match (&status.rejection, &status.sent_nonce) {
        (Some(_), _) => ConfigStatus::Error,
        (None, None) => ConfigStatus::NotSent,
        (None, sent) if *sent == status.acked_nonce => ConfigStatus::Synced,
        _ => ConfigStatus::Stale,
    };
    GenericXdsConfig {
        type_url: ty.type_url().to_owned(),
        last_updated: status.sent_at.map(timestamp),
        config_status: config_status.into(),
        error_state: status.rejection.as_ref().map(|rejection| UpdateFailureState {
            last_update_attempt: Some(timestamp(rejection.at)),
            details: rejection.error.clone(),
        }),
    }
}

fn timestamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(since.subsec_nanos()).unwrap_or(0),
    }
}
