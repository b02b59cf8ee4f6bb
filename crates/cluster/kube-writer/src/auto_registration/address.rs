//! Validation of the addresses that workloads register. Pure.
//!
//! Clients send requests for a service to every registered address, also through gateways. Without these
//! checks, a workload could direct them to services of the machine or cloud that are closed to others, or to
//! another workload.

use super::entry::RegistrationRequest;
use pilotfish_model::{Namespace, SpecialAddress, WorkloadKind, World, destination_of};
use std::net::IpAddr;

/// Service of the API server, in the namespace `default`.
const API_SERVER: &str = "kubernetes.default.svc.";

/// Source of a workload's address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressRule {
    /// Address that its node claims, unless it cannot be its own: a machine may connect through a gateway
    /// between networks.
    #[default]
    Claimed,
    /// Only the peer address of its connection.
    Peer,
}

/// Refuses an address that cannot be that of a machine of its own.
///
/// # Errors
/// Reason of the refusal.
pub(super) fn check(request: &RegistrationRequest, rule: AddressRule, world: &World) -> Result<(), String> {
    let parsed: IpAddr = request.address.parse().map_err(|_| "it is no IP address".to_owned())?;
    if let Some(special) = SpecialAddress::of(parsed) {
        return Err(format!("it is {special}"));
    }
    let found = destination_of(parsed);
    if rule == AddressRule::Peer && request.peer.map(destination_of) != Some(found) {
        return Err("the proxy connects from another one (--workload-entry-address peer)".to_owned());
    }
    // In the notation of known workloads and endpoints.
    let text = found.to_string();
    if is_of_pod(world, &text, &request.network) {
        return Err("a Pod has it".to_owned());
    }
    let is_api_server = is_api_server(world, &text);
    if is_api_server { Err("the API server has it".to_owned()) } else { Ok(()) }
}

/// True if a Pod has the address, in the network in which clients would reach it. Networks behind gateways
/// may have overlapping addresses.
fn is_of_pod(world: &World, address: &str, network: &str) -> bool {
    let is_apart = world.network_gateways().iter().any(|gateway| gateway.network.as_str() == network);
    let mut pods = world.workloads_at(address).filter(|key| key.kind == WorkloadKind::Pod);
    pods.any(|key| !is_apart || world.workload(key).is_some_and(|pod| pod.network.as_str() == network))
}

