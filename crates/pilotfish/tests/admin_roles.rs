//! Roles on the admin API of the real program: its commands with tokens, TLS and JWTs, rotation of the
//! root, and the audit log.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "each test target uses a part")]
#[path = "support/certificates.rs"]
mod certificates;
#[path = "support/issuer.rs"]
mod issuer;

use certificates::{create_with, der};
use issuer::Ed25519;
use pilotfish_testkit::real::{Pilotfish, Tunnel, eventually, free_port};
use rcgen::{CertificateParams, KeyPair};
use std::path::PathBuf;
use std::process::Output;
use tempfile::TempDir;
use tokio::process::Command;

const BINARY: &str = env!("CARGO_BIN_EXE_pilotfish");
const TOKENS: &str = "tokens:
- {name: view, token: planted-viewer-0123}
- {name: root, token: planted-admin-01234}
";
const RULES: &str = "rules:
- {identities: [token/view], role: viewer}
- {identities: [token/root], role: admin}
- {identities: ['spiffe://cluster.local/ns/ci/*'], role: operator}
";

/// Pilotfish with an authority of its own, roles, and an issuer of JWTs.
struct Served {
    folder: TempDir,
    pilotfish: Pilotfish,
    /// Key of the issuer.
    issuer: Ed25519,
    secure_xds: u16,
    secure_admin: u16,
}

