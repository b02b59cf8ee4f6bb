//! The stand-in for Polaris answers what a real server answered: recorded exchanges, one after the other.
//!
//! Equal is everything but what a server makes up (tokens, revisions, ids of services, times), which only has
//! to be there where it was, and what [`is_other`] names.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use http::uri::PathAndQuery;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use pilotfish_testkit::polaris::{Polaris, PolarisOptions, grpc};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic_prost::ProstCodec;

/// True for what is recorded and not in the stand-in: ReportClient, filters of Discover, a Discover without a
/// service, rules, the order of pages, the ports that the server computes for services, and what it has
/// beside what was written.
fn is_other(request: &Value) -> bool {
    let path = request["path"].as_str().unwrap_or_default();
    let kind = request["body"]["type"].as_str().unwrap_or_default();
    // A namespace of the server's own, with the server in it.
    let of_server = request["body"].to_string().contains("\"Polaris\"") || path == "/naming/v1/namespaces";
    let is_list_of_all = request["method"] == "GET" && of_server && !path.contains('?');
    let is_discover = path == "/v1/Discover";
    // It would close the connection; an unknown kind is not decoded.
    let is_broken = request["body"]["service"].is_null() || kind == "NONSENSE";
    is_discover && (is_broken || !request["body"]["Filter"].is_null())
        || path == "/v1/ReportClient"
        || is_list_of_all
        || (request["method"] == "POST" && path.ends_with("namespaces/delete") && of_server)
        || path.ends_with("/count")
        || path.contains("offset=")
        || ["ROUTING", "RATE_LIMIT", "CIRCUIT_BREAKER", "FAULT_DETECTOR"].contains(&kind)
}

struct Replay {
    polaris: Polaris,
    http: Client<HttpConnector, Full<bytes::Bytes>>,
    asks: mpsc::Sender<grpc::DiscoverRequest>,
    answers: tonic::Streaming<grpc::DiscoverResponse>,
    /// What the recorded server made up, and what the stand-in has in its place.
    made_up: BTreeMap<String, String>,
}

impl Replay {
    async fn start() -> Self {
        let polaris = Polaris::start(PolarisOptions { tick: None, ..PolarisOptions::default() }).await;
        let (asks, asked) = mpsc::channel(1);
        let endpoint =
            tonic::transport::Endpoint::from_shared(format!("http://127.0.0.1:{}", polaris.grpc_port()));
        let mut client = tonic::client::Grpc::new(endpoint.unwrap().connect_lazy());
        client.ready().await.unwrap();
        let path = PathAndQuery::from_static("/v1.PolarisGRPC/Discover");
        let request = tonic::Request::new(ReceiverStream::new(asked));
        let answers = client.streaming(request, path, ProstCodec::default()).await.unwrap().into_inner();
        let http = Client::builder(TokioExecutor::new()).build_http();
        Self { polaris, http, asks, answers, made_up: BTreeMap::new() }
    }

    /// A recorded text with what the stand-in made up in the place of what the server did.
    fn ours(&self, text: &str) -> String {
        self.made_up.iter().fold(text.to_owned(), |text, (theirs, ours)| text.replace(theirs, ours))
    }

