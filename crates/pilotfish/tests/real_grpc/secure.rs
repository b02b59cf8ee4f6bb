//! gRPC clients that reach Pilotfish over mutual TLS. Node's library (1.14) knows no such credentials for its
//! control plane.

use crate::mesh::{self, TARGET};
use crate::peer::{Credentials::Plain, Library, Peer};
use pilotfish_testkit::real::{Authority, Pilotfish, Tally, free_port};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_python_client_connects_over_mutual_tls() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, port) = (Authority::new(), free_port());
    authority.write(authority.server(), &folder.path().join("server"));
    authority.issue("spiffe://cluster.local/ns/shop/sa/client", &folder.path().join("client"));
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (mesh, address) = (file("mesh"), format!("127.0.0.1:{port}"));
    std::fs::create_dir(&mesh).unwrap();
    let (chain, key, root) =
        (file("server/cert-chain.pem"), file("server/key.pem"), file("server/root-cert.pem"));
    let pilotfish = Pilotfish::launch(
        env!("CARGO_BIN_EXE_pilotfish"),
        &[
            &mesh,
            "--secure-xds-address",
            &address,
            "--tls-cert-file",
            &chain,
            "--tls-key-file",
            &key,
            "--ca-cert-file",
            &root,
        ],
    );
    pilotfish.ready().await;
    let (chain, key) = (file("client/cert-chain.pem"), file("client/key.pem"));
    let arguments = [
        "--xds-address",
        &address,
        "--xds-ca-file",
        &root,
        "--xds-cert-file",
        &chain,
        "--xds-key-file",
        &key,
    ];
    let Some(peer) = Peer::start(Library::Python, &pilotfish, "client", &arguments).await else { return };
    let endpoint = peer.serve("127.0.0.11:0", "v1", Plain).await;
    std::fs::write(folder.path().join("new"), mesh::service(&[("127.0.0.11", endpoint)])).unwrap();
    std::fs::rename(folder.path().join("new"), folder.path().join("mesh/echo.yaml")).unwrap();
    mesh::is_known(&pilotfish, "echo.shop").await;
    assert_eq!(peer.ask(TARGET, Plain, 20, &[]).await, Tally::from([("v1".into(), 20)]));
    assert!(pilotfish.metric("pilotfish_xds_authenticated").await >= 1.0);
    mesh::nothing_was_refused(&pilotfish).await;
}
