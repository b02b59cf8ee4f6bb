//! The API as JSON.

use crate::harness::Harness;
use pilotfish_registration_server::Protocol;
use serde_json::json;

const INSTANCE: &str = "/v1/namespaces/default/services/web/instances/a";
const BODY: &str = r#"{"addresses":["10.0.0.1"],"ports":[{"number":8080}],"ttl":"10s"}"#;

#[tokio::test]
async fn an_instance_comes_and_goes() {
    let harness = Harness::start().await;
    let (status, registered) = harness.json("PUT", INSTANCE, BODY).await;
    assert_eq!((status, &registered["changed"], &registered["ttl"]), (200, &json!(true), &json!("10s")));
    let revision = registered["revision"].as_str().unwrap().to_owned();
    let (status, again) = harness.json("PUT", INSTANCE, BODY).await;
    assert_eq!((status, again["revision"].as_str()), (200, Some(&*revision)));
    assert_eq!(harness.json("POST", &format!("{INSTANCE}:renew"), "").await, (200, json!({})));
    let (status, got) = harness.json("GET", INSTANCE, "").await;
    assert_eq!(status, 200);
    assert_eq!(got["record"]["instance"]["ports"], json!([{ "number": 8080, "servicePort": 8080 }]));
    assert_eq!((&got["record"]["health"], &got["record"]["revision"]), (&json!("HEALTHY"), &json!(revision)));
    let (_, list) = harness.json("GET", "/v1/namespaces/default/services/web/instances?pageSize=5", "").await;
    assert_eq!(list["records"].as_array().map(Vec::len), Some(1));
    let (status, conflict) = harness
        .json(
            "PUT",
            &format!("{INSTANCE}?expectedRevision=999"),
            r#"{"addresses":["10.0.0.2"],"ports":[{"number":1}]}"#,
        )
        .await;
    assert_eq!(status, 409);
    assert_eq!(conflict["error"]["code"], "ABORTED");
    assert_eq!(conflict["error"]["currentRevision"], json!(revision));
    let (status, gone) = harness.json("DELETE", INSTANCE, "").await;
    assert_eq!((status, &gone["found"]), (200, &json!(true)));
    assert_eq!(harness.json("DELETE", INSTANCE, "").await, (200, json!({})));
    let (status, lost) = harness.json("POST", &format!("{INSTANCE}:renew"), "").await;
    assert_eq!((status, &lost["error"]["code"]), (404, &json!("NOT_FOUND")));
    let heard = &harness.heard.lock().requests;
    assert!(
        heard.contains(&("Register", Protocol::Json, "ABORTED"))
            && heard.contains(&("Renew", Protocol::Json, "OK"))
    );
}

#[tokio::test]
async fn batches_have_a_result_for_each() {
    let harness = Harness::start().await;
    let body = json!({ "requests": [
        { "instance": { "service": "web", "id": "a", "addresses": ["10.0.0.1"], "ports": [{ "number": 80 }] } },
        { "instance": { "service": "Web!", "id": "a", "addresses": ["10.0.0.1"], "ports": [{ "number": 70000 }] } },
    ] });
    let (status, answer) = harness.json("POST", "/v1/instances:batchRegister", &body.to_string()).await;
    assert_eq!(status, 200);
    assert_eq!(answer["results"][0]["response"]["changed"], true);
    let fields: Vec<_> = answer["results"][1]["error"]["fields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["field"].as_str().unwrap())
        .collect();
    assert_eq!(fields, ["instance.service", "instance.ports[0].number"]);
    let body =
        json!({ "requests": [{ "service": "web", "id": "a" }, { "service": "web", "id": "b" }] }).to_string();
    let (_, answer) = harness.json("POST", "/v1/instances:batchRenew", &body).await;
    assert_eq!(
        (&answer["results"][0], &answer["results"][1]["error"]["code"]),
        (&json!({ "response": {} }), &json!("NOT_FOUND"))
    );
    let (_, answer) = harness.json("POST", "/v1/instances:batchDeregister", &body).await;
    assert_eq!(
        (&answer["results"][0]["response"]["found"], &answer["results"][1]),
        (&json!(true), &json!({ "response": {} }))
    );
}

#[tokio::test]
async fn every_route_leads_to_its_method() {
    let harness = Harness::start().await;
    let document: serde_json::Value =
        serde_json::from_str(&harness.http("GET", "/openapi.json", &[], "").await.body).unwrap();
    let mut seen = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys().filter(|_| !path.ends_with(":watch")) {
            let path = path.replace(['{', '}'], "").replace("instance.", "");
            let (status, answer) = harness.json(&method.to_uppercase(), &path, "{}").await;
            assert!(matches!(status, 200 | 400 | 404), "{method} {path}: {status} {answer}");
            assert_ne!(answer["error"]["code"], "UNIMPLEMENTED", "{method} {path}");
            seen += 1;
        }
    }
    assert!(seen >= 11, "{seen}");
}

#[tokio::test]
async fn pages_and_wrong_paths() {
    let harness = Harness::start().await;
    for path in ["/", "/docs"] {
        let page = harness.http("GET", path, &[], "").await;
        assert!(
            page.status == 200 && page.head.contains("text/html") && page.body.contains("BatchRegister"),
            "{path}"
        );
    }
    let (status, answer) = harness.json("GET", "/v1/nothing", "").await;
    assert_eq!((status, &answer["error"]["code"]), (404, &json!("NOT_FOUND")));
    let refused = harness.http("PATCH", INSTANCE, &[], "").await;
    assert_eq!(refused.status, 405);
    assert!(refused.head.contains("allow: "), "{}", refused.head);
}

#[tokio::test]
async fn pages_of_other_places_cannot_use_it() {
    let harness = Harness::start().await;
    let refused = harness.http("PUT", INSTANCE, &[("origin", "https://evil.example")], BODY).await;
    assert_eq!(refused.status, 403);
    let rebound = format!(
        "PUT {INSTANCE} HTTP/1.1\r\nhost: evil.example\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{BODY}",
        BODY.len()
    );
    assert_eq!(harness.raw(rebound.as_bytes()).await.status, 403);
    assert_eq!(harness.registrar.stats().counts.instances(), 0);
}
