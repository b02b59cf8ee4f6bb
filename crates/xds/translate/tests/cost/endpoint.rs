//! An endpoint that changes: what is allocated for it, from the update to what the proxies' groups are told.

use crate::world::service;
use crate::{ALLOCATOR, ALONE};
use pilotfish_model::{Endpoint, Port, Protocol, Provider, Service, ShardKey, Update, Workload, WorldWriter};
use pilotfish_proto::ResourceType;
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_translate::{Proxy, Translator};
use stats_alloc::{Region, Stats};
use std::sync::{Arc, PoisonError};

fn shard() -> ShardKey {
    ShardKey::new(Provider::new(0, "Kubernetes"), "east")
}

fn endpoint(address: String) -> Arc<Endpoint> {
    let port = Port { number: 80, name: "p-80".into(), protocol: Protocol::Http, target_port: None };
    Arc::new(
        Workload::registered(&shard(), "shop", "w".to_owned(), vec![address.into()]).endpoint(&port, 8080),
    )
}

fn endpoints(of: &Service, address: String) -> Update {
    let key = of.key();
    Update::Endpoints(key, shard(), [endpoint(address)].into())
}

/// What one change takes with so many services, of each of which a proxy has the endpoints.
fn change(services: usize) -> Stats {
    let services: Vec<Service> =
        (0..services).map(|index| service(&format!("s-{index}"), [(80, Protocol::Http)])).collect();
    let mut writer = WorldWriter::new();
    for (index, service) in services.iter().enumerate() {
        let key = service.key();
        writer.apply(Update::Services(key, [Arc::new(service.clone())].into()));
        writer.apply(endpoints(service, format!("10.1.{}.{}", index / 250, index % 250)));
    }
    let translator = Translator::new();
    let (world, changes) = writer.publish().unwrap();
    translator.publish(world, &changes);
    let id = "sidecar~10.0.99.1~a.shop~shop.svc.cluster.local".to_owned();
    let client = translator.connect(Proxy::from_node(&Node { id, ..Node::default() }).unwrap());
    let snapshot = translator.snapshot();
    let view = snapshot.view(&client, ResourceType::Endpoint).unwrap();
    for service in &services {
        assert!(snapshot.get(view, &format!("outbound|80||{}", service.hostname)).is_some());
    }
    drop(snapshot);
    let mut taken = None;
    // The first changes fill tables.
    for round in 0..4 {
        let update = endpoints(&services[services.len() / 2], format!("10.2.0.{round}"));
        let region = Region::new(ALLOCATOR);
        writer.apply(update);
        let (world, changes) = writer.publish().unwrap();
        let changed = translator.publish(world, &changes).changes.len();
        taken = Some(region.change());
        assert_eq!(changed, 1);
    }
    taken.unwrap()
}

#[test]
fn an_endpoint_that_changes_takes_the_same_in_a_larger_world() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (small, large) = (change(50), change(1_600));
    let allocations = |stats: &Stats| stats.allocations + stats.reallocations;
    // A tree is a level deeper, and what it copies of a level is not of one size.
    assert!(allocations(&large) <= allocations(&small) + 8, "{small:?}, then {large:?}");
    assert!(large.bytes_allocated <= 2 * small.bytes_allocated, "{small:?}, then {large:?}");
}
