//! Input that Envoy could refuse, as objects in a small world.

use base64::Engine;
use pilotfish_config::{Limits, MeshFile, Problem, ReadFile, read, read_mesh_file};
use pilotfish_model::{ChangeSet, Fact, Kind, Object};
use pilotfish_registry::testing::world_from_objects;
use pilotfish_testkit::cases::ProxyEntry;
use pilotfish_translate::Translator;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const INPUTS: &str = include_str!("bad_input.yaml");
const WORLD: &str = include_str!("bad_input_world.yaml");

/// One entry of the list.
#[derive(Deserialize)]
pub(crate) struct Input {
    pub(crate) name: String,
    /// The field that validation names; `None` when the object is taken.
    pub(crate) reported: Option<String>,
    /// The field that a warning names: a part of the object is left out.
    pub(crate) warned: Option<String>,
    /// Envoy's error where it refuses the translated resource all the same.
    pub(crate) refused: Option<String>,
    /// Mesh configuration beside the object.
    #[serde(default)]
    base: Map<String, Value>,
    #[serde(flatten)]
    content: BTreeMap<String, Value>,
}

/// All entries.
pub(crate) fn inputs() -> Vec<Input> {
    serde_saphyr::from_str(INPUTS).expect("the list is YAML of the form that its head describes")
}

/// What became of an entry.
pub(crate) struct Served {
    pub(crate) translator: Translator,
    pub(crate) problems: Vec<Problem>,
}

impl Input {
    /// Reads the entry as its files would be read, and makes a world of what is taken.
    pub(crate) fn serve(&self) -> Served {
        let mut objects = read_all(read("world.yaml", WORLD.as_bytes(), &Limits::default()), &mut Vec::new());
        objects.extend(secrets());
        let mut problems = Vec::new();
        let (mut mesh, mut object) = (self.base.clone(), None);
        for (form, value) in &self.content {
            let value = expanded(value);
            match (form.as_str(), value) {
                ("mesh", Value::Object(fields)) => mesh.extend(fields),
                (form, value) => object = Some(object_of(form, value)),
            }
        }
        if !mesh.is_empty() {
            let text = Value::Object(mesh).to_string();
            let file = read_mesh_file(MeshFile::Config, "mesh.yaml", text.as_bytes(), &Limits::default());
            objects.extend(read_all(file, &mut problems));
        }
        if let Some(object) = object {
            let text = object.to_string();
            let read = read_all(read("input.yaml", text.as_bytes(), &Limits::default()), &mut problems);
            objects.retain(|other| read.iter().all(|object| other.key() != object.key()));
            for object in &read {
                problems.extend(pilotfish_translate::check_object(object));
            }
            objects.extend(read);
        }
        let translator = Translator::new();
        let changes = ChangeSet { facts: [Fact::Kind(Kind::MeshConfig)].into() };
        translator.publish(world_from_objects(objects), &changes);
        Served { translator, problems }
    }
}

/// A client, a server and a gateway.
pub(crate) fn proxies() -> Vec<ProxyEntry> {
    let proxies = json!([
        {"name": "client", "namespace": "shop", "ip": "10.0.0.9", "labels": {"app": "client"}},
        {"name": "catalog", "namespace": "shop", "ip": "10.0.0.2", "labels": {"app": "catalog"}},
        {"name": "edge", "namespace": "edge", "ip": "10.0.0.3", "kind": "router", "labels": {"istio": "ingressgateway"}},
    ]);
    serde_json::from_value(proxies).expect("proxies")
}

fn read_all(file: ReadFile, problems: &mut Vec<Problem>) -> Vec<Object> {
    let mut objects = Vec::new();
    for refused in file.rejected {
        problems.extend(refused.problems);
        objects.extend(refused.closed);
    }
    for read in file.objects {
        problems.extend(read.warnings);
        objects.push(read.object);
    }
    objects
}

