use super::*;
use crate::recorder::NoRecorder;
use crate::source::{ChangeKind, ConnectError, PeerInfo, Resource};
use crate::stream::Stream;
use crate::{Names, Protocol};
use bytes::Bytes;
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use prost::Message;
use std::sync::atomic::AtomicU32;

/// Everything has every name, and a client the view of that number.
struct Everything(AtomicU32);

struct State(u64, ViewId);

impl ResourceSource for Everything {
    type Client = ();
    type Snapshot<'a> = State;

    fn ready(&self) -> bool {
        true
    }

    fn connect(&self, _: &Node, _: &PeerInfo) -> Result<(), ConnectError> {
        Ok(())
    }

    fn client_id(&self, (): &()) -> ClientId {
        ClientId(1)
    }

    fn snapshot(&self) -> State {
        let state = self.0.load(Ordering::Relaxed);
        State(state.into(), ViewId(state / 100))
    }
}

impl Snapshot<()> for State {
    fn revision(&self) -> u64 {
        self.0
    }

    fn view(&self, (): &(), _: ResourceType) -> Option<ViewId> {
        Some(self.1)
    }

    fn names(&self, _: ViewId) -> Arc<[Arc<str>]> {
        Arc::default()
    }

    fn get(&self, _: ViewId, name: &str) -> Option<Resource> {
        Some(Resource {
            name: name.into(),
            version: self.0,
            body: Bytes::new(),
            changed_at: self.0,
            stands_in: false,
        })
    }
}

type Open = Arc<Mutex<Stream<Everything>>>;

struct Fixture(Arc<Fanout<Everything>>);

impl Fixture {
    fn new() -> Self {
        let source = Arc::new(Everything(AtomicU32::new(100)));
        Self(Fanout::new(source, Arc::new(NoRecorder), StreamLimits::default()))
    }

    fn open(&self, names: &[String]) -> Open {
        let stream = self.0.open(Protocol::Delta, PeerInfo::default());
        change(&stream, names, &[]);
        stream
    }

    /// The next state of the source is published.
    fn publish(&self, publication: Publication) {
        let revision = self.0.source().0.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.publish(&Publication { revision: revision.into(), ..publication });
    }

    fn most_entered(&self) -> usize {
        std::mem::take(&mut self.0.topology.write().most_entered)
    }
}

fn names(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| format!("name-{n}")).collect()
}

fn change(stream: &Open, subscribe: &[String], unsubscribe: &[String]) {
    let request = DeltaDiscoveryRequest {
        node: Some(Node { id: "a".into(), ..Node::default() }),
        type_url: ResourceType::Endpoint.type_url().into(),
        resource_names_subscribe: subscribe.to_vec(),
        resource_names_unsubscribe: unsubscribe.to_vec(),
        ..DeltaDiscoveryRequest::default()
    };
    stream.lock().on_message(&request.encode_to_vec(), Instant::now()).unwrap();
}

/// Sends everything that there is to send; returns how many resources the client has then.
fn send(stream: &Open) -> usize {
    let mut stream = stream.lock();
    while stream.poll_response(Instant::now()).is_some() {}
    stream.status().unwrap().types[&ResourceType::Endpoint].resources
}

fn subscribed(stream: &Open) -> usize {
    match &stream.lock().status().unwrap().types[&ResourceType::Endpoint].names {
        Names::Named(names) => names.len(),
        other => panic!("{other:?}"),
    }
}

const MANY: usize = 2 * NAMES_AT_A_TIME + 10;

#[test]
fn a_large_subscription_that_streams_share_is_left_in_pieces() {
    let fixture = Fixture::new();
    let all = names(0..MANY);
    let (one, other) = (fixture.open(&all), fixture.open(&all));
    assert_eq!((send(&one), send(&other), fixture.0.group_count()), (MANY, MANY, 1));
    let most = fixture.most_entered();
    assert!(most <= NAMES_AT_A_TIME, "{most} names entered at once");
    // One name more, and then nearly all of them less.
    change(&one, &["more".to_owned()], &[]);
    assert!(fixture.most_entered() <= NAMES_AT_A_TIME);
    assert_eq!((subscribed(&one), fixture.0.group_count(), send(&one)), (MANY + 1, 2, MANY + 1));
    let same = fixture.open(&all);
    change(&same, &[], &all[10..]);
    assert_eq!((subscribed(&same), fixture.0.group_count(), send(&same)), (10, 3, 10));
    assert!(fixture.most_entered() <= NAMES_AT_A_TIME);
    // All of them have what is published since.
    for stream in [&one, &other, &same] {
        stream.lock().poll_response(Instant::now());
    }
    let ty = ResourceType::Endpoint;
    let changed = Change { view: ViewId(1), ty, name: "name-3".into(), kind: ChangeKind::Upsert };
    fixture.publish(Publication { changes: vec![changed], ..Publication::default() });
    for stream in [&one, &other, &same] {
        assert!(stream.lock().poll_response(Instant::now()).is_some());
    }
    drop((one, other, same));
    assert_eq!((fixture.0.group_count(), fixture.0.subscription_bytes()), (0, 0));
    assert!(!fixture.0.is_subscribed(ViewId(1), ty, "name-3"));
}

#[test]
fn what_a_group_has_is_taken_over_and_not_read_again() {
    let fixture = Fixture::new();
    let all = names(0..MANY);
    let (one, _other) = (fixture.open(&all), fixture.open(&all));
    send(&one);
    // A source that is ahead of what was published must not be seen before it is.
    fixture.0.source().0.fetch_add(1, Ordering::Relaxed);
    change(&one, &["more".to_owned()], &[]);
    let response = one.lock().poll_response(Instant::now()).unwrap().concat();
    assert!(response.len() < 1_000, "{} bytes: nothing but the new name", response.len());
}

#[test]
fn large_subscriptions_follow_a_view_in_pieces() {
    let fixture = Fixture::new();
    let stream = fixture.open(&names(0..MANY));
    send(&stream);
    fixture.most_entered();
    fixture.0.source().0.store(200, Ordering::Relaxed);
    fixture.publish(Publication { view_changed: vec![ClientId(1)], ..Publication::default() });
    assert_eq!((send(&stream), subscribed(&stream), fixture.0.group_count()), (MANY, MANY, 1));
    let most = fixture.most_entered();
    assert!(0 < most && most <= NAMES_AT_A_TIME, "{most} names entered at once");
    let is_subscribed = |view| fixture.0.is_subscribed(ViewId(view), ResourceType::Endpoint, "name-0");
    assert!(is_subscribed(2) && !is_subscribed(1));
}
