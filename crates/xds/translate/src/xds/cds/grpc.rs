//! Clusters of proxyless gRPC clients: subscribed by name, with the few settings that gRPC understands.
#![allow(deprecated, reason = "older gRPC libraries read only the older fields")]

use super::outbound::accounts;
use super::view::GrpcClusters;
use super::{load_balancer, names};
use crate::engine::{Cx, EncodedResource};
use crate::envoy::{ClusterName, NOWHERE, outbound_name};
use crate::policy::destination_rule::{MergedDestinationRule, Policy, destination_rule_for};
use crate::scope::ServiceIn;
use pilotfish_config::networking::{ClientTlsMode, ConsistentHashLb, SimpleLb};
use pilotfish_model::{Origin, PortId};
use pilotfish_proto::config_any;
use pilotfish_proto::envoy::config::cluster::v3::circuit_breakers::Thresholds;
use pilotfish_proto::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, DiscoveryType, EdsClusterConfig, LbPolicy,
};
use pilotfish_proto::envoy::config::cluster::v3::{CircuitBreakers, Cluster};
use pilotfish_proto::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use pilotfish_proto::envoy::config::core::v3::transport_socket::ConfigType;
use pilotfish_proto::envoy::config::core::v3::{AggregatedConfigSource, ConfigSource, TransportSocket};
use pilotfish_proto::envoy::extensions::transport_sockets::tls::v3::common_tls_context::{
    CertificateProviderInstance, CombinedCertificateValidationContext, ValidationContextType,
};
use pilotfish_proto::envoy::extensions::transport_sockets::tls::v3::{
    CertificateProviderPluginInstance, CertificateValidationContext, CommonTlsContext, UpstreamTlsContext,
};

/// The certificate provider that Istio's agent writes into the bootstrap.
const PROVIDER: &str = "default";
/// Certificate names of the workload's certificate and of the mesh's root certificates at that provider.
const CERTIFICATE: &str = "default";
const ROOTS: &str = "ROOTCA";

/// Largest ring that gRPC supports; Envoy's limit is the same.
const MAX_RING_SIZE: u64 = 8 << 20;

/// Returns the cluster with that name; none if it is not the name of a service's cluster.
///
/// A client waits for each cluster of a route before its first call to the host. So every cluster that a
/// route may name exists, and has no endpoints if calls to it must fail: the service does not exist, no rule
/// has the subset, or an unusable rule sets the encryption.
pub(super) fn clusters(cx: &Cx<'_>, view: &GrpcClusters, name: &str) -> Vec<EncodedResource> {
    let Some(parsed) = ClusterName::parse(name).filter(|parsed| !parsed.sni_dnat) else { return Vec::new() };
    let service = cx.get(&ServiceIn(view.scope.clone(), parsed.host.clone()));
    let Some(service) =
        Option::as_ref(&service).filter(|service| service.port(PortId::tcp(parsed.port)).is_some())
    else {
        return failing(name, parsed.port, Vec::new());
    };
    let key = service.key();
    let rule = destination_rule_for(cx, &view.scope.namespace, &key, &view.labels);
    let of_rule = rule.iter().flat_map(|rule| rule.provenance.iter().cloned());
    let provenance: Vec<Origin> = std::iter::once(service.provenance.clone()).chain(of_rule).collect();
    let is_closed = rule.as_deref().is_some_and(|rule| rule.closes(&parsed.subset, parsed.port));
    let is_subset = |rule: &MergedDestinationRule| rule.subset(&parsed.subset).is_some();
    if is_closed || (!parsed.subset.is_empty() && !rule.as_deref().is_some_and(is_subset)) {
        return failing(name, parsed.port, provenance);
    }
    let policy =
        rule.as_deref().map_or_else(Policy::default, |rule| rule.policy_of(&parsed.subset, parsed.port));
    if policy.tls.is_some()
        && rule.as_ref().is_some_and(|rule| rule.requires_tls(&parsed.subset, parsed.port))
    {
        // gRPC takes no certificates from xDS, and a cluster without TLS would send protected traffic in
        // plaintext.
        return failing(name, parsed.port, provenance);
    }
    let mut cluster = eds_cluster(name);
    if policy.tls.is_some_and(|tls| tls.mode == ClientTlsMode::IstioMutual) {
        cluster.transport_socket = Some(mutual_tls(&accounts(cx, &cx.mesh(), service, &key)));
    }
    apply_balancer(&mut cluster, &policy, view.least_request);
    apply_limits(&mut cluster, &policy);
    vec![EncodedResource::new(name, &cluster, provenance)]
}

/// Returns a cluster to which every call fails at once: its endpoints are those of a host that no service can
/// have.
fn failing(name: &str, port: u32, provenance: Vec<Origin>) -> Vec<EncodedResource> {
    let mut cluster = eds_cluster(name);
    if let Some(eds) = &mut cluster.eds_cluster_config {
        eds.service_name = outbound_name(port, "", NOWHERE);
    }
    vec![EncodedResource::new(name, &cluster, provenance)]
}

