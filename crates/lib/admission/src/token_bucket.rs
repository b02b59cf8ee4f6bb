//! Token buckets: one for each client, or a single one.

use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Duration;
use tokio::time::Instant;

/// A token bucket: `burst` requests at once, and one more per `period`.
///
/// Its state is the time at which the bucket is full again (generic cell rate algorithm), so it needs no
/// timer. [`TokenBucket::take`] counts a request even if no token is left: later requests then wait longer.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    burst: u32,
    period: Duration,
    /// `None` before the first request.
    full_at: Option<Instant>,
}

impl TokenBucket {
    /// A full bucket. A burst of 0 counts as 1.
    #[must_use]
    pub const fn new(burst: u32, period: Duration) -> Self {
        let burst = if burst == 0 { 1 } else { burst };
        Self { burst, period, full_at: None }
    }

    /// A full bucket with a rate of tokens per second. A rate of 0 counts as 1.
    #[must_use]
    pub fn per_second(rate: u32, burst: u32) -> Self {
        Self::new(burst, Duration::from_secs(1) / rate.max(1))
    }

    /// True if a request may be sent now.
    #[must_use]
    pub fn is_ready(&self, now: Instant) -> bool {
        self.wait(now).is_zero()
    }

    /// Returns the delay before the next request: zero if it may be sent now.
    #[must_use]
    pub fn wait(&self, now: Instant) -> Duration {
        let missing = self.full_at.map(|full| full.saturating_duration_since(now)).unwrap_or_default();
        missing.saturating_sub(self.spare())
    }

    /// Returns the time of the next request, which can be in the past. `None`: at any time.
    #[must_use]
    pub fn ready_at(&self) -> Option<Instant> {
        // A clock younger than the burst cannot express the time, which is past then.
        self.full_at.and_then(|full| full.checked_sub(self.spare()))
    }

    /// Counts a request sent now.
    pub fn take(&mut self, now: Instant) {
        self.take_many(1, now);
    }

    /// Counts that many requests sent now.
    pub fn take_many(&mut self, count: usize, now: Instant) {
        let time = self.period.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        self.full_at = Some(self.full_at.map_or(now, |full| full.max(now)) + time);
    }

    /// Gives back the token of a request that was not sent.
    pub fn give_back(&mut self) {
        self.full_at = self.full_at.and_then(|full| full.checked_sub(self.period));
    }

    pub fn reset(&mut self) {
        self.full_at = None;
    }

    /// Time from the last token to a full bucket.
    fn spare(&self) -> Duration {
        self.period.saturating_mul(self.burst - 1)
    }
}

/// Maximum number of clients with a bucket. Above it, the bucket that is the first to be full again is
/// dropped: it limits its client the least.
const MOST: usize = 65_536;
/// Maximum number of full buckets that one request drops.
const DROPPED: usize = 2;

/// Token buckets of clients. The cost of a request grows with the logarithm of their number.
#[derive(Debug)]
pub struct TokenBuckets<K> {
    full: TokenBucket,
    buckets: Mutex<Buckets<K>>,
}

#[derive(Debug)]
struct Buckets<K> {
    by_key: HashMap<K, TokenBucket>,
    /// Clients in the order in which their buckets are full again.
    by_time: BTreeSet<(Option<Instant>, K)>,
}

impl<K: Clone + Eq + Hash + Ord> TokenBuckets<K> {
    /// Buckets that are copies of a full one.
    #[must_use]
    pub fn new(full: TokenBucket) -> Self {
        let buckets = Buckets { by_key: HashMap::new(), by_time: BTreeSet::new() };
        Self { full, buckets: Mutex::new(buckets) }
    }

