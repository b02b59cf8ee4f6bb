//! Tokens and rules, and what happens when their files change.

use crate::harness::{Client, Harness, deregister, eventually, instance, register, renew};
use pilotfish_identity::{Authenticator, Call, Proof, Unproven};
use pilotfish_registration::RegistrarSettings;
use pilotfish_registration_api::v1;
use pilotfish_registration_server::{AccessFiles, RegistrationServer, ServerError, ServerSettings, Silent};
use serde_json::Value;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tonic::metadata::MetadataValue;
use tonic::{Code, Request};

const TOKENS: &str = "tokens:
- name: web
  token: token-of-web-0123
- name: agent
  token: token-of-agent-01
- name: reader
  token: token-of-reader-1
";

const RULES: &str = r#"rules:
- identities: [token/web]
  namespaces: [default]
  services: [web]
  actions: [register, deregister]
  addresses: [10.0.0.0/8]
- identities: [token/agent]
  actions: [register, deregister, read]
  instances: any
- identities: [token/reader]
  namespaces: [shop]
  actions: [read]
"#;

async fn start(directory: &Path) -> Harness {
    let (tokens, rules) = (directory.join("tokens.yaml"), directory.join("rules.yaml"));
    std::fs::write(&tokens, TOKENS).unwrap();
    std::fs::write(&rules, RULES).unwrap();
    let access = AccessFiles { tokens: Some(tokens), rules: Some(rules) };
    Harness::with(RegistrarSettings::default(), |settings| settings.access = access).await
}

fn by<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let value: MetadataValue<_> = format!("Bearer {token}").parse().unwrap();
    request.metadata_mut().insert("authorization", value);
    request
}

async fn code(client: &mut Client, token: &str, request: v1::RegisterRequest) -> Code {
    client.register(by(token, request)).await.map_or_else(|status| status.code(), |_| Code::Ok)
}

#[tokio::test]
async fn clients_do_what_rules_allow_and_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let harness = start(directory.path()).await;
    let mut client = harness.grpc().await;
    let (web, agent, reader) = ("token-of-web-0123", "token-of-agent-01", "token-of-reader-1");
    let of = |change: &dyn Fn(&mut v1::Instance)| {
        let mut instance = instance("a");
        change(&mut instance);
        v1::RegisterRequest { instance: Some(instance), expected_revision: None }
    };
    for (token, request, expected) in [
        (web, register("a"), Code::Ok),
        (web, of(&|i| i.service = "other".into()), Code::PermissionDenied),
        (web, of(&|i| i.namespace = "shop".into()), Code::PermissionDenied),
        (web, of(&|i| i.service = "web.default.svc.cluster.local".into()), Code::Ok),
        (web, of(&|i| i.addresses = vec!["192.0.2.1".into()]), Code::PermissionDenied),
        (web, of(&|i| i.service_account = "admin".into()), Code::PermissionDenied),
        (reader, register("a"), Code::PermissionDenied),
        ("token-of-nobody-0", register("a"), Code::Unauthenticated),
        (agent, of(&|i| i.namespace = "shop".into()), Code::Ok),
    ] {
        assert_eq!(code(&mut client, token, request.clone()).await, expected, "{token} {request:?}");
    }
    let missing = client.register(register("a")).await.unwrap_err();
    assert_eq!(missing.code(), Code::Unauthenticated);
    assert!(missing.message().contains("Bearer"), "{missing:?}");

    let list = |token: &'static str, namespace: &str| {
        by(token, v1::ListInstancesRequest { namespace: namespace.into(), ..Default::default() })
    };
    assert_eq!(client.list_instances(list(web, "")).await.unwrap_err().code(), Code::PermissionDenied);
    let all = client.list_instances(list(agent, "")).await.unwrap().into_inner();
    assert_eq!(all.records.len(), 2);
    let readable = client.list_instances(list(reader, "")).await.unwrap().into_inner();
    let namespaces: Vec<_> =
        readable.records.iter().map(|record| record.instance.as_ref().unwrap().namespace.clone()).collect();
    assert_eq!(namespaces, ["shop"], "a list has what its client may read");
    let key = v1::GetInstanceRequest { namespace: "default".into(), service: "web".into(), id: "a".into() };
    assert_eq!(client.get_instance(by(reader, key)).await.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test]
