//! Versions 1 and 2 of the HTTP API.

use crate::harness::{Server, eventually};
use pilotfish_registration::testing::{DOMAIN, registration};
use pilotfish_registration::{Caller, Expected, Register, Registration};
use serde_json::json;

const WEB: &str = "serviceName=web&ip=10.0.0.1&port=80";

#[tokio::test]
async fn an_instance_registers_beats_changes_and_goes() {
    let server = Server::start().await;
    let beat = format!("/v1/ns/instance/beat?{WEB}&beat=");
    let answer = server.call("PUT", &beat).await;
    let expected = json!({"code": 20_404, "clientBeatInterval": 5_000, "lightBeatEnabled": true});
    assert_eq!((answer.status, answer.json()), (200, expected), "it has to register");
    let metadata = "metadata=%7B%22version%22:%22v1%22%7D&weight=2";
    let answer = server.call("POST", &format!("/v1/ns/instance?{WEB}&{metadata}")).await;
    assert_eq!((answer.status, &*answer.body), (200, "ok"));
    assert_eq!(server.call("PUT", &beat).await.json()["code"], 10_200);

    let services = server.registrar.services().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(services, ["default/web.default-group.public.nacos"]);
    let list = server.call("GET", "/v1/ns/instance/list?serviceName=web").await.json();
    assert_eq!((&list["name"], &list["groupName"]), (&json!("DEFAULT_GROUP@@web"), &json!("DEFAULT_GROUP")));
    let host = &list["hosts"][0];
    assert_eq!(host["instanceId"], "10.0.0.1#80#DEFAULT#DEFAULT_GROUP@@web");
    assert_eq!((&host["weight"], &host["metadata"]), (&json!(2.0), &json!({"version": "v1"})));
    let found = server.call("GET", &format!("/v1/ns/instance?{WEB}")).await.json();
    assert_eq!((&found["service"], &found["weight"]), (&json!("DEFAULT_GROUP@@web"), &json!(2.0)));

    let answer = server.call("PUT", &format!("/v1/ns/instance?{WEB}&enabled=false")).await;
    assert_eq!((answer.status, &*answer.body), (200, "ok"));
    assert!(server.instances("serviceName=web").await.is_empty(), "an operator took it out");
    server.call("PUT", &format!("/v1/ns/instance?{WEB}&enabled=true")).await;
    let found = server.call("GET", &format!("/v1/ns/instance?{WEB}")).await.json();
    assert_eq!(
        (&found["weight"], &found["metadata"]),
        (&json!(2.0), &json!({"version": "v1"})),
        "the rest stays"
    );

    assert_eq!(server.call("DELETE", &format!("/v1/ns/instance?{WEB}")).await.body, "ok");
    assert_eq!(server.call("DELETE", &format!("/v1/ns/instance?{WEB}")).await.body, "ok", "as in Nacos");
    assert_eq!(server.call("GET", &format!("/v1/ns/instance?{WEB}")).await.status, 404);
    assert_eq!(server.call("PUT", &format!("/v1/ns/instance?{WEB}&weight=1")).await.status, 404);

    let full =
        "%7B%22ip%22:%2210.0.0.1%22,%22port%22:80,%22weight%22:3.0,%22metadata%22:%7B%22a%22:%22b%22%7D%7D";
    let answer = server.call("PUT", &format!("/v1/ns/instance/beat?serviceName=web&beat={full}")).await;
    assert_eq!(answer.json()["code"], 10_200, "a beat with its instance registers it");
    let found = server.call("GET", &format!("/v1/ns/instance?{WEB}")).await.json();
    assert_eq!((&found["weight"], &found["metadata"]), (&json!(3.0), &json!({"a": "b"})));
}

