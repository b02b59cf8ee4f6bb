//! Cost limit of a target: total allocated bytes, not only those in use at a time.
//!
//! Counted work is the same on every machine, regardless of its load; and a target that allocates little has
//! not computed for long. Loops without allocations are bounded by the deadlines of the fuzzer and the tests.

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::sync::{Mutex, PoisonError};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The allocator counts for the whole process, so measurements must not overlap.
static MEASURED: Mutex<()> = Mutex::new(());

/// Maximum number of allocated bytes for an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes for any input.
    pub base: usize,
    /// Bytes for each byte of the input.
    pub per_byte: usize,
}

impl Budget {
    /// Budget in MiB, and in KiB for each byte of the input.
    pub(crate) const fn of(base_mib: usize, per_byte_kib: usize) -> Self {
        Self { base: base_mib << 20, per_byte: per_byte_kib << 10 }
    }

    /// Runs `work` for an input; returns the number of bytes it allocated.
    ///
    /// # Panics
    /// When it exceeds the budget.
    pub(crate) fn spend(self, input: usize, work: impl FnOnce()) -> usize {
        // A failed target leaves no state behind the lock.
        let _alone = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
        let region = Region::new(ALLOCATOR);
        work();
        let spent = region.change().bytes_allocated;
        let allowed = self.base.saturating_add(self.per_byte.saturating_mul(input));
        assert!(spent <= allowed, "{spent} bytes are allocated for {input} bytes, and {allowed} are allowed");
        spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_allocates_too_much_is_found() {
        // Other tests of this process allocate meanwhile, some MiB at most.
        let budget = Budget::of(256, 1);
        assert!(budget.spend(10, || drop(vec![0_u8; 1 << 20])) >= 1 << 20);
        let spent = std::panic::catch_unwind(|| {
            budget.spend(10, || (0..300).for_each(|_| drop(std::hint::black_box(vec![0_u8; 1 << 20]))))
        });
        assert!(spent.is_err());
    }
}