async fn who_registered_an_instance_owns_it() {
    let directory = tempfile::tempdir().unwrap();
    let harness = start(directory.path()).await;
    let mut client = harness.grpc().await;
    let (web, agent) = ("token-of-web-0123", "token-of-agent-01");
    assert_eq!(code(&mut client, agent, register("a")).await, Code::Ok);
    assert_eq!(code(&mut client, web, register("a")).await, Code::PermissionDenied);
    assert_eq!(client.renew(by(web, renew("a"))).await.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(client.deregister(by(web, deregister("a"))).await.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(code(&mut client, web, register("b")).await, Code::Ok);
    client.deregister(by(agent, deregister("b"))).await.unwrap();
    assert_eq!(harness.registrar.stats().counts.instances(), 1);
}

/// Authenticator whose proofs expire at a fixed time.
struct Expiring(SystemTime);

impl Authenticator for Expiring {
    fn name(&self) -> &'static str {
        "expiring"
    }

    fn authenticate<'a>(
        &'a self,
        _: &'a Call,
    ) -> Pin<Box<dyn Future<Output = Result<Proof, Unproven>> + Send + 'a>> {
        let identities = vec!["spiffe://cluster.local/ns/default/sa/web".to_owned()];
        Box::pin(std::future::ready(Ok(Proof { identities, cluster: None, until: Some(self.0) })))
    }
}

#[tokio::test]
async fn streams_end_when_the_credentials_of_their_client_expire() {
    let until = SystemTime::now() + Duration::from_millis(300);
    let harness = Harness::with(RegistrarSettings::default(), |settings| {
        settings.authenticators = vec![Arc::new(Expiring(until))];
        settings.bookmark_interval = Duration::from_secs(3600);
    })
    .await;
    let mut client = harness.grpc().await;
    let silent = futures::stream::pending::<v1::HeartbeatRequest>();
    let mut silent = client.heartbeat(by("expiring", silent)).await.unwrap().into_inner();
    let watch = client.watch(by("expiring", v1::WatchRequest::default())).await.unwrap();
    let mut watch = watch.into_inner();
    let ended = loop {
        match watch.message().await {
            Ok(response) => assert!(response.is_some(), "it ends with a reason"),
            Err(status) => break status,
        }
    };
    for status in [ended, silent.message().await.unwrap_err()] {
        assert_eq!(status.code(), Code::Unavailable, "a client with new credentials is not refused");
        assert!(status.message().contains("has expired"), "{status:?}");
    }
    assert!(SystemTime::now() >= until);
}

#[tokio::test]
async fn tokens_rotate_and_streams_of_old_ones_end() {
    let directory = tempfile::tempdir().unwrap();
    let harness = start(directory.path()).await;
    let mut client = harness.grpc().await;
    let old = "token-of-agent-01";
    let mut watch = client.watch(by(old, v1::WatchRequest::default())).await.unwrap().into_inner();
    watch.message().await.unwrap().unwrap();
    let silent = futures::stream::pending::<v1::HeartbeatRequest>();
    let mut silent = client.heartbeat(by(old, silent)).await.unwrap().into_inner();
    let tokens = directory.path().join("tokens.yaml");
    std::fs::write(&tokens, "tokens: nonsense").unwrap();
    eventually("a broken file is noticed", || harness.heard.lock().reloads == [false]).await;
    assert_eq!(code(&mut client, old, register("a")).await, Code::Ok, "what there was stays in force");
    std::fs::write(&tokens, TOKENS).unwrap();
    eventually("so is that it is mended", || harness.heard.lock().reloads == [false, true]).await;
    std::fs::write(&tokens, TOKENS.replace(old, "token-of-agent-02")).unwrap();
    eventually("it is read again", || harness.heard.lock().reloads == [false, true, true]).await;
    assert_eq!(code(&mut client, old, register("a")).await, Code::Unauthenticated);
    assert_eq!(code(&mut client, "token-of-agent-02", register("a")).await, Code::Ok);
    let ended = loop {
        match watch.message().await {
            Ok(response) => assert!(response.is_some(), "it ends with a reason"),
            Err(status) => break status.code(),
        }
    };
    assert_eq!(ended, Code::Unauthenticated);
    assert_eq!(silent.message().await.unwrap_err().code(), Code::Unauthenticated);
}