impl Served {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let issuer = Ed25519::new();
        std::fs::create_dir(at("mesh")).unwrap();
        let issuers = format!(
            "jwtRules:\n- issuer: https://ci.test\n  audiences: [mesh]\n  jwksFile: {}\n  namespace: {{value: ci}}\n  \
             serviceAccount: {{claim: project}}\n",
            at("keys.json")
        );
        for (name, text) in [
            ("tokens.yaml", TOKENS.to_owned()),
            ("rules.yaml", RULES.to_owned()),
            ("issuers.yaml", issuers),
            ("keys.json", issuer.jwks()),
            ("view", "planted-viewer-0123\n".to_owned()),
            ("root", "planted-admin-01234\n".to_owned()),
            ("wrong", "planted-wrong-01234\n".to_owned()),
        ] {
            std::fs::write(at(name), text).unwrap();
        }
        let (secure_xds, secure_admin) = (free_port(), free_port());
        let pilotfish = Pilotfish::launch(
            BINARY,
            &[
                &at("mesh"),
                "--secure-xds-address",
                &format!("127.0.0.1:{secure_xds}"),
                "--secure-admin-address",
                &format!("127.0.0.1:{secure_admin}"),
                "--ca",
                "self-signed",
                "--data-dir",
                &at("data"),
                "--admin-tokens",
                &at("tokens.yaml"),
                "--admin-rules",
                &at("rules.yaml"),
                "--jwt-rules",
                &at("issuers.yaml"),
            ],
        );
        pilotfish.ready().await;
        Self { folder, pilotfish, issuer, secure_xds, secure_admin }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a command with a file of a token, on the plain address or with TLS.
    async fn run(&self, words: &[&str], token: Option<&str>, tls: bool) -> Output {
        let address = match tls {
            true => format!("https://127.0.0.1:{}", self.secure_admin),
            false => format!("127.0.0.1:{}", self.pilotfish.admin_port()),
        };
        let mut command = Command::new(BINARY);
        command.args(words).args(["--admin-address", &address]);
        if tls {
            command.arg("--admin-ca-file").arg(self.file("data/ca.pem"));
        }
        if let Some(token) = token {
            command.arg("--admin-token-file").arg(self.file(token));
        }
        command.output().await.unwrap()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.pilotfish.log()).unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_have_the_role_of_their_token() {
    let served = Served::start().await;
    let rotate: &[&str] = &["ca", "rotate", "--overlap", "24h"];
    for (words, token, tls, refused) in [
        (&["status"][..], None, false, None),
        (&["status"], Some("view"), false, None),
        (&["status"], Some("view"), true, None),
        (&["status"], Some("wrong"), false, Some("no such token")),
        (&["status"], Some("wrong"), true, Some("no such token")),
        (&["log", "debug"], Some("view"), true, Some("token/view has not the role operator")),
        (&["log", "info"], None, false, None),
        (&["log", "info"], Some("root"), true, None),
        (rotate, None, false, Some("loopback has not the role admin")),
        (rotate, Some("view"), true, Some("token/view has not the role admin")),
        (rotate, Some("root"), true, None),
        (rotate, Some("root"), false, Some("no rotation has begun")),
    ] {
        let done = served.run(words, token, tls).await;
        let error = text(&done.stderr);
        assert_eq!(done.status.success(), refused.is_none(), "{words:?} {token:?} {tls}: {error}");
        assert!(error.contains(refused.unwrap_or_default()), "{words:?} {token:?} {tls}: {error}");
    }
    eventually("the control plane follows", || async {
        let shown = text(&served.run(&["ca", "status"], Some("view"), true).await.stdout);
        if shown.contains("rotation: distributing") { Ok(()) } else { Err(shown) }
    })
    .await;
    let log = served.log();
    assert!(!log.contains("planted"), "no token is logged");
    let audit: Vec<&str> = log.lines().filter(|line| line.contains("a request to change state")).collect();
    let done = |who: &str, action: &str, outcome: &str| {
        let has = |line: &&&str| [who, action, outcome].iter().all(|part| line.contains(part));
        audit.iter().filter(has).count()
    };
    assert_eq!(done("token/root", "rotate-root", "done"), 1, "{audit:#?}");
    assert_eq!(done("token/root", "rotate-root", "failed"), 1, "{audit:#?}");
    assert_eq!(done("loopback", "rotate-root", "refused"), 1, "{audit:#?}");
    assert_eq!(done("loopback", "set-log-level", "done"), 1, "{audit:#?}");
    assert_eq!(audit.len(), 7, "{audit:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jwt_of_an_issuer_proves_an_account_of_the_mesh() {
    let served = Served::start().await;
    let (good, other) = (served.issuer.token("build", "mesh"), served.issuer.token("build", "elsewhere"));
    let forged = Ed25519::new().token("build", "mesh");

    // On the admin API, the rules give it a role.
    for (name, token) in [("good", &good), ("other", &other), ("forged", &forged)] {
        std::fs::write(served.file(name), token).unwrap();
    }
    for (token, refused) in [
        ("good", None),
        ("other", Some("it is not for mesh")),
        ("forged", Some("its signature is not of the issuer")),
    ] {
        let done = served.run(&["log", "info"], Some(token), true).await;
        let error = text(&done.stderr);
        assert_eq!(done.status.success(), refused.is_none(), "{token}: {error}");
        assert!(error.contains(refused.unwrap_or_default()), "{token}: {error}");
    }
    assert!(served.log().contains("who=spiffe://cluster.local/ns/ci/sa/build"), "{}", served.log());

    // On the secure port, the authority signs for it.
    let root = std::fs::read_to_string(served.file("data/ca.pem")).unwrap();
    let tunnel = Tunnel::start(served.secure_xds, &root, None).await;
    let key = KeyPair::generate().unwrap();
    let request = CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
    let chain = create_with(tunnel.port(), &request, Some(&good)).await.unwrap();
    let leaf = [der(&chain[0])];
    let proof = pilotfish_identity::spiffe_ids(Some(&leaf)).unwrap();
    assert_eq!(proof.identities, ["spiffe://cluster.local/ns/ci/sa/build"]);
    for token in [&other, &forged] {
        let status = create_with(tunnel.port(), &request, Some(token)).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unauthenticated, "{status}");
    }
    assert!(!served.log().contains(good.rsplit_once('.').unwrap().1), "no token is logged");
}
