//! Service accounts of bearer tokens, by TokenReviews of the API server that issued them.
//!
//! Verdicts are cached for a moment, so that a client that reconnects costs no request. While an API server
//! cannot answer, its tokens are refused.

mod cache;
mod claims;
mod review;

use crate::client::Client;
use crate::remote::RemoteClients;
use crate::request::RequestError;
use cache::{Cache, Key, Outcome};
use parking_lot::Mutex;
use pilotfish_admission::{KeyedSemaphore, RefusalLimit, network_of};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::{Instant, timeout};

/// Requests to one API server at a time.
const AT_A_TIME: usize = 64;
/// Requests for tokens from one address at a time (limit `address-reviews`).
pub const ADDRESS_REVIEWS: usize = 16;
/// Refused reviews of one address per second (limit `address-reviews`), which bounds the unknown tokens of an
/// address that reach an API server.
pub const ADDRESS_REFUSALS: u32 = 10;
/// Time limit of a review, including the wait for a permit.
const LIMIT: Duration = Duration::from_secs(5);
/// Size limit of a token in bytes. Tokens of service accounts have about 1,000.
const LONGEST: usize = 16 << 10;

/// A Kubernetes service account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccount {
    pub namespace: String,
    pub name: String,
    /// Cluster whose API server accepted the token.
    pub cluster: Arc<str>,
    /// Expiry of the token, if it has one.
    pub expires: Option<SystemTime>,
}

/// Reason why a token is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    /// The client names a cluster that this control plane does not read.
    #[error("no cluster {0:?} is read here, whose API server could check the token")]
    NoCluster(String),
    /// The text has not the form of a token of a service account.
    #[error("the token is empty, too long, or none of a service account")]
    NoToken,
    /// The API server refused it.
    #[error("the token is not accepted: {0}")]
    Refused(String),
    /// The token is valid for another audience.
    #[error("the token is not for {0}")]
    Audience(String),
    /// The token is valid, but its user is no service account.
    #[error("the token is not one of a service account")]
    NoServiceAccount,
    /// Too many tokens of the client's address are under review, or were refused a moment ago.
    #[error("too many tokens from this address are under review or were refused (limit address-reviews)")]
    TooMany,
    /// The API server gave no verdict.
    #[error("the API server of cluster {cluster} cannot check the token now: {reason}")]
    Unavailable {
        cluster: String,
        /// Reason why the review failed.
        reason: String,
    },
}

impl ReviewError {
    /// True if the token was refused, rather than its review having failed.
    fn is_verdict(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Audience(_) | Self::NoServiceAccount)
    }
}

/// Reviewer of tokens, with limits by address and a cache of verdicts.
pub struct TokenReviewer {
    own: (Arc<str>, Client),
    remote: RemoteClients,
    audiences: Vec<String>,
    /// Concurrent requests by cluster, so that a slow API server delays no reviews of other clusters.
    turns: KeyedSemaphore<Arc<str>>,
    /// Concurrent reviews by address: of unknown tokens, and of tokens that were accepted before. Neither
    /// group uses the slots of the other.
    addresses: [KeyedSemaphore<IpAddr>; 2],
    refusals: RefusalLimit,
    cache: Mutex<Cache>,
}

impl TokenReviewer {
    /// Returns a reviewer for tokens of `own`, the id and client of the local cluster, and of the remote
    /// clusters. Tokens must be for one of the audiences.
    #[must_use]
    pub fn new(own: (Arc<str>, Client), remote: RemoteClients, audiences: Vec<String>) -> Self {
        Self {
            own,
            remote,
            audiences,
            turns: KeyedSemaphore::new(AT_A_TIME),
            addresses: [KeyedSemaphore::new(ADDRESS_REVIEWS), KeyedSemaphore::new(ADDRESS_REVIEWS)],
            refusals: RefusalLimit::new(ADDRESS_REFUSALS, ADDRESS_REFUSALS),
            cache: Mutex::default(),
        }
    }

    /// Returns the service account of the token of a client at `address`. `cluster` is the cluster that the
    /// client names; an empty one is the local cluster.
    ///
    /// # Errors
    /// The reason why the token is not accepted.
    pub async fn review(
        &self,
        address: IpAddr,
        cluster: &str,
        token: &str,
    ) -> Result<ServiceAccount, ReviewError> {
        let (own, client) = &self.own;
        let (cluster, client) = match cluster {
            "" => (&**own, client.clone()),
            cluster if *cluster == **own => (cluster, client.clone()),
            other => match self.remote.of(other) {
                Some(client) => (other, client),
                None => return Err(no_cluster(other)),
            },
        };
        if token.is_empty() || token.len() > LONGEST {
            return Err(ReviewError::NoToken);
        }
        let expires = claims::check(token, &self.audiences, SystemTime::now())?;
        let key = Key::of(cluster, token);
        if let Some(known) = self.cache.lock().get(key, Instant::now()) {
            return known;
        }
        let attempt = self.refusals.begin(address, key.digest(), Instant::now());
        let attempt = attempt.map_err(|_| ReviewError::TooMany)?;
        let [new, known] = &self.addresses;
        let slots = if attempt.is_known() { known } else { new };
        let Some(_slot) = slots.try_acquire(network_of(address)) else {
            attempt.undecided();
            return Err(ReviewError::TooMany);
        };
        let outcome = self.request(cluster, &client, token).await;
        match &outcome {
            Ok(_) => attempt.accepted(Instant::now()),
            Err(error) if error.is_verdict() => attempt.refused(Instant::now()),
            Err(_) => attempt.undecided(),
        }
        // The API server accepted the token, which vouches for its claims.
        let outcome = outcome.map(|account| ServiceAccount { expires, ..account });
        self.cache.lock().put(key, &outcome, Instant::now());
        outcome
    }

