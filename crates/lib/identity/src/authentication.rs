//! Authenticators: identify clients that present no certificate with an identity.

use crate::certificate::CERTIFICATE;
use pilotfish_admission::LogLimit;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Address and metadata of a client's request.
pub struct Call {
    /// Address of the client.
    pub address: SocketAddr,
    metadata: Vec<(String, String)>,
}

impl Call {
    /// `metadata` holds gRPC metadata or HTTP headers, with names in lower case.
    #[must_use]
    pub fn new(address: SocketAddr, metadata: Vec<(String, String)>) -> Self {
        Self { address, metadata }
    }

    /// Returns the first value of a name in lower case.
    #[must_use]
    pub fn metadata(&self, name: &str) -> Option<&str> {
        self.metadata.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Omits the metadata, which holds credentials.
impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Identities that a client proved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// Its identities (SPIFFE ids).
    pub identities: Vec<String>,
    /// The cluster whose API server verified them; `None` if unknown, as for a certificate. Never taken from
    /// the client's own statements.
    pub cluster: Option<Arc<str>>,
    /// Expiry, if known: streams and watches of the client end with it.
    pub until: Option<SystemTime>,
}

/// A proof of identities without cluster and expiry.
impl From<Vec<String>> for Proof {
    fn from(identities: Vec<String>) -> Self {
        Self { identities, ..Self::default() }
    }
}

/// Result of an authentication; the error is its reason. It is sent to the client and logged, so it never
/// holds credentials.
pub type Authenticated = Result<Proof, String>;

/// Reason for not accepting the credentials of a client. It is sent to the client and logged, and never holds
/// credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unproven {
    /// Text for the client and the log.
    pub reason: String,
    /// False if the check was not possible, as while an API server is unreachable: the credentials may be
    /// good.
    pub is_verdict: bool,
}

impl Unproven {
    /// The check was not possible, for this reason.
    #[must_use]
    pub fn undecided(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_verdict: false }
    }
}

impl<T: Into<String>> From<T> for Unproven {
    fn from(reason: T) -> Self {
        Self { reason: reason.into(), is_verdict: true }
    }
}

/// Identifies a client by the credentials of a request, such as a token.
pub trait Authenticator: Send + Sync + 'static {
    /// Name of the method, for messages and metric labels.
    fn name(&self) -> &'static str;

    /// Returns the identities of the client. The future is dropped on timeout or disconnect.
    fn authenticate<'a>(
        &'a self,
        call: &'a Call,
    ) -> Pin<Box<dyn Future<Output = Result<Proof, Unproven>> + Send + 'a>>;
}

/// No method proved an identity. The text has the reason of each method; it may be sent to the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client proves no identity: {reasons}")]
pub struct Unauthenticated {
    reasons: String,
    /// False if some method could not check the credentials, so that they may be good.
    pub is_verdict: bool,
}

/// The authenticators of one listener, in order.
pub struct Authentication {
    listener: &'static str,
    authenticators: Vec<Arc<dyn Authenticator>>,
    timeout: Duration,
    log: LogLimit,
}

impl Authentication {
    /// `timeout` limits all authenticators of one client together. `listener` is the protocol, for logs; it
    /// may be served with TLS and without.
    #[must_use]
    pub fn new(
        listener: &'static str,
        authenticators: Vec<Arc<dyn Authenticator>>,
        timeout: Duration,
    ) -> Self {
        Self { listener, authenticators, timeout, log: LogLimit::default() }
    }

