//! The validating webhook behind a real API server: it refuses in the words of `pilotfish validate`, its
//! certificates follow each other while it runs, and what happens without it is as documented.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use pilotfish_config::{Limits, read};
use pilotfish_model::{Kind, Revision};
use pilotfish_testkit::real::{ApiServer, ApiServerOptions, eventually};
use pilotfish_webhook::inject::{DEFAULT_TEMPLATE, Injector};
use pilotfish_webhook::{
    Bound, CertificateLifetimes, Clock, Observer, Outcome, SECRET, VALIDATOR, Validator, WebhookController,
    WebhookControllerSettings, router,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

const ROOT: &str = "istio-system";
const DAY: u64 = 86_400;

const CONFIGURATION: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: pilotfish-validator}
webhooks:
- name: validation.pilotfish.io
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  timeoutSeconds: 10
  clientConfig: {service: {name: pilotfish, namespace: istio-system, path: /validate, port: 443}}
  rules:
  - {apiGroups: [networking.istio.io], apiVersions: ['*'], resources: ['*'], operations: [CREATE, UPDATE]}
";

const GOOD: &str = "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: NAME, namespace: shop}
spec: {hosts: [catalog], http: [{route: [{destination: {host: catalog}}]}]}
";

/// Nothing that a schema could know.
const BAD: &str = "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: NAME, namespace: shop}
spec:
  hosts: [catalog]
  http:
  - match: [{uri: {regex: '(unclosed'}}]
    route: [{destination: {host: catalog}}]
  - route: [{destination: {host: not a host}}]
";

struct Deaf;

impl Observer for Deaf {
    fn reviewed(&self, _: &'static str, _: Outcome) {}
}

/// The webhook's process, as an API server sees it.
struct Process {
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl Process {
    async fn start(server: &ApiServer, address: SocketAddr, clock: Clock) -> (Self, SocketAddr) {
        let bound = Bound::bind(address).await.unwrap();
        let url = Some(format!("https://{}", bound.address()));
        Self::with(server, bound, url, clock)
    }

    /// One of several behind a Service.
    async fn replica(server: &ApiServer) -> (Self, SocketAddr) {
        let bound = Bound::bind(anywhere()).await.unwrap();
        Self::with(server, bound, None, real_clock())
    }

    fn with(server: &ApiServer, bound: Bound, url: Option<String>, clock: Clock) -> (Self, SocketAddr) {
        let address = bound.address();
        let settings = WebhookControllerSettings {
            revision: Revision::default(),
            namespace: ROOT.into(),
            names: BTreeSet::from(["pilotfish.istio-system.svc".to_owned(), address.ip().to_string()]),
            url,
            lifetimes: CertificateLifetimes::default(),
            clock,
        };
        let controller = WebhookController::new(server.client(), settings, bound.certificates());
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(controller.run(stopped.clone()));
        let observer: Arc<dyn Observer> = Arc::new(Deaf);
        let injector =
            Injector::new(DEFAULT_TEMPLATE, BTreeMap::new(), Arc::new(|_| serde_json::json!({}))).unwrap();
        tasks.spawn(bound.run(router(Validator::new(Vec::new()), injector, &observer), stopped));
        (Self { tasks, stop }, address)
    }

    /// As a crash: nothing is released.
    async fn kill(mut self) {
        self.tasks.shutdown().await;
    }

    async fn stop(self) {
        self.stop.send_replace(true);
        self.tasks.join_all().await;
    }
}

/// A cluster with definitions of our own.
async fn cluster() -> Option<ApiServer> {
    let server = ApiServer::start(ApiServerOptions::default()).await?;
    for kind in [Kind::VirtualService, Kind::WorkloadEntry] {
        server.apply(&serde_json::to_string(&pilotfish_crd::definition(kind).unwrap()).unwrap()).await;
    }
    server.apply(NAMESPACES).await;
    // A definition is established a moment before its kind is served.
    eventually("VirtualServices are served", || async {
        virtual_services(&server, "v1").list(&ListParams::default()).await.map(drop)
    })
    .await;
    Some(server)
}

const NAMESPACES: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: istio-system}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
";

/// Creates a VirtualService; the error is the API server's.
async fn create(server: &ApiServer, yaml: &str, name: &str) -> Result<(), String> {
    let api = virtual_services(server, "v1");
    let value: serde_json::Value = serde_saphyr::from_str(&yaml.replace("NAME", name)).unwrap();
    let object: DynamicObject = serde_json::from_value(value).unwrap();
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(other) => Err(other.to_string()),
    }
}

async fn configuration(server: &ApiServer) -> ValidatingWebhookConfiguration {
    Api::all(server.client()).get(VALIDATOR).await.unwrap()
}

