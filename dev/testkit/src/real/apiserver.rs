//! A real Kubernetes API server with its own etcd: a cluster without controllers, scheduler and kubelets.
//! Tests write EndpointSlices, Pods and Nodes with their status themselves.

use super::{Program, Tool, eventually, free_port};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Client, Config, ResourceExt, discovery};
use serde::Deserialize;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use tempfile::TempDir;
use tokio::process::Command;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authorization {
    /// All users may do everything.
    #[default]
    AlwaysAllow,
    /// Roles and ClusterRoles; the administrator may do everything.
    Rbac,
}

/// A user with a token.
#[derive(Clone, Debug)]
pub struct User {
    /// Token of letters and digits.
    pub token: String,
    /// Name, `system:serviceaccount:NAMESPACE:NAME` for a service account.
    pub name: String,
    pub groups: Vec<String>,
}

/// Options of an API server.
#[derive(Clone, Debug, Default)]
pub struct ApiServerOptions {
    pub authorization: Authorization,
    /// Users in addition to the administrator.
    pub users: Vec<User>,
    /// Additional flags of kube-apiserver.
    pub flags: Vec<String>,
}

/// A running API server; ends on drop.
pub struct ApiServer {
    folder: TempDir,
    options: ApiServerOptions,
    port: u16,
    etcd_port: u16,
    /// `None` if it belongs to a sibling.
    etcd: Option<Program>,
    server: Program,
    client: Client,
    /// Discovered kinds.
    kinds: Mutex<HashMap<GroupVersionKind, (ApiResource, discovery::Scope)>>,
}

/// Kinds of Istio and the Gateway API that are not served.
const UNSERVED: [(&str, &str, &str); 4] = [
    ("gateway.networking.k8s.io", "v1alpha2", "UDPRoute"),
    ("gateway.networking.x-k8s.io", "v1alpha1", "XListenerSet"),
    ("gateway.networking.x-k8s.io", "v1alpha1", "XMesh"),
    ("gateway.networking.x-k8s.io", "v1alpha1", "XBackendTrafficPolicy"),
];

