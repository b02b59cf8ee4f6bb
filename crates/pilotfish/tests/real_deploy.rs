//! The manifests on a real API server that enforces RBAC: Pilotfish with exactly these rights becomes ready,
//! is never refused anything, and has no right to read that it does not use.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{Api, ListParams, Patch, PatchParams};
use pilotfish_identity::WorkloadId;
use pilotfish_testkit::real::{
    ApiServer, ApiServerOptions, Authorization, Program, Tunnel, User, definition, eventually, fetch,
    free_port,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use support::certificates::{create_with, der};
use support::delta::{Proxy, node};
use support::kube::{kept_authority, token};
use tempfile::TempDir;
use tokio::process::Command;

const ACCOUNT: &str = "system:serviceaccount:istio-system:pilotfish";
const TOKEN: &str = "pilotfishtoken";

/// Every request of the service account, written before it is answered.
const AUDIT: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ['system:serviceaccount:istio-system:pilotfish']
- level: None
";

const SHOP: &str = "
apiVersion: v1
kind: Service
metadata: {name: catalog, namespace: shop}
spec: {ports: [{name: http, port: 80}], selector: {app: catalog}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: catalog-1, namespace: shop, labels: {kubernetes.io/service-name: catalog}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.1.0.1], conditions: {ready: true}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: catalog, namespace: shop}
spec: {hosts: [catalog], http: [{route: [{destination: {host: catalog}}]}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: bank, namespace: shop}
spec: {hosts: [bank.example.com], resolution: DNS, ports: [{name: tls, number: 443, protocol: TLS}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data: {mesh: 'accessLogFile: /dev/stdout'}
";

/// A right: API group, resource, verb.
type Right = (String, String, String);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_manifests_give_the_rights_that_are_used_and_no_more() {
    // Lists come in a stream or in pages, by what the API server can; both need their rights.
    let mut used = BTreeSet::new();
    for streams in [true, false] {
        let Some(cluster) = Cluster::start(streams).await else { return };
        cluster.install(&["rbac.yaml", "rbac-secrets.yaml"]).await;
        let pilotfish = Serving::start(&cluster, &[]).await;
        pilotfish.ready().await;
        pilotfish.knows_the_shop().await;
        pilotfish.validates().await;
        pilotfish.takes_tokens().await;
        pilotfish.gives_addresses().await;
        used.extend(cluster.audited(&pilotfish).await);
        cluster.has_what_is_granted().await;
    }
    let granted = granted_reads(&["rbac.yaml", "rbac-secrets.yaml"]);
    let unused: Vec<_> = granted.difference(&used).collect();
    assert!(unused.is_empty(), "rights to read that nothing uses: {unused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_authority_needs_the_rights_of_its_manifest_and_no_more() {
    let Some(cluster) = Cluster::start(true).await else { return };
    // Without the right to read all ConfigMaps, which would be enough to read these.
    cluster.install(&["rbac.yaml", "rbac-ca.yaml"]).await;
    let pilotfish = Serving::start(&cluster, &["--ca=secret"]).await;
    pilotfish.ready().await;
    pilotfish.writes_roots("default").await;
    cluster.server.apply("{apiVersion: v1, kind: Namespace, metadata: {name: late}}").await;
    pilotfish.writes_roots("late").await;
    let used = cluster.audited_without(&pilotfish, &["configmaps", "secrets"]).await;
    for right in ["list", "watch", "patch"] {
        assert!(used.contains(&(String::new(), "configmaps".into(), right.into())), "{right}: {used:?}");
    }
    for right in ["get", "create"] {
        assert!(used.contains(&(String::new(), "secrets".into(), right.into())), "{right}: {used:?}");
    }
}

/// A signer of the cluster: signs what is approved, as cert-manager does.
struct Signer {
    root: String,
    task: tokio::task::JoinHandle<()>,
}

impl Signer {
    fn start(server: &ApiServer) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let root = params.self_signed(&key).unwrap().pem();
        let (issuer, requests) = (Issuer::new(params, key), Api::all(server.client()));
        let task = tokio::spawn(async move {
            loop {
                // It may have been deleted in the meantime.
                let _ = sign_approved(&requests, &issuer).await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        Self { root, task }
    }
}

impl Drop for Signer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn sign_approved(
    requests: &Api<CertificateSigningRequest>,
    issuer: &Issuer<'static, KeyPair>,
) -> kube::Result<()> {
    for request in requests.list(&ListParams::default()).await? {
        let name = request.metadata.name.unwrap();
        let status = request.status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        if status.certificate.is_some() || !conditions.iter().any(|condition| condition.type_ == "Approved") {
            continue;
        }
        assert_eq!(request.spec.signer_name, SIGNER);
        assert!(name.starts_with("pilotfish-workload-"), "{name}");
        let csr = String::from_utf8(request.spec.request.0).unwrap();
        let mut csr = CertificateSigningRequestParams::from_pem(&csr).unwrap();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        csr.params.not_after = rcgen::date_time_ymd(1970, 1, 1) + now + Duration::from_secs(3600);
        let certificate = ByteString(csr.signed_by(issuer).unwrap().pem().into_bytes());
        let status = json!({"status": {"certificate": certificate}});
        requests.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
    }
    Ok(())
}

const SIGNER: &str = "clusterissuers.cert-manager.io/mesh";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signer_of_the_cluster_needs_the_rights_of_its_manifest_and_no_more() {
    let Some(cluster) = Cluster::start(true).await else { return };
    cluster.install(&["rbac.yaml", "rbac-ca.yaml", "rbac-ca-signer.yaml"]).await;
    let signer = Signer::start(&cluster.server);
    let roots = cluster.folder.path().join("roots.pem");
    std::fs::write(&roots, &signer.root).unwrap();
    let roots = format!("--ca-signer-roots={}", roots.display());
    let pilotfish = Serving::start(&cluster, &[&format!("--ca-signer={SIGNER}"), &roots]).await;
    pilotfish.ready().await;
    pilotfish.writes_roots("default").await;

    let token = token(&cluster.server, "shop", "web", "istio-ca").await;
    let port = Tunnel::start(pilotfish.secure, &kept_authority(&cluster.server).await, None).await;
    let key = pilotfish_ca::WorkloadKey::create().unwrap();
    let web = WorkloadId { trust_domain: "cluster.local", namespace: "shop", service_account: "web" };
    let csr = key.request(Some(web)).unwrap();
    let chain = eventually("a certificate is signed", || create_with(port.port(), &csr, Some(&token))).await;
    let issued = key.accept(&chain, Some(web), std::time::SystemTime::now()).unwrap();
    assert_eq!(der(&issued.roots), der(&signer.root));
    let other = key.request(Some(WorkloadId { service_account: "admin", ..web })).unwrap();
    let status = create_with(port.port(), &other, Some(&token)).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status}");
    let left = cluster.get("/apis/certificates.k8s.io/v1/certificatesigningrequests").await;
    assert!(left["items"].as_array().unwrap().is_empty(), "{left}");

    let used = cluster.audited_without(&pilotfish, &["configmaps", "secrets"]).await;
    let of = |resource: &str, verb: &str| ("certificates.k8s.io".to_owned(), resource.into(), verb.into());
    let requests = "certificatesigningrequests";
    for right in [
        of(requests, "create"),
        of(requests, "get"),
        of(requests, "delete"),
        of("certificatesigningrequests/approval", "patch"),
    ] {
        assert!(used.contains(&right), "{right:?}: {used:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_of_gateways_can_be_left_out() {
    let Some(cluster) = Cluster::start(true).await else { return };
    cluster.install(&["rbac.yaml"]).await;
    // No manifest names a kind of the future.
    cluster.server.apply(&definition("extensions.istio.io", "v1", "FutureExtension")).await;
    let pilotfish = Serving::start(&cluster, &[]).await;
    pilotfish.ready().await;
    pilotfish.knows_the_shop().await;
    let refused = "extensions.istio.io/v1 FutureExtension is not served by this version, and whether it has objects is unknown: 403: ";
    eventually("the missing right is reported", || async {
        let problems = pilotfish.page("/debug/problemz").await?;
        if problems.contains(refused) { Ok(()) } else { Err(problems) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pods_keep_the_restricted_standard() {
    let Some(cluster) = Cluster::start(true).await else { return };
    cluster
        .server
        .apply("{apiVersion: v1, kind: Namespace, metadata: {name: strict, labels: {pod-security.kubernetes.io/enforce: restricted}}}")
        .await;
    let template = &deployment()["spec"]["template"];
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": template["spec"],
        "metadata": {"name": "pilotfish", "namespace": "strict", "labels": template["metadata"]["labels"]}});
    cluster.server.apply(&pod.to_string()).await;
}

/// An API server with definitions, the shop of the examples, and the roles.
struct Cluster {
    server: ApiServer,
    folder: TempDir,
}

impl Cluster {
    async fn start(streams: bool) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let (policy, log) = (folder.path().join("policy.yaml"), folder.path().join("audit.log"));
        std::fs::write(&policy, AUDIT).unwrap();
        let options = ApiServerOptions {
            authorization: Authorization::Rbac,
            users: vec![User {
                token: TOKEN.into(),
                name: ACCOUNT.into(),
                groups: ["", ":istio-system"].map(|of| format!("system:serviceaccounts{of}")).to_vec(),
            }],
            flags: vec![
                format!("--audit-policy-file={}", policy.display()),
                format!("--audit-log-path={}", log.display()),
                "--audit-log-mode=blocking".into(),
                format!("--feature-gates=WatchList={streams}"),
            ],
        };
        Some(Self { server: ApiServer::start(options).await?, folder })
    }

    /// Applies the definitions, the shop, these manifests of roles and then the others.
    async fn install(&self, roles: &[&str]) {
        self.server.apply(&manifest("namespace.yaml")).await;
        self.server.apply_definitions().await;
        self.server.apply_unserved_definitions().await;
        self.server.apply(SHOP).await;
        for file in roles.iter().copied().chain(["deployment.yaml", "webhooks.yaml"]) {
            self.server.apply(&manifest(file)).await;
        }
    }

    /// Roles name only what the API server has.
    async fn has_what_is_granted(&self) {
        for (group, resources) in granted_resources(&["rbac.yaml", "rbac-secrets.yaml"]) {
            let served = self.resources(&group).await;
            let unknown: Vec<_> = resources.difference(&served).collect();
            assert!(unknown.is_empty(), "{group:?} has no {unknown:?}");
        }
    }

    /// Resources and their parts of an API group, in all its versions.
    async fn resources(&self, group: &str) -> BTreeSet<String> {
        let versions = match group {
            "" => vec!["/api/v1".to_owned()],
            _ => {
                let found = self.get(&format!("/apis/{group}")).await;
                let versions = found["versions"].as_array().unwrap().iter();
                versions
                    .map(|version| format!("/apis/{}", version["groupVersion"].as_str().unwrap()))
                    .collect()
            }
        };
        let mut names = BTreeSet::new();
        for version in versions {
            let list = self.get(&version).await;
            let listed = list["resources"].as_array().unwrap().iter();
            names.extend(listed.map(|resource| resource["name"].as_str().unwrap().to_owned()));
        }
        names
    }

    async fn get(&self, path: &str) -> Value {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        self.server.client().request(request).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// The rights that were used so far.
    ///
    /// Panics when something was refused.
    async fn audited(&self, pilotfish: &Serving<'_>) -> BTreeSet<Right> {
        self.audited_without(pilotfish, &[]).await
    }

    /// As [`Self::audited`], where requests for all objects of these resources may be refused, which
    /// `rbac-secrets.yaml` permits.
    async fn audited_without(&self, pilotfish: &Serving<'_>, optional: &[&str]) -> BTreeSet<Right> {
        let log = text(&self.folder.path().join("audit.log"));
        // The last line may not be written to its end yet.
        let lines = log.rsplit_once('\n').map_or("", |(lines, _)| lines);
        let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let is_optional = |event: &Value| {
            let reference = &event["objectRef"];
            let is_of = |name: &&str| reference["resource"].as_str() == Some(*name);
            optional.iter().any(is_of) && reference["namespace"].is_null() && reference["name"].is_null()
        };
        let refused = events.iter().filter(|event| event["responseStatus"]["code"] == 403);
        let refused: Vec<_> = refused.filter(|event| !is_optional(event)).collect();
        assert!(refused.is_empty(), "{refused:#?}\n{}", pilotfish.program.printed());
        let of_resources = events.iter().filter(|event| event["objectRef"]["resource"].is_string());
        of_resources.map(right).collect()
    }
}

fn right(event: &Value) -> Right {
    let of = |field: &str| event["objectRef"][field].as_str().unwrap_or_default().to_owned();
    let resource = match of("subresource") {
        part if part.is_empty() => of("resource"),
        part => format!("{}/{part}", of("resource")),
    };
    (of("apiGroup"), resource, event["verb"].as_str().unwrap_or_default().to_owned())
}

/// The rules of the roles in these manifests.
fn rules(files: &[&str]) -> Vec<Value> {
    let roles = files.iter().flat_map(|file| documents(&manifest(file)));
    roles.flat_map(|role| role["rules"].as_array().cloned().unwrap_or_default()).collect()
}

/// What roles name, by API group.
fn granted_resources(files: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    let mut granted: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for rule in rules(files) {
        for group in strings(&rule["apiGroups"]) {
            granted.entry(group).or_default().extend(strings(&rule["resources"]));
        }
    }
    granted
}

/// Every status that a definition has may be written.
#[test]
fn every_status_may_be_written() {
    let granted = granted_resources(&["rbac.yaml"]);
    let with_status = pilotfish_crd::defined_kinds().into_iter().filter(|kind| {
        let definition = pilotfish_crd::definition(*kind).unwrap();
        !definition["spec"]["versions"][0]["subresources"]["status"].is_null()
    });
    // What clusters say of each other's exports is not written yet.
    let written = with_status.filter(|kind| kind.group() != "multicluster.x-k8s.io");
    for kind in written {
        let status = format!("{}/status", kind.plural());
        assert!(granted[kind.group()].contains(&status), "{status} of {}", kind.group());
    }
}

/// The rights to list and to watch that these manifests give.
fn granted_reads(files: &[&str]) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for rule in rules(files) {
        for group in strings(&rule["apiGroups"]) {
            for resource in strings(&rule["resources"]) {
                let reads =
                    strings(&rule["verbs"]).into_iter().filter(|verb| matches!(&**verb, "list" | "watch"));
                rights.extend(reads.map(|verb| (group.clone(), resource.clone(), verb)));
            }
        }
    }
    assert!(rights.len() > 40, "{rights:?}");
    rights
}

/// Pilotfish, started as the Deployment starts it, as the service account.
struct Serving<'a> {
    cluster: &'a Cluster,
    admin: u16,
    secure: u16,
    program: Program,
}

impl<'a> Serving<'a> {
    /// Starts it with these arguments beside those of the Deployment.
    async fn start(cluster: &'a Cluster, arguments: &[&str]) -> Self {
        let folder = cluster.folder.path();
        let kubeconfig = folder.join("pilotfish.kubeconfig");
        std::fs::write(&kubeconfig, cluster.server.kubeconfig_of(TOKEN)).unwrap();
        let (admin, secure, webhooks) = (free_port(), free_port(), free_port());
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilotfish"));
        for argument in strings(&deployment()["spec"]["template"]["spec"]["containers"][0]["args"]) {
            let port = match argument.split_once('=') {
                Some(("--admin-address", _)) => admin,
                Some(("--webhook-address", _)) => webhooks,
                Some(("--secure-xds-address", _)) => secure,
                _ => free_port(),
            };
            command.arg(match argument.split_once("=0.0.0.0:") {
                Some((flag, _)) => format!("{flag}=127.0.0.1:{port}"),
                None => argument,
            });
        }
        command.arg("--kubeconfig").arg(&kubeconfig).arg("--xds-address=127.0.0.1:0");
        // No network of Services leads here.
        command.arg(format!("--webhook-url=https://127.0.0.1:{webhooks}"));
        command.args(arguments);
        let program = Program::start(&mut command, folder.join("pilotfish.log"));
        Self { cluster, admin, secure, program }
    }

    async fn page(&self, path: &str) -> Result<String, String> {
        fetch(&format!("http://127.0.0.1:{}{path}", self.admin)).await
    }

    async fn ready(&self) {
        eventually("pilotfish is ready", || async {
            let page = self.page("/ready").await;
            page.map_err(|error| {
                format!("{error}\n{}\n{:?}", self.program.printed(), self.cluster.server.url())
            })
        })
        .await;
    }

    /// The API server calls its validator, so the policy is `Fail`.
    async fn validates(&self) {
        let path =
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/pilotfish-validator";
        eventually("the validator is strict", || async {
            let validator = self.cluster.get(path).await;
            let strict = validator["webhooks"][0]["failurePolicy"] == "Fail";
            if strict { Ok(()) } else { Err(format!("{validator:#}\n{}", self.program.printed())) }
        })
        .await;
    }

    /// A proxy with the token of its service account is served over TLS.
    async fn takes_tokens(&self) {
        const CATALOG: &str = "outbound|80||catalog.shop.svc.cluster.local";
        let root = kept_authority(&self.cluster.server).await;
        let tunnel = Tunnel::start(self.secure, &root, None).await;
        let bearer = format!("Bearer {}", token(&self.cluster.server, "shop", "web", "istio-ca").await);
        let id = "sidecar~10.0.0.9~web-0.shop~shop.svc.cluster.local";
        let headers = [("authorization", bearer.as_str())];
        let connect = || {
            Proxy::connect_to(tunnel.port(), node(id, &[("SERVICE_ACCOUNT", "web")]), &[CATALOG], &headers)
        };
        let mut proxy = eventually("the token is taken", connect).await;
        proxy.has_endpoints(CATALOG, &["10.1.0.1:8080 1"]).await;
    }

    /// The namespace has the roots of the mesh.
    async fn writes_roots(&self, namespace: &str) {
        let path = format!(
            "/api/v1/namespaces/{namespace}/configmaps?fieldSelector=metadata.name=istio-ca-root-cert"
        );
        eventually("the roots are there", || async {
            let found = self.cluster.get(&path).await;
            let roots = found["items"][0]["data"]["root-cert.pem"].as_str().unwrap_or_default();
            let has_roots = roots.contains("BEGIN CERTIFICATE");
            if has_roots { Ok(()) } else { Err(format!("{found:#}\n{}", self.program.printed())) }
        })
        .await;
    }

    /// The host without an address is given some.
    async fn gives_addresses(&self) {
        let path = "/apis/networking.istio.io/v1/namespaces/shop/serviceentries/bank";
        eventually("the bank has addresses", || async {
            let entry = self.cluster.get(path).await;
            let count = entry["status"]["addresses"].as_array().map_or(0, Vec::len);
            if count == 2 { Ok(()) } else { Err(format!("{entry:#}\n{}", self.program.printed())) }
        })
        .await;
    }

    /// The shop of the cluster is served.
    async fn knows_the_shop(&self) {
        eventually("the catalog's endpoints are known", || async {
            let page = self.page("/debug/endpointz").await?;
            if page.contains("catalog.shop.svc.cluster.local") { Ok(()) } else { Err(page) }
        })
        .await;
    }
}

fn deployment() -> Value {
    let objects = documents(&manifest("deployment.yaml"));
    objects.into_iter().find(|object| object["kind"] == "Deployment").unwrap()
}

fn documents(yaml: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(yaml).unwrap()
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|item| item.as_str().unwrap().to_owned()).collect()
}

fn manifest(name: &str) -> String {
    text(&repository().join("deploy/kubernetes").join(name))
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
