//! Logins, tokens and rules.

use crate::harness::{Server, eventually};
use pilotfish_identity::{Authenticator, Call, Proof, Unproven};
use pilotfish_nacos_wire::Payload;
use serde_json::{Value, json};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

const SHOP: &str = "0123456789abcdef";
const READER: &str = "fedcba9876543210";

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("the folder can be written");
}

async fn server(folder: &TempDir) -> Server {
    let (tokens, rules) = (folder.path().join("tokens.yaml"), folder.path().join("rules.yaml"));
    write(
        &tokens,
        &format!("tokens:\n- {{name: shop, token: {SHOP}}}\n- {{name: reader, token: {READER}}}\n"),
    );
    write(
        &rules,
        "rules:\n- {identities: [token/shop], services: [\"*.nacos\"], actions: [register, deregister, read]}\n\
         - {identities: [token/reader], services: [web.default-group.public.nacos], actions: [read]}\n",
    );
    Server::with(|settings| {
        (settings.access.tokens, settings.access.rules) = (Some(tokens), Some(rules));
    })
    .await
}

#[tokio::test]
async fn a_login_gives_the_token_that_calls_need() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let server = server(&folder).await;
    let form = [("content-type", "application/x-www-form-urlencoded")];
    for path in ["/v1/auth/login", "/v1/auth/users/login", "/v3/auth/user/login"] {
        let answer = server.send("POST", path, &form, &format!("username=any&password={SHOP}")).await;
        let login = answer.json();
        assert_eq!((&login["accessToken"], &login["tokenTtl"]), (&json!(SHOP), &json!(18_000)), "{path}");
        let answer = server.send("POST", path, &form, "username=any&password=wrong-wrong-wrong").await;
        assert_eq!(answer.status, 403, "{answer:?}");
    }
    let web = "serviceName=web&ip=10.0.0.1&port=80";
    let register = format!("/v1/ns/instance?{web}");
    let answer = server.call("POST", &register).await;
    assert!(answer.status == 403 && !answer.head.contains("www-authenticate"), "{answer:?}");
    assert_eq!(server.call("POST", &format!("/v2/ns/instance?{web}")).await.json()["code"], 10_001);
    assert_eq!(server.call("POST", &format!("{register}&accessToken={SHOP}")).await.status, 200);
    assert_eq!(server.send("POST", &register, &[("accessToken", SHOP)], "").await.status, 200);
    let bearer = format!("Bearer {SHOP}");
    assert_eq!(server.send("POST", &register, &[("authorization", &bearer)], "").await.status, 200);
    let in_form = format!("{web}&accessToken={SHOP}");
    assert_eq!(server.send("POST", "/v1/ns/instance", &form, &in_form).await.status, 200);
    for open in ["/v1/ns/operator/metrics", "/v1/console/server/state"] {
        assert_eq!(server.call("GET", open).await.status, 200, "{open}");
    }
}

#[tokio::test]
async fn a_client_gets_what_its_rules_allow() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let server = server(&folder).await;
    for name in ["web", "pay"] {
        let path = format!("/v1/ns/instance?serviceName={name}&ip=10.0.0.1&port=80");
        assert_eq!(server.call("POST", &format!("{path}&accessToken={READER}")).await.status, 403);
        assert_eq!(server.call("POST", &format!("{path}&accessToken={SHOP}")).await.status, 200);
    }
    let get = async |path: &str, token: &str| {
        server.call("GET", &format!("/v1/ns/{path}accessToken={token}")).await
    };
    assert_eq!(get("service/list?", SHOP).await.json()["count"], 2);
    assert_eq!(get("service/list?", READER).await.json(), json!({"count": 1, "doms": ["web"]}));
    assert_eq!(get("instance/list?serviceName=web&", READER).await.status, 200);
    assert_eq!(get("instance/list?serviceName=pay&", READER).await.status, 403);
}

