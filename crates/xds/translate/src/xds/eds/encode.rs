//! Encodes load assignments endpoint by endpoint, so that a service of ten thousand is never in memory as
//! messages.

use super::group::{Group, Member};
use super::lb_endpoint::{self, Identity};
use pilotfish_proto::envoy::config::endpoint::v3::{ClusterLoadAssignment, LbEndpoint};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len, message};

/// The numbers of `ClusterLoadAssignment.endpoints`, `LocalityLbEndpoints.lb_endpoints` and
/// `LbEndpoint.metadata`.
const ENDPOINTS: u32 = 2;
const LB_ENDPOINTS: u32 = 2;
const METADATA: u32 = 3;

/// The encoded load assignment of a cluster.
pub(super) fn encode(cluster: &str, groups: &[Group]) -> Vec<u8> {
    let mut metadata = SharedMetadata::default();
    let groups: Vec<Vec<u8>> = groups.iter().map(|group| of_group(group, &mut metadata)).collect();
    let message = ClusterLoadAssignment { cluster_name: cluster.to_owned(), ..Default::default() };
    let framed = |length: usize| key_len(ENDPOINTS) + encoded_len_varint(length as u64) + length;
    let all: usize = groups.iter().map(|group| framed(group.len())).sum();
    let mut encoded = Vec::with_capacity(message.encoded_len() + all);
    message.encode_raw(&mut encoded);
    for group in groups {
        put(ENDPOINTS, &[&group], &mut encoded);
    }
    encoded
}

fn of_group(group: &Group, metadata: &mut SharedMetadata) -> Vec<u8> {
    let mut encoded = group.head().encode_to_vec();
    let mut own = Vec::new();
    for member in &group.members {
        own.clear();
        lb_endpoint::of(member).encode_raw(&mut own);
        put(LB_ENDPOINTS, &[&own, metadata.of(member)], &mut encoded);
    }
    encoded
}

/// Writes a field whose value is these parts.
fn put(field: u32, parts: &[&[u8]], encoded: &mut Vec<u8>) {
    encode_key(field, WireType::LengthDelimited, encoded);
    encode_varint(parts.iter().map(|part| part.len() as u64).sum(), encoded);
    parts.iter().for_each(|part| encoded.extend_from_slice(part));
}

/// Encoded metadata of the previous endpoint. The next one mostly has the same workload, and so the same
/// metadata.
#[derive(Default)]
struct SharedMetadata {
    of: Option<Identity>,
    encoded: Vec<u8>,
}

impl SharedMetadata {
    fn of(&mut self, member: &Member) -> &[u8] {
        let identity = Identity::of(member);
        if self.of.as_ref() != Some(&identity) {
            self.encoded.clear();
            if let Some(metadata) = identity.metadata() {
                message::encode(METADATA, &metadata, &mut self.encoded);
            }
            self.of = Some(identity);
        }
        &self.encoded
    }
}

/// Returns the full message of an endpoint, for uses other than sending.
pub(super) fn whole(member: &Member) -> LbEndpoint {
    LbEndpoint { metadata: Identity::of(member).metadata(), ..lb_endpoint::of(member) }
}

#[cfg(test)]
mod tests {
    use super::super::group::Host;
    use super::*;
    use crate::testing::{endpoint, labels};
    use pilotfish_model::{Locality, NetworkGateway};
    use std::sync::Arc;

    fn member(host: Host, weight: u32) -> Member {
        Member { labels: labels(&[]), mtls: weight.is_multiple_of(2), weight, host }
    }

    #[test]
    fn what_is_written_in_parts_is_the_whole_message() {
        let workload = |address: &str| Host::Workload(Arc::new(endpoint(address, 80, "http")));
        let gateway = NetworkGateway {
            network: "far".into(),
            cluster: "far".into(),
            address: "10.9.0.1".into(),
            port: 15443,
            hbone_port: 0,
            service_account: "".into(),
        };
        let groups = [
            Group {
                locality: Locality::parse("eu/a/1"),
                weight: Some(7),
                priority: 2,
                members: vec![member(workload("10.0.0.1"), 1), member(workload("10.0.0.2"), 2)],
            },
            Group { members: vec![member(Host::Gateway(gateway), 4)], ..Group::default() },
            Group::default(),
        ];
        let decoded =
            ClusterLoadAssignment::decode(&*encode("outbound|80||a", &groups)).expect("well formed");
        let whole = groups.iter().cloned().map(Group::into_message).collect();
        let wanted = ClusterLoadAssignment {
            cluster_name: "outbound|80||a".into(),
            endpoints: whole,
            ..Default::default()
        };
        assert_eq!(decoded, wanted);
        assert_eq!(decoded.endpoints.iter().map(|group| group.lb_endpoints.len()).sum::<usize>(), 3);
    }
}
