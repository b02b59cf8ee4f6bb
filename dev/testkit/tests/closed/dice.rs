//! Numbers for generated objects: the same for the same seed on every machine.

pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `sides`.
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits") % sides.max(1)
    }

    pub(crate) fn chance(&mut self, of: usize) -> bool {
        self.roll(of) == 0
    }

    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.roll(of.len())].clone()
    }

    /// One or two of them.
    pub(crate) fn some<T: Clone + PartialEq>(&mut self, of: &[T]) -> Vec<T> {
        let mut out = vec![self.pick(of)];
        let second = self.pick(of);
        if self.chance(2) && !out.contains(&second) {
            out.push(second);
        }
        out
    }
}
