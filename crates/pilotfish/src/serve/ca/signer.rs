//! External signer: certificates by CertificateSigningRequests of the cluster.
//!
//! ```text
//! create ─▶ approve ─▶ read until it is signed ─▶ delete
//! ```
//!
//! The request is deleted in each case: after an answer, a refusal, and a timeout, and if the client has
//! gone.

use anyhow::{Context, Result};
use parking_lot::Mutex;
use pilotfish_admission::{KeyedSemaphore, Permit};
use pilotfish_kube::request::RequestError;
use pilotfish_kube_writer::signing_requests::{SigningRequests, SigningState};
use pilotfish_runtime::{Backoff, BackoffPolicy, ErrorClass, Jitter};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::Status;

/// Requests of this process that the signer has at a time.
pub(crate) const SIGNING_REQUESTS: usize = 64;
/// Of these, requests of one identity.
pub(super) const OF_IDENTITY: usize = 8;
/// Longest wait for a turn.
const TURN: Duration = Duration::from_secs(10);
/// Time until a request is given up.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Intervals at which the state of a request is read.
const READS: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(100), Duration::from_secs(2));

/// A signer of the cluster.
#[derive(Clone)]
pub(super) struct ClusterSigner {
    requests: SigningRequests,
    turns: Arc<Semaphore>,
    identities: Arc<KeyedSemaphore<String>>,
    /// The right to approve, as far as it is known.
    may_approve: Arc<Mutex<Option<bool>>>,
}

/// Turn of a request.
struct Turn(#[allow(dead_code, reason = "held until drop")] (Permit, OwnedSemaphorePermit));

/// No certificate was signed.
#[derive(Debug)]
enum Failure {
    /// The API server or the signer refuses.
    Refused(String),
    /// A later request may succeed.
    Later(String),
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        match error.class {
            ErrorClass::Denied | ErrorClass::Rejected => Self::Refused(error.to_string()),
            ErrorClass::Transient | ErrorClass::Conflict | ErrorClass::Gone => Self::Later(error.to_string()),
        }
    }
}

impl ClusterSigner {
    pub(super) fn new(requests: SigningRequests) -> Self {
        Self {
            requests,
            turns: Arc::new(Semaphore::new(SIGNING_REQUESTS)),
            identities: Arc::new(KeyedSemaphore::new(OF_IDENTITY)),
            may_approve: Arc::default(),
        }
    }

    /// Name of the signer.
    pub(super) fn name(&self) -> &str {
        self.requests.signer()
    }

    /// Has a certificate request in PEM signed, and returns the certificates in PEM, which are not trusted
    /// yet. `None` if there was no turn in time.
    ///
    /// # Errors
    /// When the signer or the API server refuses, or does not answer in time.
    pub(super) async fn sign(
        &self,
        identity: &str,
        request: String,
        lifetime: Duration,
    ) -> Result<Option<String>, Status> {
        let Ok(turn) = timeout(TURN, self.turn(identity)).await else { return Ok(None) };
        let turn = turn.map_err(|error| Status::internal(format!("{error:#}")))?;
        let deadline = Instant::now() + TIMEOUT;
        let this = self.clone();
        // A task of its own, which also deletes the request of a client that has gone.
        let signing = tokio::spawn(async move {
            let signed = this.signed(&request, lifetime, deadline).await;
            drop(turn);
            signed
        });
        let signed = signing.await.map_err(|error| Status::internal(error.to_string()))?;
        let name = self.name();
        signed.map(Some).map_err(|failure| match failure {
            Failure::Refused(reason) => Status::failed_precondition(format!("signer {name}: {reason}")),
            Failure::Later(reason) => Status::unavailable(format!("signer {name}: {reason}")),
        })
    }

    async fn turn(&self, identity: &str) -> Result<Turn> {
        let of_identity = self.identities.acquire(identity.to_owned()).await;
        let all = self.turns.clone().acquire_owned().await.context("waiting for the signer")?;
        Ok(Turn((of_identity, all)))
    }

    async fn signed(&self, request: &str, lifetime: Duration, deadline: Instant) -> Result<String, Failure> {
        let name = self.requests.create(request, lifetime).await?;
        let signed = timeout_at(deadline, self.answer(&name)).await;
        if let Err(error) = self.requests.delete(&name).await {
            tracing::warn!(name, %error, "a CertificateSigningRequest is left to the cluster's cleanup");
        }
        signed.unwrap_or_else(|_| {
            let approval = match *self.may_approve.lock() {
                Some(false) => "; Pilotfish may not approve it, and somebody else has to",
                _ => "",
            };
            Err(Failure::Later(format!("not signed within {} s{approval}", TIMEOUT.as_secs())))
        })
    }

    /// Approves a request and waits for the answer.
    async fn answer(&self, name: &str) -> Result<String, Failure> {
        match self.requests.approve(name).await {
            Ok(may_approve) => self.note_approval(may_approve),
            // Another approver may have been faster: the state decides.
            Err(error) if matches!(error.class, ErrorClass::Rejected | ErrorClass::Conflict) => {
                tracing::debug!(name, %error, "a CertificateSigningRequest was not approved");
            }
            Err(error) => return Err(error.into()),
        }
        let mut backoff = Backoff::new(READS, Jitter::default());
        loop {
            match self.requests.state(name).await {
                Ok(SigningState::Signed(certificates)) => return Ok(certificates),
                Ok(SigningState::Refused(reason)) => return Err(Failure::Refused(reason)),
                Ok(SigningState::Pending) => {}
                Err(error) if error.class == ErrorClass::Transient => {}
                Err(error) => return Err(error.into()),
            }
            sleep(backoff.wait()).await;
        }
    }

    /// Logs a change of the right to approve.
    fn note_approval(&self, may_approve: bool) {
        let before = self.may_approve.lock().replace(may_approve);
        if !may_approve && before != Some(false) {
            tracing::warn!(
                signer = self.name(),
                "CertificateSigningRequests cannot be approved (deploy/kubernetes/rbac-ca-signer.yaml): somebody \
                 else has to"
            );
        }
    }
}

#[cfg(test)]
mod tests;