fn eds_cluster(name: &str) -> Cluster {
    let ads = ConfigSourceSpecifier::Ads(AggregatedConfigSource::default());
    Cluster {
        name: name.to_owned(),
        alt_stat_name: names::stat_name(name),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds as i32)),
        eds_cluster_config: Some(EdsClusterConfig {
            service_name: name.to_owned(),
            eds_config: Some(ConfigSource { config_source_specifier: Some(ads), ..ConfigSource::default() }),
        }),
        ..Cluster::default()
    }
}

/// Sets the load balancing policy. gRPC supports round robin, least request and ring hash.
fn apply_balancer(cluster: &mut Cluster, policy: &Policy<'_>, least_request: bool) {
    let Some(balancer) = policy.load_balancer else { return };
    if least_request && matches!(balancer.simple, Some(SimpleLb::LeastRequest | SimpleLb::LeastConn)) {
        cluster.lb_policy = LbPolicy::LeastRequest as i32;
    }
    if let Some(hash) = &balancer.consistent_hash {
        load_balancer::set_consistent_hash(cluster, &as_ring(hash));
    }
}

/// Sets the maximum number of concurrent requests, the only circuit breaker limit that gRPC supports.
fn apply_limits(cluster: &mut Cluster, policy: &Policy<'_>) {
    let http = policy.connection_pool.and_then(|pool| pool.http.as_ref());
    let requests = http.and_then(|http| u32::try_from(http.http2_max_requests).ok()).filter(|n| *n > 0);
    cluster.circuit_breakers = requests.map(|requests| CircuitBreakers {
        thresholds: vec![Thresholds { max_requests: Some(requests), ..Thresholds::default() }],
        ..CircuitBreakers::default()
    });
}

/// gRPC supports ring hash only, and rejects a cluster with another hash table or with too large a ring.
fn as_ring(hash: &ConsistentHashLb) -> ConsistentHashLb {
    let mut hash = ConsistentHashLb { maglev: None, ..hash.clone() };
    hash.minimum_ring_size = hash.minimum_ring_size.min(MAX_RING_SIZE);
    if let Some(ring) = &mut hash.ring_hash {
        ring.minimum_ring_size = ring.minimum_ring_size.min(MAX_RING_SIZE);
    }
    hash
}

fn mutual_tls(accounts: &[String]) -> TransportSocket {
    let common = common_tls(accounts);
    let context = UpstreamTlsContext { common_tls_context: Some(common), ..UpstreamTlsContext::default() };
    TransportSocket {
        name: super::tls::TLS.to_owned(),
        config_type: config_any(&context).map(ConfigType::TypedConfig),
    }
}

/// The workload's certificate, and the mesh's roots for peers with one of these identities, from gRPC's
/// certificate providers.
pub(crate) fn common_tls(accounts: &[String]) -> CommonTlsContext {
    let plugin = |name: &str| CertificateProviderPluginInstance {
        instance_name: PROVIDER.to_owned(),
        certificate_name: name.to_owned(),
    };
    let older = |name: &str| CertificateProviderInstance {
        instance_name: PROVIDER.to_owned(),
        certificate_name: name.to_owned(),
    };
    let validation = CombinedCertificateValidationContext {
        default_validation_context: Some(CertificateValidationContext {
            ca_certificate_provider_instance: Some(plugin(ROOTS)),
            match_subject_alt_names: super::tls::exact_names(accounts),
            ..CertificateValidationContext::default()
        }),
        validation_context_certificate_provider_instance: Some(older(ROOTS)),
        ..CombinedCertificateValidationContext::default()
    };
    CommonTlsContext {
        tls_certificate_provider_instance: Some(plugin(CERTIFICATE)),
        tls_certificate_certificate_provider_instance: Some(older(CERTIFICATE)),
        validation_context_type: Some(ValidationContextType::CombinedValidationContext(validation)),
        ..CommonTlsContext::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_config::networking::{MagLev, RingHash};

    #[test]
    fn every_table_is_a_ring_of_a_size_that_grpc_takes() {
        let maglev = ConsistentHashLb { maglev: Some(MagLev { table_size: 251 }), ..Default::default() };
        assert_eq!(as_ring(&maglev).maglev, None);
        for size in [0, 1024, MAX_RING_SIZE, MAX_RING_SIZE + 1, u64::MAX] {
            let expected = size.min(MAX_RING_SIZE);
            let older = ConsistentHashLb { minimum_ring_size: size, ..Default::default() };
            assert_eq!(as_ring(&older).minimum_ring_size, expected);
            let ring = Some(RingHash { minimum_ring_size: size });
            let newer = ConsistentHashLb { ring_hash: ring, ..Default::default() };
            assert_eq!(as_ring(&newer).ring_hash, Some(RingHash { minimum_ring_size: expected }));
        }
    }
}
