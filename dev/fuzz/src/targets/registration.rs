//! Requests of the registration API: paths, queries and bodies as JSON, and the validation of instances.

use super::checks::one_line;
use crate::input::Input;
use pilotfish_registration_api::v1::{self, RegisterRequest};
use pilotfish_registration_api::{BadRequest, Found, Routes, to_json};
use pilotfish_registration_server::read_instance;
use prost::{Message, Name};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

static ROUTES: LazyLock<Routes> = LazyLock::new(Routes::new);

const METHODS: &[&str] = &["PUT", "POST", "GET", "DELETE", "PATCH"];
const PATHS: &[&str] = &[
    "/v1/namespaces/default/services/web/instances/a",
    "/v1/instances",
    "/v1/namespaces/default/services/web/instances/a:renew",
    "/v1/instances:batchRegister",
    "/v1/instances:batchRenew",
    "/v1/instances:batchDeregister",
    "/v1/namespaces/default/instances",
    "/v1/instances:watch",
];
const QUERIES: &[&str] = &[
    "",
    "expectedRevision=1",
    "pageSize=5&pageToken=a/b/c",
    "drain=10s",
    "namespace=%61&x",
    "instance.id=b",
    "=&&%zz",
];
const FIELDS: &[&str] = &[
    "namespace",
    "service",
    "id",
    "addresses",
    "ports",
    "labels",
    "metadata",
    "locality",
    "network",
    "weight",
    "healthy",
    "serviceAccount",
    "ttl",
    "checks",
    "drain",
    "number",
    "servicePort",
    "name",
    "protocol",
    "http",
    "tcp",
    "grpc",
    "path",
    "host",
    "port",
    "interval",
    "timeout",
    "healthyThreshold",
    "instance",
    "expectedRevision",
    "requests",
    "service_account",
];

pub(super) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let method = input.pick(METHODS).unwrap_or_default();
    let path = match input.below(8) {
        0 => input.text(60),
        _ => input.pick(PATHS).unwrap_or_default().to_owned(),
    };
    let query = match input.below(8) {
        0 => input.text(60),
        _ => input.pick(QUERIES).unwrap_or_default().to_owned(),
    };
    let Ok(found) = ROUTES.find(method, &path) else { return };
    let body = match input.below(4) {
        0 => input.all().to_vec(),
        1 => Vec::new(),
        _ => body(found.binding().rpc(), &mut input).to_string().into_bytes(),
    };
    match found.binding().rpc() {
        "Register" => {
            if let Some(request) = read::<RegisterRequest>(&found, &query, &body)
                && let Some(instance) = request.instance
            {
                register(instance);
            }
        }
        "BatchRegister" => {
            let batch = read::<v1::BatchRegisterRequest>(&found, &query, &body).unwrap_or_default();
            batch.requests.into_iter().filter_map(|request| request.instance).for_each(register);
        }
        "Renew" => drop(read::<v1::RenewRequest>(&found, &query, &body)),
        "BatchRenew" => drop(read::<v1::BatchRenewRequest>(&found, &query, &body)),
        "Deregister" => drop(read::<v1::DeregisterRequest>(&found, &query, &body)),
        "BatchDeregister" => drop(read::<v1::BatchDeregisterRequest>(&found, &query, &body)),
        "GetInstance" => drop(read::<v1::GetInstanceRequest>(&found, &query, &body)),
        "ListInstances" => drop(read::<v1::ListInstancesRequest>(&found, &query, &body)),
        "Watch" => drop(read::<v1::WatchRequest>(&found, &query, &body)),
        other => panic!("{other} is not read here"),
    }
}

/// Parses a request, and checks that its JSON and protobuf encodings are equivalent.
fn read<M: Message + Name + Default + PartialEq + std::fmt::Debug>(
    found: &Found<'_>,
    query: &str,
    body: &[u8],
) -> Option<M> {
    match found.request::<M>(query, body) {
        Ok(request) => {
            let encoded = request.encode_to_vec();
            assert_eq!(M::decode(&encoded[..]).ok().as_ref(), Some(&request));
            if let Ok(json) = to_json(&request) {
                assert!(serde_json::from_slice::<Value>(&json).is_ok_and(|json| json.is_object()));
            }
            Some(request)
        }
        Err(BadRequest::Field { message, .. }) => {
            assert!(!message.is_empty());
            None
        }
        Err(BadRequest::Bound(bound)) => {
            one_line(&bound.to_string());
            None
        }
    }
}

fn register(instance: v1::Instance) {
    match read_instance(instance.clone(), "cluster.local") {
        Ok(read) => {
            assert!(!read.addresses.is_empty() && read.addresses.len() <= 16);
            assert_eq!(read_instance(instance, "cluster.local").ok(), Some(read), "the same again");
        }
        Err(violations) => assert!(!violations.is_empty()),
    }
}

/// A plausible body for a method.
fn body(rpc: &str, input: &mut Input<'_>) -> Value {
    let instance = |input: &mut Input<'_>| {
        let mut instance = json!({
            "namespace": "default", "service": "web", "id": "a", "addresses": ["10.0.0.1"],
            "ports": [{"number": 80, "name": "http"}], "ttl": "10s"
        });
        for _ in 0..input.below(6) {
            let field = input.pick(FIELDS).unwrap_or_default();
            instance[field] = value(field, 3, input);
        }
        instance
    };
    match rpc {
        "Register" if input.flag() => instance(input),
        "Register" => json!({"instance": instance(input)}),
        "BatchRegister" => {
            let count = input.below(4);
            let requests: Vec<Value> = (0..count).map(|_| json!({"instance": instance(input)})).collect();
            json!({ "requests": requests })
        }
        _ => value("", 3, input),
    }
}

fn value(field: &str, depth: usize, input: &mut Input<'_>) -> Value {
    match (field, input.below(6)) {
        ("ports", 0..4) => {
            json!([{"number": input.number() >> 16, "name": input.text(5), "protocol": "http"}])
        }
        ("checks", 0..4) => {
            json!([{"http": {"path": input.text(8)}, "interval": "5s", "timeout": value("ttl", 1, input)}])
        }
        ("labels" | "metadata", 0..4) => json!({input.text(8): input.text(8)}),
        ("addresses", 0..4) => json!([input.pick(&[
            "10.0.0.1",
            "::1",
            "::ffff:1.2.3.4",
            "224.0.0.1",
            "0.0.0.0",
            "x",
            "01.2.3.4"
        ])]),
        ("ttl" | "drain", 0..5) => input
            .pick(&["1s", "0.999s", "86400s", "-1s", "1e3s", "9223372036854775807s", "1.0000000001s", ""])
            .into(),
        (_, 0) if depth > 0 => {
            let fields = (0..input.below(4)).map(|_| {
                let name = input.pick(FIELDS).unwrap_or_default();
                (name.to_owned(), value(name, depth - 1, input))
            });
            Value::Object(fields.collect::<Map<_, _>>())
        }
        (_, 1) if depth > 0 => (0..input.below(4)).map(|_| value("", depth - 1, input)).collect(),
        (_, 2) => input.number().into(),
        (_, 3) => input.flag().into(),
        _ => input.text(24).into(),
    }
}