    async fn ask(&mut self, request: &Value) -> (Value, Value) {
        if request["method"] == "gRPC" {
            return (Value::Null, self.discover(&request["body"]).await);
        }
        let body = match &request["body"] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            body => self.ours(&body.to_string()),
        };
        let path = self.ours(request["path"].as_str().unwrap());
        let mut ask = Request::builder()
            .method(request["method"].as_str().unwrap())
            .uri(format!("http://127.0.0.1:{}{path}", self.polaris.http_port()));
        for (name, value) in request["headers"].as_object().unwrap() {
            ask = ask.header(name, value.as_str().unwrap());
        }
        let answer = self.http.request(ask.body(Full::from(body)).unwrap()).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        (json!(status), serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    async fn discover(&mut self, body: &Value) -> Value {
        let body: Value = serde_json::from_str(&self.ours(&body.to_string())).unwrap();
        let text = |name: &str| body["service"][name].as_str().map(str::to_owned);
        let service = grpc::Service {
            name: text("name"),
            namespace: text("namespace"),
            revision: text("revision"),
            ..grpc::Service::default()
        };
        let kind = KINDS.iter().find(|(_, name)| body["type"] == *name).map_or(0, |(kind, _)| *kind);
        self.asks.send(grpc::DiscoverRequest { r#type: kind, service: Some(service) }).await.unwrap();
        as_json(self.answers.message().await.unwrap().unwrap())
    }
}

const KINDS: [(i32, &str); 5] =
    [(1, "INSTANCE"), (3, "ROUTING"), (6, "SERVICES"), (12, "NAMESPACES"), (100, "LANE")];

/// As protobuf's JSON: what is absent is absent.
fn as_json(answer: grpc::DiscoverResponse) -> Value {
    let kind = KINDS.iter().find(|(kind, _)| *kind == answer.r#type).map_or("UNKNOWN", |(_, name)| name);
    let mut body =
        object([("code", json!(answer.code)), ("info", json!(answer.info)), ("type", json!(kind))]);
    body.extend(answer.service.map(|service| ("service".to_owned(), service_json(&service))));
    let lists = [
        ("instances", answer.instances.into_iter().map(instance_json).collect::<Vec<_>>()),
        ("services", answer.services.iter().map(service_json).collect()),
    ];
    body.extend(
        lists
            .into_iter()
            .filter(|(_, list)| !list.is_empty())
            .map(|(name, list)| (name.to_owned(), json!(list))),
    );
    Value::Object(body)
}

fn object<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    let there = fields.into_iter().filter(|(_, value)| !value.is_null() && *value != json!({}));
    there.map(|(name, value)| (name.to_owned(), value)).collect()
}

fn service_json(service: &grpc::Service) -> Value {
    Value::Object(object([
        ("name", json!(service.name)),
        ("namespace", json!(service.namespace)),
        ("metadata", json!(service.metadata)),
        ("owners", json!(service.owners)),
        ("revision", json!(service.revision)),
        ("id", json!(service.id)),
    ]))
}

fn instance_json(instance: grpc::Instance) -> Value {
    let location = instance.location.map(|place| {
        object([
            ("region", json!(place.region)),
            ("zone", json!(place.zone)),
            ("campus", json!(place.campus)),
        ])
    });
    Value::Object(object([
        ("id", json!(instance.id)),
        ("service", json!(instance.service)),
        ("namespace", json!(instance.namespace)),
        ("host", json!(instance.host)),
        ("port", json!(instance.port)),
        ("protocol", json!(instance.protocol)),
        ("version", json!(instance.version)),
        ("weight", json!(instance.weight)),
        ("healthy", json!(instance.healthy)),
        ("isolate", json!(instance.isolate)),
        ("location", json!(location)),
        ("metadata", json!(instance.metadata)),
        ("revision", json!(instance.revision)),
    ]))
}

/// Fields that no message of the stand-in has over gRPC.
const NOT_IN_DISCOVER: [&str; 13] = [
    "aliasFor",
    "business",
    "cmdb_mod1",
    "cmdb_mod2",
    "cmdb_mod3",
    "comment",
    "ctime",
    "deleteable",
    "department",
    "editable",
    "mtime",
    "platform_id",
    "ports",
];

/// Puts lists into an order of their own, and takes out what is not compared.
fn normal(value: &mut Value, is_discover: bool) {
    match value {
        Value::Object(fields) => {
            if is_discover {
                fields.retain(|name, _| !NOT_IN_DISCOVER.contains(&name.as_str()));
            } else if fields.contains_key("cmdb_mod1")
                && fields.get("revision").is_some_and(|it| !it.is_null())
            {
                // The server adds the ports of instances, in an order of its own, with some twice.
                fields.remove("ports");
            }
            if fields.contains_key("alias_namespace") {
                // It changes by itself within a second.
                fields.remove("deleteable");
                fields.remove("editable");
            }
            fields.values_mut().for_each(|value| normal(value, is_discover));
            for name in ["instances", "services", "namespaces", "aliases"] {
                if let Some(Value::Array(list)) = fields.get_mut(name) {
                    list.sort_by_key(|item| {
                        format!("{}/{}/{}/{}", item["namespace"], item["name"], item["alias"], item["id"])
                    });
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| normal(value, is_discover)),
        _ => {}
    }
}

/// Compares, and learns what was made up. `path` is for people.
fn compare(
    theirs: &Value,
    ours: &Value,
    path: &str,
    made_up: &mut BTreeMap<String, String>,
) -> Result<(), String> {
    match (theirs, ours) {
        (Value::Object(a), Value::Object(b)) => {
            let (names, others): (Vec<_>, Vec<_>) = (a.keys().collect(), b.keys().collect());
            if names != others {
                return Err(format!("{path}: fields {names:?}, here {others:?}"));
            }
            a.iter()
                .try_for_each(|(name, value)| compare(value, &b[name], &format!("{path}.{name}"), made_up))
        }
        (Value::Array(a), Value::Array(b)) => {
            if a.len() != b.len() {
                return Err(format!("{path}: {} elements, here {}", a.len(), b.len()));
            }
            let mut pairs = a.iter().zip(b).enumerate();
            pairs.try_for_each(|(index, (a, b))| compare(a, b, &format!("{path}[{index}]"), made_up))
        }
        (Value::String(a), Value::String(b)) if a != b => {
            let name = path.rsplit('.').next().unwrap_or_default();
            let is_service_id = name == "id" && a.len() == 32 && b.len() == 32;
            let is_made_up = ["token", "service_token", "revision"].contains(&name) || is_service_id;
            if is_made_up
                && !b.is_empty()
                && (made_up.get(a).is_none_or(|known| known == b) || name == "revision")
            {
                made_up.insert(a.clone(), b.clone());
                return Ok(());
            }
            if ["ctime", "mtime"].contains(&name) && a.len() == b.len() {
                return Ok(());
            }
            Err(format!("{path}: {a:?}, here {b:?}"))
        }
        (a, b) if a == b => Ok(()),
        (a, b) => Err(format!("{path}: {a}, here {b}")),
    }
}

async fn replay(name: &str) -> Result<usize, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/polaris");
    let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
    let recorded: Value = serde_json::from_str(&text).unwrap();
    let mut replay = Replay::start().await;
    let (mut count, mut wrong) = (0, Vec::new());
    for exchange in recorded["exchanges"].as_array().unwrap() {
        let (request, response) = (&exchange["request"], &exchange["response"]);
        if is_other(request) {
            continue;
        }
        count += 1;
        let is_discover = request["method"] == "gRPC" || request["path"] == "/v1/Discover";
        let mut theirs = response["body"].clone();
        normal(&mut theirs, is_discover);
        // What was written may be visible or not yet.
        let mut result = Err(String::new());
        for _ in 0..2 {
            let (status, mut ours) = replay.ask(request).await;
            normal(&mut ours, is_discover);
            let mut made_up = replay.made_up.clone();
            result = compare(&theirs, &ours, "", &mut made_up);
            if result.is_ok() && response["status"] != status {
                result = Err(format!("status {}, here {status}", response["status"]));
            }
            if result.is_ok() {
                replay.made_up = made_up;
                break;
            }
            if !is_discover {
                break;
            }
            replay.polaris.refresh();
        }
        if let Err(difference) = result {
            wrong.push(format!(
                "{} {} {}\n    {difference}",
                request["method"],
                request["path"],
                short(&request["body"])
            ));
        }
    }
    if wrong.is_empty() {
        Ok(count)
    } else {
        Err(format!("{name}: {} of {count} differ\n{}", wrong.len(), wrong.join("\n")))
    }
}

fn short(body: &Value) -> String {
    body.to_string().chars().take(160).collect()
}

/// Each file, with how many of its exchanges are compared.
#[tokio::test]
async fn the_stand_in_answers_as_recorded() {
    let files = [
        ("namespaces", 32),
        ("services-create", 37),
        ("services-update", 24),
        ("services-delete", 20),
        ("instances-create", 19),
        ("instances-update", 40),
        ("instances-delete", 22),
        ("instances-limits", 39),
        ("grpc-discover", 36),
        ("aliases", 50),
        ("client-api", 27),
    ];
    let (mut compared, mut wrong) = (Vec::new(), Vec::new());
    for (name, _) in files {
        match replay(name).await {
            Ok(count) => compared.push((name, count)),
            Err(text) => wrong.push(text),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(compared, files, "none is left out");
}