#[tokio::test]
async fn requests_on_a_connection_have_their_own_tokens() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let server = server(&folder).await;
    let mut client = server.connect().await;
    let mut stream = client.set_up().await;
    let web = json!({"serviceName": "web", "groupName": "DEFAULT_GROUP", "subscribe": true});
    let (kind, answer) = client.ask("SubscribeServiceRequest", &web).await;
    assert_eq!((&*kind, &answer["errorCode"]), ("ErrorResponse", &json!(403)), "{answer}");
    client.token = Some(READER);
    let (kind, _) = client.ask("SubscribeServiceRequest", &web).await;
    assert_eq!(kind, "SubscribeServiceResponse");
    let pay = json!({"serviceName": "pay", "groupName": "DEFAULT_GROUP", "subscribe": true});
    assert_eq!(client.ask("SubscribeServiceRequest", &pay).await.1["errorCode"], 403);
    let instance = json!({
        "serviceName": "web", "groupName": "DEFAULT_GROUP", "type": "registerInstance",
        "instance": {"ip": "10.0.0.1", "port": 80},
    });
    assert_eq!(client.ask("InstanceRequest", &instance).await.1["errorCode"], 403);
    let path = format!("/v1/ns/instance?serviceName=web&ip=10.0.0.2&port=80&accessToken={SHOP}");
    assert_eq!(server.call("POST", &path).await.status, 200);
    stream.until(&["10.0.0.2:80"]).await;

    // A token that is withdrawn ends the stream.
    write(&folder.path().join("tokens.yaml"), &format!("tokens:\n- {{name: shop, token: {SHOP}}}\n"));
    eventually("the token is refused", async || {
        let payload = Payload::new("ServiceListRequest", &json!({}), client.token).unwrap();
        let answer: Value = client.unary("/Request/request", payload).await.unwrap().content().unwrap();
        // Or its stream has ended already.
        if matches!(answer["errorCode"].as_i64(), Some(403 | 301)) { Ok(()) } else { Err(answer) }
    })
    .await;
    let path = format!("/v1/ns/instance?serviceName=web&ip=10.0.0.3&port=80&accessToken={SHOP}");
    assert_eq!(server.call("POST", &path).await.status, 200);
    let ended = stream.next().await.unwrap_err();
    assert_eq!(ended.code(), tonic::Code::Unauthenticated, "{ended:?}");
}

/// Authenticator whose next proofs expire at this time.
struct Until(Arc<Mutex<SystemTime>>);

impl Authenticator for Until {
    fn name(&self) -> &'static str {
        "until"
    }

    fn authenticate<'a>(
        &'a self,
        _: &'a Call,
    ) -> Pin<Box<dyn Future<Output = Result<Proof, Unproven>> + Send + 'a>> {
        let (identities, until) = (vec!["shop".to_owned()], *self.0.lock().expect("nothing panics"));
        Box::pin(std::future::ready(Ok(Proof { identities, cluster: None, until: Some(until) })))
    }
}

#[tokio::test]
async fn a_silent_stream_ends_when_its_client_expires_and_instances_stay() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let rules = folder.path().join("rules.yaml");
    write(&rules, "rules:\n- {identities: [\"*\"], services: [\"*.nacos\"], actions: [register, read]}\n");
    let until = Arc::new(Mutex::new(SystemTime::now() + Duration::from_secs(3_600)));
    let server = Server::with(|settings| {
        settings.access.rules = Some(rules);
        settings.authenticators = vec![Arc::new(Until(Arc::clone(&until)))];
    })
    .await;
    let mut client = server.connect().await;
    client.token = Some(SHOP);
    let mut stream = client.set_up().await;
    let web = json!({
        "serviceName": "web", "groupName": "DEFAULT_GROUP", "type": "registerInstance",
        "instance": {"ip": "10.0.0.1", "port": 80},
    });
    assert_eq!(client.ask("InstanceRequest", &web).await.0, "InstanceResponse");
    *until.lock().unwrap() = SystemTime::now();
    client.ask("ServiceListRequest", &json!({})).await;
    let ended = stream.next().await.unwrap_err();
    assert_eq!(ended.code(), tonic::Code::Unavailable, "{ended:?}");
    let (_, answer) = client.ask("HealthCheckRequest", &json!({})).await;
    assert_eq!(answer["errorCode"], 301, "it has to connect again: {answer}");
    let key = server.registrar.services().pop().expect("it has a service");
    assert_eq!(server.registrar.service(&key).len(), 1, "its client comes back");
}
