//! gRPC servers that get their listeners from Pilotfish: in plain text, with mutual TLS, and with
//! authorization; each library against each.

use crate::mesh::{self, AUTHORIZATION, CLIENT, CONDITIONS, MUTUAL_TLS, NO_ADMIN, SERVER, TARGET};
use crate::peer::Credentials::{Plain, Xds};
use crate::peer::Library::{self, Node, Python};
use crate::peer::Peer;
use pilotfish_testkit::real::{Authority, Pilotfish, eventually, free_port};
use tokio::net::TcpStream;

const WHO: &str = "/pilotfish.test.Echo/Who";
const ADMIN: &str = "/pilotfish.test.Echo/Admin";
/// An identity that no rule names.
const OTHER: &str = "spiffe://cluster.local/ns/shop/sa/other";
/// The file of the service.
const SERVICE: &str = "echo.yaml";
const IP: &str = "127.0.0.11";

/// A server and a client, with certificates of one authority.
struct Pair {
    pilotfish: Pilotfish,
    authority: Authority,
    client: Peer,
    _server: Peer,
    port: u16,
}

impl Pair {
    /// Both serve and see these files beside the service itself. `None` when a library is missing and is not
    /// required.
    async fn start(client: Library, server: Library, server_identity: &str, files: &[&str]) -> Option<Self> {
        let port = free_port();
        let service = mesh::service(&[(IP, port)]);
        let rules = ["one.yaml", "two.yaml"].into_iter().zip(files.iter().copied());
        let files: Vec<(&str, &str)> = rules.chain([(SERVICE, &*service)]).collect();
        let pilotfish = Pilotfish::start(env!("CARGO_BIN_EXE_pilotfish"), &files).await;
        let authority = Authority::new();
        let server = {
            let folder = pilotfish.folder().join("server");
            authority.issue(server_identity, &folder);
            let folder = folder.to_str().unwrap();
            let arguments = ["--ip", IP, "--label", "app=echo", "--certificates", folder];
            Peer::start(server, &pilotfish, "server", &arguments).await?
        };
        let client = client_of(&pilotfish, &authority, client, "client", CLIENT).await?;
        server.serve(&format!("{IP}:{port}"), "echo", Xds).await;
        // It listens as soon as it has its listener; a client that came before would wait a second and more
        // between its attempts.
        eventually("the server listens", || TcpStream::connect((IP, port))).await;
        Some(Self { pilotfish, authority, client, _server: server, port })
    }

    async fn answers(&self, client: &Peer, path: &str, expected: &str) {
        eventually("the server answers as it must", || async {
            let who = client.ask_once(TARGET, Xds, path).await;
            if who.starts_with(expected) { Ok(()) } else { Err(who) }
        })
        .await;
    }
}

async fn client_of(
    pilotfish: &Pilotfish,
    authority: &Authority,
    library: Library,
    name: &str,
    identity: &str,
) -> Option<Peer> {
    let folder = pilotfish.folder().join(name);
    authority.issue(identity, &folder);
    Peer::start(library, pilotfish, name, &["--certificates", folder.to_str().unwrap()]).await
}

async fn plain_text(client: Library, server: Library) {
    let Some(pair) = Pair::start(client, server, SERVER, &[]).await else { return };
    pair.answers(&pair.client, WHO, "echo").await;
    mesh::nothing_was_refused(&pair.pilotfish).await;
}

async fn mutual_tls(client: Library, server: Library) {
    let Some(pair) = Pair::start(client, server, SERVER, &[MUTUAL_TLS]).await else { return };
    pair.answers(&pair.client, WHO, "echo").await;
    let plain = pair.client.ask_once(&format!("ipv4:{IP}:{}", pair.port), Plain, WHO).await;
    assert!(plain.starts_with("UNAVAILABLE"), "{plain}");
    mesh::nothing_was_refused(&pair.pilotfish).await;
}

async fn authorization(client: Library, server: Library) {
    let Some(pair) = Pair::start(client, server, SERVER, &[MUTUAL_TLS, AUTHORIZATION]).await else { return };
    pair.answers(&pair.client, WHO, "echo").await;
    pair.answers(&pair.client, ADMIN, "PERMISSION_DENIED").await;
    let other = client_of(&pair.pilotfish, &pair.authority, client, "other", OTHER).await.unwrap();
    pair.answers(&other, WHO, "PERMISSION_DENIED").await;
    mesh::nothing_was_refused(&pair.pilotfish).await;
}

