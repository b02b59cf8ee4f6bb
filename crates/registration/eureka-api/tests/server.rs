//! The API over HTTP, with a store in memory.

#![allow(clippy::unwrap_used, reason = "a test fails this way")]

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use pilotfish_eureka_api::{EurekaApi, EurekaSettings};
use pilotfish_registration::testing::{DOMAIN, MemoryStore, registration};
use pilotfish_registration::{Caller, Expected, Register, Registrar, RegistrarSettings, Registration};
use pilotfish_registration_server::{RegistrationServer, ServerSettings, Silent};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// A server that ends with the test.
struct Server {
    address: SocketAddr,
    registrar: Registrar,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Status and body of a response.
#[derive(Debug, PartialEq)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Server {
    async fn start() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut ServerSettings)) -> Self {
        let (store, events) = MemoryStore::open();
        let (registrar, driver) = Registrar::new(Arc::new(store), events, RegistrarSettings::default());
        let driver = tokio::spawn(driver.run());
        assert!(registrar.ready().await);
        let mut settings = ServerSettings::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        change(&mut settings);
        let api = EurekaApi::new(registrar.clone(), EurekaSettings::default());
        let server = RegistrationServer::new(registrar.clone(), settings, Arc::new(Silent));
        let bound = server.with_adapter(Arc::new(api)).bind().unwrap();
        let address = bound.local_addr();
        let server = tokio::spawn(bound.run(std::future::pending()));
        Self { address, registrar, tasks: [driver, server] }
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut head = format!("{method} {path} HTTP/1.0\r\nhost: {}\r\n", self.address);
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
        let mut io = TcpStream::connect(self.address).await.unwrap();
        // A server that answers early may close before it has read everything.
        let _ = io.write_all(head.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = io.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect("it has a head");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    async fn status(&self, method: &str, path: &str) -> u16 {
        self.send(method, path, &[], "").await.status
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        let answer = self.send("GET", path, &[("accept", "application/json")], "").await;
        (answer.status, serde_json::from_str(&answer.body).unwrap_or(Value::Null))
    }

    async fn register(&self, app: &str, id: &str) -> u16 {
        self.post(app, &instance(app, id)).await.status
    }

    async fn post(&self, app: &str, instance: &Value) -> Answer {
        let body = json!({ "instance": instance }).to_string();
        self.send("POST", &format!("/eureka/apps/{app}"), &[("content-type", "application/json")], &body)
            .await
    }
}

fn instance(app: &str, id: &str) -> Value {
    json!({"instanceId": id, "app": app, "hostName": "h", "ipAddr": "10.0.0.1", "status": "UP",
        "port": {"$": 8080, "@enabled": "true"}, "securePort": {"$": 443, "@enabled": "false"},
        "vipAddress": app.to_lowercase(), "secureVipAddress": "secure", "countryId": 1,
        "dataCenterInfo": {"@class": "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo", "name": "MyOwn"},
        "leaseInfo": {"renewalIntervalInSecs": 30, "durationInSecs": 90}, "metadata": {"zone": "z1"},
        "lastDirtyTimestamp": "100"})
}

/// The instances of an answer as `action app/id status`, and its hash.
fn listed(answer: &Value) -> (String, Vec<String>) {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let applications = &answer["applications"];
    let instances = applications["application"].as_array().unwrap().iter().flat_map(|application| {
        application["instance"].as_array().unwrap().iter().map(move |instance| {
            let (name, id) = (text(&application["name"]), text(&instance["instanceId"]));
            format!("{} {name}/{id} {}", text(&instance["actionType"]), text(&instance["status"]))
        })
    });
    (text(&applications["apps__hashcode"]), instances.collect())
}

#[tokio::test]
async fn an_instance_registers_beats_and_cancels() {
    let server = Server::start().await;
    assert_eq!(server.status("PUT", "/eureka/apps/ORDERS/o-1").await, 404, "it has to register");
    assert_eq!(server.register("ORDERS", "o-1").await, 204);
    assert_eq!(server.status("PUT", "/eureka/apps/ORDERS/o-1?status=UP&lastDirtyTimestamp=100").await, 200);
    let newer = "/eureka/v2/apps/ORDERS/o-1?lastDirtyTimestamp=101";
    assert_eq!(server.status("PUT", newer).await, 404, "it has changed since it registered");

    let all = server.registrar.services();
    assert_eq!(all.iter().map(ToString::to_string).collect::<Vec<_>>(), ["default/orders.eureka"]);
    let (status, found) = server.get("/eureka/apps/ORDERS/o-1").await;
    assert_eq!((status, &found["instance"]["port"]), (200, &json!({"$": 8080, "@enabled": "true"})));
    assert_eq!(found["instance"]["leaseInfo"], instance("", "")["leaseInfo"]);
    assert_eq!(found["instance"]["dataCenterInfo"], instance("", "")["dataCenterInfo"]);
    assert_eq!(server.get("/eureka/instances/o-1").await, (200, found));

    assert_eq!(server.status("DELETE", "/eureka/apps/ORDERS/o-1").await, 200);
    assert_eq!(server.status("DELETE", "/eureka/apps/ORDERS/o-1").await, 404);
    assert_eq!(server.get("/eureka/apps/ORDERS").await.0, 404);
    assert_eq!(listed(&server.get("/eureka/apps/").await.1), (String::new(), vec![]));
}

#[tokio::test]
async fn a_delta_and_its_hash_lead_to_what_there_is() {
    let server = Server::start().await;
    server.register("A", "1").await;
    let full = listed(&server.get("/eureka/apps").await.1);
    assert_eq!(full, ("UP_1_".to_owned(), vec!["ADDED A/1 UP".to_owned()]));
    server.register("A", "2").await;
    server.register("B", "1").await;
    let delta = listed(&server.get("/eureka/apps/delta").await.1);
    assert_eq!(delta.0, "UP_3_");
    assert!(delta.1.ends_with(&["ADDED A/2 UP".to_owned(), "ADDED B/1 UP".to_owned()]), "{delta:?}");
    let mut down = instance("B", "1");
    down["status"] = "DOWN".into();
    server.post("B", &down).await;
    server.status("DELETE", "/eureka/apps/A/2").await;
    let delta = listed(&server.get("/eureka/apps/delta").await.1);
    assert_eq!(delta.0, "DOWN_1_UP_1_");
    let expected = ["DELETED A/2 UP".to_owned(), "MODIFIED B/1 DOWN".to_owned()];
    assert!(delta.1.ends_with(&expected), "{delta:?}");
    let full = listed(&server.get("/eureka/apps").await.1);
    assert_eq!(
        full,
        ("DOWN_1_UP_1_".to_owned(), vec!["ADDED A/1 UP".to_owned(), "ADDED B/1 DOWN".to_owned()])
    );
}

#[tokio::test]
async fn an_operators_status_outlives_registrations() {
    let server = Server::start().await;
    server.register("A", "1").await;
    let path = "/eureka/apps/A/1/status";
    assert_eq!(server.status("PUT", &format!("{path}?value=OUT_OF_SERVICE")).await, 200);
    assert_eq!(server.register("A", "1").await, 204);
    let status = async || {
        let (_, found) = server.get("/eureka/apps/A/1").await;
        let text = |name: &str| found["instance"][name].as_str().unwrap().to_owned();
        (text("status"), text("overriddenStatus"))
    };
    assert_eq!(status().await, ("OUT_OF_SERVICE".to_owned(), "OUT_OF_SERVICE".to_owned()));
    assert_eq!(server.status("DELETE", &format!("{path}?value=UP")).await, 200);
    assert_eq!(status().await, ("UP".to_owned(), "UNKNOWN".to_owned()));
    assert_eq!(server.status("PUT", &format!("{path}?value=NONE")).await, 400);
    assert_eq!(server.status("PUT", "/eureka/apps/A/2/status?value=UP").await, 404);

    assert_eq!(server.status("PUT", "/eureka/apps/A/1/metadata?version=v2").await, 200);
    let (_, found) = server.get("/eureka/apps/A/1").await;
    assert_eq!(found["instance"]["metadata"], json!({"version": "v2", "zone": "z1"}));
}

#[tokio::test]
async fn an_instance_of_another_protocol_is_not_changed() {
    let server = Server::start().await;
    let web = Registration { service: "web.eureka".to_owned(), ..registration("web-1") };
    let caller = Caller { identity: "anonymous".into(), may_take_over: false };
    let item = Register { instance: web.validate(DOMAIN).unwrap(), expected: Expected::Any };
    let registered = server.registrar.register(&caller, vec![item]).await;
    assert!(registered.iter().all(Result::is_ok), "{registered:?}");
    for path in ["status?value=DOWN", "metadata?version=v2"] {
        let answer = server.send("PUT", &format!("/eureka/apps/WEB/web-1/{path}"), &[], "").await;
        assert!(answer.status == 400 && answer.body.contains("another protocol"), "{answer:?}");
    }
    assert_eq!(listed(&server.get("/eureka/apps").await.1).1, ["ADDED WEB/web-1 UP"]);
}

#[tokio::test]
async fn virtual_addresses_select_instances() {
    let server = Server::start().await;
    server.register("A", "1").await;
    server.register("B", "1").await;
    assert_eq!(listed(&server.get("/eureka/vips/b").await.1).1, ["ADDED B/1 UP"]);
    assert_eq!(listed(&server.get("/eureka/svips/secure").await.1).1.len(), 2);
    assert_eq!(server.get("/eureka/vips/c").await.0, 404);
}

#[tokio::test]
async fn xml_registers_and_is_the_answer_without_json() {
    let server = Server::start().await;
    let body = "<instance><instanceId>1</instanceId><app>A</app><hostName>h</hostName><ipAddr>10.0.0.1</ipAddr>\
        <port enabled=\"true\">80</port><metadata><text>a &lt; b</text></metadata></instance>";
    let sent = server.send("POST", "/eureka/apps/A", &[("content-type", "application/xml")], body).await;
    assert_eq!(sent.status, 204, "{sent:?}");
    let answer = server.send("GET", "/eureka/apps", &[], "").await;
    assert!(answer.head.contains("content-type: application/xml"), "{answer:?}");
    for part in [
        "<applications><versions__delta>1</versions__delta><apps__hashcode>UP_1_</apps__hashcode>",
        "<application><name>A</name><instance><instanceId>1</instanceId>",
        "<port enabled=\"true\">80</port>",
        "<text>a &lt; b</text>",
        "</instance></application></applications>",
    ] {
        assert!(answer.body.contains(part), "{part}: {answer:?}");
    }
    let bomb = "<!DOCTYPE x [<!ENTITY a \"a\">]><instance><app>&a;</app></instance>";
    let sent = server.send("POST", "/eureka/apps/A", &[("content-type", "application/xml")], bomb).await;
    assert_eq!(sent.status, 400, "{sent:?}");
}

#[tokio::test]
async fn wrong_requests_are_refused_in_words() {
    let server = Server::start().await;
    let no_port = json!({"app": "A", "instanceId": "1", "ipAddr": "10.0.0.1"});
    let answer = server.post("A", &no_port).await;
    assert_eq!((answer.status, &*answer.body), (400, "instance: neither port nor securePort is enabled"));
    assert!(answer.head.contains("content-type: text/plain"), "{answer:?}");
    assert_eq!(server.post("B", &instance("A", "1")).await.status, 400, "another application");
    assert_eq!(server.status("GET", "/apps").await, 404);
    assert_eq!(server.status("PATCH", "/eureka/apps/A/1").await, 400);
    let long = "x".repeat(20_000);
    let mut large = instance("A", "1");
    large["metadata"]["text"] = long.into();
    let answer = server.post("A", &large).await;
    assert!(answer.status == 400 && answer.body.contains("16384"), "{answer:?}");
}

#[tokio::test]
async fn another_server_replicates_in_batches() {
    let server = Server::start().await;
    let item = |action: &str, id: &str| {
        json!({"appName": "A", "id": id, "action": action, "lastDirtyTimestamp": 100, "status": "UP",
            "overriddenStatus": "UNKNOWN"})
    };
    let batch = async |items: Vec<Value>| {
        let body = json!({ "replicationList": items }).to_string();
        let path = "/eureka/peerreplication/batch/";
        let answer = server.send("POST", path, &[("content-type", "application/json")], &body).await;
        let answer: Value = serde_json::from_str(&answer.body).expect(&answer.body);
        let codes = answer["responseList"].as_array().unwrap().iter();
        codes.map(|item| item["statusCode"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(batch(vec![item("Heartbeat", "1"), item("Cancel", "2")]).await, [404, 404]);
    let mut register = item("Register", "1");
    register["instanceInfo"] = instance("A", "1");
    let items = vec![json!(7), register, item("Heartbeat", "1"), item("Nothing", "1")];
    assert_eq!(batch(items).await, [400, 200, 200, 400]);
    let mut older = item("Heartbeat", "1");
    older["lastDirtyTimestamp"] = 99.into();
    let mut order = item("StatusUpdate", "1");
    order["status"] = "OUT_OF_SERVICE".into();
    assert_eq!(batch(vec![older, order]).await, [409, 200]);
    assert_eq!(listed(&server.get("/eureka/apps").await.1).0, "OUT_OF_SERVICE_1_");
    assert_eq!(batch(vec![item("DeleteStatusOverride", "1")]).await, [200]);
    assert_eq!(listed(&server.get("/eureka/apps").await.1).0, "UP_1_");
    let many = (0..1_001).map(|id| item("Heartbeat", &id.to_string())).collect::<Vec<_>>();
    let body = json!({ "replicationList": many }).to_string();
    let answer = server.send("POST", "/eureka/peerreplication/batch/", &[], &body).await;
    assert_eq!(answer.status, 429, "{answer:?}");
}

#[tokio::test]
async fn an_instance_without_heartbeats_is_gone_after_its_lease() {
    let server = Server::start().await;
    let mut short = instance("A", "1");
    short["leaseInfo"]["durationInSecs"] = 1.into();
    assert_eq!(server.post("A", &short).await.status, 204);
    server.register("A", "2").await;
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let (hash, listed) = listed(&server.get("/eureka/apps").await.1);
        if listed == ["ADDED A/2 UP"] {
            assert_eq!(hash, "UP_1_");
            break;
        }
        assert!(Instant::now() < deadline, "{listed:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (_, delta) = server.get("/eureka/apps/delta").await;
    assert!(listed(&delta).1.contains(&"DELETED A/1 UP".to_owned()), "{delta}");
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("the folder can be written");
}

#[tokio::test]
async fn the_password_is_a_token_and_rules_apply() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (tokens, rules) = (folder.path().join("tokens.yaml"), folder.path().join("rules.yaml"));
    write(
        &tokens,
        "tokens:\n- {name: shop, token: 0123456789abcdef}\n- {name: ops, token: fedcba9876543210}\n",
    );
    write(
        &rules,
        "rules:\n- {identities: [token/shop], services: [\"*.eureka\"], actions: [register, deregister]}\n\
         - {identities: [token/shop], services: [orders.eureka], actions: [read]}\n\
         - {identities: [token/ops], services: [\"*.eureka\"], actions: [register, read], instances: any}\n",
    );
    let server = Server::with(|settings| {
        (settings.access.tokens, settings.access.rules) = (Some(tokens), Some(rules));
    })
    .await;
    let basic = |password: &str| format!("Basic {}", BASE64_STANDARD.encode(format!("user:{password}")));
    let (shop, ops) = (basic("0123456789abcdef"), basic("fedcba9876543210"));
    let send = async |method: &str, path: &str, credential: &str, body: &str| {
        let headers = [("authorization", credential), ("accept", "application/json")];
        server.send(method, path, &headers, body).await
    };
    let of = |app: &str| json!({ "instance": instance(app, "1") }).to_string();
    let answer = server.send("GET", "/eureka/apps", &[], "").await;
    assert_eq!(answer.status, 401, "{answer:?}");
    assert!(answer.head.contains("www-authenticate: basic"), "{answer:?}");
    assert_eq!(send("GET", "/eureka/apps", &basic("wrong-wrong-wrong"), "").await.status, 401);
    for app in ["ORDERS", "CART"] {
        assert_eq!(send("POST", &format!("/eureka/apps/{app}"), &shop, &of(app)).await.status, 204);
    }
    let seen = send("GET", "/eureka/apps", &shop, "").await;
    let seen = listed(&serde_json::from_str(&seen.body).unwrap());
    assert_eq!(seen, ("UP_1_".to_owned(), vec!["ADDED ORDERS/1 UP".to_owned()]), "what it may read");
    let found = send("GET", "/eureka/instances/1", &shop, "").await;
    assert!(found.status == 200 && found.body.contains("ORDERS"), "{found:?}");

    // An operator changes an instance of another owner, which stays its own.
    let path = "/eureka/apps/ORDERS/1/status?value=OUT_OF_SERVICE";
    assert_eq!(send("PUT", path, &shop, "").await.status, 200);
    assert_eq!(send("PUT", path, &ops, "").await.status, 200);
    assert_eq!(send("PUT", "/eureka/apps/ORDERS/1", &shop, "").await.status, 200, "the client still beats");
    assert_eq!(send("DELETE", "/eureka/apps/ORDERS/1", &ops, "").await.status, 403);
    assert_eq!(send("DELETE", "/eureka/apps/ORDERS/1", &shop, "").await.status, 200);
}

#[tokio::test]
async fn a_client_takes_no_name_of_an_application_that_it_may_not_register() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (tokens, rules) = (folder.path().join("tokens.yaml"), folder.path().join("rules.yaml"));
    write(
        &tokens,
        "tokens:\n- {name: all, token: 0123456789abcdef}\n- {name: cart, token: fedcba9876543210}\n",
    );
    write(
        &rules,
        "rules:\n- {identities: [token/all], services: [\"*.eureka\"], actions: [register]}\n\
         - {identities: [token/cart], services: [cart.eureka], actions: [register]}\n",
    );
    let server = Server::with(|settings| {
        (settings.access.tokens, settings.access.rules) = (Some(tokens), Some(rules));
    })
    .await;
    let send = async |method: &str, path: &str, password: &str, body: &str| {
        let credential = format!("Basic {}", BASE64_STANDARD.encode(format!("user:{password}")));
        server.send(method, path, &[("authorization", &*credential)], body).await
    };
    let (all, cart) = ("0123456789abcdef", "fedcba9876543210");
    let many = (0..65).map(|number| format!("cart-{number}")).collect::<Vec<_>>().join(",");
    for (vips, secure_vips, expected) in [
        ("cart", "CART:443", 204),
        ("", "${cart.vip}", 204),
        ("cart,orders:80", "", 403),
        ("cart", "Orders", 403),
        (&*many, "", 400),
    ] {
        let mut given = instance("CART", "1");
        given["vipAddress"] = vips.into();
        given["secureVipAddress"] = secure_vips.into();
        let body = json!({ "instance": given }).to_string();
        let answer = send("POST", "/eureka/apps/CART", cart, &body).await;
        assert_eq!(answer.status, expected, "{vips} {secure_vips}: {answer:?}");
    }

    // Whether an instance is there is nothing for those who may not change it.
    let body = json!({ "instance": instance("ORDERS", "1") }).to_string();
    assert_eq!(send("POST", "/eureka/apps/ORDERS", all, &body).await.status, 204);
    for (id, password, expected) in [("1", cart, 403), ("2", cart, 403), ("1", all, 200), ("2", all, 404)] {
        let path = format!("/eureka/apps/ORDERS/{id}/status?value=DOWN");
        assert_eq!(send("PUT", &path, password, "").await.status, expected, "{path} {password}");
    }
}