#[tokio::test]
async fn json_says_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let harness = start(directory.path()).await;
    let path = "/v1/namespaces/default/services/web/instances/a";
    let body = r#"{"addresses":["10.0.0.1"],"ports":[{"number":80}]}"#;
    for (token, status, code) in [
        ("", 401, "UNAUTHENTICATED"),
        ("Bearer nonsense", 401, "UNAUTHENTICATED"),
        ("Basic token-of-web-0123", 401, "UNAUTHENTICATED"),
        ("Bearer token-of-reader-1", 403, "PERMISSION_DENIED"),
        ("bearer token-of-web-0123", 200, ""),
    ] {
        let header = [("authorization", token)];
        let answer = harness.http("PUT", path, if token.is_empty() { &[] } else { &header }, body).await;
        assert_eq!(answer.status, status, "{token}: {answer:?}");
        assert_eq!(answer.json()["error"]["code"].as_str().unwrap_or_default(), code, "{token}");
        assert_eq!(answer.head.contains("www-authenticate: bearer"), status == 401);
        assert!(!answer.body.contains("token-of"), "{answer:?}");
    }
    let open = harness.http("GET", "/openapi.json", &[], "").await;
    assert!(open.status == 200 && open.json()["openapi"] != Value::Null, "the document needs no token");
}

#[tokio::test]
async fn guessing_tokens_is_slow() {
    let directory = tempfile::tempdir().unwrap();
    let harness = start(directory.path()).await;
    let mut client = harness.grpc().await;
    let mut limited = None;
    for guess in 0..200 {
        let status = client.register(by(&format!("guess-{guess}"), register("a"))).await.unwrap_err();
        if status.code() == Code::ResourceExhausted {
            limited = Some(guess);
            break;
        }
        assert_eq!(status.code(), Code::Unauthenticated);
    }
    assert!(limited.is_some_and(|guess| guess >= 100), "{limited:?}");
    eventually("it is counted", || harness.limit("refusals-per-second") == 1).await;
}

#[tokio::test]
async fn wrong_tokens_do_not_delay_renewals_of_the_same_address() {
    let directory = tempfile::tempdir().unwrap();
    let harness = start(directory.path()).await;
    let mut client = harness.grpc().await;
    let web = "token-of-web-0123";
    assert_eq!(code(&mut client, web, register("a")).await, Code::Ok);
    let mut limited = 0;
    for guess in 0..300 {
        let status = client.renew(by(&format!("guess-{guess}"), renew("a"))).await.unwrap_err();
        limited += usize::from(status.code() == Code::ResourceExhausted);
        // On this connection, and on one of its own.
        client.renew(by(web, renew("a"))).await.unwrap();
        if guess % 50 == 0 {
            harness.grpc().await.renew(by(web, renew("a"))).await.unwrap();
        }
    }
    assert!(limited > 0, "guesses are limited all the same: {limited}");
}