    /// Takes one token.
    ///
    /// # Errors
    /// With the time until the next token.
    pub fn take(&self, key: K, now: Instant) -> Result<(), Duration> {
        let mut buckets = self.buckets.lock();
        buckets.drop_full(now);
        let known = buckets.by_key.get(&key).copied();
        let mut bucket = known.unwrap_or(self.full);
        let wait = bucket.wait(now);
        if !wait.is_zero() {
            return Err(wait);
        }
        bucket.take(now);
        if known.is_none() && buckets.by_key.len() >= MOST {
            buckets.drop_first();
        }
        buckets.set(key, bucket);
        Ok(())
    }

    /// Gives back a token that was taken for nothing.
    pub fn give_back(&self, key: &K) {
        let mut buckets = self.buckets.lock();
        if let Some(mut bucket) = buckets.by_key.get(key).copied() {
            bucket.give_back();
            buckets.set(key.clone(), bucket);
        }
    }
}

impl<K: Clone + Eq + Hash + Ord> Buckets<K> {
    fn set(&mut self, key: K, bucket: TokenBucket) {
        let mut place = (bucket.full_at, key);
        if let Some(known) = self.by_key.get_mut(&place.1) {
            let before = std::mem::replace(known, bucket);
            place.0 = before.full_at;
            self.by_time.remove(&place);
            place.0 = bucket.full_at;
        } else {
            self.by_key.insert(place.1.clone(), bucket);
        }
        self.by_time.insert(place);
    }

    /// Drops a few of the full buckets, which limit nobody.
    fn drop_full(&mut self, now: Instant) {
        for _ in 0..DROPPED {
            if self.by_time.first().is_none_or(|(full_at, _)| full_at.is_some_and(|full| full > now)) {
                return;
            }
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        if let Some((_, key)) = self.by_time.pop_first() {
            self.by_key.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::cmp::Ordering;
    use std::rc::Rc;

    const PERIOD: Duration = Duration::from_millis(100);

    /// Sends a request if it may be sent now; returns whether it may.
    fn try_take(bucket: &mut TokenBucket, now: Instant) -> bool {
        let ready = bucket.is_ready(now);
        if ready {
            bucket.take(now);
        }
        ready
    }

    /// Sends whenever it may, until `end`. Returns the number of requests.
    fn send_all(bucket: &mut TokenBucket, mut now: Instant, end: Instant) -> u32 {
        let mut sent = 0;
        while now < end {
            if try_take(bucket, now) {
                sent += 1;
            } else {
                now += bucket.wait(now);
            }
        }
        sent
    }

    #[test]
    fn a_burst_is_followed_by_a_steady_rate() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(5, PERIOD);
        assert_eq!(send_all(&mut bucket, start, start + Duration::from_nanos(1)), 5);
        assert_eq!(bucket.wait(start), PERIOD);
        assert_eq!(send_all(&mut bucket, start, start + PERIOD * 10), 9);
    }

    #[test]
    fn quiet_fills_the_bucket_and_no_more() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(3, PERIOD);
        let instantly = Duration::from_nanos(1);
        assert_eq!(send_all(&mut bucket, start, start + instantly), 3);
        let later = start + PERIOD * 2;
        assert_eq!(send_all(&mut bucket, later, later + instantly), 2);
        let much_later = start + PERIOD * 1000;
        assert_eq!(send_all(&mut bucket, much_later, much_later + instantly), 3);
    }

    #[test]
    fn requests_beyond_the_rate_lengthen_the_wait() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(1, PERIOD);
        (0..4).for_each(|_| bucket.take(start));
        assert_eq!(bucket.wait(start), PERIOD * 4);
        assert_eq!(bucket.ready_at(), Some(start + PERIOD * 4));
        bucket.give_back();
        assert_eq!(bucket.wait(start), PERIOD * 3);
        bucket.reset();
        assert!(bucket.is_ready(start) && bucket.ready_at().is_none());
        bucket.take_many(usize::MAX, start);
        assert!(!bucket.is_ready(start + Duration::from_secs(3_600)));
    }

