//! Reads all resources of one proxy once, over delta ADS, and disconnects.
//!
//! The proxy subscribes to the types it begins with, then to the names that received resources refer to. The
//! caller finds those references, since they stand in messages of many types.
//!
//! Reading is complete when each subscribed name was sent or removed. Control planes send nothing for some
//! unknown names: those count as absent once each subscription was answered and the stream has been quiet.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use prost::Message;

use crate::connection::Way;
use crate::messages::{Any, DELTA_PATH, DeltaResponse};

/// Names of resources by type URL.
pub type Names = BTreeMap<String, BTreeSet<String>>;

/// Proxy to read as, with its first subscriptions.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Encoded node of the proxy (`envoy.config.core.v3.Node`).
    pub node: Bytes,
    /// Types to subscribe to at first; all resources of a type without names.
    pub first: Names,
    /// Types that a control plane may leave unanswered.
    pub optional: BTreeSet<String>,
}

/// Limits of one reading.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimits {
    /// Maximum number of bytes of all responses.
    pub bytes: usize,
    /// Maximum time from the connection to the last resource.
    pub time: Duration,
    /// Time without a response after which unanswered names count as absent.
    pub quiet: Duration,
}

/// Resources of a proxy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Resources by type URL and name.
    pub resources: BTreeMap<(String, String), Any>,
    /// Subscribed names; empty for all of a type.
    pub names: Names,
}

/// Names that a resource refers to, each with its type URL.
pub type References<'a> = dyn FnMut(&str, &Any) -> Vec<(String, String)> + Send + 'a;

/// Reads all resources of a proxy.
///
/// # Errors
/// If the server cannot be reached, refuses, exceeds a limit, or does not answer in time.
pub async fn read(
    way: &Way,
    question: Question,
    references: &mut References<'_>,
    limits: &ReadLimits,
) -> Result<Reading> {
    let mut state = State::new(question, limits.bytes);
    let reading = exchange(way, &mut state, references, limits);
    match tokio::time::timeout(limits.time, reading).await {
        Ok(done) => done?,
        Err(_) => bail!("{} not answered within {:?}", state.unanswered(), limits.time),
    }
    Ok(state.finish())
}

async fn exchange(
    way: &Way,
    state: &mut State,
    references: &mut References<'_>,
    limits: &ReadLimits,
) -> Result<()> {
    let mut connection = way.open(DELTA_PATH, state.start()).await?.with_largest(limits.bytes);
    loop {
        let next = match state.progress() {
            Progress::Complete => return Ok(()),
            Progress::Waiting => connection.next().await?,
            Progress::Settling => match tokio::time::timeout(limits.quiet, connection.next()).await {
                Ok(next) => next?,
                Err(_) => return Ok(()),
            },
        };
        let message = next.context("the server ended the stream before all was sent")?;
        for request in state.response(&message, references)? {
            connection.send(&request)?;
        }
    }
}

/// `envoy.service.discovery.v3.DeltaDiscoveryRequest` with an encoded node.
#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(bytes = "bytes", tag = "1")]
    node: Bytes,
    #[prost(string, tag = "2")]
    type_url: String,
    #[prost(string, repeated, tag = "3")]
    subscribe: Vec<String>,
    #[prost(string, tag = "6")]
    response_nonce: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// A subscription has no answer.
    Waiting,
    /// All subscriptions are answered, and some names are missing.
    Settling,
    Complete,
}

/// A received resource with its references.
struct Held {
    resource: Any,
    references: Vec<(String, String)>,
}

#[derive(Default)]
struct Subscription {
    /// Subscribed names; empty for all.
    names: BTreeSet<String>,
    is_optional: bool,
    /// Number of requests with new names.
    asked: usize,
    answered: usize,
    held: BTreeMap<String, Held>,
    removed: BTreeSet<String>,
}

impl Subscription {
    fn is_complete(&self) -> bool {
        let is_known = |name: &String| self.held.contains_key(name) || self.removed.contains(name);
        if self.names.is_empty() { self.answered > 0 } else { self.names.iter().all(is_known) }
    }

    fn is_answered(&self) -> bool {
        self.is_optional || self.answered >= self.asked || self.is_complete()
    }
}

/// Protocol state, without IO.
struct State {
    node: Bytes,
    types: BTreeMap<String, Subscription>,
    first: Names,
    optional: BTreeSet<String>,
    bytes: usize,
    largest: usize,
}

impl State {
    fn new(question: Question, largest: usize) -> Self {
        let Question { node, first, optional } = question;
        Self { node, types: BTreeMap::new(), first, optional, bytes: 0, largest }
    }

