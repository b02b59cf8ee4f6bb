//! Rate limit of refused credentials per address, which protects their validation from guessing and floods.
//!
//! Credentials that were accepted from the address before are not limited, so that other clients at that
//! address cannot block known ones.

use crate::network::network_of;
use crate::token_bucket::{TokenBucket, TokenBuckets};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::Instant;

/// Digest of a credential.
pub type Credential = [u8; 32];

/// Maximum number of remembered credentials.
const MOST: usize = 65_536;
/// Time for which an accepted credential is remembered: longer than any lease.
const REMEMBERED: Duration = Duration::from_secs(2 * 24 * 60 * 60);

/// Rate limit of refused credentials per address.
#[derive(Debug)]
pub struct RefusalLimit {
    rate: TokenBuckets<IpAddr>,
    accepted: Mutex<HashMap<(IpAddr, Credential), Instant>>,
}

/// A check of a credential in progress. It counts as refused unless another result is recorded.
#[derive(Debug)]
#[must_use]
pub struct Attempt<'a> {
    limit: &'a RefusalLimit,
    key: (IpAddr, Credential),
    is_known: bool,
}

impl RefusalLimit {
    /// Allows `per_second` refusals per address, with bursts of `burst`.
    #[must_use]
    pub fn new(per_second: u32, burst: u32) -> Self {
        Self {
            rate: TokenBuckets::new(TokenBucket::per_second(per_second, burst)),
            accepted: Mutex::default(),
        }
    }

    /// Starts the check of a credential. A check in progress counts as refused, so that concurrent checks
    /// cannot exceed the rate.
    ///
    /// # Errors
    /// With the time until the next check for this address is allowed.
    pub fn begin(
        &self,
        address: IpAddr,
        credential: Credential,
        now: Instant,
    ) -> Result<Attempt<'_>, Duration> {
        let key = (network_of(address), credential);
        let seen = self.accepted.lock().get(&key).copied();
        let is_known = seen.is_some_and(|seen| now.saturating_duration_since(seen) < REMEMBERED);
        if !is_known {
            self.rate.take(key.0, now)?;
        }
        Ok(Attempt { limit: self, key, is_known })
    }
}

impl Attempt<'_> {
    /// True for a credential that was accepted from this address before.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.is_known
    }

    /// Records that the credential was accepted.
    pub fn accepted(self, now: Instant) {
        self.undecided();
        let mut accepted = self.limit.accepted.lock();
        if accepted.len() >= MOST && !accepted.contains_key(&self.key) {
            make_room(&mut accepted, now);
        }
        accepted.insert(self.key, now);
    }

    /// Records that the credential was refused; an earlier acceptance is forgotten.
    pub fn refused(self, now: Instant) {
        if self.is_known {
            self.limit.accepted.lock().remove(&self.key);
            // If no token is left, the next check waits anyway.
            let _ = self.limit.rate.take(self.key.0, now);
        }
    }

    /// Records that the check had no result.
    pub fn undecided(&self) {
        if !self.is_known {
            self.limit.rate.give_back(&self.key.0);
        }
    }
}

/// Removes the older half.
fn make_room(accepted: &mut HashMap<(IpAddr, Credential), Instant>, now: Instant) {
    accepted.retain(|_, seen| now.saturating_duration_since(*seen) < REMEMBERED);
    let mut times: Vec<Instant> = accepted.values().copied().collect();
    let middle = times.len() / 2;
    if times.len() < MOST {
        return;
    }
    let (_, middle, _) = times.select_nth_unstable(middle);
    let middle = *middle;
    accepted.retain(|_, seen| *seen > middle);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(n: usize) -> Credential {
        let mut credential = [0; 32];
        credential[..8].copy_from_slice(&n.to_be_bytes());
        credential
    }

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    #[test]
    fn refused_credentials_of_an_address_never_delay_those_that_are_known_there() {
        let limit = RefusalLimit::new(10, 10);
        let start = Instant::now();
        limit.begin(HERE, credential(0), start).unwrap().accepted(start);
        let mut checked = 0;
        for second in 0..100 {
            let now = start + Duration::from_secs(second);
            for guess in 0..50 {
                let guess = credential(1 + usize::try_from(second).unwrap() * 50 + guess);
                if let Ok(attempt) = limit.begin(HERE, guess, now) {
                    checked += 1;
                    attempt.refused(now);
                }
                let known =
                    limit.begin(HERE, credential(0), now).expect("a known credential is always checked");
                assert!(known.is_known());
                known.accepted(now);
            }
            assert!(limit.begin(THERE, credential(0), now).is_ok_and(|attempt| !attempt.is_known()));
        }
        assert_eq!(checked, 100 * 10, "ten a second");
    }

    #[test]
    fn checks_under_way_count_until_they_are_decided() {
        let limit = RefusalLimit::new(10, 10);
        let now = Instant::now();
        let begin = |n| limit.begin(HERE, credential(n), now);
        let under_way: Vec<_> = (0..10).map(|n| begin(n).unwrap()).collect();
        assert!(begin(10).is_err_and(|wait| wait <= Duration::from_millis(100)));
        for (n, attempt) in under_way.into_iter().enumerate() {
            match n {
                0 => attempt.accepted(now),
                1 => attempt.undecided(),
                _ => attempt.refused(now),
            }
        }
        assert!(begin(11).is_ok() && begin(12).is_ok() && begin(13).is_err());
    }

    #[test]
    fn a_credential_that_is_good_no_longer_counts() {
        let limit = RefusalLimit::new(10, 2);
        let now = Instant::now();
        let begin = |n| limit.begin(HERE, credential(n), now);
        begin(0).unwrap().accepted(now);
        begin(0).unwrap().refused(now);
        assert!(begin(0).is_ok_and(|attempt| !attempt.is_known()));
        assert!(begin(0).is_err(), "both are spent");
        let later = now + REMEMBERED;
        limit.begin(HERE, credential(1), later).unwrap().accepted(later);
        let long_after = later + REMEMBERED;
        assert!(limit.begin(HERE, credential(1), long_after).is_ok_and(|attempt| !attempt.is_known()));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_newest_stays() {
        let limit = RefusalLimit::new(u32::MAX, u32::MAX);
        let start = Instant::now();
        for n in 0..MOST + 10 {
            let now = start + Duration::from_millis(u64::try_from(n).unwrap());
            limit.begin(HERE, credential(n), now).unwrap().accepted(now);
            assert!(limit.accepted.lock().len() <= MOST);
        }
        let now = start + Duration::from_secs(100);
        assert!(limit.begin(HERE, credential(MOST + 9), now).is_ok_and(|attempt| attempt.is_known()));
        assert!(limit.begin(HERE, credential(MOST - 1), now).is_ok_and(|attempt| attempt.is_known()));
    }
}
