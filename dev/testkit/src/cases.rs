//! Recorded cases: objects, mesh settings, proxies, and istiod's resources for each. The format is that of
//! `oracle/cases.py`.

use anyhow::{Context, Result};
use pilotfish_config::{Limits, MeshFile, ReadFile, read, read_mesh_file};
use pilotfish_model::{ChangeSet, Fact, Kind, Object};
use pilotfish_proto::envoy::config::core::v3::{Locality, Node};
use pilotfish_proto::{ListValue, Struct, Value, ValueKind};
use pilotfish_registry::testing::world_from_objects;
use pilotfish_translate::Translator;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub struct Case {
    /// Name of the folder.
    pub name: String,
    pub folder: PathBuf,
    pub proxies: Vec<ProxyEntry>,
}

/// One proxy of a case in `proxies.yaml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyEntry {
    /// Name of the recording.
    pub name: String,
    /// `sidecar`, `router` or `grpc`.
    #[serde(default = "sidecar")]
    pub kind: String,
    /// First address.
    #[serde(default = "first_ip")]
    pub ip: String,
    /// Name of the pod; defaults to `name`.
    pub pod: Option<String>,
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// `LABELS` of the node metadata.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Additional or replaced node metadata.
    #[serde(default)]
    pub metadata: Map<String, Json>,
    /// Locality as `region/zone/sub_zone`.
    #[serde(default)]
    pub locality: String,
    /// `delta` or `sotw`.
    #[serde(default)]
    pub mode: String,
    /// For `grpc`: listeners to subscribe to.
    pub listeners: Option<Vec<String>>,
}

fn sidecar() -> String {
    "sidecar".into()
}

fn first_ip() -> String {
    "10.0.0.1".into()
}

fn default_namespace() -> String {
    "default".into()
}

impl ProxyEntry {
    /// Node of this proxy.
    #[must_use]
    pub fn node(&self) -> Node {
        let kind = if self.kind == "router" { "router" } else { "sidecar" };
        let pod = self.pod.as_ref().unwrap_or(&self.name);
        let app = self.labels.get("app").unwrap_or(pod);
        let mut metadata = json!({
            "NAMESPACE": self.namespace, "NAME": pod, "CLUSTER_ID": "Kubernetes", "MESH_ID": "cluster.local",
            "ISTIO_VERSION": "1.31.0", "SERVICE_ACCOUNT": "default", "INSTANCE_IPS": self.ip,
            "INTERCEPTION_MODE": "REDIRECT", "LABELS": self.labels,
        });
        if let Json::Object(fields) = &mut metadata {
            if self.kind == "grpc" {
                fields.insert("GENERATOR".into(), "grpc".into());
            }
            fields.extend(self.metadata.clone());
        }
        let mut parts = self.locality.split('/').map(str::to_owned);
        let mut part = || parts.next().unwrap_or_default();
        let locality = Locality { region: part(), zone: part(), sub_zone: part() };
        Node {
            id: format!("{kind}~{}~{pod}.{}~{}.svc.cluster.local", self.ip, self.namespace, self.namespace),
            cluster: format!("{app}.{}", self.namespace),
            user_agent_name: "envoy".into(),
            metadata: as_struct(&metadata),
            locality: (!self.locality.is_empty()).then_some(locality),
            ..Default::default()
        }
    }
}

fn as_struct(json: &Json) -> Option<Struct> {
    match value(json).kind {
        Some(ValueKind::StructValue(inner)) => Some(inner),
        _ => None,
    }
}

fn value(json: &Json) -> Value {
    let kind = match json {
        Json::Null => ValueKind::NullValue(0),
        Json::Bool(flag) => ValueKind::BoolValue(*flag),
        Json::Number(number) => ValueKind::NumberValue(number.as_f64().unwrap_or_default()),
        Json::String(text) => ValueKind::StringValue(text.clone()),
        Json::Array(items) => ValueKind::ListValue(ListValue { values: items.iter().map(value).collect() }),
        Json::Object(fields) => ValueKind::StructValue(Struct {
            fields: fields.iter().map(|(k, v)| (k.clone(), value(v))).collect(),
        }),
    };
    Value { kind: Some(kind) }
}