    /// First requests of the stream; only the first of them has the node.
    fn start(&mut self) -> Vec<Bytes> {
        let first = self.first.clone();
        let mut requests: Vec<Request> =
            first.into_iter().map(|(ty, names)| self.subscribe(ty, names)).collect();
        if let Some(request) = requests.first_mut() {
            request.node = self.node.clone();
        }
        requests.iter().map(encoded).collect()
    }

    fn subscribe(&mut self, type_url: String, names: BTreeSet<String>) -> Request {
        let subscription = self.types.entry(type_url.clone()).or_default();
        subscription.is_optional = self.optional.contains(&type_url);
        subscription.asked += 1;
        subscription.names.extend(names.iter().cloned());
        Request { type_url, subscribe: names.into_iter().collect(), ..Request::default() }
    }

    fn progress(&self) -> Progress {
        if self.types.values().all(Subscription::is_complete) {
            Progress::Complete
        } else if self.types.values().all(Subscription::is_answered) {
            Progress::Settling
        } else {
            Progress::Waiting
        }
    }

    /// Short names of the types that have no answer, for error messages.
    fn unanswered(&self) -> String {
        let open = self.types.iter().filter(|(_, subscription)| !subscription.is_answered());
        let names: Vec<&str> = open.map(|(ty, _)| ty.rsplit('.').next().unwrap_or_default()).collect();
        if names.is_empty() {
            "all subscriptions were".to_owned()
        } else {
            format!("{} was", names.join(", "))
        }
    }

    /// Applies a response; returns the ACK and the requests for new names.
    fn response(&mut self, message: &Bytes, references: &mut References<'_>) -> Result<Vec<Bytes>> {
        self.bytes = self.bytes.saturating_add(message.len());
        if self.bytes > self.largest {
            bail!("more than {} MiB of resources", self.largest >> 20);
        }
        let response = DeltaResponse::decode(message.clone()).context("a malformed response")?;
        let type_url = response.type_url;
        let subscription = self
            .types
            .get_mut(&type_url)
            .ok_or_else(|| anyhow!("a response of a type that was not subscribed: {type_url}"))?;
        subscription.answered += 1;
        // References of earlier resources were subscribed to when these arrived.
        let mut referred = Names::new();
        for resource in response.resources {
            let Some(body) = resource.resource else { continue };
            let references = references(&type_url, &body);
            for (ty, name) in &references {
                referred.entry(ty.clone()).or_default().insert(name.clone());
            }
            subscription.removed.remove(&resource.name);
            subscription.held.insert(resource.name, Held { resource: body, references });
        }
        for name in response.removed_resources {
            subscription.held.remove(&name);
            subscription.removed.insert(name);
        }
        let ack = Request { type_url, response_nonce: response.nonce, ..Request::default() };
        let mut requests = vec![encoded(&ack)];
        for (ty, names) in referred {
            let known = self.types.get(&ty).map(|subscription| &subscription.names);
            let new: BTreeSet<String> =
                names.into_iter().filter(|name| known.is_none_or(|known| !known.contains(name))).collect();
            // A type without names was subscribed as a whole.
            let is_whole = known.is_some_and(BTreeSet::is_empty);
            if !new.is_empty() && !is_whole {
                requests.push(encoded(&self.subscribe(ty, new)));
            }
        }
        Ok(requests)
    }

    /// Names that current resources refer to.
    fn referred(&self) -> Names {
        let mut names = Names::new();
        for (ty, name) in
            self.types.values().flat_map(|it| it.held.values()).flat_map(|held| held.references.iter())
        {
            names.entry(ty.clone()).or_default().insert(name.clone());
        }
        names
    }

    /// Resources of the types read as a whole, and of names that are still referred to.
    fn finish(self) -> Reading {
        let mut wanted = self.referred();
        for (ty, names) in self.first {
            wanted.entry(ty).or_default().extend(names);
        }
        let mut reading = Reading::default();
        for (ty, subscription) in self.types {
            let wanted = wanted.remove(&ty).unwrap_or_default();
            for (name, held) in subscription.held {
                if subscription.names.is_empty() || wanted.contains(&name) {
                    reading.resources.insert((ty.clone(), name), held.resource);
                }
            }
            let names = if subscription.names.is_empty() { BTreeSet::new() } else { wanted };
            reading.names.insert(ty, names);
        }
        reading
    }
}