#[tokio::test]
async fn version_2_wraps_answers_and_errors() {
    let server = Server::start().await;
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let answer = server.send("POST", "/v2/ns/instance", &form, WEB).await;
    assert_eq!(answer.json(), json!({"code": 0, "message": "success", "data": "ok"}));
    let list = server.call("GET", "/v2/ns/instance/list?serviceName=web").await.json();
    assert_eq!((&list["data"]["name"], &list["data"]["hosts"][0]["ip"]), (&json!("web"), &json!("10.0.0.1")));
    let services = server.call("GET", "/v2/ns/service/list").await.json();
    assert_eq!(services["data"], json!({"count": 1, "services": ["web"]}));
    assert_eq!(
        server.call("PUT", &format!("/v2/ns/instance/beat?{WEB}")).await.json()["data"]["code"],
        10_200
    );
    assert_eq!(server.call("GET", "/v2/ns/operator/metrics").await.json()["data"], json!({"status": "UP"}));
    let answer = server.call("POST", "/v2/ns/instance?ip=10.0.0.1&port=80").await;
    let expected = json!({"code": 20_002, "message": "Param 'serviceName' is required.", "data": null});
    assert_eq!((answer.status, answer.json()), (400, expected));
}

#[tokio::test]
async fn groups_namespaces_and_clusters_are_apart() {
    let server = Server::start().await;
    for query in [
        "serviceName=web&ip=10.0.0.1&port=80",
        "serviceName=web&ip=10.0.0.2&port=80&clusterName=hz",
        "serviceName=SHOP%40%40web&ip=10.0.0.3&port=80",
        "serviceName=web&ip=10.0.0.4&port=80&namespaceId=dev&groupName=SHOP",
        "serviceName=Order_Service&ip=10.0.0.5&port=80&healthy=false",
    ] {
        assert_eq!(server.call("POST", &format!("/v1/ns/instance?{query}")).await.body, "ok", "{query}");
    }
    for (query, expected) in [
        ("serviceName=web", &["10.0.0.1:80", "10.0.0.2:80"][..]),
        ("serviceName=web&clusters=hz,other", &["10.0.0.2:80"]),
        ("serviceName=web&groupName=SHOP", &["10.0.0.3:80"]),
        ("serviceName=SHOP%40%40web&namespaceId=dev", &["10.0.0.4:80"]),
        ("serviceName=Order_Service", &["!10.0.0.5:80"]),
        ("serviceName=Order_Service&healthyOnly=true", &[]),
        ("serviceName=order_service", &[]),
        ("serviceName=nothing", &[]),
    ] {
        assert_eq!(server.instances(query).await, expected, "{query}");
    }
    for (query, expected) in [
        ("", json!({"count": 2, "doms": ["Order_Service", "web"]})),
        ("pageNo=2&pageSize=1", json!({"count": 2, "doms": ["web"]})),
        ("groupName=SHOP&namespaceId=dev", json!({"count": 1, "doms": ["web"]})),
        ("groupName=OTHER", json!({"count": 0, "doms": []})),
    ] {
        assert_eq!(
            server.call("GET", &format!("/v1/ns/service/list?{query}")).await.json(),
            expected,
            "{query}"
        );
    }
    server.call("DELETE", "/v1/ns/instance?serviceName=Order_Service&ip=10.0.0.5&port=80").await;
    let names = server.call("GET", "/v1/ns/service/list").await.json();
    assert_eq!(names, json!({"count": 1, "doms": ["web"]}));
}

#[tokio::test]
async fn services_of_one_host_do_not_take_each_others_instances() {
    let server = Server::start().await;
    assert_eq!(server.call("POST", &format!("/v1/ns/instance?{WEB}")).await.body, "ok");
    let other = "/v1/ns/instance?serviceName=Web&port=80&ip=";
    assert_eq!(server.call("POST", &format!("{other}10.0.0.2")).await.body, "ok");
    assert_eq!(server.instances("serviceName=web").await, ["10.0.0.1:80"]);
    assert_eq!(server.instances("serviceName=Web").await, ["10.0.0.2:80"]);
    let answer = server.call("POST", &format!("{other}10.0.0.1")).await;
    assert!(answer.status == 400 && answer.body.contains("public/DEFAULT_GROUP@@web"), "{answer:?}");
    assert_eq!(server.call("GET", &format!("{other}10.0.0.1")).await.status, 404);
    let beat = "/v1/ns/instance/beat?serviceName=Web";
    for place in ["ip=10.0.0.1&port=80", "beat=%7B%22ip%22:%2210.0.0.1%22,%22port%22:80%7D"] {
        assert_eq!(server.call("PUT", &format!("{beat}&{place}")).await.json()["code"], 20_404, "{place}");
    }
    assert_eq!(server.call("DELETE", &format!("{other}10.0.0.1")).await.body, "ok");
    assert_eq!(server.instances("serviceName=web").await, ["10.0.0.1:80"]);
}

