//! `istio.v1.auth.IstioCertificateService/CreateCertificate`: signs for the identity that a client proved.

use super::Ca;
use super::issuer::Issuer;
use super::messages::{CREATE_CERTIFICATE, IstioCertificateRequest, IstioCertificateResponse};
use super::processors::Processors;
use super::signer::ClusterSigner;
use bytes::Bytes;
use pilotfish_admin_state::PrometheusRecorder;
use pilotfish_admission::{LogLimit, TokenBucket, TokenBuckets, network_of};
use pilotfish_ca::{
    Authority, CertificateRequest, IssuedCertificate, SignError, WorkloadCertificate, WorkloadKey,
};
use pilotfish_control_plane::control::Shared;
use pilotfish_control_plane::{trust_domain, with_mesh};
use pilotfish_identity::{Proof, WorkloadId};
use pilotfish_model::World;
use pilotfish_xds::{Limit, Recorder, UnaryAnswer, UnaryMethod};
use prost::Message;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;
use tonic::{Code, Status};

/// Certificate requests of one identity per second; ten times as many in a burst.
pub(crate) const IDENTITY_CERTIFICATES: u32 = 200;
/// Certificate requests of one address per second, before the client is authenticated; ten times as many in a
/// burst.
pub(crate) const ADDRESS_CERTIFICATES: u32 = 200;
/// Wait after a failure to sign.
const RETRY: Duration = Duration::from_secs(10);
/// Metadata field by which a node proxy requests a certificate for another identity.
const IMPERSONATED: &str = "ImpersonatedIdentity";

/// A certificate that is not signed now.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) status: Status,
    /// Time after which it may be.
    pub(super) wait: Duration,
}

/// Method `CreateCertificate` of the certificate service.
pub(crate) struct CaService {
    ca: Arc<Ca>,
    pub(super) shared: Arc<Shared>,
    recorder: Arc<PrometheusRecorder>,
    identities: TokenBuckets<String>,
    addresses: TokenBuckets<IpAddr>,
    processors: Processors,
    log: LogLimit,
}

impl CaService {
    pub(crate) fn new(ca: Arc<Ca>, shared: Arc<Shared>, recorder: Arc<PrometheusRecorder>) -> Self {
        Self {
            ca,
            shared,
            recorder,
            identities: TokenBuckets::new(TokenBucket::per_second(
                IDENTITY_CERTIFICATES,
                IDENTITY_CERTIFICATES * 10,
            )),
            addresses: TokenBuckets::new(TokenBucket::per_second(
                ADDRESS_CERTIFICATES,
                ADDRESS_CERTIFICATES * 10,
            )),
            processors: Processors::default(),
            log: LogLimit::default(),
        }
    }

    async fn create(&self, proof: &Proof, request: &[u8]) -> Result<IstioCertificateResponse, Status> {
        let metrics = &self.recorder.metrics().ca;
        let request = IstioCertificateRequest::decode(request)
            .map_err(|error| Status::invalid_argument(format!("malformed request: {error}")))?;
        let identity = identity(&proof.identities, &self.shared.world())
            .inspect_err(|_| metrics.authentication_failures.inc())?;
        if is_impersonating(&request) {
            metrics.authentication_failures.inc();
            return Err(Status::permission_denied(
                "certificates for other identities than the client's are not signed",
            ));
        }
        self.admit_identity(&identity).map_err(|refused| refused.status)?;
        let lifetime = self.ca.lifetimes.of(request.validity_duration);
        let lifetime = lifetime.map_err(|error| self.failed(&error))?;
        let cert_chain = match &self.ca.signer {
            Some(signer) => {
                let issued = self.request(signer, &identity, request.csr, lifetime).await?;
                vec![issued.chain, issued.roots]
            }
            None => {
                let signed = self.sign(identity, request.csr, lifetime).await?;
                signed.map_err(|error| self.failed(&error))?
            }
        };
        metrics.signed.inc();
        Ok(IstioCertificateResponse { cert_chain })
    }

    /// Checks the request and signs on a thread for blocking work.
    async fn sign(
        &self,
        identity: String,
        csr: String,
        lifetime: Duration,
    ) -> Result<Result<Vec<String>, SignError>, Status> {
        let authority = self.ca.authority.load_full();
        self.computed(move || sign(authority.own()?, &identity, &csr, lifetime, SystemTime::now())).await
    }

