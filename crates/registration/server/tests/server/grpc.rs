//! The API by gRPC.

use crate::harness::{Harness, deregister, eventually, instance, register, renew};
use pilotfish_registration_api::v1::{self, register_result, renew_result};
use pilotfish_registration_server::Protocol;
use tonic::Code;
use tonic_types::StatusExt;

#[tokio::test]
async fn registering_is_idempotent_and_changes_have_revisions() {
    let harness = Harness::start().await;
    let mut client = harness.grpc().await;
    let first = client.register(register("a")).await.unwrap().into_inner();
    assert!(first.changed && first.revision > 0);
    assert_eq!(first.ttl.map(|ttl| ttl.seconds), Some(10));
    let again = client.register(register("a")).await.unwrap().into_inner();
    assert_eq!((again.revision, again.changed), (first.revision, false));
    let changed = v1::Instance { weight: 5, ..instance("a") };
    let request = v1::RegisterRequest { instance: Some(changed), expected_revision: Some(first.revision) };
    let changed = client.register(request).await.unwrap().into_inner();
    assert!(changed.revision > first.revision && changed.changed);
    let key = v1::GetInstanceRequest { namespace: "default".into(), service: "web".into(), id: "a".into() };
    let record = client.get_instance(key.clone()).await.unwrap().into_inner().record.unwrap();
    assert_eq!((record.revision, record.created_revision), (changed.revision, first.revision));
    assert_eq!((record.health(), &*record.owner), (v1::Health::Healthy, "anonymous"));
    client.renew(renew("a")).await.unwrap();
    let gone = client.deregister(deregister("a")).await.unwrap().into_inner();
    assert!(gone.found && gone.revision > changed.revision && gone.drain.is_none());
    let absent = client.deregister(deregister("a")).await.unwrap().into_inner();
    assert!(!absent.found);
    assert_eq!(client.renew(renew("a")).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(client.get_instance(key).await.unwrap_err().code(), Code::NotFound);
    let heard = &harness.heard.lock().requests;
    assert!(
        heard.contains(&("Register", Protocol::Grpc, "OK"))
            && heard.contains(&("Renew", Protocol::Grpc, "NOT_FOUND"))
    );
}

#[tokio::test]
async fn a_conflict_tells_what_is_there() {
    let harness = Harness::start().await;
    let mut client = harness.grpc().await;
    let revision = client.register(register("a")).await.unwrap().into_inner().revision;
    let changed = v1::Instance { weight: 5, ..instance("a") };
    for expected in [0, revision + 1_000] {
        let request =
            v1::RegisterRequest { instance: Some(changed.clone()), expected_revision: Some(expected) };
        let status = client.register(request).await.unwrap_err();
        assert_eq!(status.code(), Code::Aborted);
        let info = status.get_error_details().error_info().cloned().unwrap();
        assert_eq!(info.metadata.get("current_revision"), Some(&revision.to_string()));
    }
    let request = v1::DeregisterRequest { expected_revision: Some(revision + 1), ..deregister("a") };
    assert_eq!(client.deregister(request).await.unwrap_err().code(), Code::Aborted);
}

#[tokio::test]
async fn items_of_a_batch_succeed_and_fail_by_themselves() {
    let harness = Harness::start().await;
    let mut client = harness.grpc().await;
    let bad = v1::Instance { addresses: vec!["nowhere".into()], ..instance("bad") };
    let bad = v1::RegisterRequest { instance: Some(bad), expected_revision: None };
    let missing = v1::RegisterRequest::default();
    let batch = v1::BatchRegisterRequest { requests: vec![register("a"), bad, missing, register("b")] };
    let results = client.batch_register(batch).await.unwrap().into_inner().results;
    let summary = results.iter().map(|result| match result.result.as_ref().unwrap() {
        register_result::Result::Response(response) => (response.changed, None),
        register_result::Result::Error(error) => (false, Some((error.code(), error.fields[0].field.clone()))),
    });
    let invalid = v1::error::Code::InvalidArgument;
    assert_eq!(
        summary.collect::<Vec<_>>(),
        [
            (true, None),
            (false, Some((invalid, "instance.addresses[0]".to_owned()))),
            (false, Some((invalid, "instance".to_owned()))),
            (true, None),
        ]
    );
    let batch = v1::BatchRenewRequest { requests: vec![renew("a"), renew("nobody"), renew("b")] };
    let results = client.batch_renew(batch).await.unwrap().into_inner().results;
    let codes = results.iter().map(|result| match result.result.as_ref().unwrap() {
        renew_result::Result::Response(_) => v1::error::Code::Ok,
        renew_result::Result::Error(error) => error.code(),
    });
    assert_eq!(
        codes.collect::<Vec<_>>(),
        [v1::error::Code::Ok, v1::error::Code::NotFound, v1::error::Code::Ok]
    );
    let batch = v1::BatchDeregisterRequest { requests: vec![deregister("a"), deregister("nobody")] };
    let results = client.batch_deregister(batch).await.unwrap().into_inner().results;
    assert_eq!(results.len(), 2);
    assert_eq!(harness.registrar.stats().counts.instances(), 1);
}

#[tokio::test]
async fn a_heartbeat_stream_names_the_leases_that_are_gone() {
    let harness = Harness::start().await;
    let mut client = harness.grpc().await;
    let batch = v1::BatchRegisterRequest { requests: (0..100).map(|id| register(&id.to_string())).collect() };
    client.batch_register(batch).await.unwrap();
    let (sender, receiver) = tokio::sync::mpsc::channel(4);
    let requests = futures::stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|request| (request, receiver))
    });
    let mut responses = client.heartbeat(requests).await.unwrap().into_inner();
    for round in 0..3 {
        let renewals = (0..101).map(|id| renew(&id.to_string())).collect();
        sender.send(v1::HeartbeatRequest { renewals }).await.unwrap();
        let response = responses.message().await.unwrap().unwrap();
        assert_eq!(response.renewed, 100, "round {round}");
        let failures: Vec<_> =
            response.failures.iter().map(|f| (f.index, f.error.as_ref().unwrap().code())).collect();
        assert_eq!(failures, [(100, v1::error::Code::NotFound)]);
    }
    drop(sender);
    assert_eq!(responses.message().await.unwrap(), None, "the client ends it");
}

