//! The API over HTTP, with a store in memory.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails this way")]

use pilotfish_consul_api::{ConsulApi, ConsulSettings};
use pilotfish_registration::testing::{DOMAIN, MemoryStore, registration};
use pilotfish_registration::{
    Caller, Expected, InstanceKey, Register, Registrar, RegistrarSettings, Registration, StoreEvents,
    store_events,
};
use pilotfish_registration_server::{RegistrationServer, ServerSettings, Silent};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A server that ends with the test.
struct Server {
    address: SocketAddr,
    registrar: Registrar,
    /// Begins the shutdown.
    stop: watch::Sender<bool>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Status, headers and body of a response.
#[derive(Debug, PartialEq)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn index(&self) -> u64 {
        let line = self.head.lines().find_map(|line| line.strip_prefix("x-consul-index: "));
        line.unwrap_or_else(|| panic!("no index: {self:?}")).parse().unwrap()
    }
}

impl Server {
    async fn start() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut ServerSettings)) -> Self {
        let (store, events) = MemoryStore::open();
        let server = Self::unread(store, events, change);
        assert!(server.registrar.ready().await);
        server
    }

    /// The same before the store was read.
    fn unread(store: MemoryStore, events: StoreEvents, change: impl FnOnce(&mut ServerSettings)) -> Self {
        let (registrar, driver) = Registrar::new(Arc::new(store), events, RegistrarSettings::default());
        let driver = tokio::spawn(driver.run());
        let mut settings = ServerSettings::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        change(&mut settings);
        let api = ConsulApi::new(registrar.clone(), ConsulSettings::default());
        let server = RegistrationServer::new(registrar.clone(), settings, Arc::new(Silent));
        let bound = server.with_adapter(Arc::new(api)).bind().unwrap();
        let address = bound.local_addr();
        let (stop, mut stopping) = watch::channel(false);
        let server = tokio::spawn(bound.run(async move {
            let _ = stopping.wait_for(|stopping| *stopping).await;
        }));
        Self { address, registrar, stop, tasks: [driver, server] }
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let io = TcpStream::connect(self.address).await.unwrap();
        self.send_on(io, method, path, headers, body).await
    }

    async fn send_on(
        &self,
        mut io: TcpStream,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut head = format!("{method} {path} HTTP/1.0\r\nhost: {}\r\n", self.address);
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
        // A server that answers early may close before it has read everything.
        let _ = io.write_all(head.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = io.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect("it has a head");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    async fn put(&self, path: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send("PUT", &format!("/v1/agent/{path}"), &[], &body).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.send("GET", &format!("/v1/{path}"), &[], "").await
    }

    async fn register(&self, body: Value) {
        let answer = self.put("service/register", &body).await;
        assert_eq!((answer.status, &*answer.body), (200, ""), "{body}");
    }

    /// Ids and worst statuses of a service's instances.
    async fn health(&self, query: &str) -> Vec<String> {
        let answer = self.get(&format!("health/service/{query}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let worst = |entry: &Value| {
            let statuses = entry["Checks"].as_array().unwrap().iter();
            let statuses: Vec<_> = statuses.map(|check| check["Status"].as_str().unwrap()).collect();
            let worst = ["critical", "warning"].into_iter().find(|status| statuses.contains(status));
            format!("{} {}", entry["Service"]["ID"].as_str().unwrap(), worst.unwrap_or("passing"))
        };
        answer.json().as_array().unwrap().iter().map(worst).collect()
    }

    async fn until_health(&self, query: &str, expected: &[&str]) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let found = self.health(query).await;
            if found == expected {
                return;
            }
            assert!(Instant::now() < deadline, "{found:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn web(id: &str, check: &Value) -> Value {
    json!({"Name": "web", "ID": id, "Address": "10.0.0.1", "Port": 8080, "Tags": ["v1", "track|blue"],
        "Meta": {"protocol": "http"}, "Check": check})
}

#[tokio::test]
async fn a_service_with_a_ttl_is_critical_until_it_reports_and_after_its_lease() {
    let server = Server::start().await;
    let check = |ttl: &str| json!({"TTL": ttl, "DeregisterCriticalServiceAfter": "1m"});
    server.register(web("web-1", &check("1h"))).await;
    assert_eq!(server.health("web").await, ["web-1 critical"], "nothing was reported");
    assert!(server.health("web?passing").await.is_empty());
    assert_eq!(server.put("check/pass/service:web-1", &Value::Null).await.status, 200);
    assert_eq!(server.health("web?passing=1").await, ["web-1 passing"]);
    // What was reported of a check stays when its service is registered again.
    server.register(web("web-1", &check("1s"))).await;
    server.until_health("web", &["web-1 critical"]).await;
    let checks = server.get("health/checks/web").await.json();
    assert_eq!(checks[0]["Output"], "TTL expired");
    let key = InstanceKey::new("default", "web.service.consul", "web-1@127.0.0.1");
    let kept = server.registrar.get(&key).unwrap().record.instance.remove_after;
    assert_eq!(kept, Some(Duration::from_secs(60)));

    server.register(web("web-1", &check("1h"))).await;
    assert_eq!(server.health("web").await, ["web-1 critical"], "a new registration is no report");
    assert_eq!(server.put("check/pass/service:web-1", &Value::Null).await.status, 200);
    assert_eq!(server.health("web").await, ["web-1 passing"]);
    assert_eq!(server.put("service/deregister/web-1", &Value::Null).await.status, 200);
    assert!(server.health("web").await.is_empty());
    for path in
        ["service/deregister/web-1", "service/maintenance/web-1?enable=true", "check/pass/service:web-1"]
    {
        let answer = server.put(path, &Value::Null).await;
        assert!(answer.status == 404 && answer.body.starts_with("Unknown"), "{path}: {answer:?}");
    }
}

/// A client that was told of no service would register it again.
#[tokio::test]
async fn calls_before_the_store_was_read_are_to_be_tried_again() {
    let (store, _) = MemoryStore::open();
    let (_sender, events) = store_events();
    let server = Server::unread(store, events, |_| {});
    for path in [
        "check/pass/service:web-1",
        "check/fail/service:web-1",
        "service/deregister/web-1",
        "service/maintenance/web-1?enable=true",
    ] {
        assert_eq!(server.put(path, &Value::Null).await.status, 503, "{path}");
    }
    let update = server.put("check/update/service:web-1", &json!({"Status": "passing"})).await;
    assert_eq!(update.status, 503);
    assert_eq!(server.get("health/service/web").await.status, 503);
}

#[tokio::test]
async fn reports_and_maintenance_decide_the_status() {
    let server = Server::start().await;
    server.register(web("web-1", &json!({"TTL": "1h", "Status": "passing"}))).await;
    let healthy = || {
        let key = InstanceKey::new("default", "web.service.consul", "web-1@127.0.0.1");
        server.registrar.get(&key).unwrap().record.instance.healthy
    };
    for (path, body, expected, is_healthy) in [
        ("check/warn/service:web-1?note=slow", Value::Null, "web-1 warning", true),
        ("check/fail/service:web-1?note=disk", Value::Null, "web-1 critical", false),
        ("check/update/service:web-1", json!({"Status": "passing", "Output": "fine"}), "web-1 passing", true),
        ("service/maintenance/web-1?enable=true&reason=update", Value::Null, "web-1 critical", false),
        ("check/pass/service:web-1", Value::Null, "web-1 critical", false),
        ("service/maintenance/web-1?enable=False", Value::Null, "web-1 passing", true),
    ] {
        let answer = server.put(path, &body).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        assert_eq!(server.health("web").await, [expected], "{path}");
        assert_eq!(healthy(), is_healthy, "{path}");
    }
    let checks = server.get("agent/checks").await.json();
    assert_eq!(checks["service:web-1"]["Output"], "fine", "the note of the last change of status");
    for (path, body, part) in [
        ("check/update/service:web-1", json!({"Status": "good"}), "Status: it is none of"),
        ("service/maintenance/web-1", Value::Null, "enable: it is missing"),
    ] {
        let answer = server.put(path, &body).await;
        assert!(answer.status == 400 && answer.body.contains(part), "{path}: {answer:?}");
    }
}

#[tokio::test]
async fn answers_have_consuls_form() {
    let server = Server::start().await;
    server.register(web("web-1", &Value::Null)).await;
    server.register(json!({"name": "Cart", "port": 80})).await;
    let services = server.get("catalog/services").await;
    assert_eq!(services.json(), json!({"web": ["track|blue", "v1"], "cart": []}));
    assert!(services.head.contains("x-consul-knownleader: true"), "{services:?}");
    let found = server.get("catalog/service/web").await.json();
    let entry = &found[0];
    assert_eq!(
        [&entry["ServiceID"], &entry["ServiceAddress"], &entry["Node"], &entry["Datacenter"]],
        ["web-1", "10.0.0.1", "127.0.0.1", "dc1"]
    );
    assert_eq!(entry["ServiceWeights"], json!({"Passing": 1, "Warning": 1}));
    let cart = &server.get("health/service/CART").await.json()[0];
    assert_eq!([&cart["Service"]["ID"], &cart["Service"]["Address"]], ["Cart", ""]);
    assert_eq!([&cart["Node"]["Address"], &cart["Service"]["Service"]], ["127.0.0.1", "cart"]);
    let own = server.get("agent/services").await.json();
    assert_eq!(own.as_object().unwrap().keys().collect::<Vec<_>>(), ["Cart", "web-1"]);
    assert_eq!(server.get("agent/service/web-1").await.json(), own["web-1"]);
    assert_eq!(server.get("agent/self").await.json()["Config"]["NodeName"], "127.0.0.1");
    assert_eq!(server.get("status/leader").await.json(), json!("127.0.0.1:8300"));
    assert_eq!(server.get("catalog/datacenters").await.json(), json!(["dc1"]));
    assert_eq!(server.get("catalog/nodes").await.json()[0]["Node"], "127.0.0.1");
    assert_eq!(server.get("health/state/any").await.json(), json!([]), "no service has a check");

    // One agent has one service of an id.
    server.register(json!({"Name": "basket", "ID": "Cart", "Port": 80})).await;
    assert_eq!(server.get("catalog/service/cart").await.json(), json!([]));
    assert_eq!(server.health("basket").await, ["Cart passing"]);
}

#[tokio::test]
async fn queries_select_instances() {
    let server = Server::start().await;
    server.register(web("web-1", &json!({"TTL": "1h", "Status": "passing"}))).await;
    let mut green = web("web-2", &json!({"TTL": "1h"}));
    green["Tags"] = json!(["v2"]);
    server.register(green).await;
    for (query, expected) in [
        ("web?tag=v1", &["web-1 passing"][..]),
        ("web?tag=v1&tag=v2", &[]),
        ("web?tag=v2&passing=false", &["web-2 critical"]),
        ("web?filter=Service.ID+%3D%3D+%22web-2%22", &["web-2 critical"]),
        ("web?filter=v1+in+Service.Tags&near=_agent&stale", &["web-1 passing"]),
        ("web?filter=Service.ID+%3D%3D+%22%22", &[]),
        ("web?node-meta=rack:1", &[]),
        ("web?dc=dc1", &["web-1 passing", "web-2 critical"]),
        ("none", &[]),
    ] {
        assert_eq!(server.health(query).await, expected, "{query}");
    }
    let critical = server.get("health/state/critical").await.json();
    assert_eq!(critical.as_array().unwrap().len(), 1);
    assert_eq!(critical[0]["CheckID"], "service:web-2");
    for (path, part) in [
        ("health/service/web?filter=Service.ID+matches+x", "filter: there is no known operator"),
        ("catalog/service/web?filter=Service.ID+%3D%3D+x", "filter: \"Service.ID\" is no selector"),
        ("catalog/services?filter=x", "filter: names of services are not filtered"),
        ("health/service/web?index=x", "index: \"x\" is no index"),
        ("health/service/web?index=1&wait=soon", "wait: \"soon\""),
        ("health/service/web?dc=dc2", "No path to datacenter"),
    ] {
        let answer = server.get(path).await;
        assert!(answer.status == 400 && answer.body.contains(part), "{path}: {answer:?}");
    }
    assert_eq!(server.get("kv/x").await.status, 404);
    assert_eq!(server.send("DELETE", "/v1/agent/services", &[], "").await.status, 400);
}

#[tokio::test]
async fn a_blocking_query_ends_with_a_change_of_what_it_asks_for() {
    let server = Arc::new(Server::start().await);
    server.register(web("web-1", &json!({"TTL": "1h"}))).await;
    let paths = ["health/service/web", "catalog/services", "health/state/any", "health/service/none"];
    let mut indexes = Vec::new();
    for path in paths {
        indexes.push(server.get(path).await.index());
    }
    for (path, index) in paths.iter().zip(&indexes) {
        let same = server.get(&format!("{path}?index={index}&wait=10ms")).await;
        assert_eq!(same.index(), *index, "{path}: its time is over");
        let ahead = server.get(&format!("{path}?index={}&wait=10m", index + 1_000)).await;
        assert_eq!(ahead.index(), *index, "{path}: an index of another server does not wait");
    }
    let wait = |path: &'static str, index: u64| {
        let server = Arc::clone(&server);
        tokio::spawn(async move { server.get(&format!("{path}?index={index}&wait=10m")).await })
    };
    let (health, state) = (wait(paths[0], indexes[0]), wait(paths[2], indexes[2]));
    assert_eq!(server.put("check/pass/service:web-1", &Value::Null).await.status, 200);
    let (health, state) = (health.await.unwrap(), state.await.unwrap());
    assert!(health.index() > indexes[0] && state.index() > indexes[2]);
    assert_eq!(health.json()[0]["Checks"][0]["Status"], "passing");
    assert_eq!(server.get(paths[1]).await.index(), indexes[1], "names and tags are the same");

    let services = wait(paths[1], indexes[1]);
    server.register(json!({"Name": "cart", "Port": 80})).await;
    assert!(services.await.unwrap().json().get("cart").is_some());
    assert_eq!(server.get(paths[0]).await.index(), health.index(), "another service has changed");

    let gone = wait(paths[0], health.index());
    assert_eq!(server.put("service/deregister/web-1", &Value::Null).await.status, 200);
    let gone = gone.await.unwrap();
    assert_eq!((gone.json(), gone.index() > health.index()), (json!([]), true));
    server.register(web("web-1", &Value::Null)).await;
    assert!(server.get(paths[0]).await.index() > gone.index(), "it comes back with a later index");
}

#[tokio::test]
async fn waiting_queries_are_limited_and_end_with_the_server() {
    let server = Server::with(|settings| settings.limits.owner_streams = 1).await;
    let server = Arc::new(server);
    let path = "health/service/web";
    let index = server.get(path).await.index();
    let wait = {
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            loop {
                let answer = server.get(&format!("{path}?index={index}&wait=10m")).await;
                // The other query may be the one that waits.
                if answer.status != 429 {
                    return answer;
                }
            }
        })
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let second = server.get(&format!("{path}?index={index}&wait=1ms")).await;
        if second.status == 429 {
            assert!(second.body.contains("limit owner-streams"), "{second:?}");
            break;
        }
        assert!(second.status == 200 && Instant::now() < deadline, "{second:?}");
    }
    assert_eq!(server.get(path).await.status, 200, "a query that does not wait");
    server.stop.send_replace(true);
    assert_eq!(wait.await.unwrap().index(), index);
}