    /// Has the external signer sign a request that claims the identity and nothing else, and checks the
    /// answer. The verified request is sent, not the text of the client, which others may parse differently.
    async fn request(
        &self,
        signer: &ClusterSigner,
        identity: &str,
        csr: String,
        lifetime: Duration,
    ) -> Result<IssuedCertificate, Status> {
        let proven = identity.to_owned();
        let request =
            self.computed(move || Ok(CertificateRequest::from_pem_claiming(&csr, workload_id(&proven)?)?));
        let request = request.await?.map_err(|error| self.failed(&error))?;
        let signed = signer.sign(identity, request.to_pem(), lifetime).await;
        let signed = signed.inspect_err(|_| self.count_failure("CERT_GEN_ERROR"))?;
        let chain = signed.ok_or_else(|| self.too_many_signing().status)?;
        let (proven, authority, longest) =
            (identity.to_owned(), self.ca.authority.load_full(), self.ca.lifetimes.max);
        let checked = self.computed(move || {
            let Issuer::External(authority) = &*authority else {
                return Err(SignError::Create("the authority has a key".into()));
            };
            let identity = workload_id(&proven)?;
            authority
                .check(&request, &chain, identity, longest, SystemTime::now())
                .map_err(|error| SignError::Create(error.to_string()))
        });
        checked.await?.map_err(|error| {
            let name = signer.name();
            tracing::error!(signer = name, identity, %error, "the certificate of a signer is refused");
            self.failed(&error)
        })
    }

    /// Computes on a thread for blocking work, within the limit of processors.
    async fn computed<T: Send + 'static>(
        &self,
        compute: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        let turn = self.processors.for_request().await;
        let turn = turn.map_err(|error| Status::internal(error.to_string()))?;
        let computing = tokio::task::spawn_blocking(move || {
            let computed = compute();
            drop(turn);
            computed
        });
        computing.await.map_err(|error| Status::internal(error.to_string()))
    }

    /// True if an external signer has the key.
    pub(super) fn is_external(&self) -> bool {
        self.ca.signer.is_some()
    }

    /// Creates a key for an identity that a client proved, and has its certificate signed by the external
    /// signer, within the limits of requests.
    pub(super) async fn requested_workload(
        &self,
        identity: &str,
        client: IpAddr,
    ) -> Result<WorkloadCertificate, Refused> {
        self.admit_address(client)?;
        self.admit_identity(identity)?;
        let later = |status| Refused { status, wait: RETRY };
        let Some(signer) = &self.ca.signer else {
            return Err(later(Status::internal("there is no external signer")));
        };
        let proven = identity.to_owned();
        let created = self.computed(move || {
            let key = WorkloadKey::create()?;
            let csr = key.request(Some(workload_id(&proven)?))?;
            Ok::<_, SignError>((key, csr))
        });
        let created = created.await.map_err(later)?;
        let (key, csr) = created.map_err(|error| later(self.failed(&error)))?;
        let issued = self.request(signer, identity, csr, self.ca.lifetimes.default).await.map_err(later)?;
        self.recorder.metrics().ca.signed.inc();
        Ok(WorkloadCertificate { chain: issued.chain, key: key.to_pem(), expires: issued.expires })
    }

    pub(super) fn admit_identity(&self, identity: &str) -> Result<(), Refused> {
        let admitted = self.identities.take(identity.to_owned(), Instant::now());
        admitted.map_err(|wait| self.too_many(Limit::IdentityCertificates, IDENTITY_CERTIFICATES, wait))
    }

    fn admit_address(&self, client: IpAddr) -> Result<(), Refused> {
        let admitted = self.addresses.take(network_of(client), Instant::now());
        admitted.map_err(|wait| self.too_many(Limit::AddressCertificates, ADDRESS_CERTIFICATES, wait))
    }

    /// Creates a key and a certificate for an identity that a client proved, within the limits of requests.
    /// Blocks.
    pub(super) fn workload(
        &self,
        identity: &str,
        client: IpAddr,
        now: SystemTime,
    ) -> Result<WorkloadCertificate, Refused> {
        self.admit_address(client)?;
        self.admit_identity(identity)?;
        let authority = self.ca.authority.load_full();
        let made = workload_id(identity)
            .and_then(|identity| authority.own()?.workload(identity, self.ca.lifetimes.default, now));
        let made = made.map_err(|error| Refused { status: self.failed(&error), wait: RETRY })?;
        self.recorder.metrics().ca.signed.inc();
        Ok(made)
    }

    pub(super) fn processors(&self) -> &Processors {
        &self.processors
    }

    pub(crate) fn ca(&self) -> &Arc<Ca> {
        &self.ca
    }

    fn too_many(&self, limit: Limit, allowed: u32, wait: Duration) -> Refused {
        self.recorder.limit_exceeded(limit);
        let (limit, seconds) = (limit.as_str(), wait.as_secs_f64());
        let status = Status::resource_exhausted(format!(
            "too many certificate requests: {allowed} a second are allowed; try again after {seconds:.1} s \
             (limit {limit})"
        ));
        Refused { status, wait }
    }

    fn too_many_signing(&self) -> Refused {
        self.recorder.limit_exceeded(Limit::SigningRequests);
        let limit = Limit::SigningRequests.as_str();
        let status = Status::resource_exhausted(format!(
            "too many certificates are being signed; try again later (limit {limit})"
        ));
        Refused { status, wait: RETRY }
    }

    fn count_failure(&self, name: &str) {
        self.recorder.metrics().ca.sign_errors.with_label_values(&[name]).inc();
    }

    /// Counts an error under istiod's names and returns its status.
    fn failed(&self, error: &SignError) -> Status {
        let metrics = &self.recorder.metrics().ca;
        let (name, code) = match error {
            SignError::Request(_) => ("CSR_ERROR", Code::InvalidArgument),
            SignError::Lifetime { .. } => ("TTL_ERROR", Code::InvalidArgument),
            SignError::Expired => ("CA_NOT_READY", Code::Internal),
            SignError::Create(_) => ("CERT_GEN_ERROR", Code::Internal),
        };
        if matches!(error, SignError::Request(_)) {
            metrics.request_errors.inc();
        }
        self.count_failure(name);
        Status::new(code, error.to_string())
    }
}

