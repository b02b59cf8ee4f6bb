use super::super::files::AuthorityFiles;
use super::super::messages::{IstioCertificateRequest, IstioCertificateResponse};
use super::super::source::AuthoritySource;
use super::super::tests::{WEB, settings};
use super::super::{Ca, CaService};
use super::*;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt;
use kube::client::{Body, Client};
use pilotfish_admin::Metrics;
use pilotfish_admin_state::{AuthorityOperations, PrometheusRecorder};
use pilotfish_ca::{Authority, AuthorityPem, CertificateRequest, SelfSigned, WorkloadKey};
use pilotfish_control_plane::control::Shared;
use pilotfish_identity::{Pem, WorkloadId};
use pilotfish_xds::UnaryMethod;
use prost::Message;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::SystemTime;
use tempfile::TempDir;
use tonic::Code;

const CART: &str = "spiffe://cluster.local/ns/shop/sa/cart";
const DAY: Duration = Duration::from_secs(86_400);

/// What the signer does with an approved request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    Signs,
    SignsFor(&'static str),
    SignsForDays(u32),
    Denies,
    Waits,
}

/// An API server with one signer.
struct Cluster {
    authority: Authority,
    root: String,
    behaviour: Mutex<Behaviour>,
    may_approve: Mutex<bool>,
    requests: Mutex<BTreeMap<String, Value>>,
    /// Number of requests that were created.
    created: Mutex<usize>,
}

impl Cluster {
    fn new() -> Arc<Self> {
        let now = SystemTime::now();
        let made = SelfSigned::create(now).unwrap();
        let pem = |text| Pem { origin: "signer", text };
        let texts = AuthorityPem {
            certificate: pem(made.certificate.as_bytes()),
            key: pem(made.key.as_bytes()),
            chain: None,
            roots: None,
        };
        Arc::new(Self {
            authority: Authority::from_pem(&texts, now).unwrap(),
            root: made.certificate,
            behaviour: Mutex::new(Behaviour::Signs),
            may_approve: Mutex::new(true),
            requests: Mutex::default(),
            created: Mutex::default(),
        })
    }

    fn client(self: &Arc<Self>) -> Client {
        let this = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let this = this.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let body = serde_json::from_slice(&body).unwrap_or_default();
                let (status, answer) = this.answer(parts.method.as_str(), parts.uri.path(), body);
                let body = Body::from(answer.to_string().into_bytes());
                let response = http::Response::builder().status(status).body(body).unwrap();
                Ok::<_, std::convert::Infallible>(response)
            }
        });
        Client::new(service, "default")
    }

    fn answer(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let path = path.strip_prefix("/apis/certificates.k8s.io/v1/certificatesigningrequests").unwrap();
        let name = path.trim_start_matches('/').split('/').next().unwrap().to_owned();
        let mut requests = self.requests.lock();
        match (method, path.ends_with("/approval")) {
            ("POST", _) => {
                *self.created.lock() += 1;
                let request = STANDARD.decode(body["spec"]["request"].as_str().unwrap()).unwrap();
                let request = String::from_utf8(request).unwrap();
                assert!(request.starts_with("-----BEGIN ") && request.matches("-----BEGIN ").count() == 1);
                let name =
                    format!("{}{}", body["metadata"]["generateName"].as_str().unwrap(), requests.len());
                let mut object = body;
                object["metadata"]["name"] = json!(name);
                requests.insert(name, object.clone());
                (201, object)
            }
            // Another approver was faster.
            ("PATCH", true) if *self.behaviour.lock() == Behaviour::Denies => (409, status(409, "conflict")),
            ("PATCH", true) if matches!(*self.behaviour.lock(), Behaviour::SignsFor(_)) => {
                (422, status(422, "approved already"))
            }
            ("PATCH", true) if *self.may_approve.lock() => {
                assert_eq!(body["status"]["conditions"][0]["type"], "Approved");
                let object = requests.get_mut(&name).unwrap();
                object["status"] = body["status"].clone();
                (200, object.clone())
            }
            ("PATCH", true) => (403, status(403, "no right to approve")),
            ("GET", _) => match requests.get(&name) {
                Some(object) => (200, self.with_status(object.clone())),
                None => (404, status(404, "not found")),
            },
            ("DELETE", _) => (200, requests.remove(&name).unwrap()),
            other => panic!("{other:?}"),
        }
    }

    fn with_status(&self, mut object: Value) -> Value {
        let (id, lifetime) = match *self.behaviour.lock() {
            Behaviour::Signs => (WEB, DAY),
            Behaviour::SignsFor(id) => (id, DAY),
            Behaviour::SignsForDays(days) => (WEB, DAY * days),
            Behaviour::Waits => return object,
            Behaviour::Denies => {
                object["status"]["conditions"] =
                    json!([{"type": "Denied", "status": "True", "reason": "Policy", "message": "not today"}]);
                return object;
            }
        };
        let csr = STANDARD.decode(object["spec"]["request"].as_str().unwrap()).unwrap();
        let request = CertificateRequest::from_pem(str::from_utf8(&csr).unwrap()).unwrap();
        let id = WorkloadId::parse(id).unwrap();
        let chain = self.authority.sign(&request, id, lifetime, SystemTime::now()).unwrap();
        object["status"]["certificate"] = json!(STANDARD.encode(&chain[0]));
        object
    }
}