fn is_api_server(world: &World, address: &str) -> bool {
    let default = Namespace::from("default");
    let is = |key: &pilotfish_model::ServiceKey| {
        key.namespace == default && key.hostname.as_str().starts_with(API_SERVER)
    };
    let is_endpoint = || world.services_at(address).any(is);
    let is_service = || {
        let services = world.services().filter(|(key, _)| is(key)).flat_map(|(_, services)| services.iter());
        let mut addresses = services.flat_map(|service| {
            let of_clusters = service.addresses.values().flat_map(|addresses| addresses.iter());
            of_clusters.chain([&service.default_address])
        });
        addresses.any(|known| **known == *address)
    };
    is_endpoint() || is_service()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_model::{
        Endpoint, EndpointAttributes, HealthStatus, Hostname, Kind, Labels, Locality, NetworkGateway,
        NetworkId, ObjectKey, Origin, Provider, ServiceKey, ShardKey, TlsMode, Update, Workload, WorkloadKey,
        WorldWriter,
    };
    use std::sync::Arc;

    fn origin(kind: Kind) -> Origin {
        Origin::object(ObjectKey::new(kind, "default", "a"), "c")
    }

    fn endpoint(address: &str) -> Arc<Endpoint> {
        Arc::new(Endpoint {
            addresses: Arc::from([Arc::from(address)]),
            port: 6443,
            service_port: "https".into(),
            service_port_id: None,
            health: HealthStatus::Healthy,
            attributes: Arc::new(EndpointAttributes {
                labels: Labels::default(),
                locality: Locality::default(),
                network: NetworkId::default(),
                cluster: "c".into(),
                weight: 0,
                identity: None,
                tls_mode: TlsMode::Disabled,
                hostname: "".into(),
                sub_domain: "".into(),
                node: "".into(),
                workload_name: "".into(),
                namespace: "default".into(),
                entry: None,
                provenance: origin(Kind::EndpointSlice),
            }),
        })
    }

    fn workload(kind: WorkloadKind, address: &str) -> Arc<Workload> {
        Arc::new(Workload {
            key: WorkloadKey { kind, namespace: "shop".into(), name: address.into(), cluster: "c".into() },
            addresses: Arc::from([Arc::from(address)]),
            ports: Arc::default(),
            labels: Labels::default(),
            locality: Locality::default(),
            network: NetworkId::default(),
            weight: 0,
            service_account: "".into(),
            identity: None,
            tls_mode: TlsMode::Disabled,
            node: "".into(),
            node_addresses: Arc::default(),
            workload_name: "".into(),
            hostname: "".into(),
            sub_domain: "".into(),
            host_network: false,
            ready: true,
            terminating: false,
            created: 0,
            provenance: origin(Kind::Pod),
        })
    }

    fn world() -> Arc<World> {
        let mut writer = WorldWriter::new();
        let key = |host: &str, namespace: &str| ServiceKey {
            hostname: Hostname::parse(host).unwrap(),
            namespace: namespace.into(),
        };
        let shard = || ShardKey::new(Provider::new(0, "Kubernetes"), "c");
        for (key, address) in [
            (key("kubernetes.default.svc.cluster.local", "default"), "10.0.0.10"),
            (key("db.vms.svc.cluster.local", "vms"), "10.7.0.2"),
        ] {
            writer.apply(Update::Endpoints(key, shard(), Arc::from([endpoint(address)])));
        }
        writer.apply(Update::Workload(workload(WorkloadKind::Pod, "10.1.0.1")));
        writer.apply(Update::Workload(workload(WorkloadKind::WorkloadEntry, "10.7.0.2")));
        writer.publish().unwrap().0
    }

    fn request(address: &str, network: &str) -> RegistrationRequest {
        RegistrationRequest { address: address.into(), network: network.into(), ..Default::default() }
    }

    #[test]
    fn a_network_behind_gateways_may_have_the_addresses_of_another_ones_pods() {
        let mut writer = WorldWriter::new();
        writer.apply(Update::Workload(workload(WorkloadKind::Pod, "10.1.0.1")));
        let gateway = NetworkGateway {
            network: "far".into(),
            cluster: "c".into(),
            address: "203.0.113.1".into(),
            port: 15443,
            hbone_port: 0,
            service_account: "".into(),
        };
        writer.apply(Update::NetworkGateways(Arc::from([gateway])));
        let world = writer.publish().unwrap().0;
        for (network, is_free) in [("far", true), ("", false), ("invented", false)] {
            let checked = check(&request("10.1.0.1", network), AddressRule::Claimed, &world);
            assert_eq!(checked.is_ok(), is_free, "{network}");
        }
    }

    #[test]
    fn an_address_that_cannot_be_a_workloads_own_is_refused() {
        let world = world();
        for (address, why) in [
            ("10.7.0.1", None),
            ("fd00::1", None),
            ("::ffff:10.7.0.1", None),
            ("10.7.0.2", None),
            ("127.0.0.1", Some("it is a loopback address")),
            ("::1", Some("it is a loopback address")),
            ("::ffff:127.0.0.1", Some("it is a loopback address")),
            ("0.0.0.0", Some("it is no address of one machine")),
            ("0.0.0.1", Some("it is no address of one machine")),
            ("::", Some("it is no address of one machine")),
            ("255.255.255.255", Some("it is no address of one machine")),
            ("169.254.169.254", Some("it is a link-local address")),
            ("::ffff:169.254.169.254", Some("it is a link-local address")),
            ("fe80::1", Some("it is a link-local address")),
            ("64:ff9b::a9fe:a9fe", Some("it is a link-local address")),
            ("64:ff9b:1::7f00:1", Some("it is a loopback address")),
            ("64:ff9b::a01:1", Some("a Pod has it")),
            ("224.0.0.1", Some("it is a multicast address")),
            ("ff02::1", Some("it is a multicast address")),
            ("168.63.129.16", Some("it is an address of clouds' own services")),
            ("fd00:ec2::254", Some("it is an address of clouds' own services")),
            ("10.1.0.1", Some("a Pod has it")),
            ("10.0.0.10", Some("the API server has it")),
            ("::ffff:10.0.0.10", Some("the API server has it")),
            ("unix:///run/x", Some("it is no IP address")),
            ("", Some("it is no IP address")),
        ] {
            let checked = check(&request(address, ""), AddressRule::Claimed, &world);
            assert_eq!(checked.err().as_deref(), why, "{address}");
        }
    }

    #[test]
    fn where_it_is_wanted_only_the_address_of_the_connection_counts() {
        let world = world();
        let check = |address, peer: Option<&str>| {
            let peer = peer.map(|peer| peer.parse().unwrap());
            check(&RegistrationRequest { peer, ..request(address, "") }, AddressRule::Peer, &world).is_ok()
        };
        assert!(check("10.7.0.1", Some("10.7.0.1")) && check("10.7.0.1", Some("::ffff:10.7.0.1")));
        assert!(!check("10.7.0.1", Some("10.7.0.3")) && !check("10.7.0.1", None));
        assert!(!check("127.0.0.1", Some("127.0.0.1")), "it is nobody else's 127.0.0.1");
    }
}