/// The definition of a kind with namespaces and any content.
#[must_use]
pub fn definition(group: &str, version: &str, kind: &str) -> String {
    let singular = kind.to_lowercase();
    let plural = match singular.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if singular.ends_with("sh") => format!("{singular}es"),
        None => format!("{singular}s"),
    };
    // Groups of Kubernetes need the annotation.
    serde_json::json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{group}"),
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": singular},
            "versions": [{
                "name": version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
    .to_string()
}

/// The administrator's token.
const ADMIN: &str = "admintoken";

impl ApiServer {
    /// Starts an API server and waits until it is ready. `None` when a tool is missing and is not required.
    ///
    /// # Panics
    /// When it does not become ready, or a tool is missing in CI.
    pub async fn start(options: ApiServerOptions) -> Option<Self> {
        let (etcd, server) = (Tool::Etcd.find()?, Tool::KubeApiserver.find()?);
        let folder = tempfile::tempdir().expect("a temporary folder");
        write_keys(folder.path(), &options.users);
        let (port, etcd_port) = (free_port(), free_port());
        let etcd = start_etcd(&etcd, folder.path(), etcd_port);
        let server = start_server(&server, folder.path(), port, etcd_port, &options);
        let text = kubeconfig_text(folder.path(), port, ADMIN);
        write(&folder.path().join("kubeconfig"), &text);
        let client = first_client(folder.path(), &text).await;
        let etcd = Some(etcd);
        let this = Self { folder, options, port, etcd_port, etcd, server, client, kinds: Mutex::default() };
        this.ready().await;
        Some(this)
    }

    /// Starts another API server on the same etcd, for writes while this one is unreachable.
    ///
    /// # Panics
    /// When it does not become ready.
    pub async fn sibling(&self) -> Self {
        let tool = Tool::KubeApiserver.find().expect("one was started before");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (options, etcd_port, port) = (self.options.clone(), self.etcd_port, free_port());
        for name in ["accounts.key", "accounts.pub", "tokens.csv"] {
            std::fs::copy(self.folder.path().join(name), folder.path().join(name)).expect("it was written");
        }
        let server = start_server(&tool, folder.path(), port, etcd_port, &options);
        let text = kubeconfig_text(folder.path(), port, ADMIN);
        let client = first_client(folder.path(), &text).await;
        let this =
            Self { folder, options, port, etcd_port, etcd: None, server, client, kinds: Mutex::default() };
        this.ready().await;
        this
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Directory for files of the test.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Path of the administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// Text of a kubeconfig for a user with that token.
    #[must_use]
    pub fn kubeconfig_of(&self, token: &str) -> String {
        kubeconfig_text(self.folder.path(), self.port, token)
    }

    /// Text of a portable kubeconfig for a user with that token: it contains the certificate authority, not a
    /// path.
    ///
    /// # Panics
    /// When the certificate authority cannot be read.
    #[must_use]
    pub fn remote_kubeconfig(&self, token: &str) -> String {
        use base64::Engine;
        let authority = self.folder.path().join("certificates/apiserver.crt");
        let file = format!("certificate-authority: {}", authority.display());
        let data = base64::engine::general_purpose::STANDARD
            .encode(std::fs::read(authority).expect("the API server has made it"));
        self.kubeconfig_of(token).replace(&file, &format!("certificate-authority-data: {data}"))
    }

    /// Client of the administrator.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Kills the API server like a crash; etcd continues.
    pub async fn kill(&mut self) {
        self.server.kill().await;
    }

    /// Restarts it on the same port and data, and waits until it is ready.
    ///
    /// # Panics
    /// When it does not become ready.
    pub async fn restart(&mut self) {
        let tool = Tool::KubeApiserver.find().expect("it was started before");
        self.server = start_server(&tool, self.folder.path(), self.port, self.etcd_port, &self.options);
        self.ready().await;
    }

    /// Port of the API server on loopback.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Port of etcd on loopback (plaintext gRPC and JSON).
    #[must_use]
    pub fn etcd_port(&self) -> u16 {
        self.etcd_port
    }

    /// Output of the API server.
    #[must_use]
    pub fn printed(&self) -> String {
        let etcd = self.etcd.as_ref().map(Program::printed).unwrap_or_default();
        format!("{}\n--- etcd\n{etcd}", self.server.printed())
    }

    /// Creates or replaces the objects of a YAML text, including their `status`.
    ///
    /// # Panics
    /// When the API server refuses one.
    pub async fn apply(&self, yaml: &str) {
        for object in documents(yaml) {
            self.apply_object(object).await;
        }
    }

    /// Applies the CustomResourceDefinitions of all kinds that have one.
    ///
    /// # Panics
    /// When the API server refuses one.
    pub async fn apply_definitions(&self) {
        for definition in pilotfish_crd::definitions() {
            self.apply(&definition.to_string()).await;
        }
    }

    /// Applies definitions of the kinds of Istio and the Gateway API that are not served.
    ///
    /// # Panics
    /// When the API server refuses one.
    pub async fn apply_unserved_definitions(&self) {
        for (group, version, kind) in UNSERVED {
            self.apply(&definition(group, version, kind)).await;
        }
    }

    /// Deletes the objects that a YAML text names.
    ///
    /// # Panics
    /// When the API server refuses that.
    pub async fn delete(&self, yaml: &str) {
        for object in documents(yaml) {
            let (api, name) = self.api_of(&object).await;
            api.delete(&name, &kube::api::DeleteParams::default().grace_period(0))
                .await
                .unwrap_or_else(|error| panic!("deleting {name}: {error}"));
        }
    }

    /// Removes the objects of a YAML text: deletes them, and removes the labels of Namespaces.
    ///
    /// # Panics
    /// When the API server refuses that.
    pub async fn clear(&self, yaml: &str) {
        for object in documents(yaml) {
            let is_namespace = object.types.as_ref().is_some_and(|types| types.kind == "Namespace");
            if is_namespace {
                // Without controllers, Namespaces cannot be deleted.
                let name = object.name_any();
                let plain = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n");
                self.apply(&plain).await;
                continue;
            }
            let (api, name) = self.api_of(&object).await;
            match api.delete(&name, &kube::api::DeleteParams::default().grace_period(0)).await {
                Ok(_) => {}
                // The text may name an object twice.
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => panic!("deleting {name}: {error}"),
            }
        }
    }

    /// Variant of [`ApiServer::apply`] with concurrent requests.
    ///
    /// # Panics
    /// When the API server refuses one.
    pub async fn apply_many(&self, yaml: &str) {
        use futures::StreamExt;
        let objects = futures::stream::iter(documents(yaml));
        objects.for_each_concurrent(16, |object| self.apply_object(object)).await;
    }

    /// Deletes all objects of a core kind in a namespace by one request.
    ///
    /// # Panics
    /// When the API server refuses that.
    pub async fn delete_all(&self, kind: &str, namespace: &str) {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind));
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource);
        let params = kube::api::DeleteParams::default().grace_period(0);
        api.delete_collection(&params, &kube::api::ListParams::default())
            .await
            .unwrap_or_else(|error| panic!("deleting every {kind} of {namespace}: {error}"));
    }

    /// Compacts etcd: earlier watches cannot be resumed.
    ///
    /// # Panics
    /// When etcd does not respond.
    pub async fn compact(&self) {
        let range = self.etcd_call("range", r#"{"key": "AA==", "limit": "1"}"#).await;
        let revision = range["header"]["revision"].as_str().unwrap_or("0").to_owned();
        self.etcd_call("compaction", &format!(r#"{{"revision": "{revision}", "physical": true}}"#)).await;
    }

    /// Calls etcd's JSON API.
    async fn etcd_call(&self, name: &str, body: &str) -> serde_json::Value {
        let url = format!("http://127.0.0.1:{}/v3/kv/{name}", self.etcd_port);
        let answer = super::load::post(&url, body).await;
        let answer = answer.unwrap_or_else(|error| panic!("etcd: {name}: {error}"));
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("etcd: {name}: {error}: {answer}"))
    }

    async fn apply_object(&self, object: DynamicObject) {
        let (api, name) = self.api_of(&object).await;
        let params = PatchParams::apply("test").force();
        let mut value = serde_json::to_value(&object).expect("objects are JSON");
        // With a status subresource, the main resource ignores the status.
        let status = value.as_object_mut().and_then(|fields| fields.remove("status"));
        let fail = |error: kube::Error| -> DynamicObject { panic!("applying {name}: {error}\n{value:#}") };
        let applied = api.patch(&name, &params, &Patch::Apply(&value)).await.unwrap_or_else(fail);
        if let Some(status) = status {
            let part = serde_json::json!({
                "apiVersion": value["apiVersion"], "kind": value["kind"],
                "metadata": {"name": name, "namespace": applied.namespace()}, "status": status,
            });
            api.patch_status(&name, &params, &Patch::Apply(&part)).await.unwrap_or_else(fail);
        }
    }

    /// API of an object's kind and namespace, and its name.
    async fn api_of(&self, object: &DynamicObject) -> (Api<DynamicObject>, String) {
        let types = object.types.clone().expect("apiVersion and kind are written");
        let kind = GroupVersionKind::try_from(&types).expect("apiVersion is well-formed");
        let known = self.kinds.lock().expect("no holder panics").get(&kind).cloned();
        let (resource, scope) = match known {
            Some(known) => known,
            None => {
                let (resource, capabilities) =
                    eventually("the kind is served", || discovery::pinned_kind(&self.client, &kind)).await;
                let found = (resource, capabilities.scope);
                self.kinds.lock().expect("no holder panics").insert(kind, found.clone());
                found
            }
        };
        let name = object.name_any();
        let api = match scope {
            discovery::Scope::Cluster => Api::all_with(self.client.clone(), &resource),
            discovery::Scope::Namespaced => {
                let namespace = object.namespace().unwrap_or_else(|| "default".into());
                self.ensure_namespace(&namespace).await;
                Api::namespaced_with(self.client.clone(), &namespace, &resource)
            }
        };
        (api, name)
    }

    async fn ensure_namespace(&self, name: &str) {
        let api: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(self.client.clone());
        if api.get_opt(name).await.expect("namespaces can be read").is_none() {
            let namespace = serde_json::json!({"metadata": {"name": name}});
            let namespace = serde_json::from_value(namespace).expect("it is a namespace");
            match api.create(&Default::default(), &namespace).await {
                Ok(_) => {}
                // Another task creates it at the same time.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => panic!("making namespace {name}: {error}"),
            }
        }
    }

    async fn ready(&self) {
        eventually("the API server is ready", || async {
            let request = http::Request::get("/readyz").body(Vec::new()).expect("it is a request");
            self.client.request_text(request).await.map_err(|error| format!("{error}\n{}", self.printed()))
        })
        .await;
        // The last object that the API server creates after it is ready.
        eventually("the namespace default is there", || async {
            let api: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(self.client.clone());
            api.get("default").await
        })
        .await;
    }
}

/// Objects of a YAML text, without empty documents.
fn documents(yaml: &str) -> Vec<DynamicObject> {
    let mut objects = Vec::new();
    for document in yaml.split("\n---") {
        let text = document.trim_start_matches('-');
        // Like Kubernetes: `y` and `no` are strings.
        let options = serde_saphyr::options! { strict_booleans: true };
        let value: serde_json::Value = serde_saphyr::from_str_with_options(text, options)
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        if !value.is_null() {
            let object = DynamicObject::deserialize(&value);
            objects.push(object.unwrap_or_else(|error| panic!("no object: {error}\n{text}")));
        }
    }
    objects
}

fn start_etcd(program: &Path, folder: &Path, port: u16) -> Program {
    let url = format!("http://127.0.0.1:{port}");
    let peer = format!("http://127.0.0.1:{}", free_port());
    let mut command = Command::new(program);
    command.arg("--data-dir").arg(folder.join("etcd")).arg("--unsafe-no-fsync");
    command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &format!("default={peer}"), "--log-level", "error"]);
    Program::start(&mut command, folder.join("etcd.log"))
}