fn policy(configuration: &ValidatingWebhookConfiguration) -> String {
    configuration.webhooks.as_ref().unwrap()[0].failure_policy.clone().unwrap()
}

async fn is_policy(server: &ApiServer, wanted: &str) {
    eventually("the failure policy", || async {
        let found = policy(&configuration(server).await);
        (found == wanted).then_some(()).ok_or(found)
    })
    .await;
}

/// Waits until the API server asks the webhook: what it reads of a configuration is a moment behind what it
/// stores.
async fn is_checked(server: &ApiServer) {
    is_policy(server, "Fail").await;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let object: DynamicObject = serde_saphyr::from_str(&BAD.replace("NAME", "probe")).unwrap();
    let api = virtual_services(server, "v1");
    eventually("the webhook is asked", || async {
        match api.create(&dry_run, &object).await {
            Err(kube::Error::Api(status)) if status.message.contains("denied the request") => Ok(()),
            other => Err(other.map(drop)),
        }
    })
    .await;
}

async fn secret(server: &ApiServer) -> Secret {
    let secrets: Api<Secret> = Api::namespaced(server.client(), ROOT);
    secrets.get(SECRET).await.unwrap()
}

fn part(secret: &Secret, key: &str) -> Vec<u8> {
    secret.data.as_ref().unwrap()[key].0.clone()
}

fn anywhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn real_clock() -> Clock {
    Arc::new(|now| now)
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_refused_in_the_words_of_validate() {
    let Some(server) = cluster().await else { return };
    server.apply(CONFIGURATION).await;
    let (process, _) = Process::start(&server, anywhere(), real_clock()).await;
    is_checked(&server).await;

    assert_eq!(create(&server, GOOD, "good").await, Ok(()));
    let refusal = create(&server, BAD, "bad").await.unwrap_err();
    let object: DynamicObject = serde_saphyr::from_str(&BAD.replace("NAME", "bad")).unwrap();
    let refused = virtual_services(&server, "v1").create(&PostParams::default(), &object).await;
    let Err(kube::Error::Api(status)) = refused else { panic!("{refused:?}") };
    // `kubectl` names the object by these.
    let details = status.details.unwrap();
    assert_eq!(
        (details.kind.as_str(), details.name.as_str(), details.causes.len()),
        ("VirtualService", "bad", 2)
    );
    let file = read("bad.yaml", BAD.replace("NAME", "bad").as_bytes(), &Limits::default());
    let lines: Vec<_> = file.rejected[0].problems.iter().map(ToString::to_string).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    let words = lines.join("\n");
    assert_eq!(refusal, format!("admission webhook \"validation.pilotfish.io\" denied the request: {words}"));
    process.stop().await;
}

/// A host that is there twice: whatever else there is, the object alone says so.
const DOUBTFUL: &str = "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: doubtful, namespace: shop}
spec:
  hosts: [catalog, catalog]
  http:
  - route: [{destination: {host: catalog}}]
";

#[tokio::test(flavor = "multi_thread")]
async fn doubts_are_warnings_of_the_api_server() {
    let Some(server) = cluster().await else { return };
    server.apply(CONFIGURATION).await;
    let (process, _) = Process::start(&server, anywhere(), real_clock()).await;
    is_checked(&server).await;

    let object: serde_json::Value = serde_saphyr::from_str(DOUBTFUL).unwrap();
    let request = http::Request::post("/apis/networking.istio.io/v1/namespaces/shop/virtualservices")
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes().into())
        .unwrap();
    let response = server.client().send(request).await.unwrap();
    assert_eq!(response.status().as_u16(), 201);
    let warning = response.headers().get("warning").unwrap().to_str().unwrap().to_owned();
    let file = read("doubtful.yaml", DOUBTFUL.as_bytes(), &Limits::default());
    let [doubt] = &file.objects[0].warnings[..] else { panic!("{file:?}") };
    let quoted = doubt.to_string().replace('\\', "\\\\").replace('"', "\\\"");
    assert_eq!(warning, format!("299 - \"{quoted}\""));
    process.stop().await;
}

/// VirtualServices as the API server has them in a version.
fn virtual_services(server: &ApiServer, version: &str) -> Api<DynamicObject> {
    let kind = Kind::VirtualService;
    let gvk = GroupVersionKind::gvk(kind.group(), version, kind.name());
    let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural());
    Api::namespaced_with(server.client(), "shop", &resource)
}

