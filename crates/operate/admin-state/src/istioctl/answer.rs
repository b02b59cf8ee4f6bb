//! Answers to `istioctl`.

use super::messages::{
    ClientConfig, ConfigDump, ConfigStatus, DynamicListener, GenericXdsConfig, ListenersConfigDump,
    Timestamp, UpdateFailureState, Versioned,
};
use super::{Made, Question, Queue, Subject};
use crate::{is_proxy, resources_of};
use axum::Router;
use pilotfish_control_plane::resources::Resources;
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::{Any, ResourceType};
use pilotfish_translate::{EncodedResource, Proxy, Translator};
use pilotfish_xds::{Collection, ConnectionStatus, Fanout, Resource, TypeStatus};
use prost::Message;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::Semaphore;

/// Size limit of an answer in bytes.
pub(super) const LARGEST: usize = 64 << 20;
/// Limit on the memory of all answers that have not been sent, in KiB (limit `debug-answer-bytes`).
pub(super) const ALL_KIB: usize = 128 << 10;

/// Task that answers questions one after the other.
pub struct Answerer {
    /// Debug pages of the admin API.
    pub pages: Router,
    /// Connected clients and their streams.
    pub fanout: Arc<Fanout<Resources>>,
    pub translator: Arc<Translator>,
    /// Memory budget of all answers that have not been sent.
    pub budget: Budget,
}

/// Memory budget of answers in KiB. Answers to slow clients keep further ones from being made.
pub struct Budget(Arc<Semaphore>);

impl Default for Budget {
    fn default() -> Self {
        Self::of(ALL_KIB)
    }
}

impl Budget {
    pub(super) fn of(kib: usize) -> Self {
        Self(Arc::new(Semaphore::new(kib)))
    }

    /// Returns an answer with its part of the budget; without room, a text that asks for a retry.
    pub(super) fn hold(&self, collection: Collection) -> Made {
        let bytes: usize =
            collection.values().map(|resource| resource.body.len() + resource.name.len()).sum();
        let kib = u32::try_from(bytes.div_ceil(1_024)).unwrap_or(u32::MAX);
        match Arc::clone(&self.0).try_acquire_many_owned(kib) {
            Ok(room) => Made { collection, held: Arc::new(room) },
            Err(_) => Made { collection: said(LATER), held: Arc::new(()) },
        }
    }
}

/// Texts in the place of an answer, with the reason.
const LATER: &str = "too many answers wait to be taken (limit debug-answer-bytes): try again\n";
const TOO_LARGE: &str = "the answer would be larger than 64 MiB (limit debug-answer-bytes): ask for less\n";

impl Answerer {
    /// Runs until all senders of questions are dropped.
    pub async fn run(self: Arc<Self>, mut questions: Queue) {
        while let Some(Question { subject, answer }) = questions.recv().await {
            let collection = match subject {
                Subject::Page(path) => self.page(&path).await,
                subject => {
                    let this = Arc::clone(&self);
                    let made = tokio::task::spawn_blocking(move || this.made(&subject));
                    made.await.unwrap_or_default()
                }
            };
            // Each question has its own cell. An answer is dropped if its client has disconnected.
            let _ = answer.set(self.budget.hold(collection));
            drop(answer);
            self.fanout.publish_collections();
        }
    }

    /// Returns a debug page as served to clients on this machine, also if it is an error page.
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

