//! Client side of one ADS stream, without IO: its first requests, and the reply to each response.

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

/// Kinds whose changes istiod does not push to any node: those of a WorkloadGroup, and of a WorkloadEntry
/// that no service selects.
pub(crate) const RELISTED: [Kind; 2] = [Kind::WorkloadGroup, Kind::WorkloadEntry];
/// gRPC code `INVALID_ARGUMENT` of a NACK.
const INVALID_ARGUMENT: i32 = 3;

/// Protocol variant of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Each response is a complete list.
    Sotw,
    /// Each response is a difference.
    Delta,
}

/// State of one kind on this stream.
#[derive(Debug, Default)]
struct Watch {
    type_url: String,
    /// Version of the last accepted list.
    accepted: String,
    /// Delta: true if the client sent its known versions. Otherwise the first response has all resources.
    resumed: bool,
    answered: bool,
    /// True if it was requested again, without a response yet.
    relisted: bool,
    /// Type URL of its responses; responses with another one are dropped, unless it is the requested one.
    answered_as: Option<String>,
}

/// State of EDS on this stream.
#[derive(Debug, Default)]
struct Endpoints {
    names: BTreeSet<String>,
    version: String,
    nonce: String,
    answered: bool,
}

/// Client side of a stream, as described in the module.
pub(crate) struct ClientStream {
    protocol: Protocol,
    node: Node,
    old_spelling: bool,
    watches: BTreeMap<Kind, Watch>,
    endpoints: Endpoints,
}

/// Result of one response.
#[derive(Debug)]
pub(crate) struct Answered {
    /// ACK or NACK to send.
    pub(crate) reply: Vec<u8>,
    /// Applied content; `None` if the kind was not requested.
    pub(crate) taken: Option<(Kind, Taken)>,
    /// Endpoints of the response.
    pub(crate) assignments: Option<Assignments>,
    /// True for a delta response whose resources have no versions, as those of istiod: it does not list all
    /// removed resources.
    pub(crate) is_unversioned: bool,
}

impl ClientStream {
    pub(crate) fn new(protocol: Protocol, node: Node, old_spelling: bool) -> Self {
        let (watches, endpoints) = Default::default();
        Self { protocol, node, old_spelling, watches, endpoints }
    }

    /// First request of each kind. Only the first one has the node.
    pub(crate) fn first_requests(&mut self, content: &mut Content) -> Vec<Vec<u8>> {
        content.stream_began();
        self.requests_of(content.wanted().to_vec(), content)
    }

    /// First request of each of these kinds, as [`ClientStream::first_requests`] sends them for all.
    pub(crate) fn requests_of(
        &mut self,
        kinds: Vec<&'static McpKind>,
        content: &mut Content,
    ) -> Vec<Vec<u8>> {
        let mut node = Some(self.node.clone());
        let mut requests = Vec::new();
        for entry in kinds {
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

    /// True once everything that was requested had a response.
    pub(crate) fn is_answered(&self) -> bool {
        self.watches.values().all(|watch| watch.answered)
            && (self.endpoints.names.is_empty() || self.endpoints.answered)
    }

    /// Requests lists again whose changes are not pushed, without a nonce: a server answers such a request
    /// like the first one of a stream. If it does not, there are no further requests. A delta stream has no
    /// lists.
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

    /// Changes the subscription to endpoints. `None` without a change.
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

    /// Handles one response.
    ///
    /// # Errors
    /// If it is malformed: the stream cannot be used any more.
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

    /// Malformed resources are left out, so that earlier endpoints of their clusters stay.
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

    /// Applies the content of a requested kind, in any spelling of its type URL.
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
            // Another list of the same kind: each of them would remove the resources of the other.
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