fn status(code: u16, message: &str) -> Value {
    json!({"kind": "Status", "status": "Failure", "code": code, "message": message, "reason": ""})
}

/// The service with the signer of a cluster.
struct Service {
    cluster: Arc<Cluster>,
    service: CaService,
    _folder: TempDir,
}

impl Service {
    async fn new() -> Self {
        let (cluster, folder) = (Cluster::new(), tempfile::tempdir().unwrap());
        let roots = folder.path().join("roots.pem");
        std::fs::write(&roots, &cluster.root).unwrap();
        let metrics = Arc::new(Metrics::new("test").unwrap());
        let settings = settings("self-signed", folder.path());
        let requests = SigningRequests::new(cluster.client(), "example.com/mesh".into());
        let source =
            (AuthoritySource::Files(AuthorityFiles::Roots(roots)), Some(ClusterSigner::new(requests)));
        let own = settings.ca.as_ref().unwrap();
        let (ca, _) = Ca::with_source(&settings, own, source, &metrics, SystemTime::now()).await.unwrap();
        assert!(ca.serving().is_none());
        let recorder = Arc::new(PrometheusRecorder::new(metrics));
        let service = CaService::new(ca, Arc::new(Shared::default()), recorder);
        Self { cluster, service, _folder: folder }
    }

    async fn call(&self, csr: String) -> Result<Vec<String>, Status> {
        let request = IstioCertificateRequest { csr, validity_duration: 3600, metadata: None };
        let client = SocketAddr::from(([192, 0, 2, 1], 5));
        let proof = vec![WEB.to_owned()].into();
        let answer = self.service.call(client, proof, request.encode_to_vec().into()).await?;
        Ok(IstioCertificateResponse::decode(answer).unwrap().cert_chain)
    }

    fn leaves_nothing(&self) {
        assert!(self.cluster.requests.lock().is_empty());
    }
}

fn csr(key: &WorkloadKey, id: &str) -> String {
    key.request(WorkloadId::parse(id)).unwrap()
}

#[tokio::test]
async fn certificate_of_the_signer_is_returned_with_the_roots() {
    let service = Service::new().await;
    let key = WorkloadKey::create().unwrap();
    for may_approve in [true, false] {
        *service.cluster.may_approve.lock() = may_approve;
        let chain = service.call(csr(&key, WEB)).await.unwrap();
        let issued = key.accept(&chain, WorkloadId::parse(WEB), SystemTime::now()).unwrap();
        assert_eq!(issued.roots, service.cluster.root);
        service.leaves_nothing();
    }
    let view = service.service.ca().view();
    assert!(view.source.starts_with("signer example.com/mesh, with the roots in "), "{}", view.source);
    assert_eq!((view.signed, view.certificates.len()), (2, 1));
}

