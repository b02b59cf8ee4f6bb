//! Who a client of the secure listener is. A verified certificate with a SPIFFE identity comes first, then every authenticator in its
//! order; the first that succeeds wins.

use super::log_limit::LogLimit;
use crate::stream::StreamError;
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use webpki::EndEntityCert;

/// Identities that are taken of one certificate.
const MOST_IDENTITIES: usize = 16;
/// The longest identity, in bytes, as SPIFFE has it.
const LONGEST_IDENTITY: usize = 2048;

/// What a client says when it opens a stream.
pub struct Call {
    /// Where it comes from, `ip:port`.
    pub address: String,
    metadata: Vec<(String, String)>,
}

impl Call {
    /// A call with that metadata: names in lower case.
    #[must_use]
    pub fn new(address: String, metadata: Vec<(String, String)>) -> Self {
        Self { address, metadata }
    }

    /// The first value of that name.
    #[must_use]
    pub fn metadata(&self, name: &str) -> Option<&str> {
        self.metadata.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Without metadata: credentials are in it.
impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The identities of a client (SPIFFE ids), or why there are none. The reason reaches the client and the log: it never holds
/// credentials.
pub type Authenticated = Result<Vec<String>, String>;

/// Proves who clients are by what they say when they open a stream.
pub trait Authenticator: Send + Sync + 'static {
    /// A word for messages and metrics.
    fn name(&self) -> &'static str;

    /// The identities of the client. Dropped when it takes too long or the client is gone.
    fn authenticate<'a>(&'a self, call: &'a Call)
    -> Pin<Box<dyn Future<Output = Authenticated> + Send + 'a>>;
}

/// The word for certificates, as [`Authenticator::name`].
pub(super) const CERTIFICATE: &str = "certificate";

/// What all connections of the secure listener have in common.
pub(super) struct Authentication {
    pub(super) authenticators: Vec<Arc<dyn Authenticator>>,
    pub(super) limit: Duration,
    pub(super) log: LogLimit,
}

impl Authentication {
    /// Asks one after the other.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` with the reasons of all.
    pub(super) async fn run(
        &self,
        certificate: &str,
        call: &Call,
    ) -> Result<(&'static str, Vec<String>), StreamError> {
        let mut reasons = vec![format!("{CERTIFICATE}: {certificate}")];
        let until = tokio::time::Instant::now() + self.limit;
        for authenticator in &self.authenticators {
            let name = authenticator.name();
            match tokio::time::timeout_at(until, authenticator.authenticate(call)).await {
                Ok(Ok(identities)) => return Ok((name, identities)),
                Ok(Err(reason)) => reasons.push(format!("{name}: {reason}")),
                Err(_) => reasons.push(format!("{name}: no answer in time")),
            }
        }
        Err(StreamError::Unauthenticated(format!("the client proves no identity: {}", reasons.join("; "))))
    }

    /// Tells who was refused and why, unless that is told too often.
    pub(super) fn tell(&self, peer: &str, error: &dyn fmt::Display) {
        if let Some(left_out) = self.log.allow(Instant::now()) {
            tracing::warn!(peer, %error, left_out, "a client of the secure xDS address was refused");
        }
    }
}

/// The SPIFFE identities of a verified client.
///
/// # Errors
/// Says why there are none.
pub(super) fn of_certificate(chain: Option<&[CertificateDer<'_>]>) -> Authenticated {
    let Some(own) = chain.and_then(<[_]>::first) else { return Err("none was presented".into()) };
    let certificate = EndEntityCert::try_from(own).map_err(|error| error.to_string())?;
    let names = certificate.valid_uri_names();
    let identities = names.filter(|name| name.starts_with("spiffe://") && name.len() <= LONGEST_IDENTITY);
    let identities: Vec<String> = identities.take(MOST_IDENTITIES).map(str::to_owned).collect();
    if identities.is_empty() { Err("it has no SPIFFE identity".into()) } else { Ok(identities) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, SanType};

    fn certificate(names: &[&str]) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names
            .iter()
            .map(|name| match name.contains(':') {
                true => SanType::URI((*name).try_into().unwrap()),
                false => SanType::DnsName((*name).try_into().unwrap()),
            })
            .collect();
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn identities_are_the_spiffe_names_of_the_first_certificate() {
        const WEB: &str = "spiffe://cluster.local/ns/shop/sa/web";
        let long = format!("spiffe://{}", "a".repeat(LONGEST_IDENTITY));
        for (names, identities) in [
            (&[WEB][..], Ok(vec![WEB.to_owned()])),
            (&["a.test", "https://a.test", WEB], Ok(vec![WEB.to_owned()])),
            (&["a.test"], Err("it has no SPIFFE identity".to_owned())),
            (&[long.as_str()], Err("it has no SPIFFE identity".to_owned())),
        ] {
            let chain = [certificate(names), certificate(&["spiffe://cluster.local/ns/other/sa/x"])];
            assert_eq!(of_certificate(Some(&chain)), identities, "{names:?}");
        }
        assert_eq!(of_certificate(None), Err("none was presented".to_owned()));
        assert_eq!(of_certificate(Some(&[])), Err("none was presented".to_owned()));
    }

    struct Fixed(&'static str, Option<Authenticated>);

    impl Authenticator for Fixed {
        fn name(&self) -> &'static str {
            self.0
        }

        fn authenticate<'a>(
            &'a self,
            _: &'a Call,
        ) -> Pin<Box<dyn Future<Output = Authenticated> + Send + 'a>> {
            Box::pin(async move {
                match &self.1 {
                    Some(answer) => answer.clone(),
                    None => std::future::pending().await,
                }
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_that_succeeds_wins_and_otherwise_all_reasons_are_told() {
        let no = |name| Arc::new(Fixed(name, Some(Err("no".into())))) as Arc<dyn Authenticator>;
        let yes = |name| Arc::new(Fixed(name, Some(Ok(vec![name.into()])))) as Arc<dyn Authenticator>;
        let silent = |name| Arc::new(Fixed(name, None)) as Arc<dyn Authenticator>;
        let run = async |authenticators| {
            let limit = Duration::from_secs(5);
            let all = Authentication { authenticators, limit, log: LogLimit::default() };
            all.run("none", &Call::new(String::new(), Vec::new())).await.map_err(|error| error.to_string())
        };
        assert_eq!(run(vec![no("a"), yes("b"), yes("c")]).await, Ok(("b", vec!["b".to_owned()])));
        let told = "the client proves no identity: certificate: none";
        assert_eq!(run(vec![]).await, Err(told.to_owned()));
        let all = run(vec![no("a"), silent("b"), silent("c")]).await;
        assert_eq!(all, Err(format!("{told}; a: no; b: no answer in time; c: no answer in time")));
    }

    #[test]
    fn metadata_is_not_shown() {
        let call = Call::new("192.0.2.1:5".into(), vec![("authorization".into(), "Bearer x".into())]);
        assert_eq!(call.metadata("authorization"), Some("Bearer x"));
        assert!(!format!("{call:?}").contains("Bearer"));
    }
}
