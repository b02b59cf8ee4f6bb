//! Cache of verdicts about tokens: a bounded table without IO or clock. It holds tokens as SHA-256 only.

use super::{ReviewError, ServiceAccount};
use ring::digest::{SHA256, digest};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// Lifetime of an accepting verdict, for which a revoked token can still open streams.
const GOOD: Duration = Duration::from_secs(60);
/// Lifetime of a refusing verdict.
const BAD: Duration = Duration::from_secs(10);
/// Limit on the number of tokens.
const MOST: usize = 10_000;

/// SHA-256 of a cluster's name and a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key([u8; 32]);

impl Key {
    /// Computes the key of a token for a cluster.
    pub(super) fn of(cluster: &str, token: &str) -> Self {
        // The length keeps the start of a token from being read as the end of a cluster's name.
        let length = u64::try_from(cluster.len()).unwrap_or(u64::MAX).to_be_bytes();
        let hash = digest(&SHA256, &[&length, cluster.as_bytes(), token.as_bytes()].concat());
        let mut key = [0; 32];
        key.copy_from_slice(hash.as_ref());
        Self(key)
    }

    pub(super) fn digest(self) -> [u8; 32] {
        self.0
    }
}

pub(super) type Outcome = Result<ServiceAccount, ReviewError>;

/// Verdicts with the times until which they hold.
#[derive(Default)]
pub(super) struct Cache(HashMap<Key, (Outcome, Instant)>);

impl Cache {
    /// Returns the verdict that holds at `now`.
    pub(super) fn get(&self, key: Key, now: Instant) -> Option<Outcome> {
        let (outcome, until) = self.0.get(&key)?;
        (now < *until).then(|| outcome.clone())
    }

    /// Caches the verdict of an API server. Failed reviews are not cached.
    pub(super) fn put(&mut self, key: Key, outcome: &Outcome, now: Instant) {
        let hold = match outcome {
            Ok(_) => GOOD,
            Err(error) if error.is_verdict() => BAD,
            Err(_) => return,
        };
        if self.0.len() >= MOST && !self.0.contains_key(&key) {
            self.0.retain(|_, (_, until)| now < *until);
        }
        if self.0.len() >= MOST && !self.0.contains_key(&key) {
            let next = self.0.iter().min_by_key(|(_, (_, until))| *until).map(|(key, _)| *key);
            next.and_then(|next| self.0.remove(&next));
        }
        self.0.insert(key, (outcome.clone(), now + hold));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn web() -> Outcome {
        Ok(ServiceAccount {
            namespace: "shop".into(),
            name: "web".into(),
            cluster: "a".into(),
            expires: None,
        })
    }

    fn refused() -> Outcome {
        Err(ReviewError::Refused("expired".into()))
    }

    #[test]
    fn outcomes_hold_for_their_time() {
        let start = Instant::now();
        let silent = Err(ReviewError::Unavailable { cluster: "a".into(), reason: "down".into() });
        for (outcome, holds) in [(web(), Some(GOOD)), (refused(), Some(BAD)), (silent, None)] {
            let (mut cache, key) = (Cache::default(), Key::of("a", "t"));
            cache.put(key, &outcome, start);
            let known = holds.map(|_| outcome);
            assert_eq!(cache.get(key, start), known);
            let Some(holds) = holds else { continue };
            assert_eq!(cache.get(key, start + holds - Duration::from_nanos(1)), known);
            assert_eq!(cache.get(key, start + holds), None);
        }
    }

    #[test]
    fn tokens_of_other_clusters_are_other_tokens() {
        assert!(Key::of("a", "bc") != Key::of("ab", "c"));
        assert!(Key::of("a", "t") != Key::of("b", "t"));
        assert!(Key::of("a", "t") == Key::of("a", "t"));
    }

    #[test]
    fn it_stays_small_and_forgets_bad_tokens_first() {
        let (mut cache, start) = (Cache::default(), Instant::now());
        let good = Key::of("a", "good");
        cache.put(good, &web(), start);
        for n in 0..MOST + 10 {
            cache.put(Key::of("a", &n.to_string()), &refused(), start);
        }
        assert_eq!(cache.0.len(), MOST);
        assert_eq!(cache.get(good, start), Some(web()));
        cache.put(Key::of("b", "t"), &refused(), start + BAD);
        assert_eq!(cache.0.len(), 2, "what is over makes room");
    }
}
