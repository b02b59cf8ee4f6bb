//! Random numbers for spreading requests over time.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A sequence of numbers for jitter. Not for cryptography.
///
/// The sequence of a seed is deterministic. [`Jitter::fork`] creates independent sequences for named
/// components, so that one component does not influence the numbers of another.
#[derive(Clone, Debug)]
pub struct Jitter {
    state: u64,
}

impl Default for Jitter {
    /// Creates a sequence with a random seed.
    fn default() -> Self {
        Self::seeded(RandomState::new().build_hasher().finish())
    }
}

impl Jitter {
    /// Returns the sequence of a seed.
    #[must_use]
    pub const fn seeded(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the sequence of a component. It depends on the numbers drawn so far and on the name.
    #[must_use]
    pub fn fork(&self, name: &str) -> Self {
        // FNV-1a over the name, from the mixed state.
        let hash = name
            .bytes()
            .fold(mix(self.state), |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Self::seeded(mix(hash))
    }

    /// Returns the next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// Returns the next number, at least 0 and less than 1.
    pub fn fraction(&mut self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "53 bits are exact")]
        let fraction = (self.bits() >> 11) as f64 / (1u64 << 53) as f64;
        fraction
    }
}

/// The output function of SplitMix64 (Steele, Lea, Flood 2014).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_that_of_splitmix64() {
        let mut jitter = Jitter::seeded(0);
        assert_eq!([jitter.bits(), jitter.bits()], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
    }

    #[test]
    fn fractions_fill_the_range() {
        let mut jitter = Jitter::seeded(7);
        let fractions: Vec<f64> = (0..10_000).map(|_| jitter.fraction()).collect();
        assert!(fractions.iter().all(|fraction| (0.0..1.0).contains(fraction)));
        let mean = fractions.iter().sum::<f64>() / 10_000.0;
        assert!((0.48..0.52).contains(&mean), "{mean}");
    }

    #[test]
    fn forks_differ_by_name_and_are_repeatable() {
        let of = |name: &str| Jitter::seeded(1).fork(name).bits();
        assert_eq!(of("a"), of("a"));
        assert_ne!(of("a"), of("b"));
        assert_ne!(of("a"), Jitter::seeded(1).bits());
    }

    #[test]
    fn without_a_seed_values_differ() {
        assert_ne!(Jitter::default().bits(), Jitter::default().bits());
    }
}