/// Secrets that are none.
fn secrets() -> Vec<Object> {
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let certificate = encode(include_str!("agent.crt"));
    let secret = |name: &str, certificate: &str, key: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": name, "namespace": "edge"}, "data": {"tls.crt": certificate, "tls.key": key},
        })
    };
    let secrets = [
        secret("garbage", &encode("garbage"), &encode("garbage")),
        secret("empty", "", ""),
        secret("mismatch", &certificate, &encode(include_str!("other.key"))),
    ];
    let read = |secret: &Value| {
        read_all(read("secret.yaml", secret.to_string().as_bytes(), &Limits::default()), &mut Vec::new())
    };
    secrets.iter().flat_map(read).collect()
}

/// The value with `{repeat: TEXT, times: N}`, before which `prefix` may stand, written out.
fn expanded(value: &Value) -> Value {
    match value {
        Value::Object(fields) => match (fields.get("repeat"), fields.get("times").and_then(Value::as_u64)) {
            (Some(Value::String(text)), Some(times)) => {
                let prefix = fields.get("prefix").and_then(Value::as_str).unwrap_or_default();
                Value::String(prefix.to_owned() + &text.repeat(usize::try_from(times).expect("few")))
            }
            _ => Value::Object(fields.iter().map(|(key, value)| (key.clone(), expanded(value))).collect()),
        },
        Value::Array(items) => items.iter().map(expanded).collect(),
        _ => value.clone(),
    }
}

/// The object of an entry: whole, or one of the short forms.
#[allow(clippy::too_many_lines, reason = "a table of forms")]
fn object_of(form: &str, value: Value) -> Value {
    const CATALOG: &str = "catalog.shop.svc.cluster.local";
    const NETWORKING: &str = "networking.istio.io/v1";
    let object = |api: &str, kind: &str, namespace: &str, spec: Value| json!({"apiVersion": api, "kind": kind, "metadata": {"name": "x", "namespace": namespace}, "spec": spec});
    let with = |mut value: Value, field: &str, default: Value| {
        if value[field].is_null() {
            value[field] = default;
        } else if value[field].as_array().is_some_and(Vec::is_empty) {
            value.as_object_mut().expect("an object").remove(field);
        }
        value
    };
    match form {
        "object" => {
            let mut value = value;
            value["metadata"] = with(value["metadata"].take(), "namespace", json!("shop"));
            value
        }
        "http" => {
            let route = with(value, "route", json!([{"destination": {"host": CATALOG}}]));
            let spec = json!({"hosts": [CATALOG, "api.example.com"], "gateways": ["mesh", "edge/gw"], "http": [route]});
            object(NETWORKING, "VirtualService", "shop", spec)
        }
        "policy" => {
            object(NETWORKING, "DestinationRule", "shop", json!({"host": CATALOG, "trafficPolicy": value}))
        }
        "entry" => object(NETWORKING, "ServiceEntry", "shop", value),
        "gateway" => {
            let spec = json!({"selector": {"istio": "ingressgateway"}, "servers": [value]});
            object(NETWORKING, "Gateway", "edge", spec)
        }
        "sidecar" => {
            let spec = with(value, "workloadSelector", json!({"labels": {"app": "catalog"}}));
            object(NETWORKING, "Sidecar", "shop", spec)
        }
        "rule" => {
            object("security.istio.io/v1", "AuthorizationPolicy", "istio-system", json!({"rules": [value]}))
        }
        "jwt" => object(
            "security.istio.io/v1",
            "RequestAuthentication",
            "istio-system",
            json!({"jwtRules": [value]}),
        ),
        "patch" => object(
            "networking.istio.io/v1alpha3",
            "EnvoyFilter",
            "istio-system",
            json!({"configPatches": [value]}),
        ),
        "k8s_rule" => {
            let rule = with(value, "backendRefs", json!([{"name": "catalog", "port": 80}]));
            let parents = json!([
                {"name": "k8s", "namespace": "edge"}, {"group": "", "kind": "Service", "name": "catalog"},
            ]);
            object(
                "gateway.networking.k8s.io/v1",
                "HTTPRoute",
                "shop",
                json!({"parentRefs": parents, "rules": [rule]}),
            )
        }
        other => panic!("unknown form {other}"),
    }
}