/// Conditions that gRPC does not support do not make a server refuse its listener.
async fn conditions(server: Library) {
    let Some(pair) = Pair::start(Python, server, SERVER, &[MUTUAL_TLS, CONDITIONS]).await else { return };
    pair.answers(&pair.client, WHO, "echo").await;
    mesh::nothing_was_refused(&pair.pilotfish).await;
}

/// A running server follows changes of authorization.
async fn authorization_changes(server: Library) {
    let Some(pair) = Pair::start(Python, server, SERVER, &[]).await else { return };
    pair.answers(&pair.client, ADMIN, "echo").await;
    pair.pilotfish.write("policy.yaml", NO_ADMIN);
    pair.answers(&pair.client, ADMIN, "PERMISSION_DENIED").await;
    pair.answers(&pair.client, WHO, "echo").await;
    pair.pilotfish.remove("policy.yaml");
    pair.answers(&pair.client, ADMIN, "echo").await;
    mesh::nothing_was_refused(&pair.pilotfish).await;
}

/// A running server begins to insist on mutual TLS. Node's library takes the new listener for the old one.
async fn mutual_tls_later(server: Library) {
    let Some(pair) = Pair::start(Python, server, SERVER, &[]).await else { return };
    pair.answers(&pair.client, WHO, "echo").await;
    pair.pilotfish.write("security.yaml", MUTUAL_TLS);
    let address = format!("ipv4:{IP}:{}", pair.port);
    eventually("plain text is refused", || async {
        let plain = pair.client.ask_once(&address, Plain, WHO).await;
        if plain.starts_with("UNAVAILABLE") { Ok(()) } else { Err(plain) }
    })
    .await;
    pair.answers(&pair.client, WHO, "echo").await;
    mesh::nothing_was_refused(&pair.pilotfish).await;
}

/// A client refuses a server whose certificate is of another identity than the service's endpoints, until
/// they are of that identity.
async fn other_identity(client: Library, server: Library) {
    let Some(pair) = Pair::start(client, server, OTHER, &[MUTUAL_TLS]).await else { return };
    let refused = pair.client.ask_once(TARGET, Xds, WHO).await;
    assert!(refused.starts_with("UNAVAILABLE"), "{refused}");
    let service = mesh::service(&[(IP, pair.port)]).replace("serviceAccount: echo", "serviceAccount: other");
    pair.pilotfish.write(SERVICE, &service);
    pair.answers(&pair.client, WHO, "echo").await;
    mesh::nothing_was_refused(&pair.pilotfish).await;
}

macro_rules! pairs {
    ($($name:ident: $check:ident($($library:ident),+);)+) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            $check($($library),+).await;
        }
    )+};
}

pairs! {
    plain_text_from_python_to_python: plain_text(Python, Python);
    plain_text_from_python_to_node: plain_text(Python, Node);
    plain_text_from_node_to_python: plain_text(Node, Python);
    plain_text_from_node_to_node: plain_text(Node, Node);
    mutual_tls_from_python_to_python: mutual_tls(Python, Python);
    mutual_tls_from_python_to_node: mutual_tls(Python, Node);
    mutual_tls_from_node_to_python: mutual_tls(Node, Python);
    mutual_tls_from_node_to_node: mutual_tls(Node, Node);
    authorization_from_python_to_python: authorization(Python, Python);
    authorization_from_python_to_node: authorization(Python, Node);
    authorization_from_node_to_python: authorization(Node, Python);
    authorization_from_node_to_node: authorization(Node, Node);
    a_python_server_takes_every_condition: conditions(Python);
    a_node_server_takes_every_condition: conditions(Node);
    a_python_server_follows_changes_of_authorization: authorization_changes(Python);
    a_node_server_follows_changes_of_authorization: authorization_changes(Node);
    a_python_server_follows_a_change_to_mutual_tls: mutual_tls_later(Python);
    a_python_client_refuses_a_server_of_another_identity: other_identity(Python, Python);
    a_node_client_refuses_a_server_of_another_identity: other_identity(Node, Python);
}