fn refusal<T: std::fmt::Debug>(answer: kube::Result<T>) -> String {
    match answer {
        Err(kube::Error::Api(status)) => status.message,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_version_is_checked_and_what_goes_may_go() {
    let Some(server) = cluster().await else { return };
    // Stored while no webhook checked.
    let finalized = BAD.replace("name: NAME,", "name: NAME, finalizers: [example.com/keeps],");
    assert_eq!(create(&server, &finalized, "stored").await, Ok(()));
    server.apply(CONFIGURATION).await;
    let (process, _) = Process::start(&server, anywhere(), real_clock()).await;
    is_checked(&server).await;

    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let words = create(&server, BAD, "bad").await.unwrap_err();
    for version in ["v1alpha3", "v1beta1", "v1"] {
        let bad = BAD.replace("NAME", "bad").replace("istio.io/v1", &format!("istio.io/{version}"));
        let bad: DynamicObject = serde_saphyr::from_str(&bad).unwrap();
        let api = virtual_services(&server, version);
        assert_eq!(refusal(api.create(&dry_run, &bad).await), words, "{version}");
        // Many at once get the same.
        let many = (0..40).map(|_| api.create(&dry_run, &bad));
        for answer in futures::future::join_all(many).await {
            assert_eq!(refusal(answer), words, "{version}");
        }
    }

    let api = virtual_services(&server, "v1");
    let label = Patch::Merge(serde_json::json!({"metadata": {"labels": {"a": "b"}}}));
    assert!(
        refusal(api.patch("stored", &PatchParams::default(), &label).await).contains("denied the request")
    );
    let status = Patch::Merge(serde_json::json!({"status": {"observedGeneration": 1}}));
    api.patch_status("stored", &PatchParams::default(), &status).await.unwrap();
    api.delete("stored", &Default::default()).await.unwrap();
    let free = Patch::Merge(serde_json::json!({"metadata": {"finalizers": null}}));
    api.patch("stored", &PatchParams::default(), &free).await.unwrap();
    assert!(api.get_opt("stored").await.unwrap().is_none(), "a mistake in it does not keep it");
    process.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_writes_the_opposite_is_not_fought() {
    let Some(server) = cluster().await else { return };
    server.apply(CONFIGURATION).await;
    // Two processes with addresses of their own, which there must not be: each writes its own.
    let (first, _) = Process::start(&server, anywhere(), real_clock()).await;
    let (second, _) = Process::start(&server, anywhere(), real_clock()).await;
    let generation = async || configuration(&server).await.metadata.generation.unwrap();
    // Both have spent what they may write at once.
    eventually("they write against each other", || async {
        let now = generation().await;
        if now >= 30 { Ok(()) } else { Err(now) }
    })
    .await;
    // From then on each writes once in ten seconds: at some moment the last three seconds have seen three
    // writes at most.
    let window = Duration::from_secs(3);
    let seen = RefCell::new(VecDeque::from([(Instant::now(), generation().await)]));
    eventually("they become slow", || async {
        let (at, now) = (Instant::now(), generation().await);
        let mut seen = seen.borrow_mut();
        seen.push_back((at, now));
        // What is in front is the newest that is older than the window.
        while seen.get(1).is_some_and(|(second, _)| at - *second >= window) {
            seen.pop_front();
        }
        let (oldest, before) = seen[0];
        let wrote = now - before;
        if at - oldest >= window && wrote <= 3 { Ok(()) } else { Err(wrote) }
    })
    .await;
    first.kill().await;
    second.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_is_strict_only_while_a_webhook_answers() {
    let Some(server) = cluster().await else { return };
    // Before there is a webhook, and before there is a configuration, everything passes.
    assert_eq!(create(&server, BAD, "before").await, Ok(()));
    let (process, address) = Process::start(&server, anywhere(), real_clock()).await;
    server.apply(CONFIGURATION).await;
    is_checked(&server).await;
    create(&server, BAD, "checked").await.unwrap_err();
    let authority = part(&secret(&server).await, "ca.crt");

    // A crash leaves it strict: what no webhook can check is refused.
    process.kill().await;
    let refusal = create(&server, GOOD, "unchecked").await.unwrap_err();
    assert!(refusal.contains("failed calling webhook \"validation.pilotfish.io\""), "{refusal}");

    // The next process goes on with the same authority, and nothing has to be written for that.
    let version = configuration(&server).await.metadata.resource_version;
    let (process, _) = Process::start(&server, address, real_clock()).await;
    eventually("objects are checked again", || create(&server, GOOD, "checked-again")).await;
    assert_eq!(part(&secret(&server).await, "ca.crt"), authority);
    assert_eq!(configuration(&server).await.metadata.resource_version, version);

    // After a stop, objects pass.
    process.stop().await;
    assert_eq!(policy(&configuration(&server).await), "Ignore");
    eventually("nothing is checked", || create(&server, BAD, "after")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_write_over_a_configuration_or_its_secret_is_mended() {
    let Some(server) = cluster().await else { return };
    server.apply(CONFIGURATION).await;
    let (process, _) = Process::start(&server, anywhere(), real_clock()).await;
    is_checked(&server).await;

    let before = configuration(&server).await;
    let bundle = |configuration: &ValidatingWebhookConfiguration| {
        configuration.webhooks.as_ref().unwrap()[0].client_config.ca_bundle.clone()
    };
    let reset = serde_json::json!({"webhooks": [{"name": "validation.pilotfish.io", "failurePolicy": "Fail",
        "clientConfig": {"caBundle": null, "url": "https://127.0.0.1:1/validate"}}]});
    let api: Api<ValidatingWebhookConfiguration> = Api::all(server.client());
    api.patch(VALIDATOR, &PatchParams::default(), &Patch::Strategic(&reset)).await.unwrap();
    eventually("the bundle is ours again", || async {
        let now = configuration(&server).await;
        (now.webhooks == before.webhooks).then_some(()).ok_or(now)
    })
    .await;
    create(&server, BAD, "bad").await.unwrap_err();

    let secrets: Api<Secret> = Api::namespaced(server.client(), ROOT);
    secrets.delete(SECRET, &Default::default()).await.unwrap();
    eventually("another authority is trusted", || async {
        let now = configuration(&server).await;
        let good = bundle(&now) != bundle(&before) && policy(&now) == "Fail";
        good.then_some(()).ok_or(now)
    })
    .await;
    create(&server, BAD, "bad").await.unwrap_err();
    process.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_follow_each_other_while_objects_are_checked() {
    let Some(server) = cluster().await else { return };
    server.apply(CONFIGURATION).await;
    // The clock begins 65 days ago, so that the API server takes a certificate of then, and one of now.
    let ago = Arc::new(AtomicU64::new(65 * DAY));
    let clock: Clock = {
        let ago = ago.clone();
        Arc::new(move |now| now - Duration::from_secs(ago.load(Ordering::SeqCst)))
    };
    let (process, address) = Process::start(&server, anywhere(), clock).await;
    is_checked(&server).await;
    let first = secret(&server).await;
    assert_eq!(served(address, &first).await.unwrap(), leaf(&first));

    ago.store(0, Ordering::SeqCst);
    let mut refused = 0;
    wake(&server).await;
    let second = eventually("the certificate is another", || async {
        // Never does an object pass unchecked, nor is a good one refused.
        let refusal = create(&server, BAD, "bad").await.unwrap_err();
        assert!(refusal.contains("denied the request"), "{refusal}");
        let now = secret(&server).await;
        (part(&now, "tls.crt") != part(&first, "tls.crt")).then_some(now).ok_or("the same")
    })
    .await;
    assert_eq!(part(&second, "ca.crt"), part(&first, "ca.crt"));
    eventually("the other certificate is served", || async {
        let found = served(address, &first).await.unwrap();
        (found == leaf(&second)).then_some(()).ok_or("the first")
    })
    .await;
    for _ in 0..20 {
        refused += usize::from(create(&server, BAD, "bad").await.unwrap_err().contains("denied the request"));
    }
    assert_eq!(refused, 20);
    assert_eq!(policy(&configuration(&server).await), "Fail");
    process.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_what_the_first_of_them_made() {
    let Some(server) = cluster().await else { return };
    server.apply(CONFIGURATION).await;
    let replicas = futures::future::join_all((0..4).map(|_| Process::replica(&server))).await;
    let secret = eventually("a Secret is there", || async {
        let secrets: Api<Secret> = Api::namespaced(server.client(), ROOT);
        secrets.get(SECRET).await
    })
    .await;
    for (_, address) in &replicas {
        let der = eventually("the replica answers", || served(*address, &secret)).await;
        assert_eq!(der, leaf(&secret));
    }
    let now = configuration(&server).await;
    let webhook = &now.webhooks.as_ref().unwrap()[0];
    assert_eq!(webhook.client_config.ca_bundle.as_ref().unwrap().0, part(&secret, "ca.crt"));
    assert!(webhook.client_config.service.is_some(), "the Service stays");
    assert_eq!(policy(&now), "Ignore", "the Service was not reached");
    for (process, _) in replicas {
        process.stop().await;
    }
}

fn leaf(secret: &Secret) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(&part(secret, "tls.crt")).unwrap()
}

/// The certificate that a client gets which trusts the Secret's authorities.
async fn served(address: SocketAddr, secret: &Secret) -> std::io::Result<CertificateDer<'static>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&part(secret, "ca.crt")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::from(address.ip());
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    Ok(stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned())
}

/// Triggers a reconciliation.
async fn wake(server: &ApiServer) {
    let secrets: Api<Secret> = Api::namespaced(server.client(), ROOT);
    let touch = serde_json::json!({"metadata": {"annotations": {"touched": "yes"}}});
    secrets.patch(SECRET, &PatchParams::default(), &Patch::Merge(&touch)).await.unwrap();
}
