//! Issuers with their keys in force, and the authenticator of their tokens.

use crate::keys::KeySet;
use crate::rules::{JwtRules, Keys, Rule};
use crate::verify::{Account, Parsed, Refused};
use arc_swap::ArcSwap;
use parking_lot::RwLock;
use pilotfish_access::{bearer, digest};
use pilotfish_admission::RefusalLimit;
use pilotfish_identity::{Authenticator, Call, Proof, Unproven};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// Refused tokens of an address per second, with bursts of ten times that: each costs a signature.
const ADDRESS_REFUSALS: u32 = 10;

/// Issuers with the keys that were read last. Their rules can be replaced.
pub struct Issuers {
    all: ArcSwap<Vec<Arc<Issuer>>>,
    /// Notified when the rules are replaced.
    replaced: watch::Sender<()>,
}

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

    fn verify(&self, token: &Parsed<'_>, now: SystemTime) -> Result<Account, Refused> {
        let keys = self.keys.read().clone();
        let keys = keys.ok_or(Refused::NoKeys)?;
        if token.kid().is_some_and(|kid| !keys.has(kid)) {
            self.wanted.notify_one();
        }
        token.verify(&self.rule, &keys, now)
    }
}

impl Issuers {
    /// Issuers of these rules. Keys in the rules are in force; others are read by a
    /// [`KeyReader`](crate::KeyReader).
    #[must_use]
    pub fn new(rules: JwtRules) -> Self {
        Self { all: ArcSwap::from_pointee(issuers(rules, &[])), replaced: watch::Sender::default() }
    }

    /// Returns the issuers of other rules, with the keys that those in force have from the same source.
    pub(crate) fn with_rules(&self, rules: JwtRules) -> Vec<Arc<Issuer>> {
        issuers(rules, &self.all())
    }

    /// Puts other issuers in force.
    pub(crate) fn put_in_force(&self, issuers: Vec<Arc<Issuer>>) {
        self.all.store(Arc::new(issuers));
        self.replaced.send_replace(());
    }

    pub(crate) fn all(&self) -> Arc<Vec<Arc<Issuer>>> {
        self.all.load_full()
    }

    /// Returns a receiver of replacements.
    pub(crate) fn replacements(&self) -> watch::Receiver<()> {
        self.replaced.subscribe()
    }

    /// Verifies a token.
    ///
    /// # Errors
    /// The reason for refusing it.
    pub fn verify(&self, token: &str, now: SystemTime) -> Result<Account, Refused> {
        let (parsed, issuer) = self.parse(token)?;
        issuer.verify(&parsed, now)
    }

    /// Parses a token, and finds its issuer.
    fn parse<'a>(&self, token: &'a str) -> Result<(Parsed<'a>, Arc<Issuer>), Refused> {
        let parsed = Parsed::of(token)?;
        let all = self.all.load();
        let issuer = all.iter().find(|issuer| issuer.rule.issuer == parsed.issuer()).cloned();
        let issuer = issuer.ok_or_else(|| Refused::Issuer(parsed.issuer().chars().take(100).collect()))?;
        Ok((parsed, issuer))
    }
}

/// Returns the issuers of rules, with the keys that those before have from the same source.
fn issuers(rules: JwtRules, before: &[Arc<Issuer>]) -> Vec<Arc<Issuer>> {
    let issuer = |rule: Rule| {
        let keys = match &rule.keys {
            Keys::Inline(keys) => Some(Arc::new(keys.clone())),
            Keys::File(_) | Keys::Uri(_) | Keys::Discovery => {
                let same = before.iter().find(|known| known.rule.has_source_of(&rule));
                same.and_then(|known| known.keys.read().clone())
            }
        };
        Arc::new(Issuer { rule, keys: RwLock::new(keys), wanted: Notify::new() })
    };
    rules.rules.into_iter().map(issuer).collect()
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
        // Costs no signature, and is outside the limit: this is a verdict also when the limit is reached.
        let (parsed, issuer) = self.issuers.parse(token).map_err(|refused| refused.to_string())?;
        let attempt = self.refusals.begin(call.address.ip(), digest(token), Instant::now());
        let attempt = attempt
            .map_err(|_| Unproven::undecided("too many tokens of this address were refused (10 a second)"))?;
        match issuer.verify(&parsed, SystemTime::now()) {
            Ok(account) => {
                attempt.accepted(Instant::now());
                let identity = (self.identity)(&account.namespace, &account.name);
                Ok(Proof { identities: vec![identity], cluster: None, until: Some(account.expires) })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn tokens_of_others_are_refused_also_beyond_the_limit() {
        let rules = r#"jwtRules: [{issuer: a, audiences: [a], jwks: '{"keys": [{"kty": "OKP", "crv": "Ed25519",
            "kid": "a", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}'}]"#;
        let issuers = Arc::new(Issuers::new(JwtRules::parse(rules).unwrap()));
        let authenticator = JwtAuthenticator::new(issuers, |_: &str, _: &str| String::new());
        let is_verdict = |token: &str| {
            let metadata = vec![("authorization".to_owned(), format!("Bearer {token}"))];
            let call = Call::new(([192, 0, 2, 1], 1).into(), metadata);
            authenticator.prove(&call).unwrap_err().is_verdict
        };
        // {"alg":"EdDSA","kid":"a"}, and {"iss":"a","exp":1} or {"iss":"b","exp":1}: with wrong signatures.
        let own = "eyJhbGciOiJFZERTQSIsImtpZCI6ImEifQ.eyJpc3MiOiJhIiwiZXhwIjoxfQ.AAAA";
        let other = "eyJhbGciOiJFZERTQSIsImtpZCI6ImEifQ.eyJpc3MiOiJiIiwiZXhwIjoxfQ.AAAA";
        for _ in 0..10 * ADDRESS_REFUSALS {
            assert!(is_verdict(other) && is_verdict("no-jwt") && is_verdict(own));
        }
        assert!(!is_verdict(own), "the limit is reached");
        assert!(is_verdict(other) && is_verdict("no-jwt"));
    }
}