fn start_server(
    program: &Path,
    folder: &Path,
    port: u16,
    etcd_port: u16,
    options: &ApiServerOptions,
) -> Program {
    let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let authorization = match options.authorization {
        Authorization::AlwaysAllow => "AlwaysAllow",
        Authorization::Rbac => "RBAC",
    };
    let mut command = Command::new(program);
    command.args([
        "--bind-address=127.0.0.1",
        &format!("--secure-port={port}"),
        &format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
        &format!("--cert-dir={}", file("certificates")),
        &format!("--token-auth-file={}", file("tokens.csv")),
        &format!("--authorization-mode={authorization}"),
        "--disable-admission-plugins=ServiceAccount",
        "--service-account-issuer=https://kubernetes.default.svc",
        &format!("--service-account-key-file={}", file("accounts.pub")),
        &format!("--service-account-signing-key-file={}", file("accounts.key")),
        "--service-cluster-ip-range=10.96.0.0/12",
        "--allow-privileged=true",
        // Endpoints of the API server itself would differ between machines.
        "--endpoint-reconciler-type=none",
        // Tests cut connections and send many requests in a short time, without testing fairness.
        "--enable-priority-and-fairness=false",
        "--shutdown-delay-duration=0s",
    ]);
    command.args(&options.flags);
    Program::start(&mut command, folder.join("kube-apiserver.log"))
}

