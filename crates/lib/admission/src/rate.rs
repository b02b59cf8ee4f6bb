//! Request rates of clients: a token bucket for each.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Maximum number of clients with a bucket. Above it, full buckets are dropped; if there are none, all
/// buckets are.
const MOST: usize = 65_536;

/// Token buckets of clients.
#[derive(Debug)]
pub struct Rate<K> {
    per_second: f64,
    burst: f64,
    buckets: Mutex<HashMap<K, Bucket>>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl<K: Eq + Hash> Rate<K> {
    /// Buckets with this rate and burst.
    #[must_use]
    pub fn new(per_second: u32, burst: u32) -> Self {
        Self { per_second: f64::from(per_second), burst: f64::from(burst), buckets: Mutex::default() }
    }

    /// Takes one token.
    ///
    /// # Errors
    /// With the time until the next token.
    pub fn take(&self, key: K, now: Instant) -> Result<(), Duration> {
        let mut buckets = self.buckets.lock();
        self.make_room(&mut buckets, now);
        let bucket = buckets.entry(key).or_insert(Bucket { left: self.burst, at: now });
        bucket.left = self.level(*bucket, now);
        bucket.at = now;
        if bucket.left < 1.0 {
            return Err(Duration::from_secs_f64(
                (1.0 - bucket.left) / self.per_second.max(f64::MIN_POSITIVE),
            ));
        }
        bucket.left -= 1.0;
        Ok(())
    }

    /// Gives back a token that was taken for nothing.
    pub fn give(&self, key: &K) {
        if let Some(bucket) = self.buckets.lock().get_mut(key) {
            bucket.left = (bucket.left + 1.0).min(self.burst);
        }
    }

    fn level(&self, bucket: Bucket, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        (bucket.left + passed * self.per_second).min(self.burst)
    }

    fn make_room(&self, buckets: &mut HashMap<K, Bucket>, now: Instant) {
        if buckets.len() < MOST {
            return;
        }
        buckets.retain(|_, bucket| self.level(*bucket, now) < self.burst);
        if buckets.len() >= MOST {
            buckets.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_so_many_a_second() {
        let rate = Rate::new(10, 20);
        let start = Instant::now();
        assert_eq!((0..30).filter(|_| rate.take("a", start).is_ok()).count(), 20);
        assert!(rate.take("b", start).is_ok());
        let wait = rate.take("a", start).unwrap_err();
        assert!(wait > Duration::from_millis(90) && wait < Duration::from_millis(110), "{wait:?}");
        rate.give(&"a");
        assert!(rate.take("a", start).is_ok() && rate.take("a", start).is_err());
        let later = start + Duration::from_secs(1);
        assert_eq!((0..30).filter(|_| rate.take("a", later).is_ok()).count(), 10);
        let much_later = start + Duration::from_secs(100);
        assert_eq!(
            (0..30).filter(|_| rate.take("a", much_later).is_ok()).count(),
            20,
            "never more than a burst"
        );
    }

    #[test]
    fn clients_that_are_remembered_are_bounded() {
        let rate = Rate::new(1, 1);
        let start = Instant::now();
        for client in 0..2 * MOST {
            rate.take(client, start).unwrap();
            assert!(rate.buckets.lock().len() <= MOST);
        }
    }
}
