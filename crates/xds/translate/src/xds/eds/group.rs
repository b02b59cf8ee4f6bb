//! Endpoints grouped by locality and priority.

use super::encode::whole;
use pilotfish_model::{Endpoint, Labels, Locality, NetworkGateway};
use pilotfish_proto::envoy::config::core::v3::Locality as EnvoyLocality;
use pilotfish_proto::envoy::config::endpoint::v3::LocalityLbEndpoints;
use std::sync::Arc;

/// The endpoints of one locality and priority.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Group {
    pub(super) locality: Locality,
    /// `None` for a group that lost all its endpoints to other networks.
    pub(super) weight: Option<u32>,
    /// 0 is used first.
    pub(super) priority: u32,
    pub(super) members: Vec<Member>,
}

/// One endpoint of a group.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Member {
    /// The labels of its workload.
    pub(super) labels: Labels,
    /// True if clients use mutual TLS with it.
    pub(super) mtls: bool,
    pub(super) weight: u32,
    pub(super) host: Host,
}

/// Target of an endpoint in a group.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Host {
    Workload(Arc<Endpoint>),
    /// The gateway of another network, which stands for endpoints behind it.
    Gateway(NetworkGateway),
}

impl Group {
    /// The sum of the endpoints' weights.
    pub(super) fn sum(&self) -> u32 {
        self.members.iter().fold(0, |sum, member| sum.saturating_add(member.weight))
    }

    /// Sets the weight to the sum of the endpoints' weights; to none without endpoints.
    pub(super) fn refresh_weight(&mut self) {
        self.weight = if self.members.is_empty() { None } else { Some(self.sum()) };
    }

    /// The message without its endpoints.
    pub(super) fn head(&self) -> LocalityLbEndpoints {
        LocalityLbEndpoints {
            locality: Some(EnvoyLocality {
                region: self.locality.region.to_string(),
                zone: self.locality.zone.to_string(),
                sub_zone: self.locality.sub_zone.to_string(),
            }),
            load_balancing_weight: self.weight,
            priority: self.priority,
            ..Default::default()
        }
    }

    /// Returns the message with all endpoints.
    pub(super) fn into_message(self) -> LocalityLbEndpoints {
        LocalityLbEndpoints { lb_endpoints: self.members.iter().map(whole).collect(), ..self.head() }
    }
}
