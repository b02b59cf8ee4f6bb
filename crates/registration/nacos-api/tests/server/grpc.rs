//! gRPC: connections, instances that live as long, and pushes.

use crate::harness::{Server, eventually, hosts};
use pilotfish_nacos_wire::Payload;
use serde_json::{Value, json};

fn of(service: &str, more: Value) -> Value {
    let mut content = json!({"namespace": "public", "groupName": "G", "serviceName": service});
    if let (Value::Object(content), Value::Object(more)) = (&mut content, more) {
        content.extend(more);
    }
    content
}

fn instance(action: &str, ip: &str) -> Value {
    of(
        "web",
        json!({"type": action, "requestId": "7", "instance": {"ip": ip, "port": 80, "metadata": {"a": "b"}}}),
    )
}

async fn until(server: &Server, expected: &[&str]) {
    eventually("the instances are there", async || {
        let found = server.instances("serviceName=web&groupName=G").await;
        if found == expected { Ok(()) } else { Err(found) }
    })
    .await;
}

#[tokio::test]
async fn an_instance_lives_as_long_as_its_connection() {
    let server = Server::start().await;
    let client = server.connect().await;
    let (kind, check) = client.ask("ServerCheckRequest", &json!({})).await;
    assert_eq!((&*kind, &check["resultCode"]), ("ServerCheckResponse", &json!(200)));
    let (kind, answer) = client.ask("InstanceRequest", &instance("registerInstance", "10.0.0.1")).await;
    assert_eq!((&*kind, &answer["errorCode"]), ("ErrorResponse", &json!(301)), "it has no stream");
    let stream = client.set_up().await;
    let (kind, answer) = client.ask("InstanceRequest", &instance("registerInstance", "10.0.0.1")).await;
    let expected = json!({
        "resultCode": 200, "errorCode": 0, "message": null, "requestId": "7", "success": true,
        "type": "registerInstance",
    });
    assert_eq!((&*kind, answer), ("InstanceResponse", expected));
    client.ask("InstanceRequest", &instance("registerInstance", "10.0.0.2")).await;
    until(&server, &["10.0.0.1:80", "10.0.0.2:80"]).await;
    client.ask("InstanceRequest", &instance("deregisterInstance", "10.0.0.2")).await;
    until(&server, &["10.0.0.1:80"]).await;
    drop((stream, client));
    until(&server, &[]).await;
}

#[tokio::test]
async fn an_instance_belongs_to_the_connection_that_registered_it_last() {
    let server = Server::start().await;
    let (old, new) = (server.connect().await, server.connect().await);
    let (old_stream, _stream) = (old.set_up().await, new.set_up().await);
    old.ask("InstanceRequest", &instance("registerInstance", "10.0.0.1")).await;
    old.ask("InstanceRequest", &instance("registerInstance", "10.0.0.2")).await;
    new.ask("InstanceRequest", &instance("registerInstance", "10.0.0.1")).await;
    drop((old_stream, old));
    until(&server, &["10.0.0.1:80"]).await;
}

#[tokio::test]
async fn an_instance_that_was_removed_behind_its_connection_comes_back() {
    let server = Server::start().await;
    let client = server.connect().await;
    let _stream = client.set_up().await;
    client.ask("InstanceRequest", &instance("registerInstance", "10.0.0.1")).await;
    until(&server, &["10.0.0.1:80"]).await;
    // Removed behind its back: the connection that keeps it is still there.
    let path = "/v1/ns/instance?serviceName=web&groupName=G&ip=10.0.0.1&port=80";
    assert_eq!(server.call("DELETE", path).await.body, "ok");
    until(&server, &["10.0.0.1:80"]).await;
}

#[tokio::test]
async fn shutting_down_ends_streams_and_leaves_instances_to_their_leases() {
    let mut server = Server::start().await;
    let client = server.connect().await;
    let mut stream = client.set_up().await;
    client.ask("InstanceRequest", &instance("registerInstance", "10.0.0.1")).await;
    until(&server, &["10.0.0.1:80"]).await;
    server.stop();
    let ended = stream.next().await.unwrap_err();
    assert_eq!(ended.code(), tonic::Code::Unavailable, "{ended:?}");
    drop((stream, client));
    let key = server.registrar.services().pop().expect("it has a service");
    assert_eq!(server.registrar.service(&key).len(), 1, "its client comes back");
}

