//! One ADS stream from the client's side, without IO: the first requests, and what is said to each answer.

use super::content::{Answer, Content, Incoming, Taken};
use crate::kinds::McpKind;
use pilotfish_model::Kind;
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
};
use pilotfish_proto::google::rpc::Status;
use prost::Message;
use prost_types::Any;
use std::collections::BTreeMap;

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
    /// The spelling in which it was answered; answers in another one but that which was asked for are dropped.
    answered_as: Option<String>,
}

/// See the module's description.
pub(crate) struct ClientStream {
    protocol: Protocol,
    node: Node,
    old_spelling: bool,
    watches: BTreeMap<Kind, Watch>,
}

/// What one answer leads to.
#[derive(Debug)]
pub(crate) struct Answered {
    /// The ACK or NACK.
    pub(crate) reply: Vec<u8>,
    /// What came of the content; `None` where the kind was not asked for.
    pub(crate) taken: Option<(Kind, Taken)>,
}

impl ClientStream {
    pub(crate) fn new(protocol: Protocol, node: Node, old_spelling: bool) -> Self {
        Self { protocol, node, old_spelling, watches: BTreeMap::new() }
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

    /// Handles one answer.
    ///
    /// # Errors
    /// When it is no answer of the protocol: the stream is of no use any more.
    pub(crate) fn on_message(
        &mut self,
        message: &[u8],
        content: &mut Content,
    ) -> Result<Answered, prost::DecodeError> {
        match self.protocol {
            Protocol::Sotw => Ok(self.on_sotw(DiscoveryResponse::decode(message)?, content)),
            Protocol::Delta => Ok(self.on_delta(&DeltaDiscoveryResponse::decode(message)?, content)),
        }
    }

    fn on_sotw(&mut self, response: DiscoveryResponse, content: &mut Content) -> Answered {
        let incoming: Vec<Incoming<'_>> = response.resources.iter().map(unnamed).collect();
        let taken = self.take(&response.type_url, content, &incoming, |_| Answer::All);
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
        Answered { reply: reply.encode_to_vec(), taken }
    }

    fn on_delta(&mut self, response: &DeltaDiscoveryResponse, content: &mut Content) -> Answered {
        let empty = Any::default();
        let incoming: Vec<Incoming<'_>> =
            response.resources.iter().map(|resource| named(resource, &empty)).collect();
        let removed = &response.removed_resources;
        let taken = self.take(&response.type_url, content, &incoming, |watch| {
            let everything = !watch.answered && !watch.resumed;
            if everything { Answer::All } else { Answer::Difference { removed } }
        });
        let error = taken.as_ref().and_then(|(_, taken)| taken.error.clone());
        let reply = DeltaDiscoveryRequest {
            type_url: response.type_url.clone(),
            response_nonce: response.nonce.clone(),
            error_detail: error.map(status),
            ..DeltaDiscoveryRequest::default()
        };
        Answered { reply: reply.encode_to_vec(), taken }
    }

    /// Takes in the content of a kind that was asked for, in whichever spelling it is answered.
    fn take<'a>(
        &mut self,
        type_url: &str,
        content: &mut Content,
        incoming: &[Incoming<'_>],
        answer: impl FnOnce(&Watch) -> Answer<'a>,
    ) -> Option<(Kind, Taken)> {
        let entry = McpKind::of_type_url(type_url)?;
        let watch = self.watches.get_mut(&entry.kind)?;
        if type_url != watch.type_url && watch.answered_as.as_ref().is_some_and(|known| known != type_url) {
            // A second list of the same kind: two would take turns in removing what the other one has.
            return None;
        }
        watch.answered_as = Some(type_url.to_owned());
        let taken = content.answer(entry, incoming, &answer(watch));
        watch.answered = true;
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