#[tokio::test]
async fn lists_come_in_pages_and_filtered() {
    let harness = Harness::start().await;
    let mut client = harness.grpc().await;
    let mut requests: Vec<_> = (0..25).map(|id| register(&format!("{id:02}"))).collect();
    let other = v1::Instance { namespace: "shop".into(), ..instance("x") };
    requests.push(v1::RegisterRequest { instance: Some(other), expected_revision: None });
    client.batch_register(v1::BatchRegisterRequest { requests }).await.unwrap();
    let mut request =
        v1::ListInstancesRequest { page_size: 10, namespace: "default".into(), ..Default::default() };
    let (mut ids, mut pages) = (Vec::new(), 0);
    loop {
        let page = client.list_instances(request.clone()).await.unwrap().into_inner();
        ids.extend(page.records.into_iter().map(|record| record.instance.unwrap().id));
        pages += 1;
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    assert_eq!(pages, 3);
    assert_eq!(ids, (0..25).map(|id| format!("{id:02}")).collect::<Vec<_>>());
    let all = client.list_instances(v1::ListInstancesRequest::default()).await.unwrap().into_inner();
    assert_eq!(all.records.len(), 26);
    let wrong = v1::ListInstancesRequest { page_token: "x".into(), ..Default::default() };
    assert_eq!(client.list_instances(wrong).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn deregistering_may_take_its_time() {
    let harness = Harness::start().await;
    let mut client = harness.grpc().await;
    let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    for (id, registered, asked, expected) in [
        ("a", None, None, None),
        ("b", seconds(60), None, seconds(60)),
        ("c", seconds(60), seconds(0), None),
        ("d", None, seconds(5), seconds(5)),
    ] {
        let request = v1::Instance { drain: registered, ..instance(id) };
        client
            .register(v1::RegisterRequest { instance: Some(request), expected_revision: None })
            .await
            .unwrap();
        let request = v1::DeregisterRequest { drain: asked, ..deregister(id) };
        let response = client.deregister(request).await.unwrap().into_inner();
        assert_eq!((response.found, response.drain), (true, expected), "{id}");
    }
    let list = client.list_instances(v1::ListInstancesRequest::default()).await.unwrap().into_inner();
    let left: Vec<_> = list
        .records
        .iter()
        .map(|record| (record.instance.as_ref().unwrap().id.as_str(), record.health()))
        .collect();
    assert_eq!(left, [("b", v1::Health::Leaving), ("d", v1::Health::Leaving)]);
}

#[tokio::test]
async fn a_store_that_cannot_write_is_unavailable_and_acknowledges_nothing() {
    let harness = Harness::start().await;
    let mut client = harness.grpc().await;
    let trouble = |why: &str| pilotfish_registration::WriteError::Unavailable(why.to_owned());
    harness.store.set_trouble(Some(trouble("the disk is away")));
    let status = client.register(register("a")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("the disk is away"), "{status:?}");
    assert!(status.get_error_details().retry_info().is_some());
    harness.store.set_trouble(Some(pilotfish_registration::WriteError::Full("no space".into())));
    assert_eq!(client.register(register("a")).await.unwrap_err().code(), Code::ResourceExhausted);
    harness.store.set_trouble(None);
    client.register(register("a")).await.unwrap();
}

#[tokio::test]
async fn shutting_down_ends_streams_and_then_connections() {
    let mut harness = Harness::start().await;
    let mut client = harness.grpc().await;
    let mut watch = client.watch(v1::WatchRequest::default()).await.unwrap().into_inner();
    watch.message().await.unwrap().unwrap();
    harness.stop().await;
    let ended = loop {
        match watch.message().await {
            Ok(Some(_)) => {}
            Ok(None) => unreachable!("it ends with a reason"),
            Err(status) => break status,
        }
    };
    assert_eq!(ended.code(), Code::Unavailable);
    eventually("connections are gone", || harness.heard.lock().connections == 0).await;
}

#[tokio::test]
async fn health_and_reflection_are_served_beside_it() {
    use tonic_health::pb::{
        HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
    };
    use tonic_reflection::pb::v1::{
        ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
        server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
    };
    let harness = Harness::start().await;
    let address = format!("http://{}", harness.address);
    let channel = tonic::transport::Endpoint::from_shared(address).unwrap().connect().await.unwrap();
    let mut health = HealthClient::new(channel.clone());
    for service in ["", pilotfish_registration_api::SERVICE] {
        let mut watch =
            health.watch(HealthCheckRequest { service: service.into() }).await.unwrap().into_inner();
        while watch.message().await.unwrap().unwrap().status() != ServingStatus::Serving {}
    }
    let ask = |message_request| {
        let request = ServerReflectionRequest { host: String::new(), message_request: Some(message_request) };
        let mut client = ServerReflectionClient::new(channel.clone());
        async move {
            let answers = client.server_reflection_info(futures::stream::iter([request])).await.unwrap();
            answers.into_inner().message().await.unwrap().unwrap().message_response.unwrap()
        }
    };
    let MessageResponse::ListServicesResponse(list) = ask(MessageRequest::ListServices(String::new())).await
    else {
        unreachable!("it lists services")
    };
    let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
    assert!(names.contains(&pilotfish_registration_api::SERVICE), "{names:?}");
    let symbol = MessageRequest::FileContainingSymbol(pilotfish_registration_api::SERVICE.into());
    assert!(matches!(ask(symbol).await, MessageResponse::FileDescriptorResponse(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_clients_that_expect_the_same_revision_one_wins() {
    let harness = Harness::start().await;
    let mut expected = 0;
    for round in 0..20 {
        let mut calls = tokio::task::JoinSet::new();
        for weight in 1..=8 {
            let mut client = harness.grpc().await;
            let changed = v1::Instance { weight: round * 10 + weight, ..instance("a") };
            let request = v1::RegisterRequest { instance: Some(changed), expected_revision: Some(expected) };
            calls.spawn(async move { client.register(request).await });
        }
        let (mut won, mut lost) = (Vec::new(), 0);
        while let Some(answer) = calls.join_next().await {
            match answer.unwrap() {
                Ok(response) => won.push(response.into_inner().revision),
                Err(status) => {
                    assert_eq!(status.code(), Code::Aborted, "{status:?}");
                    lost += 1;
                }
            }
        }
        assert_eq!((won.len(), lost), (1, 7), "round {round}");
        assert!(won[0] > expected);
        expected = won[0];
    }
}
