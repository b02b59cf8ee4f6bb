//! Client commands through the API server of a cluster.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails this way")]

#[path = "support/forwarding.rs"]
mod forwarding;

use forwarding::{ForwardingServer, pod};
use pilotfish_testkit::real::Pilotfish;
use serde_json::Value;
use std::net::SocketAddr;
use std::process::Output;
use tokio::process::Command;

const BINARY: &str = env!("CARGO_BIN_EXE_pilotfish");

/// Runs a client command with the kubeconfig of a server.
async fn ask(server: &ForwardingServer, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = server.kubeconfig(folder.path());
    // The address of the environment is not meant where a cluster is.
    let mut command = Command::new(BINARY);
    command.args(arguments).env("KUBECONFIG", &kubeconfig).env("PILOTFISH_ADMIN_ADDRESS", "127.0.0.1:1");
    command.output().await.unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ready_pod_is_asked_through_the_api_server() {
    let pilotfish = Pilotfish::start(BINARY, &[]).await;
    let target = SocketAddr::from(([127, 0, 0, 1], pilotfish.admin_port()));
    let pods = vec![pod("pilotfish-c", true), pod("pilotfish-a", false), pod("pilotfish-b", true)];
    let server = ForwardingServer::start(pods, Some(target)).await;
    let output = ask(&server, &["wait", "--context", "here", "-o", "json"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["proxies"], 0, "{answer}");
    let note = text(&output.stderr);
    assert!(note.contains("asking pilotfish-b, one of 2 Pods that are ready"), "{note}");
    assert_eq!(
        *server.asked.lock().unwrap(),
        [
            "/api/v1/namespaces/istio-system/pods?&labelSelector=app.kubernetes.io%2Fname%3Dpilotfish&limit=500",
            "/api/v1/namespaces/istio-system/pods/pilotfish-b/portforward?&ports=15999"
        ]
    );
    let output = ask(&server, &["services", "--context", "here", "--pod", "pilotfish-a"]).await;
    assert_eq!(
        output.status.code(),
        Some(0),
        "a Pod that is named need not be ready: {}",
        text(&output.stderr)
    );
    let last = server.asked.lock().unwrap().last().cloned().unwrap();
    assert!(last.contains("/pods/pilotfish-a/portforward?"), "{last}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_stands_in_the_way_is_said_with_a_hint() {
    let none = ForwardingServer::start(vec![], None).await;
    let unready = ForwardingServer::start(vec![pod("pilotfish-a", false)], None).await;
    let refused = ForwardingServer::start(vec![pod("pilotfish-a", true)], None).await;
    for (server, arguments, message, hint) in [
        (&none, &["--context", "here"][..], "no Pod in namespace istio-system", "--pilotfish-namespace"),
        (&none, &["--context", "gone"], "kubeconfig", "kubectl config get-contexts"),
        (&none, &["--kube"], "127.0.0.1:1", "--context names another one"),
        (&unready, &["--context", "here"], "is ready; there are pilotfish-a", "--pod asks one"),
        (&unready, &["--context", "here", "--pod", "b"], "no Pod \"b\"", "--pod is one of these"),
        (&refused, &["--context", "here"], "failed to connect to localhost:15999", "hint: "),
    ] {
        let output = ask(server, &[&["proxies", "--timeout", "20s"], arguments].concat()).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(message) && said.contains(hint), "{message:?}, {hint:?} in {said}");
    }
}