    async fn request(&self, cluster: &str, client: &Client, token: &str) -> Outcome {
        let unavailable = |reason: String| ReviewError::Unavailable { cluster: cluster.to_owned(), reason };
        let request = async {
            let _turn = self.turns.acquire(cluster.into()).await;
            let request =
                review::request(token, &self.audiences).map_err(|error| unavailable(error.to_string()))?;
            let answer = client.request_text(request).await;
            answer.map_err(|error| unavailable(RequestError::from(error).to_string()))
        };
        let late = || unavailable(format!("no answer within {} s", LIMIT.as_secs()));
        let answer = timeout(LIMIT, request).await.map_err(|_| late())??;
        review::outcome(&answer, &self.audiences, cluster)
    }
}

/// Returns [`ReviewError::NoCluster`] with a shortened name, because the client chose the name.
fn no_cluster(name: &str) -> ReviewError {
    ReviewError::NoCluster(name.chars().take(64).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[tokio::test]
    async fn what_cannot_be_checked_is_refused_without_a_request() {
        // Nobody listens there.
        let config = kube::Config::new(http::Uri::from_static("https://127.0.0.1:1"));
        let client = crate::client::of_config(config).unwrap();
        let reviewer = TokenReviewer::new(("own".into(), client), RemoteClients::default(), vec!["a".into()]);
        assert_eq!(reviewer.review(HERE, "west", "t").await, Err(ReviewError::NoCluster("west".into())));
        assert_eq!(reviewer.review(HERE, "own", "").await, Err(ReviewError::NoToken));
        assert_eq!(reviewer.review(HERE, "", &"t".repeat(LONGEST + 1)).await, Err(ReviewError::NoToken));
        assert_eq!(reviewer.review(HERE, "", "t").await, Err(ReviewError::NoToken));
        let down = reviewer.review(HERE, "", "e30.e30.c2ln").await.unwrap_err();
        assert!(matches!(&down, ReviewError::Unavailable { cluster, .. } if cluster == "own"), "{down}");
    }

    /// An API server that knows one token, and how often it was asked.
    fn api_server(good: String) -> (Client, Arc<AtomicUsize>) {
        use http_body_util::BodyExt;
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (good, counter) = (good.clone(), counter.clone());
            async move {
                counter.fetch_add(1, Ordering::Relaxed);
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let review: serde_json::Value = serde_json::from_slice(&body).unwrap();
                let status = match review["spec"]["token"] == *good {
                    true => serde_json::json!({"authenticated": true, "audiences": ["a"], "user": {
                        "username": "system:serviceaccount:shop:web", "groups": ["system:serviceaccounts"]}}),
                    false => serde_json::json!({"authenticated": false}),
                };
                let answer = serde_json::json!({"status": status}).to_string();
                let response = http::Response::new(kube::client::Body::from(answer.into_bytes()));
                Ok::<_, std::convert::Infallible>(response)
            }
        });
        (Client::new(service, "default"), asked)
    }

    #[tokio::test]
    async fn few_bad_tokens_of_an_address_reach_the_api_server_and_good_ones_go_on() {
        use base64::Engine;
        let token = |n: usize| {
            let claims = format!(r#"{{"sub":"system:serviceaccount:shop:web","aud":["a"],"jti":{n}}}"#);
            format!("e30.{}.c2ln", base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(claims))
        };
        let (client, asked) = api_server(token(0));
        let reviewer = TokenReviewer::new(("own".into(), client), RemoteClients::default(), vec!["a".into()]);
        assert!(reviewer.review(HERE, "", &token(0)).await.is_ok());
        let began = Instant::now();
        let mut refused = 0;
        for n in 1..=300 {
            match reviewer.review(HERE, "", &token(n)).await {
                Err(ReviewError::Refused(_)) => refused += 1,
                Err(ReviewError::TooMany) => {}
                other => panic!("a bad token: {other:?}"),
            }
            // As after the minute for which the answer is known.
            *reviewer.cache.lock() = Cache::default();
            assert!(reviewer.review(HERE, "", &token(0)).await.is_ok(), "a token that was good before");
        }
        // Nothing here waits, but a machine may be slow.
        let allowed = 10 + 10 * usize::try_from(began.elapsed().as_secs() + 1).unwrap();
        assert!((10..=allowed).contains(&refused), "{refused}");
        assert_eq!(asked.load(Ordering::Relaxed), 301 + refused);
        let elsewhere = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));
        let another = reviewer.review(elsewhere, "", &token(301)).await;
        assert!(matches!(another, Err(ReviewError::Refused(_))), "another address has its own: {another:?}");
    }
}
