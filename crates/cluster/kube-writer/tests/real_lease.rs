//! Elections on a real API server.

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use pilotfish_kube_writer::lease::{ElectionTimes, Elector, Leadership, LeaseSettings};
use pilotfish_testkit::real::{ApiServer, ApiServerOptions, eventually};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const NAMESPACE: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: istio-system}\n";

struct Replica {
    leadership: Leadership,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
    identity: String,
}

fn replica(server: &ApiServer) -> Replica {
    // The usual times: a leader that a busy machine stops for seconds still leads.
    let times = ElectionTimes { retry: Duration::from_millis(250), ..ElectionTimes::default() };
    let settings = LeaseSettings { times, ..LeaseSettings::new("istio-system", "test-leader") };
    let identity = settings.identity.to_string();
    let (elector, leadership) = Elector::new(server.client(), settings);
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(elector.run(async {
        // A dropped sender never signals a stop.
        if stopped.await.is_err() {
            std::future::pending::<()>().await;
        }
    }));
    Replica { leadership, stop, task, identity }
}

async fn holder(server: &ApiServer) -> Option<String> {
    let leases: Api<Lease> = Api::namespaced(server.client(), "istio-system");
    leases.get("test-leader").await.ok()?.spec?.holder_identity
}

#[tokio::test(flavor = "multi_thread")]
async fn one_leads_the_next_follows_at_once_after_a_stop_and_in_time_after_a_crash() {
    let Some(server) = ApiServer::start(ApiServerOptions::default()).await else { return };
    server.apply(NAMESPACE).await;

    let mut first = replica(&server);
    first.leadership.gained().await;
    assert_eq!(holder(&server).await.as_ref(), Some(&first.identity));
    let mut second = replica(&server);
    let mut third = replica(&server);

    first.stop.send(()).expect("it runs");
    first.task.await.expect("it ends well");
    assert!(!first.leadership.leads());
    // The Lease was given back, so that nobody waits for its end.
    assert_ne!(holder(&server).await.as_ref(), Some(&first.identity));
    tokio::select! {
        () = second.leadership.gained() => {}
        () = third.leadership.gained() => {}
    }
    let (leader, mut other) = if second.leadership.leads() { (second, third) } else { (third, second) };
    assert!(!other.leadership.leads());

    // The crash: nothing is given back.
    leader.task.abort();
    drop(leader.task.await);
    let mut dead = leader.leadership.clone();
    other.leadership.gained().await;
    assert!(!dead.leads(), "the next one leads while the last one may still write");
    dead.lost().await;
    assert_eq!(holder(&server).await.as_ref(), Some(&other.identity));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_is_away_ends_the_leadership_and_gives_it_back() {
    let Some(mut server) = ApiServer::start(ApiServerOptions::default()).await else { return };
    server.apply(NAMESPACE).await;
    let mut only = replica(&server);
    only.leadership.gained().await;
    server.kill().await;
    only.leadership.lost().await;
    server.restart().await;
    eventually("the same one leads again", || async {
        only.leadership.leads().then_some(()).ok_or("not yet")
    })
    .await;
    assert_eq!(holder(&server).await.as_ref(), Some(&only.identity));
}