#[tokio::test]
async fn without_rules_a_token_registers_no_host_and_nothing_that_an_object_makes() {
    struct Shop;
    impl pilotfish_registration_server::Mesh for Shop {
        fn has_trust_domain(&self, domain: &str) -> bool {
            domain == "cluster.local"
        }
        fn has_namespace(&self, namespace: &str) -> bool {
            namespace == "payments"
        }
        fn owner_of(&self, host: &str) -> Option<String> {
            (host == "pay.payments.svc.cluster.local").then(|| "Service payments/pay".to_owned())
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens.yaml");
    std::fs::write(&tokens, TOKENS).unwrap();
    let access = AccessFiles { tokens: Some(tokens), rules: None };
    let harness = Harness::with(RegistrarSettings::default(), |settings| {
        settings.access = access;
        settings.mesh = std::sync::Arc::new(Shop);
    })
    .await;
    let mut client = harness.grpc().await;
    for (namespace, service, expected) in [
        ("shop", "web", Code::Ok),
        ("payments", "web", Code::Ok),
        ("payments", "pay", Code::PermissionDenied),
        ("shop", "web.example.com", Code::PermissionDenied),
        ("shop", "pay.payments", Code::InvalidArgument),
        ("shop", "pay.payments.svc", Code::InvalidArgument),
        ("shop", "10.96.0.5", Code::InvalidArgument),
    ] {
        let mut request = register("a");
        let instance = request.instance.as_mut().unwrap();
        (instance.namespace, instance.service) = (namespace.into(), service.into());
        assert_eq!(code(&mut client, "token-of-web-0123", request).await, expected, "{namespace}/{service}");
    }
}

#[tokio::test]
async fn a_host_belongs_to_the_namespace_that_has_it_first() {
    let harness = Harness::start().await;
    let mut client = harness.grpc().await;
    let of = |namespace: &str, service: &str, id: &str| {
        let mut request = register(id);
        let instance = request.instance.as_mut().unwrap();
        (instance.namespace, instance.service) = (namespace.into(), service.into());
        request
    };
    client.register(of("shop", "web.example.com", "a")).await.unwrap();
    client.register(of("shop", "web.example.com", "b")).await.unwrap();
    client.register(of("pay", "web", "a")).await.unwrap();
    let refused = client.register(of("pay", "web.example.com", "a")).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("\"shop\""), "{refused:?}");
    // A short form of a service in a namespace that has registrations.
    let refused = client.register(of("shop", "web.pay", "a")).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    for id in ["a", "b"] {
        let gone = v1::DeregisterRequest {
            namespace: "shop".into(),
            service: "web.example.com".into(),
            id: id.into(),
            ..Default::default()
        };
        client.deregister(gone).await.unwrap();
    }
    client.register(of("pay", "web.example.com", "a")).await.unwrap();
}

#[tokio::test]
async fn loopback_addresses_are_for_listeners_of_this_machine() {
    for (address, expected) in [("127.0.0.1:0", Code::Ok), ("0.0.0.0:0", Code::InvalidArgument)] {
        let harness = Harness::with(RegistrarSettings::default(), |settings| {
            settings.address = address.parse().unwrap();
            settings.allow_plaintext = true;
        })
        .await;
        let endpoint = format!("http://127.0.0.1:{}", harness.address.port());
        let channel = tonic::transport::Endpoint::from_shared(endpoint).unwrap().connect().await.unwrap();
        let mut client = Client::new(channel);
        for own in ["127.0.0.1", "::1", "64:ff9b::7f00:1"] {
            let mut request = register("a");
            request.instance.as_mut().unwrap().addresses = vec![own.into()];
            let answer = client.register(request).await.map_or_else(|status| status.code(), |_| Code::Ok);
            assert_eq!(answer, expected, "{own} at {address}");
        }
    }
}

#[tokio::test]
async fn impossible_settings_are_errors_at_start() {
    let (_store, events) = pilotfish_registration::testing::MemoryStore::open();
    let (registrar, _driver) = pilotfish_registration::Registrar::new(
        std::sync::Arc::new(_store),
        events,
        RegistrarSettings::default(),
    );
    let bind = |change: &dyn Fn(&mut ServerSettings)| {
        let mut settings = ServerSettings::new("127.0.0.1:0".parse().unwrap());
        change(&mut settings);
        RegistrationServer::new(registrar.clone(), settings, std::sync::Arc::new(Silent)).bind().map(drop)
    };
    let open = bind(&|settings| settings.address = "0.0.0.0:0".parse().unwrap());
    assert!(matches!(open, Err(ServerError::Plaintext { .. })), "{open:?}");
    bind(&|settings| {
        settings.address = "0.0.0.0:0".parse().unwrap();
        settings.allow_plaintext = true;
    })
    .unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("x.yaml");
    let missing = bind(&|settings| settings.access.rules = Some(file.clone())).unwrap_err();
    assert!(missing.to_string().contains("x.yaml"), "{missing}");
    std::fs::write(&file, "rules:\n- identities: []\n  actions: [read]\n").unwrap();
    let wrong = bind(&|settings| settings.access.rules = Some(file.clone())).unwrap_err();
    assert!(wrong.to_string().contains("rules[0].identities"), "{wrong}");
}