impl Case {
    /// Reads the case in a folder.
    ///
    /// # Errors
    /// When `proxies.yaml` cannot be read.
    pub fn read(folder: &Path) -> Result<Self> {
        let file = folder.join("proxies.yaml");
        let text = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        let proxies = serde_saphyr::from_str(&text).with_context(|| format!("parsing {}", file.display()))?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, folder: folder.to_owned(), proxies })
    }

    /// All cases below a folder, by name.
    ///
    /// # Errors
    /// When the folder or a case cannot be read.
    pub fn all(root: &Path) -> Result<Vec<Self>> {
        let mut folders = Vec::new();
        for entry in std::fs::read_dir(root).with_context(|| format!("reading {}", root.display()))? {
            let path = entry?.path();
            if path.join("proxies.yaml").exists() {
                folders.push(path);
            }
        }
        folders.sort();
        folders.iter().map(|folder| Self::read(folder)).collect()
    }

    /// Content of one of the case's files; `None` if the case does not have it.
    ///
    /// # Errors
    /// When it exists and cannot be read.
    pub fn file(&self, name: &str) -> Result<Option<String>> {
        let path = self.folder.join(name);
        if !path.exists() {
            return Ok(None);
        }
        std::fs::read_to_string(&path).map(Some).with_context(|| format!("reading {}", path.display()))
    }

    /// Objects of the case with its mesh settings. Invalid ones are left out, as when the files are served.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn objects(&self) -> Result<CaseObjects> {
        let config = self.file("config.yaml")?.context("no config.yaml")?;
        let mut out = CaseObjects::default();
        out.take(read("config.yaml", config.as_bytes(), &Limits::default()));
        for (file, which) in [("mesh.yaml", MeshFile::Config), ("networks.yaml", MeshFile::Networks)] {
            if let Some(text) = self.file(file)? {
                out.take(read_mesh_file(which, file, text.as_bytes(), &Limits::default()));
            }
        }
        Ok(out)
    }

    /// Translator for the world of the case.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn translator(&self) -> Result<Translator> {
        Ok(translator(self.objects()?.objects))
    }

    /// Recorded resources of a proxy from istiod.
    ///
    /// # Errors
    /// When there is no recording or it is not JSON.
    pub fn golden(&self, proxy: &ProxyEntry) -> Result<Json> {
        let text = self.file(&format!("golden/{}.json", proxy.name))?.context("no recording")?;
        Ok(serde_json::from_str(&text)?)
    }
}

/// Objects of a case.
#[derive(Default)]
pub struct CaseObjects {
    /// Valid objects.
    pub objects: Vec<Object>,
    /// Invalid objects, each with the faulty field: `Secret edge/web: data.tls.crt`.
    pub refused: Vec<String>,
}

impl CaseObjects {
    fn take(&mut self, file: ReadFile) {
        for refused in &file.rejected {
            let object = refused
                .key
                .as_ref()
                .map_or_else(|| format!("document {}", refused.document), ToString::to_string);
            let error = refused.problems.iter().find(|problem| problem.is_error());
            let field = error.map(|problem| problem.path.to_string()).unwrap_or_default();
            self.refused.push(format!("{object}: {field}"));
        }
        self.objects.extend(file.objects.into_iter().map(|read| read.object));
    }
}

/// Translator for a world with these objects.
#[must_use]
pub fn translator(objects: impl IntoIterator<Item = Object>) -> Translator {
    let translator = Translator::new();
    let changes = ChangeSet { facts: [Fact::Kind(Kind::MeshConfig)].into() };
    translator.publish(world_from_objects(objects), &changes);
    translator
}