    #[test]
    fn no_burst_is_a_burst_of_one() {
        let mut bucket = TokenBucket::new(0, PERIOD);
        let now = Instant::now();
        assert!(try_take(&mut bucket, now) && !try_take(&mut bucket, now));
    }

    proptest! {
        #[test]
        fn no_span_of_time_sees_more_than_a_burst_and_its_share(
            burst in 1u32..20, steps in prop::collection::vec(0u64..500, 1..200), from in 0usize..200,
        ) {
            let mut now = Instant::now();
            let mut bucket = TokenBucket::new(burst, PERIOD);
            let mut sent = Vec::new();
            for step in steps {
                now += Duration::from_millis(step);
                if try_take(&mut bucket, now) {
                    sent.push(now);
                }
            }
            let sent = sent.get(from..).unwrap_or_default();
            for (count, at) in (1u128..).zip(sent) {
                let share = (*at - sent[0]).as_nanos() / PERIOD.as_nanos();
                prop_assert!(count <= u128::from(burst) + share);
            }
        }
    }

    #[test]
    fn each_client_has_a_bucket_of_its_own() {
        let buckets = TokenBuckets::new(TokenBucket::per_second(10, 20));
        let start = Instant::now();
        assert_eq!((0..30).filter(|_| buckets.take("a", start).is_ok()).count(), 20);
        assert!(buckets.take("b", start).is_ok());
        assert_eq!(buckets.take("a", start), Err(PERIOD));
        buckets.give_back(&"a");
        assert!(buckets.take("a", start).is_ok() && buckets.take("a", start).is_err());
        let later = start + Duration::from_secs(1);
        assert_eq!((0..30).filter(|_| buckets.take("a", later).is_ok()).count(), 10);
    }

    #[test]
    fn number_of_remembered_clients_is_bounded() {
        let buckets = TokenBuckets::new(TokenBucket::per_second(1, 1));
        let start = Instant::now();
        for client in 0..2 * MOST {
            buckets.take(client, start).unwrap();
            let kept = buckets.buckets.lock();
            assert!(kept.by_key.len() <= MOST && kept.by_time.len() == kept.by_key.len());
        }
    }

    #[test]
    fn new_clients_do_not_free_one_that_used_its_tokens() {
        let buckets = TokenBuckets::new(TokenBucket::per_second(1, 20));
        let start = Instant::now();
        assert_eq!((0..30).filter(|_| buckets.take(0, start).is_ok()).count(), 20);
        for client in 1..=2 * MOST {
            buckets.take(client, start).unwrap();
        }
        assert!(buckets.take(0, start).is_err());
    }

    /// A key that counts how often keys are dropped and compared.
    #[derive(Clone)]
    struct Counted(usize, Rc<Cell<usize>>);

    impl Hash for Counted {
        fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }

    impl PartialEq for Counted {
        fn eq(&self, other: &Self) -> bool {
            self.cmp(other).is_eq()
        }
    }

    impl Eq for Counted {}

    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.set(self.1.get() + 1);
        }
    }

    impl PartialOrd for Counted {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    impl Ord for Counted {
        fn cmp(&self, other: &Self) -> Ordering {
            self.1.set(self.1.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    #[test]
    fn no_request_walks_through_all_clients() {
        const MOST_STEPS: usize = 1_000;
        let buckets = TokenBuckets::new(TokenBucket::per_second(1, 20));
        let count = Rc::new(Cell::new(0));
        let start = Instant::now();
        // Later rounds meet a full table, then full buckets alone.
        for (round, now) in [start, start, start + Duration::from_secs(60)].into_iter().enumerate() {
            for client in 0..MOST {
                count.set(0);
                buckets.take(Counted(round * MOST + client, count.clone()), now).unwrap();
                assert!(count.get() < MOST_STEPS, "{} steps", count.get());
            }
        }
        assert_eq!(buckets.buckets.lock().by_key.len(), MOST, "full buckets are replaced");
    }
}
