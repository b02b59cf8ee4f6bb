//! One ADS stream from the client's side, without IO: the first requests, and what is said to each answer.

use super::content::{Answer, Content, Incoming, Taken};
use super::synthetic::Assignments;
use crate::kinds::McpKind;
use pilotfish_model::Kind;
use pilotfish_proto::ResourceType;
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use pilotfish_proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
};
use pilotfish_proto::google::rpc::Status;
use prost::Message;
use prost_types::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Kinds of which an istiod pushes no change to anybody: that of a WorkloadGroup, or of a WorkloadEntry that nothing selects.
pub(crate) const RELISTED: [Kind; 2] = [Kind::WorkloadGroup, Kind::WorkloadEntry];
/// `INVALID_ARGUMENT`, the code of a refusal.
const INVALID_ARGUMENT: i32 = 3;

/// Which of the two protocols a stream speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Each answer is a whole list.
    Sotw,
    /// Each answer is what differs.
    Delta,
}

/// What is known of one kind on this stream.
#[derive(Debug, Default)]
struct Watch {
    type_url: String,
    /// The version of the last list that was taken.
    accepted: String,
    /// Delta: the server was told what we have. Else its first answer is everything that there is.
    resumed: bool,
    answered: bool,
    /// It was asked for again, without an answer yet.
    relisted: bool,
    /// The spelling in which it was answered; answers in another one but that which was asked for are dropped.
    answered_as: Option<String>,
}

/// What is known of EDS on this stream.
#[derive(Debug, Default)]
struct Endpoints {
    names: BTreeSet<String>,
    version: String,
    nonce: String,
    answered: bool,
}

/// See the module's description.
pub(crate) struct ClientStream {
    protocol: Protocol,
    node: Node,
    old_spelling: bool,
    watches: BTreeMap<Kind, Watch>,
    endpoints: Endpoints,
}

/// What one answer leads to.
#[derive(Debug)]
pub(crate) struct Answered {
    /// The ACK or NACK.
    pub(crate) reply: Vec<u8>,
    /// What came of the content; `None` where the kind was not asked for.
    pub(crate) taken: Option<(Kind, Taken)>,
    /// The endpoints that it has.
    pub(crate) assignments: Option<Assignments>,
    /// An answer of delta whose resources have no versions, as an istiod's: it tells nothing of some that are gone.
    pub(crate) is_unversioned: bool,
}

impl ClientStream {
    pub(crate) fn new(protocol: Protocol, node: Node, old_spelling: bool) -> Self {
        let (watches, endpoints) = Default::default();
        Self { protocol, node, old_spelling, watches, endpoints }
    }

    /// The first request of each kind. Only the first one carries the node.
    pub(crate) fn first_requests(&mut self, content: &mut Content) -> Vec<Vec<u8>> {
        content.stream_began();
        let mut node = Some(self.node.clone());
        let mut requests = Vec::new();
        for entry in content.wanted().to_vec() {
            let type_url = entry.type_url(self.old_spelling);
            let mut watch = Watch { type_url: type_url.clone(), ..Watch::default() };
            let node = node.take();
            requests.push(match self.protocol {
                Protocol::Sotw => {
                    DiscoveryRequest { node, type_url, ..DiscoveryRequest::default() }.encode_to_vec()
                }
                Protocol::Delta => {
                    let versions = content.versions(entry.kind);
                    watch.resumed = versions.is_some();
                    if watch.resumed {
                        content.resumed(entry.kind);
                    }
                    let initial_resource_versions = versions.unwrap_or_default();
                    let request = DeltaDiscoveryRequest {
                        node,
                        type_url,
                        initial_resource_versions,
                        ..DeltaDiscoveryRequest::default()
                    };
                    request.encode_to_vec()
                }
            });
            self.watches.insert(entry.kind, watch);
        }
        requests
    }

