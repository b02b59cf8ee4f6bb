//! Behaviour of a source while the API server does not complete reviews of its rights. Time is virtual.

use super::discovery::{Discovery, Rights};
use super::{Kinds, KubeSource, KubeSourceSettings};
use http_body_util::Full;
use kube::Client;
use kube::client::Body;
use pilotfish_runtime::{Classify, ErrorClass, Jitter};
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

const MESH_CONFIG_MAP: &str = "/api/v1/namespaces/istio-system/configmaps";

/// The server's response to a review.
#[derive(Clone, Copy)]
enum Verdict {
    /// No response at all.
    Silence,
    /// This status and text.
    Answer(u16, &'static str),
}

const ALLOWED: Verdict = Verdict::Answer(201, r#"{"spec": {}, "status": {"allowed": true}}"#);
const BUSY: Verdict = Verdict::Answer(503, r#"{"code": 503, "message": "busy"}"#);
const FORBIDDEN: Verdict = Verdict::Answer(403, r#"{"code": 403, "message": "no reviews"}"#);

/// An API server with core kinds only. `review` returns the verdict on its n-th review. The receiver gets all
/// request paths.
fn server(review: impl Fn(usize) -> Verdict + Send + 'static) -> (Client, mpsc::UnboundedReceiver<String>) {
    let (paths, requested) = mpsc::unbounded_channel();
    let mut reviews = 0;
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let path = request.uri().path().to_owned();
        let verdict = match path.as_str() {
            "/apis" => Verdict::Answer(200, r#"{"items": []}"#),
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" => {
                reviews += 1;
                review(reviews)
            }
            _ => Verdict::Answer(404, r#"{"code": 404, "message": "no such path"}"#),
        };
        // Nobody listens any more when the test ends.
        paths.send(path).ok();
        async move {
            let Verdict::Answer(status, text) = verdict else { return std::future::pending().await };
            let body = Full::new(bytes::Bytes::from_static(text.as_bytes()));
            Ok::<_, Infallible>(http::Response::builder().status(status).body(body).unwrap())
        }
    });
    (Client::new(service, "default"), requested)
}

fn discovery(client: Client, kinds: Kinds) -> Discovery {
    Discovery {
        client,
        kinds,
        root_namespace: "istio-system".into(),
        mesh_config_map: "istio".into(),
        secrets: Rights::default(),
        config_maps: Rights::default(),
        mesh: kinds == Kinds::All,
        known: None,
    }
}

#[tokio::test(start_paused = true)]
async fn reviews_that_are_not_answered_are_reported() {
    for (kinds, unreviewed) in [
        (Kinds::Discovery, &["mesh config: no answer within 20 s"][..]),
        (
            Kinds::All,
            &[
                "Secrets of all namespaces: no answer within 20 s",
                "ConfigMaps of all namespaces: no answer within 20 s",
            ],
        ),
    ] {
        let (client, _requested) = server(|_| Verdict::Silence);
        let begin = Instant::now();
        let found = discovery(client, kinds).run().await.unwrap();
        let reasons: Vec<String> = found.unreviewed.iter().map(ToString::to_string).collect();
        assert_eq!(reasons, unreviewed);
        assert!(found.unreviewed.iter().all(|review| review.class() == ErrorClass::Transient));
        assert_eq!(begin.elapsed(), Duration::from_secs(20), "they are waited for together");
        assert_eq!(found.mesh, kinds == Kinds::All);
    }
}

/// Returns the time that the source of a remote cluster needs to read the mesh config.
async fn until_mesh_config(review: impl Fn(usize) -> Verdict + Send + 'static) -> Duration {
    let (client, mut requested) = server(review);
    let (out, _batches) = mpsc::channel(64);
    let settings = KubeSourceSettings {
        kinds: Kinds::Discovery,
        jitter: Jitter::seeded(0),
        ..KubeSourceSettings::new("test")
    };
    let begin = Instant::now();
    let source = tokio::spawn(KubeSource::new(client, settings, out).run());
    let read = async { while requested.recv().await.expect("the source runs") != MESH_CONFIG_MAP {} };
    timeout(Duration::from_secs(600), read).await.expect("mesh config is read");
    source.abort();
    begin.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_review_that_failed_is_repeated_soon_where_that_may_help() {
    let busy = until_mesh_config(|n| if n < 3 { BUSY } else { ALLOWED }).await;
    assert!(busy < Duration::from_secs(5), "{busy:?}");
    let forbidden = until_mesh_config(|n| if n < 2 { FORBIDDEN } else { ALLOWED }).await;
    assert!(forbidden >= Duration::from_secs(50), "{forbidden:?}");
}