#[tokio::test]
async fn an_instance_of_another_protocol_is_found_and_not_changed() {
    let server = Server::start().await;
    let web = Registration { service: "web.default-group.public.nacos".to_owned(), ..registration("web-1") };
    let instance = web.validate(DOMAIN).unwrap();
    let place = format!("{}:{}", instance.addresses[0], instance.ports[0].number);
    let caller = Caller { identity: "anonymous".into(), may_take_over: false };
    let item = Register { instance, expected: Expected::Any };
    let registered = server.registrar.register(&caller, vec![item]).await;
    assert!(registered.iter().all(Result::is_ok), "{registered:?}");
    assert_eq!(server.instances("serviceName=web").await, [place]);
}

#[tokio::test]
async fn an_instance_without_beats_is_unhealthy_and_a_beat_brings_it_back() {
    let server = Server::start().await;
    let short = "metadata=%7B%22preserved.heart.beat.timeout%22:%225000%22%7D";
    assert_eq!(server.call("POST", &format!("/v1/ns/instance?{WEB}&{short}")).await.body, "ok");
    eventually("its lease has lapsed", async || match &*server.instances("serviceName=web").await {
        [one] if one == "!10.0.0.1:80" => Ok(()),
        other => Err(other.to_vec()),
    })
    .await;
    // The beat of a client that sends all of its instance.
    let beat = "/v1/ns/instance/beat?serviceName=web&beat=%7B%22ip%22:%2210.0.0.1%22,%22port%22:80,%22cluster%22:%22DEFAULT%22%7D";
    eventually("it is healthy again", async || {
        assert_eq!(server.call("PUT", beat).await.json()["code"], 10_200);
        match &*server.instances("serviceName=web&healthyOnly=true").await {
            [_] => Ok(()),
            other => Err(other.to_vec()),
        }
    })
    .await;
}

#[tokio::test]
async fn wrong_requests_are_refused_in_words() {
    let server = Server::start().await;
    for (method, path, status, part) in [
        ("GET", "/v1/ns/nothing", 404, "there is nothing at this path"),
        ("PATCH", "/v1/ns/service/list", 400, "this path has no PATCH"),
        ("GET", "/v1/cs/configs?dataId=a&group=b", 501, "naming only"),
        ("POST", "/v2/cs/config", 501, "naming only"),
        (
            "POST",
            "/v1/ns/instance?serviceName=a%20b&ip=10.0.0.1&port=80",
            400,
            "Param 'serviceName' is illegal",
        ),
        ("POST", "/v1/ns/instance?serviceName=a&ip=host&port=80", 400, "Param 'ip' is illegal"),
        ("POST", "/v1/ns/instance?serviceName=a&ip=10.0.0.1&port=0", 400, "ports[0].number"),
        (
            "POST",
            "/v1/ns/instance?serviceName=a&ip=10.0.0.1&port=80&weight=-1",
            400,
            "Param 'weight' is illegal",
        ),
        ("PUT", "/v1/ns/instance/beat?serviceName=a&beat=%7B", 400, "Param 'beat' is illegal"),
        ("PUT", "/v1/ns/instance/beat?serviceName=a&beat=%7B%22ip%22:%22h%22%7D", 400, "it has no port"),
    ] {
        let answer = server.call(method, path).await;
        assert!(answer.status == status && answer.body.contains(part), "{method} {path}: {answer:?}");
    }
    let long = "x".repeat(20_000);
    let form = format!("{WEB}&metadata=%7B%22text%22:%22{long}%22%7D");
    let media = [("content-type", "application/x-www-form-urlencoded")];
    let answer = server.send("POST", "/v1/ns/instance", &media, &form).await;
    assert!(answer.status == 400 && answer.body.contains("16384"), "{answer:?}");
}