    /// Asks again for lists of which changes are not pushed: without a nonce, which a server answers as the first request of a stream.
    /// A server that leaves such a request unanswered gets no further one. A stream of differences has no lists.
    pub(crate) fn relist(&mut self) -> Vec<Vec<u8>> {
        if self.protocol == Protocol::Delta {
            return Vec::new();
        }
        let mut requests = Vec::new();
        for (_, watch) in self.watches.iter_mut().filter(|(kind, _)| RELISTED.contains(kind)) {
            if watch.answered && !std::mem::replace(&mut watch.relisted, true) {
                let type_url = watch.type_url.clone();
                requests.push(DiscoveryRequest { type_url, ..DiscoveryRequest::default() }.encode_to_vec());
            }
        }
        requests
    }

    /// Asks for the endpoints of more clusters, and no longer for those of others. `None` where both are none.
    pub(crate) fn ask_endpoints(
        &mut self,
        (more, fewer): (BTreeSet<String>, BTreeSet<String>),
    ) -> Option<Vec<u8>> {
        if more.is_empty() && fewer.is_empty() {
            return None;
        }
        let known = &mut self.endpoints;
        known.names.retain(|name| !fewer.contains(name));
        known.names.extend(more.iter().cloned());
        let type_url = ResourceType::Endpoint.type_url().to_owned();
        Some(match self.protocol {
            Protocol::Sotw => DiscoveryRequest {
                type_url,
                resource_names: known.names.iter().cloned().collect(),
                version_info: known.version.clone(),
                response_nonce: known.nonce.clone(),
                ..DiscoveryRequest::default()
            }
            .encode_to_vec(),
            Protocol::Delta => DeltaDiscoveryRequest {
                type_url,
                resource_names_subscribe: more.into_iter().collect(),
                resource_names_unsubscribe: fewer.into_iter().collect(),
                ..DeltaDiscoveryRequest::default()
            }
            .encode_to_vec(),
        })
    }

    /// Handles one answer.
    ///
    /// # Errors
    /// When it is no answer of the protocol: the stream is of no use any more.
    pub(crate) fn on_message(
        &mut self,
        message: &[u8],
        content: &mut Content,
        now: Instant,
    ) -> Result<Answered, prost::DecodeError> {
        match self.protocol {
            Protocol::Sotw => {
                let response = DiscoveryResponse::decode(message)?;
                let is_endpoints = response.type_url == ResourceType::Endpoint.type_url();
                Ok(if is_endpoints {
                    self.sotw_endpoints(response)
                } else {
                    self.on_sotw(response, content, now)
                })
            }
            Protocol::Delta => {
                let response = DeltaDiscoveryResponse::decode(message)?;
                let is_endpoints = response.type_url == ResourceType::Endpoint.type_url();
                Ok(if is_endpoints {
                    self.delta_endpoints(response)
                } else {
                    self.on_delta(&response, content, now)
                })
            }
        }
    }

    fn sotw_endpoints(&mut self, response: DiscoveryResponse) -> Answered {
        let (assignments, error) = self.read_endpoints(response.resources.iter(), Vec::new());
        let known = &mut self.endpoints;
        known.nonce.clone_from(&response.nonce);
        if error.is_none() {
            known.version = response.version_info;
        }
        let reply = DiscoveryRequest {
            version_info: known.version.clone(),
            type_url: response.type_url,
            resource_names: known.names.iter().cloned().collect(),
            response_nonce: response.nonce,
            error_detail: error.map(status),
            ..DiscoveryRequest::default()
        };
        Answered {
            reply: reply.encode_to_vec(),
            taken: None,
            assignments: Some(assignments),
            is_unversioned: false,
        }
    }

    fn delta_endpoints(&mut self, response: DeltaDiscoveryResponse) -> Answered {
        let resources = response.resources.iter().filter_map(|resource| resource.resource.as_ref());
        let (assignments, error) = self.read_endpoints(resources, response.removed_resources);
        let reply = DeltaDiscoveryRequest {
            type_url: response.type_url,
            response_nonce: response.nonce,
            error_detail: error.map(status),
            ..DeltaDiscoveryRequest::default()
        };
        Answered {
            reply: reply.encode_to_vec(),
            taken: None,
            assignments: Some(assignments),
            is_unversioned: false,
        }
    }