#[tokio::test]
async fn clients_of_two_machines_have_services_of_the_same_id() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let rules = folder.path().join("rules.yaml");
    write(
        &rules,
        "rules:\n- {identities: [\"*\"], services: [\"*.service.consul\"], actions: [register, deregister, read]}\n",
    );
    let server = Server::with(|settings| settings.access.rules = Some(rules)).await;
    let put_from = async |address: [u8; 4], path: &str, body: &Value| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((address, 0))).unwrap();
        let io = socket.connect(server.address).await.unwrap();
        server.send_on(io, "PUT", &format!("/v1/agent/service/{path}"), &[], &body.to_string()).await.status
    };
    let (one, two) = ([127, 0, 0, 2], [127, 0, 0, 3]);
    for address in [one, two] {
        assert_eq!(put_from(address, "register", &json!({"Name": "web", "Port": 80})).await, 200);
    }
    let nodes = async || {
        let found = server.get("health/service/web").await.json();
        let nodes = found.as_array().unwrap().iter().map(|entry| entry["Node"]["Address"].to_string());
        nodes.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(nodes().await, r#""127.0.0.2" "127.0.0.3""#);
    assert_eq!(put_from(one, "deregister/web", &Value::Null).await, 200);
    assert_eq!(nodes().await, r#""127.0.0.3""#);
    assert_eq!(put_from(one, "deregister/web", &Value::Null).await, 404);
    assert_eq!(server.put("service/deregister/web", &Value::Null).await.status, 404, "of a third machine");
}

#[tokio::test]
async fn instances_of_other_protocols_are_seen_and_not_changed() {
    let server = Server::start().await;
    let web = Registration { service: "web.service.consul".to_owned(), ..registration("web-1") };
    let caller = Caller { identity: "anonymous".into(), may_take_over: false };
    let item = Register { instance: web.validate(DOMAIN).unwrap(), expected: Expected::Any };
    let registered = server.registrar.register(&caller, vec![item]).await;
    assert!(registered.iter().all(Result::is_ok), "{registered:?}");
    assert_eq!(server.health("web?passing").await, ["web-1 passing"]);
    assert_eq!(server.get("agent/services").await.json(), json!({}));
    assert_eq!(server.put("service/deregister/web-1", &Value::Null).await.status, 404);
}

#[tokio::test]
async fn wrong_services_are_refused_in_words() {
    let server = Server::start().await;
    let mut long = web("web-1", &Value::Null);
    long["Meta"]["text"] = "x".repeat(20_000).into();
    let mut bad = web("web-1", &Value::Null);
    bad["Name"] = "we b".into();
    for (body, part) in [
        (json!([]), "the body: it is no object"),
        (json!({"Name": "web"}), "Port: Envoys reach an instance at a port"),
        (web("web-1", &json!({"Args": ["x"], "Interval": "1s"})), "Check.Args: Pilotfish runs no scripts"),
        (long, "16384"),
        (bad, "service"),
    ] {
        let answer = server.put("service/register", &body).await;
        assert!(answer.status == 400 && answer.body.contains(part), "{answer:?}");
        assert!(answer.head.contains("content-type: text/plain"), "{answer:?}");
    }
    assert_eq!(server.get("catalog/services").await.json(), json!({}));
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("the folder can be written");
}

#[tokio::test]
async fn tokens_of_consul_are_those_of_registration() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (tokens, rules) = (folder.path().join("tokens.yaml"), folder.path().join("rules.yaml"));
    write(
        &tokens,
        "tokens:\n- {name: shop, token: 0123456789abcdef}\n- {name: cart, token: fedcba9876543210}\n",
    );
    write(
        &rules,
        "rules:\n- {identities: [token/shop], services: [\"*.service.consul\"], actions: [register, deregister]}\n\
         - {identities: [token/shop], services: [web.service.consul], actions: [read]}\n\
         - {identities: [token/cart], services: [cart.service.consul], actions: [register, deregister]}\n",
    );
    let server = Server::with(|settings| {
        (settings.access.tokens, settings.access.rules) = (Some(tokens), Some(rules));
    })
    .await;
    let (shop, cart) = ("0123456789abcdef", "fedcba9876543210");
    let body = web("web-1", &json!({"TTL": "1h", "Status": "passing"})).to_string();
    let register = "/v1/agent/service/register";
    let token = |token| [("x-consul-token", token)];
    assert_eq!(server.send("PUT", register, &[], &body).await.status, 401);
    assert_eq!(server.send("PUT", register, &token("wrong-wrong-wrong"), &body).await.status, 401);
    assert_eq!(server.send("PUT", register, &token(cart), &body).await.status, 403);
    assert_eq!(server.send("PUT", register, &token(shop), &body).await.status, 200);
    let other = json!({"Name": "other", "Port": 80}).to_string();
    assert_eq!(server.send("PUT", &format!("{register}?token={shop}"), &[], &other).await.status, 200);

    let bearer = format!("Bearer {shop}");
    let seen = server.send("GET", "/v1/catalog/services", &[("authorization", &*bearer)], "").await;
    assert_eq!(seen.json(), json!({"web": ["track|blue", "v1"]}), "what it may read");
    assert!(seen.head.contains("x-consul-results-filtered-by-acls: true"), "{seen:?}");

    // A service that a client may not read is as one that does not exist.
    let ask = async |query: &str| {
        server.send("GET", &format!("/v1/health/service/web{query}"), &token(cart), "").await
    };
    let unseen = ask("").await;
    assert_eq!((unseen.status, unseen.json()), (200, json!([])));
    assert!(unseen.head.contains("x-consul-results-filtered-by-acls: true"), "{unseen:?}");
    let none = server.send("GET", "/v1/health/service/none", &token(cart), "").await;
    assert_eq!((none.index(), none.json()), (unseen.index(), json!([])));
    assert!(none.head.contains("x-consul-results-filtered-by-acls: true"), "{none:?}");
    let waited = ask(&format!("?index={}&wait=10ms", unseen.index())).await;
    assert_eq!(waited.index(), unseen.index());

    // The service of another identity is not changed, though it has the same agent.
    for path in
        ["service/deregister/web-1", "check/fail/service:web-1", "service/maintenance/web-1?enable=true"]
    {
        let answer = server.send("PUT", &format!("/v1/agent/{path}"), &token(cart), "").await;
        assert_eq!(answer.status, 403, "{path}: {answer:?}");
    }
    let taken = json!({"Name": "cart", "ID": "web-1", "Port": 80}).to_string();
    assert_eq!(server.send("PUT", register, &token(cart), &taken).await.status, 403, "of another identity");
    let seen = server.send("GET", "/v1/catalog/nodes", &token(cart), "").await;
    assert_eq!(seen.json(), json!([]), "nodes of services that it may not read");
    let deregister = "/v1/agent/service/deregister/web-1";
    assert_eq!(server.send("PUT", deregister, &token(shop), "").await.status, 200);
    assert_eq!(ask("").await.index(), unseen.index(), "its changes are not seen");
}