    /// Tries the authenticators in order; returns the proof of the first that succeeds, with its name.
    /// `certificate` is the reason for rejecting the client's certificate.
    ///
    /// # Errors
    /// With the reasons of all.
    pub async fn run(
        &self,
        certificate: &str,
        call: &Call,
    ) -> Result<(&'static str, Proof), Unauthenticated> {
        let mut reasons = vec![format!("{CERTIFICATE}: {certificate}")];
        let mut is_verdict = true;
        let until = tokio::time::Instant::now() + self.timeout;
        for authenticator in &self.authenticators {
            let name = authenticator.name();
            match tokio::time::timeout_at(until, authenticator.authenticate(call)).await {
                Ok(Ok(proof)) => return Ok((name, proof)),
                Ok(Err(Unproven { reason, is_verdict: decided })) => {
                    is_verdict &= decided;
                    reasons.push(format!("{name}: {reason}"));
                }
                Err(_) => {
                    is_verdict = false;
                    reasons.push(format!("{name}: no answer in time"));
                }
            }
        }
        Err(Unauthenticated { reasons: reasons.join("; "), is_verdict })
    }

    /// Logs a refused client and the reason: at most ten lines in ten seconds, as clients can cause any
    /// number of them.
    pub fn log_refusal(&self, peer: SocketAddr, error: &dyn fmt::Display) {
        if let Some(left_out) = self.log.allow(Instant::now()) {
            let listener = self.listener;
            tracing::warn!(%peer, %error, left_out, "a client of the {listener} server was refused");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(&'static str, Option<Result<Proof, Unproven>>);

    impl Authenticator for Fixed {
        fn name(&self) -> &'static str {
            self.0
        }

        fn authenticate<'a>(
            &'a self,
            _: &'a Call,
        ) -> Pin<Box<dyn Future<Output = Result<Proof, Unproven>> + Send + 'a>> {
            Box::pin(async move {
                match &self.1 {
                    Some(answer) => answer.clone(),
                    None => std::future::pending().await,
                }
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_that_succeeds_wins_and_otherwise_the_error_has_all_reasons() {
        let no = |name| Arc::new(Fixed(name, Some(Err("no".into())))) as Arc<dyn Authenticator>;
        let yes = |name| Arc::new(Fixed(name, Some(Ok(vec![name.into()].into())))) as Arc<dyn Authenticator>;
        let silent = |name| Arc::new(Fixed(name, None)) as Arc<dyn Authenticator>;
        let run = async |authenticators| {
            let all = Authentication::new("xDS", authenticators, Duration::from_secs(5));
            all.run("none", &Call::new("192.0.2.1:5".parse().unwrap(), Vec::new()))
                .await
                .map_err(|error| error.to_string())
        };
        assert_eq!(run(vec![no("a"), yes("b"), yes("c")]).await, Ok(("b", vec!["b".to_owned()].into())));
        let none = "the client proves no identity: certificate: none";
        assert_eq!(run(vec![]).await, Err(none.to_owned()));
        let all = run(vec![no("a"), silent("b"), silent("c")]).await;
        assert_eq!(all, Err(format!("{none}; a: no; b: no answer in time; c: no answer in time")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_a_verdict_only_if_every_method_found_out() {
        let refused = || Some(Err("no".into()));
        let undecided = || Some(Err(Unproven::undecided("the API server is away")));
        for (answers, is_verdict) in [
            (vec![refused()], true),
            (vec![refused(), refused()], true),
            (vec![refused(), undecided()], false),
            (vec![undecided(), refused()], false),
            (vec![refused(), None], false),
        ] {
            let all =
                answers.into_iter().map(|answer| Arc::new(Fixed("a", answer)) as Arc<dyn Authenticator>);
            let all = Authentication::new("xDS", all.collect(), Duration::from_secs(5));
            let error =
                all.run("none", &Call::new("192.0.2.1:5".parse().unwrap(), Vec::new())).await.unwrap_err();
            assert_eq!(error.is_verdict, is_verdict, "{error}");
        }
    }

    #[test]
    fn metadata_is_not_shown() {
        let call =
            Call::new("192.0.2.1:5".parse().unwrap(), vec![("authorization".into(), "Bearer x".into())]);
        assert_eq!(call.metadata("authorization"), Some("Bearer x"));
        assert!(!format!("{call:?}").contains("Bearer"));
    }
}
