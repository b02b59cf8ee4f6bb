//! Identities of clients by tokens of service accounts.

use crate::mesh::trust_domain;
use pilotfish_access::bearer;
use pilotfish_identity::{Authenticator, Call, Proof, Unproven};
use pilotfish_kube::token_review::{ReviewError, TokenReviewer};
use pilotfish_kube_writer::auto_registration::WorldNow;
use pilotfish_model::SpiffeId;
use pilotfish_xds::{Limit, Recorder};
use std::pin::Pin;
use std::sync::Arc;

/// Authenticator by tokens of service accounts, which API servers review.
pub struct TokenAuthenticator {
    reviewer: TokenReviewer,
    world: WorldNow,
    /// Counts limits of xDS.
    recorder: Option<Arc<dyn Recorder>>,
}

impl TokenAuthenticator {
    /// Returns an authenticator that reads the trust domain of identities from `world`.
    #[must_use]
    pub fn new(reviewer: TokenReviewer, world: WorldNow, recorder: Option<Arc<dyn Recorder>>) -> Self {
        Self { reviewer, world, recorder }
    }
}

impl Authenticator for TokenAuthenticator {
    fn name(&self) -> &'static str {
        "token"
    }

    fn authenticate<'a>(
        &'a self,
        call: &'a Call,
    ) -> Pin<Box<dyn Future<Output = Result<Proof, Unproven>> + Send + 'a>> {
        Box::pin(async move {
            let token = call.metadata("authorization").and_then(bearer).ok_or("none was presented")?;
            let cluster = call.metadata("clusterid").unwrap_or_default();
            let address = call.address.ip();
            let account = self.reviewer.review(address, cluster, token).await;
            let account = account.map_err(|error| {
                if error == ReviewError::TooMany
                    && let Some(recorder) = &self.recorder
                {
                    recorder.limit_exceeded(Limit::AddressReviews);
                }
                let is_verdict = !matches!(error, ReviewError::Unavailable { .. });
                Unproven { reason: error.to_string(), is_verdict }
            })?;
            let domain = trust_domain(&(self.world)());
            let identity = SpiffeId::new(&domain, &account.namespace, &account.name).to_string();
            Ok(Proof { identities: vec![identity], cluster: Some(account.cluster), until: account.expires })
        })
    }
}