#[tokio::test]
async fn request_that_claims_anything_else_is_never_sent() {
    let service = Service::new().await;
    let key = WorkloadKey::create().unwrap();
    for request in [csr(&key, CART), key.request(None).unwrap(), "no request".into()] {
        let status = service.call(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    }
    assert_eq!(*service.cluster.created.lock(), 0);
    let two = format!("x{}{}", csr(&key, WEB), csr(&WorkloadKey::create().unwrap(), CART));
    let chain = service.call(two).await.unwrap();
    key.accept(&chain, WorkloadId::parse(WEB), SystemTime::now()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn refusals_and_wrong_certificates_have_clear_errors() {
    let service = Service::new().await;
    let key = WorkloadKey::create().unwrap();
    for (behaviour, may_approve, code, expected) in [
        (
            Behaviour::Denies,
            true,
            Code::FailedPrecondition,
            "signer example.com/mesh: Denied: Policy: not today",
        ),
        (Behaviour::SignsFor(CART), true, Code::Internal, "the certificate is for spiffe://"),
        (Behaviour::SignsForDays(91), true, Code::Internal, "longer than the maximum"),
        (Behaviour::Waits, true, Code::Unavailable, "not signed within 30 s"),
        (Behaviour::Waits, false, Code::Unavailable, "Pilotfish may not approve it"),
    ] {
        *service.cluster.behaviour.lock() = behaviour;
        *service.cluster.may_approve.lock() = may_approve;
        let status = service.call(csr(&key, WEB)).await.unwrap_err();
        assert_eq!(status.code(), code, "{behaviour:?}: {status}");
        assert!(status.message().contains(expected), "{behaviour:?}: {status}");
        service.leaves_nothing();
    }
}

#[tokio::test(start_paused = true)]
async fn requests_in_flight_are_limited_and_deleted_when_their_client_has_gone() {
    let service = Service::new().await;
    *service.cluster.behaviour.lock() = Behaviour::Waits;
    let key = WorkloadKey::create().unwrap();
    let request = csr(&key, WEB);
    {
        let calls = (0..OF_IDENTITY + 2).map(|_| service.call(request.clone()));
        let mut calls = std::pin::pin!(futures::future::join_all(calls));
        let early = tokio::time::timeout(Duration::from_secs(5), &mut calls).await;
        assert!(early.is_err());
        assert_eq!(*service.cluster.created.lock(), OF_IDENTITY, "the others wait for their turn");
    }
    // All clients have gone.
    tokio::time::sleep(TIMEOUT * 2).await;
    service.leaves_nothing();

    let calls = (0..OF_IDENTITY + 1).map(|_| service.call(request.clone()));
    let answers = futures::future::join_all(calls).await;
    let codes: Vec<_> = answers.into_iter().map(|answer| answer.unwrap_err().code()).collect();
    let limited = codes.iter().filter(|code| **code == Code::ResourceExhausted).count();
    assert_eq!((codes.len(), limited), (OF_IDENTITY + 1, 1));
    service.leaves_nothing();
}

#[tokio::test]
async fn certificates_over_sds_are_those_of_the_signer() {
    let service = Service::new().await;
    assert!(service.service.is_external());
    let client = "192.0.2.1".parse().unwrap();
    let made = service.service.requested_workload(WEB, client).await.unwrap();
    let key = WorkloadKey::from_pem(&made.key).unwrap();
    key.accept_pem(&made.chain, &service.cluster.root, WorkloadId::parse(WEB), SystemTime::now()).unwrap();
    *service.cluster.behaviour.lock() = Behaviour::Denies;
    let refused = service.service.requested_workload(WEB, client).await.unwrap_err();
    assert_eq!(refused.status.code(), Code::FailedPrecondition);
    assert!(refused.wait > Duration::ZERO);
    service.leaves_nothing();
}
