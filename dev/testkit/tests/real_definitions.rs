//! The definitions on a real API server: every one is established, and the server takes, prunes and refuses
//! what the tests of definitions say that it does.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "../../../crates/core/crd/tests/definitions/mutate.rs"]
mod mutate;
#[path = "../../../crates/core/crd/tests/support/schema.rs"]
#[allow(dead_code, reason = "shared with the tests of definitions")]
mod schema;

use http::Request;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ListParams};
use kube::client::Body;
use pilotfish_crd::{defined_kinds, definition, served_versions};
use pilotfish_model::Kind;
use pilotfish_testkit::real::{ApiServer, ApiServerOptions, eventually};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_server_takes_what_the_reader_takes() {
    let Some(server) = ApiServer::start(ApiServerOptions::default()).await else { return };
    install(&server).await;
    established(&server.client()).await;
    let objects = recorded();
    namespaces(&server, &objects).await;
    recorded_objects_are_unchanged(&server.client(), &objects).await;
    changed_objects_fare_as_foreseen(&server.client(), &objects).await;
}

/// Applies the definitions as `kubectl apply --server-side` does. The API server has nothing to remark.
async fn install(server: &ApiServer) {
    for kind in defined_kinds() {
        let definition = definition(kind).unwrap();
        let name = definition["metadata"]["name"].as_str().unwrap();
        let path = format!(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}?fieldManager=kubectl&fieldValidation=Strict"
        );
        let request = Request::patch(path).header("content-type", "application/apply-patch+yaml");
        let request = request.body(Body::from(definition.to_string().into_bytes())).unwrap();
        let answer = server.client().send(request).await.unwrap();
        let warnings: Vec<_> = answer.headers().get_all("warning").iter().collect();
        assert!(answer.status().is_success(), "{name}: {answer:?}");
        assert!(warnings.is_empty(), "{name}: {warnings:?}");
    }
}

/// Waits until all are served, and checks the conditions of each.
async fn established(client: &Client) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let listed = eventually("all definitions are established", || async {
        let listed = api.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let waiting: Vec<_> = listed
            .iter()
            .filter(|definition| condition(definition, "Established").as_deref() != Some("True"))
            .map(|definition| definition.spec.names.kind.clone())
            .collect();
        if waiting.is_empty() { Ok(listed) } else { Err(format!("waiting for {waiting:?}")) }
    })
    .await;
    assert_eq!(listed.len(), defined_kinds().len());
    for definition in &listed {
        let name = definition.metadata.name.as_deref().unwrap_or_default();
        assert_eq!(condition(definition, "NamesAccepted").as_deref(), Some("True"), "{name}");
        let wrong = condition(definition, "NonStructuralSchema");
        assert!(
            wrong.is_none_or(|status| status == "False"),
            "{name} is not structural: {:?}",
            definition.status
        );
    }
}

fn condition(definition: &CustomResourceDefinition, name: &str) -> Option<String> {
    let conditions = definition.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == name).map(|condition| condition.status.clone())
}

/// The objects of all recorded cases, of kinds that have definitions.
fn recorded() -> Vec<(Kind, Value)> {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle/cases");
    let mut files: Vec<_> =
        std::fs::read_dir(cases).unwrap().map(|case| case.unwrap().path().join("config.yaml")).collect();
    files.sort();
    let texts = files.iter().map(|file| std::fs::read_to_string(file).unwrap());
    texts
        .flat_map(|text| schema::documents(&text))
        .filter_map(|object| Some((kind_of(&object)?, object)))
        .collect()
}

fn kind_of(object: &Value) -> Option<Kind> {
    let (group, _) = object["apiVersion"].as_str()?.split_once('/')?;
    Kind::find(group, object["kind"].as_str()?).filter(|kind| !served_versions(*kind).is_empty())
}

async fn namespaces(server: &ApiServer, objects: &[(Kind, Value)]) {
    let names: BTreeSet<_> = objects.iter().map(|(_, object)| namespace(object)).collect();
    for name in names {
        server.apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}")).await;
    }
}

fn namespace(object: &Value) -> &str {
    object["metadata"]["namespace"].as_str().unwrap_or("default")
}

async fn recorded_objects_are_unchanged(client: &Client, objects: &[(Kind, Value)]) {
    for (kind, object) in objects {
        let answer = submit(client, *kind, object, "Strict").await;
        let answer = answer.unwrap_or_else(|error| panic!("{error}\n{object:#}"));
        assert_eq!(answer["spec"], object["spec"], "{kind} {}", object["metadata"]["name"]);
    }
    assert!(objects.len() > 300, "only {} objects", objects.len());
}

/// Every field of every recorded object is changed in every way once: the API server does what `schema`
/// foresees.
async fn changed_objects_fare_as_foreseen(client: &Client, objects: &[(Kind, Value)]) {
    let definitions: BTreeMap<_, _> =
        defined_kinds().into_iter().map(|kind| (kind, definition(kind).unwrap())).collect();
    let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
    for (kind, object) in objects {
        for (place, change, changed) in mutate::changes(object) {
            if !seen.insert((*kind, place.clone(), change)) {
                continue;
            }
            let foreseen = schema::submit(&definitions[kind], &changed);
            let answer = submit(client, *kind, &changed, "Ignore").await;
            let same = match &answer {
                Ok(taken) if foreseen.refused.is_empty() => {
                    foreseen.pruned.is_empty()
                        == (without_nulls(&taken["spec"]) == without_nulls(&changed["spec"]))
                }
                Ok(_) => false,
                Err(_) => !foreseen.refused.is_empty(),
            };
            if !same {
                wrong.push(format!("{kind} {place} {change:?}: foreseen {foreseen:?}, got {answer:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), seen.len(), wrong.join("\n"));
    assert!(seen.len() > 3_000, "only {} changes were tried", seen.len());
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.clone(), without_nulls(value)))
            .collect(),
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        value => value.clone(),
    }
}

/// Creates an object without keeping it; gives it as the API server would keep it, or why it is refused.
async fn submit(client: &Client, kind: Kind, object: &Value, validation: &str) -> Result<Value, String> {
    let version = object["apiVersion"].as_str().unwrap();
    let of = match definition(kind).unwrap()["spec"]["scope"].as_str() {
        Some("Cluster") => String::new(),
        _ => format!("/namespaces/{}", namespace(object)),
    };
    let path = format!("/apis/{version}{of}/{}?dryRun=All&fieldValidation={validation}", kind.plural());
    let mut body = object.clone();
    // Recorded, and for the API server to say.
    for field in ["creationTimestamp", "generation", "uid", "resourceVersion"] {
        body["metadata"].as_object_mut().unwrap().remove(field);
    }
    body["metadata"]["name"] = json!(format!("{}-tried", body["metadata"]["name"].as_str().unwrap_or("a")));
    let request = Request::post(path).header("content-type", "application/json");
    let request = request.body(body.to_string().into_bytes()).unwrap();
    client.request::<Value>(request).await.map_err(|error| error.to_string())
}
