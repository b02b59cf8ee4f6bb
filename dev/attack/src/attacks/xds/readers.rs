//! Clients that read slowly or not at all, while endpoints change a hundred times per second.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::FutureExt;
use pilotfish_proto::ResourceType;

use super::views::assignments;
use crate::attacks::crowd;
use crate::dialer::{DELTA, Dialer, SOTW};
use crate::extra::Extra;
use crate::wire::{Node, delta, sotw};
use crate::{Attack, Counts, Deadline, Tally, Target};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "deaf-readers",
        what: "400 streams that ask for everything and read nothing, while endpoints change 100 times a \
            second",
        run: |target, deadline| readers(target, deadline, None).boxed(),
    },
    Attack {
        name: "slow-readers",
        what: "400 streams that ask for everything and read 2 KiB in a tenth of a second, while endpoints \
            change 100 times a second",
        run: |target, deadline| readers(target, deadline, Some(Duration::from_millis(100))).boxed(),
    },
];

const CONNECTIONS: usize = 20;
const STREAMS: usize = 20;
/// Window of a stream: the number of bytes read at a time.
const WINDOW: u32 = 2_048;
const BETWEEN_CHANGES: Duration = Duration::from_millis(10);

async fn readers(target: Arc<Target>, deadline: Deadline, pause: Option<Duration>) -> Result<Tally> {
    let counts = Counts::new();
    let changes = deadline.cut(change(target.config.clone()));
    let (dialer, shared) = (Dialer::plaintext(&target), counts.clone());
    let readers = crowd(CONNECTIONS, deadline, &counts, move |index| {
        let (dialer, counts) = (dialer.clone(), shared.clone());
        async move {
            let mut client = dialer.connect_with_window(WINDOW).await?;
            let mut streams = Vec::new();
            for number in 0..STREAMS {
                let is_delta = number % 2 == 0;
                let mut stream = client.open(if is_delta { DELTA } else { SOTW }, &[]).await?;
                let node = Node::numbered(index * STREAMS + number);
                let (clusters, listeners) =
                    (ResourceType::Cluster.type_url(), ResourceType::Listener.type_url());
                let loads = (ResourceType::Endpoint.type_url(), assignments());
                let requests = match is_delta {
                    true => [
                        delta(Some(&node), loads.0, &loads.1, &[]),
                        delta(None, clusters, &[], &[]),
                        delta(None, listeners, &[], &[]),
                    ],
                    false => [
                        sotw(Some(&node), loads.0, &loads.1),
                        sotw(None, clusters, &[]),
                        sotw(None, listeners, &[]),
                    ],
                };
                for request in requests {
                    stream.send(&request)?;
                    counts.sent(request.len());
                }
                stream.headers().await.map_err(anyhow::Error::msg)?;
                counts.answered();
                streams.push(stream);
            }
            let Some(pause) = pause else { return std::future::pending().await };
            loop {
                tokio::time::sleep(pause).await;
                for stream in &mut streams {
                    // There may be nothing to read.
                    if let Some(read) = stream.next().now_or_never() {
                        read.map_err(anyhow::Error::msg)?;
                        counts.answered();
                    }
                }
            }
        }
    });
    let (changed, ()) = tokio::join!(changes, readers);
    changed.unwrap_or(Ok(()))?;
    Ok(counts.tally())
}

/// Changes endpoints that every reader subscribes to, until it is cancelled.
async fn change(folder: PathBuf) -> Result<()> {
    let extra = Extra::new(&folder, "attack-endpoints.yaml");
    let mut ticks = tokio::time::interval(BETWEEN_CHANGES);
    for number in 0_u32.. {
        ticks.tick().await;
        // An additional EndpointSlice for existing services in turn.
        let (service, last) = (number % 10 + 1, number / 10 % 250 + 1);
        extra.write(&format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: attack-{service}\n  \
             namespace: bench\n  labels: {{kubernetes.io/service-name: svc-{service}}}\naddressType: IPv4\n\
             ports: [{{name: http, port: 8080}}]\nendpoints: [{{addresses: [10.251.{service}.{last}], \
             conditions: {{ready: true}}}}]\n"
        ))?;
    }
    Ok(())
}
