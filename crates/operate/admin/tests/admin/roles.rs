//! Roles on the real listeners, with and without TLS: each action, with each credential.

use super::{fixture, routes_for};
use Needed::{Admin, Nothing, Operator, Viewer};
use pilotfish_access::NamedTokens;
use pilotfish_admin::{ALPN, Access, Bound, Permissions, RoleRules, RoleTable, Roles};
use pilotfish_identity::{Authorities, Pem, ServerCertificate, Tls};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::collections::BTreeSet;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;

const TOKENS: &str = "tokens:
- {name: view, token: planted-viewer-0123}
- {name: op, token: planted-operator-01}
- {name: root, token: planted-admin-01234}
- {name: lost, token: planted-norole-0123}
";
const RULES: &str = "rules:
- {identities: [token/view, 'spiffe://td/ns/ops/sa/view'], role: viewer}
- {identities: [token/op, 'spiffe://td/ns/ops/sa/op'], role: operator}
- {identities: [token/root, 'spiffe://td/ns/ops/sa/root'], role: admin}
";
/// Where a client is that is not on this machine.
const ELSEWHERE: &str = "127.0.0.2:0";

/// Actions: method, path, body, and the least role, of viewer (0), operator and admin.
const ACTIONS: [(&str, &str, &str, u8); 9] = [
    ("GET", "/api/v1/overview", "", 0),
    ("GET", "/debug/configz", "", 0),
    ("GET", "/dashboard/", "", 0),
    ("GET", "/api/v1/profile?seconds=0", "", 0),
    ("GET", "/api/v1/log", "", 0),
    ("POST", "/api/v1/plan", r#"{"files": [{"name": "a.yaml", "text": ""}]}"#, 0),
    ("POST", "/api/v1/log", r#"{"filter": "debug"}"#, 1),
    ("POST", "/api/v1/guard", r#"{"source": "consul"}"#, 1),
    ("POST", "/api/v1/ca/rotate", r#"{"overlapSeconds": 86400}"#, 2),
];

/// Methods of each path, with the least role. Paths that are not here fail the test.
const ROUTES: [(&str, &[(&str, Needed)]); 55] = [
    ("/metrics", &[("GET", Nothing)]),
    ("/ready", &[("GET", Nothing)]),
    ("/healthz", &[("GET", Nothing)]),
    ("/healthz/ready", &[("GET", Nothing)]),
    ("/version", &[("GET", Nothing)]),
    ("//version", &[("GET", Nothing)]),
    ("/", &[("GET", Viewer)]),
    ("/dashboard", &[("GET", Viewer)]),
    ("/dashboard/", &[("GET", Viewer)]),
    ("/dashboard/{version}/{*path}", &[("GET", Viewer)]),
    ("/debug", &[("GET", Viewer)]),
    ("/debug/", &[("GET", Viewer)]),
    ("/debug/list", &[("GET", Viewer)]),
    ("/debug/registryz", &[("GET", Viewer)]),
    ("/debug/registrationz", &[("GET", Viewer)]),
    ("/debug/endpointz", &[("GET", Viewer)]),
    ("/debug/endpointShardz", &[("GET", Viewer)]),
    ("/debug/configz", &[("GET", Viewer)]),
    ("/debug/problemz", &[("GET", Viewer)]),
    ("/debug/inject", &[("GET", Viewer)]),
    ("/debug/networkz", &[("GET", Viewer)]),
    ("/debug/adsz", &[("GET", Viewer)]),
    ("/debug/syncz", &[("GET", Viewer)]),
    ("/debug/config_dump", &[("GET", Viewer)]),
    ("/api/v1/proxies", &[("GET", Viewer)]),
    ("/api/v1/proxies/{name}", &[("GET", Viewer)]),
    ("/api/v1/proxies/{name}/config", &[("GET", Viewer)]),
    ("/api/v1/services", &[("GET", Viewer)]),
    ("/api/v1/service", &[("GET", Viewer)]),
    ("/api/v1/map", &[("GET", Viewer)]),
    ("/api/v1/map/{namespace}", &[("GET", Viewer)]),
    ("/api/v1/endpoints", &[("GET", Viewer)]),
    ("/api/v1/registries", &[("GET", Viewer)]),
    ("/api/v1/problems", &[("GET", Viewer)]),
    ("/api/v1/objects", &[("GET", Viewer)]),
    ("/api/v1/acknowledgements", &[("GET", Viewer)]),
    ("/api/v1/record", &[("GET", Viewer)]),
    ("/api/v1/overview", &[("GET", Viewer)]),
    ("/api/v1/status", &[("GET", Viewer)]),
    ("/api/v1/changes", &[("GET", Viewer)]),
    ("/api/v1/samples", &[("GET", Viewer)]),
    ("/api/v1/memory", &[("GET", Viewer)]),
    ("/api/v1/ca", &[("GET", Viewer)]),
    ("/api/v1/history", &[("GET", Viewer)]),
    ("/api/v1/history/{revision}", &[("GET", Viewer)]),
    ("/api/v1/why", &[("GET", Viewer)]),
    ("/api/v1/why/endpoint", &[("GET", Viewer)]),
    ("/api/v1/why/object", &[("GET", Viewer)]),
    ("/api/v1/events", &[("GET", Viewer)]),
    ("/api/v1/profile", &[("GET", Viewer)]),
    ("/api/v1/log", &[("GET", Viewer), ("POST", Operator)]),
    ("/api/v1/guard", &[("POST", Operator)]),
    ("/api/v1/ca/rotate", &[("POST", Admin)]),
    ("/api/v1/plan", &[("POST", Viewer)]),
    ("/api/v1/node/config", &[("POST", Viewer)]),
];

/// Role that a method of a path needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Needed {
    /// Open to everybody.
    Nothing,
    Viewer,
    Operator,
    Admin,
}

/// A certificate and its key in PEM.
type Pair = (String, String);

/// An authority that issues certificates of a name or an account.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn issue(&self, name: SanType) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![name];
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    fn account(&self, name: &str) -> Pair {
        self.issue(SanType::URI(format!("spiffe://td/ns/ops/sa/{name}").try_into().unwrap()))
    }
}

/// Both listeners over one router.
struct Served {
    authority: Authority,
    plain: SocketAddr,
    secure: SocketAddr,
    pages: axum::Router,
}

impl Served {
    async fn start(rules: &str) -> Self {
        let rules = RoleRules::parse(rules).unwrap();
        let roles = Arc::new(Roles::new(RoleTable::new(NamedTokens::parse(TOKENS).unwrap(), rules)));
        let pages = routes_for(fixture(), Permissions::with_roles(Access::ThisMachine, roles, Vec::new()));
        let authority = Authority::new();
        let (chain, key) = authority.issue(SanType::DnsName("localhost".try_into().unwrap()));
        let pem = |text| Pem { origin: "test", text };
        let certificate = ServerCertificate::from_pem(pem(chain.as_bytes()), pem(key.as_bytes())).unwrap();
        let authorities = Authorities::from_pem(&[pem(authority.pem.as_bytes())]).unwrap();
        let tls = Arc::new(Tls::new(certificate, authorities, ALPN).unwrap());
        let bind = || Bound::bind("127.0.0.1:0".parse().unwrap());
        let (plain, secure) = (bind().await.unwrap(), bind().await.unwrap().with_tls(tls));
        let (plain_address, secure_address) = (plain.address(), secure.address());
        let served = Self { authority, plain: plain_address, secure: secure_address, pages: pages.clone() };
        for bound in [plain, secure] {
            tokio::spawn(bound.run(pages.clone(), std::future::pending()));
        }
        served
    }

    /// Status of the answer to a request without a body. Some answers do not end.
    async fn status(&self, from: &str, token: Option<&str>, method: &str, path: &str) -> u16 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(from.parse().unwrap()).unwrap();
        let mut stream = socket.connect(self.plain).await.unwrap();
        let header = token.map_or(String::new(), |token| format!("authorization: Bearer {token}\r\n"));
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{header}content-length: 0\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        std::str::from_utf8(&head[9..]).unwrap().parse().unwrap()
    }

    /// Status and text of the answer to a request from an address, with TLS if there is a certificate or
    /// `Some(None)`.
    async fn ask(
        &self,
        from: &str,
        tls: Option<Option<&Pair>>,
        authorization: Option<&str>,
        (method, path, body): (&str, &str, &str),
    ) -> (u16, String) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(from.parse().unwrap()).unwrap();
        let header = authorization.map_or(String::new(), |value| format!("authorization: {value}\r\n"));
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{header}content-type: \
             application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let Some(client) = tls else {
            return exchange(socket.connect(self.plain).await.unwrap(), &request).await;
        };
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match client {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let stream = socket.connect(self.secure).await.unwrap();
        let name = "localhost".try_into().unwrap();
        exchange(TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap(), &request).await
    }
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> (u16, String) {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // Some servers end a TLS connection without a word.
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

/// Status for a client with a role: viewer (0), operator, admin, or none.
fn expected(role: Option<u8>, needed: u8) -> u16 {
    if role >= Some(needed) { 200 } else { 403 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_action_needs_its_role() {
    let served = Served::start(RULES).await;
    let [view, op, root, other] = ["view", "op", "root", "other"].map(|name| served.authority.account(name));
    let here = "127.0.0.1:0";
    for (method, path, body, needed) in ACTIONS {
        let action = (method, path, body);
        for (from, tls, token, role) in [
            (here, None, None, Ok(Some(1))),
            (here, Some(None), None, Ok(Some(1))),
            (here, None, Some("Bearer planted-viewer-0123"), Ok(Some(0))),
            (here, None, Some("Bearer planted-operator-01"), Ok(Some(1))),
            (here, None, Some("Bearer planted-admin-01234"), Ok(Some(2))),
            (here, None, Some("Bearer planted-norole-0123"), Ok(None)),
            (here, None, Some("Bearer wrong"), Err(401)),
            (ELSEWHERE, None, None, Err(403)),
            (ELSEWHERE, None, Some("Bearer planted-admin-01234"), Err(403)),
            (ELSEWHERE, Some(None), None, Err(401)),
            (ELSEWHERE, Some(None), Some("Bearer planted-viewer-0123"), Ok(Some(0))),
            (ELSEWHERE, Some(None), Some("Bearer planted-operator-01"), Ok(Some(1))),
            (ELSEWHERE, Some(None), Some("Bearer planted-admin-01234"), Ok(Some(2))),
            (ELSEWHERE, Some(None), Some("Bearer planted-norole-0123"), Ok(None)),
            (ELSEWHERE, Some(Some(&view)), None, Ok(Some(0))),
            (ELSEWHERE, Some(Some(&op)), None, Ok(Some(1))),
            (ELSEWHERE, Some(Some(&root)), None, Ok(Some(2))),
            (ELSEWHERE, Some(Some(&other)), None, Ok(None)),
        ] {
            let (status, answer) = served.ask(from, tls, token, action).await;
            let expected = role.map_or_else(|status| status, |role| expected(role, needed));
            assert_eq!(status, expected, "{action:?} {from} {} {token:?}: {answer}", tls.is_some());
            assert!(!answer.contains("planted"), "{answer}");
            assert_eq!(answer.contains("www-authenticate: Basic"), status == 401, "{answer}");
        }
    }
}

/// Returns the paths of a router, which shows them in its debug form.
fn paths(router: &axum::Router) -> BTreeSet<String> {
    let shown = format!("{router:?}");
    let (_, paths) = shown.split_once("paths: {").expect("the router shows its paths");
    // Paths have braces, too, but inside of quotation marks.
    let parts: Vec<_> = paths.split('"').collect();
    let pairs = parts.chunks(2).take_while(|pair| !pair[0].contains('}'));
    pairs.filter_map(|pair| pair.get(1).map(|path| (*path).to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_path_and_method_has_a_role_and_refuses_lower_ones() {
    let served = Served::start(RULES).await;
    let known: BTreeSet<_> = ROUTES.iter().map(|(path, _)| (*path).to_owned()).collect();
    assert_eq!(paths(&served.pages), known, "each path needs its row in the table");
    for (path, methods) in ROUTES {
        let path = path.replace("{name}", "a").replace("{*path}", "a").replace(['{', '}'], "");
        let path = if path == "/api/v1/profile" { format!("{path}?seconds=0") } else { path };
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            let needed = methods.iter().find(|(known, _)| *known == method).map(|(_, needed)| *needed);
            for (from, token, role) in [
                (ELSEWHERE, None, Nothing),
                ("127.0.0.1:0", Some("planted-norole-0123"), Nothing),
                ("127.0.0.1:0", Some("planted-viewer-0123"), Viewer),
                ("127.0.0.1:0", Some("planted-operator-01"), Operator),
                ("127.0.0.1:0", Some("planted-admin-01234"), Admin),
            ] {
                let status = served.status(from, token, method, &path).await;
                let is_refused = matches!(status, 401 | 403);
                match needed {
                    Some(needed) => {
                        assert_eq!(is_refused, role < needed, "{method} {path} {role:?}: {status}")
                    }
                    // Clients without a role are refused before the method is looked at.
                    None => assert!(is_refused || status == 405, "{method} {path} {role:?}: {status}"),
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusal_of_a_rotation_names_the_ways_to_it() {
    let served = Served::start(RULES).await;
    let action = ("POST", "/api/v1/ca/rotate", r#"{"overlapSeconds": 86400}"#);
    let (status, answer) = served.ask("127.0.0.1:0", None, None, action).await;
    assert_eq!(status, 403);
    for part in ["loopback has not the role admin", "--data-dir", "--admin-token-file"] {
        assert!(answer.contains(part), "{part}: {answer}");
    }
    let given = Served::start("rules: [{identities: [loopback], role: admin}]").await;
    assert_eq!(given.ask("127.0.0.1:0", None, None, action).await.0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn browsers_show_the_dashboard_with_a_token_as_password() {
    use base64::Engine;
    let served = Served::start(RULES).await;
    let basic = base64::engine::general_purpose::STANDARD.encode("me:planted-viewer-0123");
    let basic = format!("Basic {basic}");
    for path in ["/dashboard/", "/api/v1/overview"] {
        let (status, _) = served.ask(ELSEWHERE, Some(None), Some(&basic), ("GET", path, "")).await;
        assert_eq!(status, 200, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ready_has_the_lines_of_problems_for_viewers_only() {
    let served = Served::start(&format!("{RULES}- {{identities: [loopback], role: none}}\n")).await;
    for (from, tls, token, told) in [
        ("127.0.0.1:0", None, None, false),
        (ELSEWHERE, Some(None), None, false),
        (ELSEWHERE, Some(None), Some("Bearer planted-norole-0123"), false),
        (ELSEWHERE, Some(None), Some("Bearer planted-viewer-0123"), true),
    ] {
        let (status, answer) = served.ask(from, tls, token, ("GET", "/ready", "")).await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer.contains(r#""problems":[""#), told, "{token:?}: {answer}");
    }
}

/// Text of the log of this process.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Starts the log, once: handlers run on threads of their own.
fn log() -> &'static Log {
    static LOG: OnceLock<Log> = OnceLock::new();
    LOG.get_or_init(|| {
        let log = Log::default();
        let writer = log.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
        log
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_change_is_one_line_of_the_audit_log() {
    let log = log();
    let served =
        Served::start(&RULES.replace("token/", "token/audited-").replace("ns/ops", "ns/audit")).await;
    // The names of the tokens stay: those of this test are told by their accounts.
    let account = |name: &str| {
        let uri = format!("spiffe://td/ns/audit/sa/{name}");
        served.authority.issue(SanType::URI(uri.try_into().unwrap()))
    };
    let (op, root) = (account("op"), account("root"));
    for (client, action, line) in [
        (&op, ACTIONS[4], None),
        (&op, ACTIONS[5], None),
        (
            &op,
            ACTIONS[6],
            Some(
                r#"log="audit" who=spiffe://td/ns/audit/sa/op role="operator" address="127.0.0.2" action="set-log-level" object="debug" outcome="done""#,
            ),
        ),
        (&op, ACTIONS[7], Some(r#"action="accept-loss" object="consul" outcome="done""#)),
        (
            &op,
            ACTIONS[8],
            Some(r#"role="operator" address="127.0.0.2" action="rotate-root" object="" outcome="refused""#),
        ),
        (
            &root,
            ACTIONS[8],
            Some(
                r#"role="admin" address="127.0.0.2" action="rotate-root" object="certificate authority, overlap 86400 s" outcome="done""#,
            ),
        ),
        (
            &op,
            ("POST", "/api/v1/log", "no json", 1),
            Some(r#"action="set-log-level" object="" outcome="failed""#),
        ),
    ] {
        let lines = || {
            let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
            let of_this = |line: &&str| line.contains(" audit: ") && line.contains("/ns/audit/");
            text.lines().filter(of_this).map(str::to_owned).collect::<Vec<_>>()
        };
        let before = lines().len();
        let (method, path, body, _) = action;
        let (_, answer) = served.ask(ELSEWHERE, Some(Some(client)), None, (method, path, body)).await;
        let added = lines().split_off(before);
        assert_eq!(added.len(), usize::from(line.is_some()), "{action:?}: {added:?} {answer}");
        assert!(added.iter().all(|added| added.contains(line.unwrap_or_default())), "{added:?}");
    }
}
