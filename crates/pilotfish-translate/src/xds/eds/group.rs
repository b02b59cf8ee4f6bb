//! Endpoints grouped by locality and priority.

use pilotfish_model::{Labels, Locality};
use pilotfish_proto::envoy::config::core::v3::Locality as EnvoyLocality;
use pilotfish_proto::envoy::config::endpoint::v3::{LbEndpoint, LocalityLbEndpoints};

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
    /// Whether clients speak mutual TLS with it.
    pub(super) mtls: bool,
    pub(super) message: LbEndpoint,
}

impl Member {
    pub(super) fn weight(&self) -> u32 {
        self.message.load_balancing_weight.unwrap_or_default()
    }
}

impl Group {
    /// The sum of the endpoints' weights.
    pub(super) fn sum(&self) -> u32 {
        self.members.iter().fold(0, |sum, member| sum.saturating_add(member.weight()))
    }

    /// Sets the weight to the sum of the endpoints' weights; to none without endpoints.
    pub(super) fn refresh_weight(&mut self) {
        self.weight = if self.members.is_empty() { None } else { Some(self.sum()) };
    }

    pub(super) fn into_message(self) -> LocalityLbEndpoints {
        LocalityLbEndpoints {
            locality: Some(EnvoyLocality {
                region: self.locality.region.to_string(),
                zone: self.locality.zone.to_string(),
                sub_zone: self.locality.sub_zone.to_string(),
            }),
            lb_endpoints: self.members.into_iter().map(|member| member.message).collect(),
            load_balancing_weight: self.weight,
            priority: self.priority,
            ..Default::default()
        }
    }
}
