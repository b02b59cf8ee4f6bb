//! Complete xDS sessions with the state machine: a client of each protocol that follows the rules, and one
//! that does not.
//!
//! Regardless of the third client, the others end up with the source's resources, receive nothing that they
//! did not subscribe to, and nothing twice without a reason; and once all have disconnected, none of their
//! state is left.

mod client;
mod source;

use crate::input::Input;
use client::Honest;
use parking_lot::Mutex;
use pilotfish_proto::ResourceType::{self, Cluster, Endpoint, Listener, Route};
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::envoy::service::discovery::v3 as discovery;
use pilotfish_proto::google::rpc::Status;
use pilotfish_xds::{ClientId, Environment, Fanout, NoRecorder, PeerInfo, Protocol, Stream, StreamLimits};
use prost::Message;
use source::Memory;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const TYPES: [ResourceType; 4] = [Cluster, Endpoint, Listener, Route];
/// Maximum number of steps in one history.
const MOST_STEPS: usize = 200;

pub(super) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let source = Arc::new(Memory::default());
    // Without randomness, so that a failing input fails again.
    let environment = Environment { hash_seed: 1, ..Environment::default() };
    let fanout = Fanout::with_environment(
        Arc::clone(&source),
        Arc::new(NoRecorder),
        StreamLimits::default(),
        environment,
    );
    let now = Instant::now();
    let mut honest = [Honest::new(&fanout, Protocol::Delta, now), Honest::new(&fanout, Protocol::Sotw, now)];
    let mut hostile = Hostile::new(&fanout, &mut input, now);
    for _ in 0..MOST_STEPS {
        if input.is_empty() {
            break;
        }
        step(&fanout, &mut honest, &mut hostile, &mut input);
    }
    fanout.publish(&source.commit());
    for client in &mut honest {
        client.finish();
    }
    drop((honest, hostile));
    assert_eq!((fanout.stream_count(), fanout.group_count()), (0, 0), "streams and groups are left");
    assert_eq!(source.connected(), 0, "clients are left");
}

fn step(
    fanout: &Arc<Fanout<Memory>>,
    honest: &mut [Honest; 2],
    hostile: &mut Hostile,
    input: &mut Input<'_>,
) {
    let source = fanout.source();
    let ty = TYPES[input.below(TYPES.len())];
    let name = NAMES[input.below(NAMES.len())];
    let choice = input.below(16);
    let [delta, sotw] = honest;
    let one = if input.flag() { delta } else { sotw };
    match choice {
        0..=2 => source.set(u32::from(input.flag()), ty, name, Some(input.below(3))),
        3 => source.set(u32::from(input.flag()), ty, name, None),
        4 | 5 => drop(fanout.publish(&source.commit())),
        6 => one.ask(ty, &[name, NAMES[input.below(NAMES.len())]], true),
        7 => one.ask(ty, &[name], false),
        8 | 9 => {
            one.poll(input.once_in(4), !input.once_in(3));
        }
        10 => one.later(Duration::from_secs(input.below(8) as u64)),
        11 => one.reconnect(input.flag()),
        12 => source.move_client(one.number(), u32::from(input.flag())),
        13 if input.once_in(4) => *hostile = Hostile::new(fanout, input, hostile.now),
        _ => hostile.step(source, input),
    }
}

/// A client that sends anything.
struct Hostile {
    stream: Arc<Mutex<Stream<Memory>>>,
    protocol: Protocol,
    now: Instant,
    is_first: bool,
    has_ended: bool,
    nonces: Vec<String>,
}

impl Hostile {
    fn new(fanout: &Arc<Fanout<Memory>>, input: &mut Input<'_>, now: Instant) -> Self {
        let protocol = if input.flag() { Protocol::Delta } else { Protocol::Sotw };
        Self {
            stream: fanout.open(protocol, PeerInfo::default()),
            protocol,
            now,
            is_first: true,
            has_ended: false,
            nonces: vec![String::new(), "ffffffffffffffff".to_owned()],
        }
    }

    fn step(&mut self, source: &Memory, input: &mut Input<'_>) {
        if self.has_ended {
            return;
        }
        match input.below(8) {
            0 => self.send(input.piece(60)),
            1 => self.now += Duration::from_secs(input.below(20) as u64),
            2 => source.move_client(ClientId(input.below(6) as u64), 1),
            _ => {
                let mut message = self.message(input);
                if input.once_in(6) && !message.is_empty() {
                    let at = input.below(message.len());
                    match message.get_mut(at) {
                        Some(byte) if input.flag() => *byte ^= input.byte(),
                        _ => message.truncate(at),
                    }
                }
                self.send(&message);
            }
        }
        self.take(input);
    }

    fn send(&mut self, message: &[u8]) {
        // A server ends the stream on an error.
        self.has_ended = self.stream.lock().on_message(message, self.now).is_err();
    }

    /// Reads some responses. The responses to one request must end.
    fn take(&mut self, input: &mut Input<'_>) {
        let most = input.below(4);
        for count in 0.. {
            assert!(count <= 4 * ResourceType::ALL.len(), "responses without end");
            if count >= most && most < 3 {
                break;
            }
            let Some(response) = self.stream.lock().poll_response(self.now) else { break };
            let frame = response.concat();
            let body = client::unframed(&frame);
            self.nonces.push(match self.protocol {
                Protocol::Delta => discovery::DeltaDiscoveryResponse::decode(body).expect("a response").nonce,
                Protocol::Sotw => discovery::DiscoveryResponse::decode(body).expect("a response").nonce,
            });
        }
    }

    fn message(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let type_url = match input.below(10) {
            at @ 0..7 => ResourceType::ALL[at].type_url(),
            7 => "config/a",
            8 => "type.googleapis.com/istio.v1.HealthInformation",
            _ => "",
        };
        let type_url = type_url.to_owned();
        let node = (std::mem::take(&mut self.is_first) || input.once_in(8)).then(|| Node {
            id: if input.once_in(16) { "bad" } else { "router~10.0.0.1~a.ns~ns.svc" }.to_owned(),
            user_agent_name: if input.once_in(4) { "grpc" } else { "envoy" }.to_owned(),
            ..Default::default()
        });
        let response_nonce = self.nonces[input.below(self.nonces.len())].clone();
        let error_detail = input.once_in(4).then(|| Status { message: input.text(12), ..Default::default() });
        let names =
            |input: &mut Input<'_>| -> Vec<String> { (0..input.below(5)).map(|_| any_name(input)).collect() };
        match self.protocol {
            Protocol::Delta => discovery::DeltaDiscoveryRequest {
                node,
                type_url,
                response_nonce,
                error_detail,
                resource_names_subscribe: names(input),
                resource_names_unsubscribe: names(input),
                initial_resource_versions: (0..input.below(3))
                    .map(|_| (any_name(input), any_version(input)))
                    .collect(),
                ..Default::default()
            }
            .encode_to_vec(),
            Protocol::Sotw => discovery::DiscoveryRequest {
                node,
                type_url,
                response_nonce,
                error_detail,
                resource_names: names(input),
                version_info: any_version(input),
                ..Default::default()
            }
            .encode_to_vec(),
        }
    }
}

fn any_name(input: &mut Input<'_>) -> String {
    match input.below(10) {
        at @ 0..5 => NAMES[at].to_owned(),
        5 | 6 => "*".to_owned(),
        7 => String::new(),
        _ => input.text(6),
    }
}

fn any_version(input: &mut Input<'_>) -> String {
    match input.below(4) {
        0 => String::new(),
        1 => input.text(4),
        _ => format!("{:016x}", input.byte()),
    }
}