/// Writes the key of service accounts and the tokens of users.
fn write_keys(folder: &Path, users: &[User]) {
    let key = rcgen::KeyPair::generate().expect("a key can be made");
    write(&folder.join("accounts.key"), &key.serialize_pem());
    write(&folder.join("accounts.pub"), &key.public_key_pem());
    let mut tokens = format!("{ADMIN},admin,admin,\"system:masters\"\n");
    for user in users {
        let groups = user.groups.join(",");
        tokens.push_str(&format!("{},{},{},\"{groups}\"\n", user.token, user.name, user.name));
    }
    write(&folder.join("tokens.csv"), &tokens);
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("the folder can be written");
}

fn kubeconfig_text(folder: &Path, port: u16, token: &str) -> String {
    let authority = folder.join("certificates/apiserver.crt");
    format!(
        "apiVersion: v1
kind: Config
current-context: test
clusters:
- name: test
  cluster:
    server: https://127.0.0.1:{port}
    certificate-authority: {}
users:
- name: test
  user:
    token: {token}
contexts:
- name: test
  context:
    cluster: test
    user: test
",
        authority.display()
    )
}

/// Client of an API server that has just been started and is writing its certificate.
async fn first_client(folder: &Path, kubeconfig: &str) -> Client {
    // The key is written after the certificate, which is then complete: a client with a part of it would
    // fail.
    let key = folder.join("certificates/apiserver.key");
    eventually("the API server has a certificate", || async {
        std::fs::metadata(&key).map_err(|error| error.to_string())?;
        client_of(kubeconfig).await
    })
    .await
}

async fn client_of(kubeconfig: &str) -> Result<Client, String> {
    let parsed = Kubeconfig::from_yaml(kubeconfig).map_err(|error| error.to_string())?;
    let config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await;
    Client::try_from(config.map_err(|error| error.to_string())?).map_err(|error| error.to_string())
}
