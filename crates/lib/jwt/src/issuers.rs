//! Issuers with their keys in force, and the authenticator of their tokens.

use crate::keys::KeySet;
use crate::rules::{JwtRules, Keys, Rule};
use crate::verify::{Account, Parsed, Refused};
use parking_lot::RwLock;
use pilotfish_access::{bearer, digest};
use pilotfish_admission::RefusalLimit;
use pilotfish_identity::{Authenticator, Call, Proof, Unproven};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Refused tokens of an address per second, with bursts of ten times that: each costs a signature.
const ADDRESS_REFUSALS: u32 = 10;

/// Issuers with the keys that were read last.
pub struct Issuers(Vec<Issuer>);

pub(crate) struct Issuer {
    pub(crate) rule: Rule,
    /// `None` until they are read.
    keys: RwLock<Option<Arc<KeySet>>>,
    /// Notified when a token names an unknown key.
    pub(crate) wanted: Notify,
}

impl Issuer {
    pub(crate) fn replace(&self, keys: KeySet) {
        *self.keys.write() = Some(Arc::new(keys));
    }
}

impl Issuers {
    /// Issuers of these rules. Keys in the rules are in force; others are read by a
    /// [`KeyReader`](crate::KeyReader).
    #[must_use]
    pub fn new(rules: JwtRules) -> Self {
        let issuer = |rule: Rule| {
            let keys = match &rule.keys {
                Keys::Inline(keys) => Some(Arc::new(keys.clone())),
                Keys::File(_) | Keys::Uri(_) | Keys::Discovery => None,
            };
            Issuer { rule, keys: RwLock::new(keys), wanted: Notify::new() }
        };
        Self(rules.rules.into_iter().map(issuer).collect())
    }

    pub(crate) fn all(&self) -> &[Issuer] {
        &self.0
    }

    /// Verifies a token.
    ///
    /// # Errors
    /// The reason for refusing it.
    pub fn verify(&self, token: &str, now: SystemTime) -> Result<Account, Refused> {
        let parsed = Parsed::of(token)?;
        let issuer = self.0.iter().find(|issuer| issuer.rule.issuer == parsed.issuer());
        let issuer = issuer.ok_or_else(|| Refused::Issuer(parsed.issuer().chars().take(100).collect()))?;
        let keys = issuer.keys.read().clone();
        let keys = keys.ok_or(Refused::NoKeys)?;
        if parsed.kid().is_some_and(|kid| !keys.has(kid)) {
            issuer.wanted.notify_one();
        }
        parsed.verify(&issuer.rule, &keys, now)
    }
}

/// Authenticator by tokens of the issuers. The function returns the SPIFFE id of a namespace and an account.
pub struct JwtAuthenticator<F> {
    issuers: Arc<Issuers>,
    identity: F,
    refusals: RefusalLimit,
}

impl<F: Fn(&str, &str) -> String + Send + Sync + 'static> JwtAuthenticator<F> {
    #[must_use]
    pub fn new(issuers: Arc<Issuers>, identity: F) -> Self {
        let refusals = RefusalLimit::new(ADDRESS_REFUSALS, 10 * ADDRESS_REFUSALS);
        Self { issuers, identity, refusals }
    }

    fn prove(&self, call: &Call) -> Result<Proof, Unproven> {
        let token = call.metadata("authorization").and_then(bearer).ok_or("none was presented")?;
        let attempt = self.refusals.begin(call.address.ip(), digest(token), Instant::now());
        let attempt = attempt
            .map_err(|_| Unproven::undecided("too many tokens of this address were refused (10 a second)"))?;
        match self.issuers.verify(token, SystemTime::now()) {
            Ok(account) => {
                attempt.accepted(Instant::now());
                let identity = (self.identity)(&account.namespace, &account.name);
                Ok(Proof { identities: vec![identity], cluster: None, until: Some(account.expires) })
            }
            // Cost no signature: an API server may know the token.
            Err(refused @ (Refused::Issuer(_) | Refused::Form)) => {
                attempt.undecided();
                Err(refused.to_string().into())
            }
            Err(Refused::NoKeys) => {
                attempt.undecided();
                Err(Unproven::undecided(Refused::NoKeys.to_string()))
            }
            Err(refused) => {
                attempt.refused(Instant::now());
                Err(refused.to_string().into())
            }
        }
    }
}

impl<F: Fn(&str, &str) -> String + Send + Sync + 'static> Authenticator for JwtAuthenticator<F> {
    fn name(&self) -> &'static str {
        "jwt"
    }

    fn authenticate<'a>(
        &'a self,
        call: &'a Call,
    ) -> Pin<Box<dyn Future<Output = Result<Proof, Unproven>> + Send + 'a>> {
        Box::pin(std::future::ready(self.prove(call)))
    }
}