#[tokio::test]
async fn changes_are_pushed_to_subscribers_until_they_unsubscribe() {
    let server = Server::start().await;
    let client = server.connect().await;
    let mut stream = client.set_up().await;
    let (kind, answer) = client.ask("SubscribeServiceRequest", &of("web", json!({"subscribe": true}))).await;
    assert_eq!((&*kind, hosts(&answer["serviceInfo"])), ("SubscribeServiceResponse", vec![]));
    let other = server.connect().await;
    let other_stream = other.set_up().await;
    other.ask("InstanceRequest", &instance("registerInstance", "10.0.0.1")).await;
    let push = stream.until(&["10.0.0.1:80"]).await;
    let names = ["namespace", "groupName", "serviceName"].map(|name| push[name].as_str().unwrap());
    assert_eq!(names, ["public", "G", "web"]);
    assert_eq!(push["serviceInfo"]["hosts"][0]["metadata"], json!({"a": "b"}));
    let acknowledgement = json!({"requestId": push["requestId"], "resultCode": 200});
    stream
        .sender
        .send(Payload::new("NotifySubscriberResponse", &acknowledgement, None).unwrap())
        .await
        .unwrap();
    other.ask("InstanceRequest", &instance("registerInstance", "10.0.0.2")).await;
    stream.until(&["10.0.0.1:80", "10.0.0.2:80"]).await;
    drop((other, other_stream));
    stream.until(&[]).await;

    client.ask("SubscribeServiceRequest", &of("web", json!({"subscribe": false}))).await;
    client.ask("SubscribeServiceRequest", &of("end", json!({"subscribe": true}))).await;
    client.ask("InstanceRequest", &instance("registerInstance", "10.0.0.3")).await;
    let end = of("end", json!({"type": "registerInstance", "instance": {"ip": "10.0.0.4", "port": 80}}));
    client.ask("InstanceRequest", &end).await;
    assert_eq!(stream.until(&["10.0.0.4:80"]).await["serviceName"], "end");
}

#[tokio::test]
async fn a_batch_replaces_the_instances_of_its_connection() {
    let server = Server::start().await;
    let client = server.connect().await;
    let _stream = client.set_up().await;
    let batch = |ips: &[&str]| {
        let instances: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip, "port": 80})).collect();
        of("web", json!({"type": "batchRegisterInstance", "instances": instances}))
    };
    let (kind, _) = client.ask("BatchInstanceRequest", &batch(&["10.0.0.1", "10.0.0.2"])).await;
    assert_eq!(kind, "BatchInstanceResponse");
    until(&server, &["10.0.0.1:80", "10.0.0.2:80"]).await;
    client.ask("BatchInstanceRequest", &batch(&["10.0.0.2", "10.0.0.3"])).await;
    until(&server, &["10.0.0.2:80", "10.0.0.3:80"]).await;
    let many = vec!["10.0.0.1"; 1_001];
    assert_eq!(client.ask("BatchInstanceRequest", &batch(&many)).await.1["errorCode"], 429);
}

#[tokio::test]
async fn services_are_listed_and_queried() {
    let server = Server::start().await;
    let client = server.connect().await;
    let _stream = client.set_up().await;
    client.ask("InstanceRequest", &instance("registerInstance", "10.0.0.1")).await;
    let list = of("", json!({"pageNo": 1, "pageSize": 10}));
    let (kind, answer) = client.ask("ServiceListRequest", &list).await;
    assert_eq!(
        (&*kind, &answer["count"], &answer["serviceNames"]),
        ("ServiceListResponse", &json!(1), &json!(["web"]))
    );
    let (kind, answer) = client.ask("ServiceQueryRequest", &of("web", json!({"healthyOnly": true}))).await;
    assert_eq!(
        (&*kind, hosts(&answer["serviceInfo"])),
        ("QueryServiceResponse", vec!["10.0.0.1:80".to_owned()])
    );
}

#[tokio::test]
async fn wrong_messages_have_errors_of_the_protocol() {
    let server = Server::start().await;
    let client = server.connect().await;
    let _stream = client.set_up().await;
    for (kind, content, code) in [
        ("ConfigQueryRequest", json!({}), 302),
        ("NamingFuzzyWatchRequest", json!({}), 302),
        ("InstanceRequest", json!([]), 400),
        ("InstanceRequest", of("web", json!({})), 400),
        ("InstanceRequest", instance("other", "10.0.0.1"), 400),
        ("InstanceRequest", instance("registerInstance", "host"), 400),
        ("SubscribeServiceRequest", of("a b", json!({"subscribe": true})), 400),
    ] {
        let (answer_kind, answer) = client.ask(kind, &content).await;
        assert_eq!(
            (&*answer_kind, &answer["errorCode"]),
            ("ErrorResponse", &json!(code)),
            "{kind}: {answer}"
        );
        assert_eq!(answer["success"], false);
    }
    let payload = Payload::new("ServerCheckRequest", &json!({}), None).unwrap();
    let status = client.unary("/Request/other", payload.clone()).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unimplemented);
    let mut second = client.stream(payload).await;
    assert_eq!(second.next().await.unwrap_err().code(), tonic::Code::FailedPrecondition);
    let setup = Payload::new("ConnectionSetupRequest", &json!({}), None).unwrap();
    let mut third = client.stream(setup).await;
    assert_eq!(third.next().await.unwrap_err().code(), tonic::Code::AlreadyExists);
}
