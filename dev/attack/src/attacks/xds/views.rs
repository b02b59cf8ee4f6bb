//! Proxies with distinct views of all resources.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use futures::FutureExt;
use pilotfish_proto::ResourceType;

use crate::attacks::crowd;
use crate::dialer::{Client, DELTA, Dialer, SOTW, Stream};
use crate::wire::{Node, delta, field, sotw, structure, text};
use crate::{Attack, Counts, Deadline, Tally, Target};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "invented-views",
        what: "Nodes that each invent a root certificate, a network view, a network, labels or a namespace, \
            so that nobody shares with them",
        run: |target, deadline| invented_views(target, deadline).boxed(),
    },
    Attack {
        name: "every-type",
        what: "Requests for every type, known and unknown, with and without names, on every one of 400 \
            streams at once",
        run: |target, deadline| every_type(target, deadline).boxed(),
    },
];

/// Number of streams of a connection.
const STREAMS: usize = 50;
/// Number of existing services whose endpoints an attacker subscribes to.
const SERVICES: usize = 200;

/// Names of the load assignments of the world's services.
pub(super) fn assignments() -> Vec<String> {
    (0..SERVICES).map(|index| format!("outbound|80||svc-{index}.bench.svc.cluster.local")).collect()
}

/// A node that shares as little as possible with others.
fn peculiar(number: usize) -> Node {
    let node = Node::numbered(number);
    let own = format!("own-{number}");
    let label = field(5, structure([("app".to_owned(), text(&own))]));
    match number % 5 {
        0 => node.with("TLS_CLIENT_ROOT_CERT", text(&format!("/etc/{own}.pem"))),
        1 => node.with("REQUESTED_NETWORK_VIEW", text(&own)),
        2 => node.with("NETWORK", text(&own)).with("CLUSTER_ID", text(&own)),
        3 => node.with("LABELS", label).with("ISTIO_VERSION", text(&format!("1.{number}.0"))),
        _ => node.in_namespace(&own),
    }
}

/// Requests all resources of a proxy.
async fn ask(client: &mut Client, number: usize, counts: &Counts) -> Result<Stream> {
    let mut stream = client.open(DELTA, &[]).await?;
    let node = peculiar(number);
    let requests = [
        delta(Some(&node), ResourceType::Cluster.type_url(), &[], &[]),
        delta(None, ResourceType::Endpoint.type_url(), &assignments(), &[]),
        delta(None, ResourceType::Listener.type_url(), &[], &[]),
        delta(None, ResourceType::Route.type_url(), &["80".to_owned()], &[]),
    ];
    for request in requests {
        stream.send(&request)?;
        counts.sent(request.len());
    }
    Ok(stream)
}

async fn invented_views(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let (counts, dialer, next) = (Counts::new(), Dialer::plaintext(&target), Arc::new(AtomicUsize::new(0)));
    let shared = counts.clone();
    crowd(4, deadline, &counts, move |_| {
        let (counts, dialer, next) = (shared.clone(), dialer.clone(), next.clone());
        async move {
            let mut client = dialer.connect().await?;
            let mut streams = Vec::new();
            for _ in 0..STREAMS {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let mut stream = ask(&mut client, number, &counts).await?;
                stream.next().await.map_err(anyhow::Error::msg)?;
                counts.answered();
                streams.push(stream);
            }
            Ok(())
        }
    })
    .await;
    Ok(counts.tally())
}

/// Served and unknown types.
fn types() -> Vec<String> {
    let unknown = [
        "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration",
        "type.googleapis.com/envoy.service.runtime.v3.Runtime",
        "type.googleapis.com/envoy.config.route.v3.VirtualHost",
        "type.googleapis.com/nothing",
        "networking.istio.io/v1/VirtualService",
        "networking.istio.io/v1/Gateway",
        "core/v1alpha1/MeshConfig",
        "type.googleapis.com/istio.workload.Address",
        "type.googleapis.com/istio.security.Authorization",
        "",
    ];
    let known = ResourceType::ALL.map(|ty| ty.type_url().to_owned());
    known.into_iter().chain(unknown.map(str::to_owned)).collect()
}

async fn every_type(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let (counts, dialers) = (Counts::new(), [Dialer::plaintext(&target), Dialer::known(&target)?]);
    let shared = counts.clone();
    crowd(8, deadline, &counts, move |index| {
        let (counts, dialers) = (shared.clone(), dialers.clone());
        async move {
            let [plain, secret] = &dialers;
            let mut client = if index % 4 == 3 { secret.connect().await? } else { plain.connect().await? };
            let mut streams = Vec::new();
            for number in 0..STREAMS {
                let is_delta = (index + number) % 2 == 0;
                let mut stream = client.open(if is_delta { DELTA } else { SOTW }, &[]).await?;
                let mut node = Some(Node::numbered(number));
                for url in types() {
                    for names in [vec![], vec!["*".to_owned()], assignments()] {
                        let request = match is_delta {
                            true => delta(node.as_ref(), &url, &names, &[]),
                            false => sotw(node.as_ref(), &url, &names),
                        };
                        node = None;
                        stream.send(&request)?;
                        counts.sent(request.len());
                    }
                }
                streams.push(stream);
            }
            for mut stream in streams {
                match stream.next().await {
                    Ok(_) => counts.answered(),
                    Err(words) => counts.refused(words),
                }
            }
            Ok(())
        }
    })
    .await;
    Ok(counts.tally())
}
