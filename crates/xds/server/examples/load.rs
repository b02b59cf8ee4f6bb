//! The server over made-up clusters, for measuring it with a load client: `load ADDRESS CONTROL-ADDRESS
//! CLUSTERS`.
//!
//! `GET /touch?k=K` on the control address gives K clusters new endpoints `200.<tick/256>.<tick%256>.*`;
//! `GET /retune?k=K` changes K clusters themselves.

use pilotfish_proto::envoy::config::cluster::v3::{Cluster, cluster};
use pilotfish_proto::envoy::config::core::v3::{
    Address, AggregatedConfigSource, ConfigSource, Node, SocketAddress, address, config_source,
    socket_address,
};
use pilotfish_proto::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint,
};
use pilotfish_proto::{ResourceType, any};
use pilotfish_xds::{
    Change, ChangeKind, ClientId, ConnectError, Fanout, NoRecorder, PeerInfo, Publication, Resource,
    ResourceSource, Server, ServerConfig, Snapshot, StreamLimits, ViewId,
};
use prost::Message;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const ENDPOINTS: u32 = 10;
const VIEWS: [ResourceType; 2] = [ResourceType::Cluster, ResourceType::Endpoint];

struct World {
    revision: u64,
    names: Arc<[Arc<str>]>,
    resources: [HashMap<Arc<str>, Resource>; 2],
}

struct Source {
    world: RwLock<World>,
    clients: AtomicU64,
}

struct Seen<'a>(RwLockReadGuard<'a, World>);

fn view(ty: ResourceType) -> Option<ViewId> {
    let at = VIEWS.iter().position(|other| *other == ty)?;
    u32::try_from(at).ok().map(ViewId)
}

impl Snapshot<ClientId> for Seen<'_> {
    fn revision(&self) -> u64 {
        self.0.revision
    }

    fn view(&self, _: &ClientId, ty: ResourceType) -> Option<ViewId> {
        view(ty)
    }

    fn names(&self, view: ViewId) -> Arc<[Arc<str>]> {
        if view.0 == 0 { Arc::clone(&self.0.names) } else { Arc::from([]) }
    }

    fn get(&self, view: ViewId, name: &str) -> Option<Resource> {
        self.0.resources.get(view.0 as usize)?.get(name).cloned()
    }
}

impl ResourceSource for Source {
    type Client = ClientId;
    type Snapshot<'a> = Seen<'a>;

    fn ready(&self) -> bool {
        true
    }

    fn connect(&self, _: &Node, _: &PeerInfo) -> Result<ClientId, ConnectError> {
        Ok(ClientId(self.clients.fetch_add(1, Ordering::Relaxed)))
    }

    fn client_id(&self, client: &ClientId) -> ClientId {
        *client
    }

    fn snapshot(&self) -> Seen<'_> {
        Seen(self.world.read().expect("no writer panics"))
    }
}

fn resource<M: Message + prost::Name>(name: &Arc<str>, message: &M, revision: u64) -> Resource {
    let body = any(message).encode_to_vec();
    let version = xxhash_rust::xxh3::xxh3_64(&body).max(1);
    Resource { name: Arc::clone(name), version, body: body.into(), changed_at: revision, stands_in: false }
}

fn cluster(name: &Arc<str>, revision: u64) -> Resource {
    let source = config_source::ConfigSourceSpecifier::Ads(AggregatedConfigSource::default());
    let config = ConfigSource {
        config_source_specifier: Some(source),
        resource_api_version: 2,
        ..ConfigSource::default()
    };
    let message = Cluster {
        name: name.to_string(),
        cluster_discovery_type: Some(cluster::ClusterDiscoveryType::Type(3)),
        eds_cluster_config: Some(cluster::EdsClusterConfig {
            eds_config: Some(config),
            service_name: String::new(),
        }),
        alt_stat_name: format!("{name}-{revision}"),
        ..Cluster::default()
    };
    resource(name, &message, revision)
}