    /// What is broken is left out, so that what was known of its cluster stays.
    fn read_endpoints<'a>(
        &mut self,
        resources: impl Iterator<Item = &'a Any>,
        removed: Vec<String>,
    ) -> (Assignments, Option<String>) {
        let (mut list, mut error) = (Vec::new(), None);
        for resource in resources {
            match ClusterLoadAssignment::decode(&*resource.value) {
                Ok(assignment) => list.push(assignment),
                Err(broken) => error = Some(format!("endpoints that cannot be read: {broken}")),
            }
        }
        let is_first = !std::mem::replace(&mut self.endpoints.answered, true);
        (Assignments { list, removed, is_first }, error)
    }

    fn on_sotw(&mut self, response: DiscoveryResponse, content: &mut Content, now: Instant) -> Answered {
        let incoming: Vec<Incoming<'_>> = response.resources.iter().map(unnamed).collect();
        let taken = self.take(&response.type_url, content, &incoming, now, |_| Answer::All);
        let error = taken.as_ref().and_then(|(_, taken)| taken.error.clone());
        let mut version_info = response.version_info;
        if let Some(watch) = taken.as_ref().and_then(|(kind, _)| self.watches.get_mut(kind)) {
            if error.is_none() {
                watch.accepted.clone_from(&version_info);
            } else {
                version_info.clone_from(&watch.accepted);
            }
        }
        let reply = DiscoveryRequest {
            version_info,
            type_url: response.type_url,
            response_nonce: response.nonce,
            error_detail: error.map(status),
            ..DiscoveryRequest::default()
        };
        Answered { reply: reply.encode_to_vec(), taken, assignments: None, is_unversioned: false }
    }

    fn on_delta(
        &mut self,
        response: &DeltaDiscoveryResponse,
        content: &mut Content,
        now: Instant,
    ) -> Answered {
        let empty = Any::default();
        let incoming: Vec<Incoming<'_>> =
            response.resources.iter().map(|resource| named(resource, &empty)).collect();
        let removed = &response.removed_resources;
        let taken = self.take(&response.type_url, content, &incoming, now, |watch| {
            let everything = !watch.answered && !watch.resumed;
            if everything { Answer::All } else { Answer::Difference { removed, is_first: !watch.answered } }
        });
        let error = taken.as_ref().and_then(|(_, taken)| taken.error.clone());
        let reply = DeltaDiscoveryRequest {
            type_url: response.type_url.clone(),
            response_nonce: response.nonce.clone(),
            error_detail: error.map(status),
            ..DeltaDiscoveryRequest::default()
        };
        let mut versions = response.resources.iter().map(|resource| &resource.version);
        let is_unversioned = !response.resources.is_empty() && versions.all(String::is_empty);
        Answered { reply: reply.encode_to_vec(), taken, assignments: None, is_unversioned }
    }

    /// Takes in the content of a kind that was asked for, in whichever spelling it is answered.
    fn take<'a>(
        &mut self,
        type_url: &str,
        content: &mut Content,
        incoming: &[Incoming<'_>],
        now: Instant,
        answer: impl FnOnce(&Watch) -> Answer<'a>,
    ) -> Option<(Kind, Taken)> {
        let entry = McpKind::of_type_url(type_url)?;
        let watch = self.watches.get_mut(&entry.kind)?;
        if type_url != watch.type_url && watch.answered_as.as_ref().is_some_and(|known| known != type_url) {
            // A second list of the same kind: two would take turns in removing what the other one has.
            return None;
        }
        watch.answered_as = Some(type_url.to_owned());
        let taken = content.answer(entry, incoming, &answer(watch), now);
        (watch.answered, watch.relisted) = (true, false);
        Some((entry.kind, taken))
    }
}

fn status(message: String) -> Status {
    Status { code: INVALID_ARGUMENT, message, ..Status::default() }
}

fn unnamed(body: &Any) -> Incoming<'_> {
    Incoming { name: "", version: "", body }
}

fn named<'a>(resource: &'a Resource, empty: &'a Any) -> Incoming<'a> {
    let body = resource.resource.as_ref().unwrap_or(empty);
    Incoming { name: &resource.name, version: &resource.version, body }
}
