//! A run can be repeated: time, nonces and seeds are values of the fan-out.

use crate::support::{Memory, Peer};
use pilotfish_proto::ResourceType::{Cluster, Endpoint};
use pilotfish_xds::{Clock, Environment, Fanout, NoRecorder, StreamLimits};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Stands still.
struct Stopped(Instant);

impl Clock for Stopped {
    fn now(&self) -> Instant {
        self.0
    }

    fn wall_time(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)
    }
}

#[test]
fn the_same_steps_in_the_same_environment_send_the_same_bytes() {
    let run = |hash_seed| {
        let environment = Environment { clock: Arc::new(Stopped(Instant::now())), hash_seed, first_nonce: 7 };
        let source = Arc::new(Memory::default());
        let (recorder, limits) = (Arc::new(NoRecorder), StreamLimits::default());
        let fanout = Fanout::with_environment(source, recorder, limits, environment);
        fanout.source().set(0, Cluster, "a", "1");
        let mut peer = Peer::delta(&fanout);
        peer.ask(Cluster, &[]);
        peer.ask(Endpoint, &["a", "b"]);
        let sent: Vec<_> = std::iter::from_fn(|| peer.stream.lock().poll_response(peer.now))
            .map(|response| response.concat())
            .collect();
        (sent, fanout.connections())
    };
    let (sent, connections) = run(1);
    assert_eq!(sent.len(), 2);
    assert_eq!(run(1).0, sent);
    assert_eq!(run(2).0, sent, "the seed of hashes is not seen from outside");
    let wall_time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    assert_eq!(connections[0].connected_at, wall_time);
    let clusters = &connections[0].types[&Cluster];
    assert_eq!(clusters.sent_at, Some(wall_time));
    assert_eq!(clusters.sent_nonce.as_deref(), Some("0000000000000007"));
}