fn encoded(request: &Request) -> Bytes {
    request.encode_to_vec().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::Resource;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn response(ty: &str, resources: &[(&str, &'static str)], removed: &[&str]) -> Bytes {
        let resource = |(name, text): &(&str, &'static str)| Resource {
            name: (*name).into(),
            resource: Some(Any { type_url: ty.into(), value: text.as_bytes().into() }),
            ..Resource::default()
        };
        let response = DeltaResponse {
            type_url: ty.into(),
            nonce: "n".into(),
            resources: resources.iter().map(resource).collect(),
            removed_resources: removed.iter().map(|name| (*name).into()).collect(),
            ..DeltaResponse::default()
        };
        response.encode_to_vec().into()
    }

    /// A reader whose clusters name their assignments in their text, separated by blanks.
    fn state() -> State {
        let first = [("cds".to_owned(), set(&[])), ("nds".to_owned(), set(&[]))].into();
        let mut state = State::new(Question { node: "node".into(), first, optional: set(&["nds"]) }, 100);
        let requests: Vec<_> = state.start().into_iter().map(|it| Request::decode(it).unwrap()).collect();
        let nodes: Vec<&[u8]> = requests.iter().map(|request| &request.node[..]).collect();
        assert_eq!(nodes, [&b"node"[..], b""], "the first request alone has the node");
        state
    }

    /// Applies a response; returns the types and names that are subscribed to.
    fn give(state: &mut State, message: &Bytes) -> Vec<(String, Vec<String>)> {
        let mut references = |ty: &str, body: &Any| {
            let text = String::from_utf8_lossy(&body.value).into_owned();
            let names = if ty == "cds" { text } else { String::new() };
            names.split_whitespace().map(|name| ("eds".to_owned(), name.to_owned())).collect()
        };
        let requests = state.response(message, &mut references).unwrap();
        let requests: Vec<_> = requests.into_iter().map(|it| Request::decode(it).unwrap()).collect();
        assert_eq!(requests[0].response_nonce, "n", "each response is acknowledged");
        requests.into_iter().skip(1).map(|request| (request.type_url, request.subscribe)).collect()
    }

    #[test]
    fn reading_is_complete_when_all_referred_names_are_sent_or_removed() {
        let mut state = state();
        assert_eq!(state.progress(), Progress::Waiting);
        let asked = give(&mut state, &response("cds", &[("a", "a b")], &[]));
        assert_eq!(asked, [("eds".to_owned(), vec!["a".to_owned(), "b".to_owned()])]);
        assert_eq!((state.progress(), &*state.unanswered()), (Progress::Waiting, "eds was"));
        give(&mut state, &response("eds", &[("a", "")], &[]));
        assert_eq!(state.progress(), Progress::Settling, "b may still come");
        give(&mut state, &response("eds", &[], &["b"]));
        assert_eq!(state.progress(), Progress::Settling, "an optional type may still be answered");
        give(&mut state, &response("nds", &[("", "")], &[]));
        assert_eq!(state.progress(), Progress::Complete);
        let reading = state.finish();
        let keys: Vec<_> = reading.resources.keys().map(|(ty, name)| (&**ty, &**name)).collect();
        assert_eq!(keys, [("cds", "a"), ("eds", "a"), ("nds", "")]);
        assert_eq!(reading.names["eds"], set(&["a", "b"]));
    }

    #[test]
    fn a_push_while_reading_changes_what_is_referred_to() {
        let mut state = state();
        give(&mut state, &response("cds", &[("a", "a")], &[]));
        give(&mut state, &response("eds", &[("a", "1")], &[]));
        let asked = give(&mut state, &response("cds", &[("c", "c")], &["a"]));
        assert_eq!(asked, [("eds".to_owned(), vec!["c".to_owned()])]);
        assert_eq!(state.progress(), Progress::Waiting);
        give(&mut state, &response("eds", &[("c", "2")], &[]));
        let reading = state.finish();
        assert_eq!(reading.names["eds"], set(&["c"]));
        assert!(!reading.resources.contains_key(&("eds".to_owned(), "a".to_owned())));
    }

    #[test]
    fn more_bytes_than_the_limit_end_the_reading() {
        let mut state = state();
        let message =
            response("cds", &[("a", "0123456789012345678901234567890123456789012345678901234567")], &[]);
        let mut none = |_: &str, _: &Any| Vec::new();
        assert!(state.response(&message, &mut none).is_ok());
        let error = state.response(&message, &mut none).unwrap_err().to_string();
        assert!(error.contains("more than 0 MiB"), "{error}");
    }

    #[test]
    fn a_type_without_a_subscription_is_an_error() {
        let error = state().response(&response("rds", &[], &[]), &mut |_, _| Vec::new()).unwrap_err();
        assert!(error.to_string().contains("was not subscribed: rds"), "{error}");
    }
}
