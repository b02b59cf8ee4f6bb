//! Identities of clients by tokens of service accounts.

use crate::mesh::trust_domain;
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
    recorder: Arc<dyn Recorder>,
}

impl TokenAuthenticator {
    /// Returns an authenticator that reads the trust domain of identities from `world`.
    #[must_use]
    pub fn new(reviewer: TokenReviewer, world: WorldNow, recorder: Arc<dyn Recorder>) -> Self {
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
                if error == ReviewError::TooMany {
                    self.recorder.limit_exceeded(Limit::AddressReviews);
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

/// Returns the bearer token of an `authorization` header.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_follows_the_scheme() {
        for (header, token) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Basic abc", None),
            ("Bearer", None),
            ("abc", None),
            ("Bearer ", Some("")),
        ] {
            assert_eq!(bearer(header), token, "{header:?}");
        }
    }
}