impl UnaryMethod for CaService {
    fn path(&self) -> &'static str {
        CREATE_CERTIFICATE
    }

    fn admit(&self, client: IpAddr) -> Result<(), Status> {
        self.recorder.metrics().ca.requests.inc();
        self.admit_address(client).map_err(|refused| refused.status)
    }

    fn unauthenticated(&self) {
        self.recorder.metrics().ca.authentication_failures.inc();
    }

    fn call(&self, client: SocketAddr, proof: Proof, request: Bytes) -> UnaryAnswer<'_> {
        Box::pin(async move {
            let answer = self.create(&proof, &request).await;
            if let Err(status) = &answer
                && let Some(left_out) = self.log.allow(Instant::now().into_std())
            {
                let (identity, error) = (proof.identities.join(", "), status.message());
                tracing::warn!(%client, identity, error, left_out, "no certificate was signed for a client");
            }
            answer.map(|response| response.encode_to_vec().into())
        })
    }
}

/// Returns the only identity of the client, if it is one of a workload of the mesh.
pub(super) fn identity(identities: &[String], world: &World) -> Result<String, Status> {
    let [identity] = identities else {
        return Err(Status::permission_denied("the client does not prove exactly one identity"));
    };
    let workload = WorkloadId::parse(identity).ok_or_else(|| {
        Status::permission_denied(format!(
            "{identity} is not the identity of a workload: spiffe://DOMAIN/ns/NAMESPACE/sa/ACCOUNT"
        ))
    })?;
    let domain = workload.trust_domain;
    if domain != trust_domain(world) && !with_mesh(world, |mesh| mesh.has_trust_domain(domain)) {
        return Err(Status::permission_denied(format!("{domain} is not a trust domain of the mesh")));
    }
    Ok(identity.clone())
}

fn is_impersonating(request: &IstioCertificateRequest) -> bool {
    let field = request.metadata.as_ref().and_then(|metadata| metadata.fields.get(IMPERSONATED));
    match field.and_then(|value| value.kind.as_ref()) {
        None => false,
        Some(prost_types::value::Kind::StringValue(text)) => !text.is_empty(),
        Some(_) => true,
    }
}

fn sign(
    authority: &Authority,
    identity: &str,
    csr: &str,
    lifetime: Duration,
    now: SystemTime,
) -> Result<Vec<String>, SignError> {
    let request = CertificateRequest::from_pem(csr)?;
    authority.sign(&request, workload_id(identity)?, lifetime, now)
}

fn workload_id(identity: &str) -> Result<WorkloadId<'_>, SignError> {
    WorkloadId::parse(identity)
        .ok_or_else(|| SignError::Create(format!("{identity} is not the identity of a workload")))
}