    /// Returns the sections of a dump, as on the proxy's admin port.
    fn dump(&self, connections: &[ConnectionStatus], proxy: &str) -> Collection {
        let Some(connection) = connections.iter().find(|connection| crate::is_named(connection, proxy))
        else {
            return not_connected();
        };
        let Ok(proxy) = Proxy::from_node(&connection.node) else { return not_connected() };
        let client = self.translator.connect(proxy);
        let read = |ty| resources_of(&self.translator, &client, connection, ty);
        let [clusters, endpoints, listeners, routes] = DUMPED.map(read);
        let all = [&clusters, &endpoints, &listeners, &routes];
        // Checked before the resources are copied.
        if all.into_iter().flatten().map(|resource| resource.body.len()).sum::<usize>() > LARGEST {
            return said(TOO_LARGE);
        }
        let dynamic = |all: &[EncodedResource]| ConfigDump { dynamic: all.iter().map(versioned).collect() };
        let listener = |resource: &EncodedResource| DynamicListener {
            name: resource.name.to_string(),
            active_state: Some(versioned(resource)),
        };
        let listeners = ListenersConfigDump { dynamic_listeners: listeners.iter().map(listener).collect() };
        let section = |name: &str, any: Any| (name.to_owned(), any);
        collection([
            section("clusters", packed("envoy.admin.v3.ClustersConfigDump", &dynamic(&clusters))),
            section("endpoints", packed("envoy.admin.v3.EndpointsConfigDump", &dynamic(&endpoints))),
            section("listeners", packed("envoy.admin.v3.ListenersConfigDump", &listeners)),
            section("routes", packed("envoy.admin.v3.RoutesConfigDump", &dynamic(&routes))),
        ])
    }
}

/// Types of a dump, in the order of its sections.
const DUMPED: [ResourceType; 4] =
    [ResourceType::Cluster, ResourceType::Endpoint, ResourceType::Listener, ResourceType::Route];

/// Returns the resource that makes `istioctl` ask another replica. It would take an empty answer for the
/// proxy's configuration.
fn not_connected() -> Collection {
    said(pilotfish_admin::NOT_CONNECTED)
}

/// Returns a text in the place of an answer, which `istioctl` prints.
fn said(text: &str) -> Collection {
    let any = Any { type_url: "istio.io/debug".to_owned(), value: text.into() };
    [resource("config_dump".to_owned(), &any)].into_iter().collect()
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

/// Returns an answer with these resources. Stops making them at the size limit.
fn collection(resources: impl IntoIterator<Item = (String, Any)>) -> Collection {
    let (mut all, mut bytes) = (Collection::new(), 0_usize);
    for (name, any) in resources {
        let (name, resource) = resource(name, &any);
        bytes = bytes.saturating_add(resource.body.len() + name.len());
        if bytes > LARGEST {
            return said(TOO_LARGE);
        }
        all.insert(name, resource);
    }
    all
}

fn resource(name: String, any: &Any) -> (Arc<str>, Arc<Resource>) {
    let (name, body) = (Arc::<str>::from(name), any.encode_to_vec());
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    let resource = Resource {
        name: name.clone(),
        version: hasher.finish().max(1),
        body: body.into(),
        changed_at: 0,
        stands_in: false,
    };
    (name, Arc::new(resource))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn page(bytes: usize) -> (String, Any) {
        ("page".to_owned(), Any { type_url: "istio.io/debug".to_owned(), value: vec![b'x'; bytes] })
    }

    fn text(made: &Made) -> String {
        let any = made.collection.values().map(|resource| Any::decode(resource.body.clone()).unwrap()).next();
        String::from_utf8_lossy(&any.unwrap().value).into_owned()
    }

    #[test]
    fn answers_that_are_not_taken_keep_others_from_being_made() {
        let budget = Budget::of(8);
        let first = budget.hold(collection([page(4_000)]));
        let second = budget.hold(collection([page(6_000)]));
        assert_eq!((text(&first).len(), text(&second).as_str()), (4_000, LATER));
        drop(first);
        assert_eq!(text(&budget.hold(collection([page(6_000)]))).len(), 6_000);
    }

    #[test]
    fn no_more_is_made_than_may_be_sent() {
        let part = || (0..80).map(|n| (n.to_string(), page(1 << 20).1));
        let mut made = 0;
        let answer = collection(part().inspect(|_| made += 1));
        assert_eq!((answer, made), (said(TOO_LARGE), 64), "it stops when it is too much");
        assert_eq!(collection(part().take(60)).len(), 60);
        let row = format!("(`debug-answer-bytes`) | {} MiB; {} MiB |", LARGEST >> 20, ALL_KIB >> 10);
        assert!(include_str!("../../../../../docs/limits.md").contains(&row), "no row {row:?}");
    }
}