fn endpoints(name: &Arc<str>, prefix: &str, revision: u64) -> Resource {
    let endpoint = |i: u32| {
        let port = socket_address::PortSpecifier::PortValue(8080);
        let socket = SocketAddress {
            address: format!("{prefix}.{i}"),
            port_specifier: Some(port),
            ..SocketAddress::default()
        };
        let address = Address { address: Some(address::Address::SocketAddress(socket)) };
        let endpoint = Endpoint { address: Some(address), ..Endpoint::default() };
        LbEndpoint {
            host_identifier: Some(lb_endpoint::HostIdentifier::Endpoint(endpoint)),
            ..LbEndpoint::default()
        }
    };
    let locality = LocalityLbEndpoints {
        lb_endpoints: (1..=ENDPOINTS).map(endpoint).collect(),
        ..LocalityLbEndpoints::default()
    };
    let message = ClusterLoadAssignment {
        cluster_name: name.to_string(),
        endpoints: vec![locality],
        ..ClusterLoadAssignment::default()
    };
    resource(name, &message, revision)
}

fn world(clusters: usize) -> World {
    let name = |i| Arc::<str>::from(format!("outbound|80||svc{i}.ns.svc.cluster.local"));
    let names: Arc<[Arc<str>]> = (0..clusters).map(name).collect();
    let mut resources = [HashMap::new(), HashMap::new()];
    for (i, name) in names.iter().enumerate() {
        let prefix = format!("10.{}.{}", i >> 8, i & 255);
        resources[0].insert(Arc::clone(name), cluster(name, 1));
        resources[1].insert(Arc::clone(name), endpoints(name, &prefix, 1));
    }
    World { revision: 1, names, resources }
}

fn change(fanout: &Fanout<Source>, ty: ResourceType, count: usize) -> u64 {
    let mut publication = Publication::default();
    {
        let mut world = fanout.source().world.write().expect("no reader panics");
        world.revision += 1;
        let tick = world.revision - 1;
        let prefix = format!("200.{}.{}", tick / 256, tick % 256);
        publication.revision = world.revision;
        let at = VIEWS.iter().position(|view| *view == ty).unwrap_or_default();
        for name in Arc::clone(&world.names).iter().take(count) {
            let revision = world.revision;
            let resource = if at == 0 { cluster(name, revision) } else { endpoints(name, &prefix, revision) };
            world.resources[at].insert(Arc::clone(name), resource);
            let (view, name) = (view(ty).unwrap_or(ViewId(0)), Arc::clone(name));
            publication.changes.push(Change { view, ty, name, kind: ChangeKind::Upsert });
        }
    }
    fanout.publish(&publication);
    publication.revision
}

async fn control(fanout: Arc<Fanout<Source>>, address: String) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind(address).await?;
    loop {
        let (mut io, _) = listener.accept().await?;
        let mut request = [0; 1024];
        let len = io.read(&mut request).await?;
        let request = String::from_utf8_lossy(&request[..len]).into_owned();
        let count = request.split("k=").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
        let text = match count {
            Some(count) if request.starts_with("GET /touch") => {
                change(&fanout, ResourceType::Endpoint, count).to_string()
            }
            Some(count) if request.starts_with("GET /retune") => {
                change(&fanout, ResourceType::Cluster, count).to_string()
            }
            _ => format!("{} streams in {} groups", fanout.stream_count(), fanout.group_count()),
        };
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", text.len());
        io.write_all((head + &text).as_bytes()).await?;
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, control_address, clusters] = &arguments[..] else {
        return Err("usage: load ADDRESS CONTROL-ADDRESS CLUSTERS".into());
    };
    let source = Source { world: RwLock::new(world(clusters.parse()?)), clients: AtomicU64::new(0) };
    let fanout = Fanout::new(Arc::new(source), Arc::new(NoRecorder), StreamLimits::default());
    let bound = Server::new(Arc::clone(&fanout), ServerConfig::default()).bind(address.parse()?)?;
    tokio::select! {
        () = bound.run(std::future::pending()) => {}
        end = control(fanout, control_address.clone()) => end?,
    }
    Ok(())
}
