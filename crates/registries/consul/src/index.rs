//! The index of a blocking query.

/// Change of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// The index did not change: neither did the result.
    Same,
    /// Something may have changed.
    On,
    /// The index went back: the server was restored or restarted. The response is used, and the next query
    /// does not block.
    Back,
}

/// Index of one query. 0: the next request does not block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WatchIndex(u64);

impl WatchIndex {
    /// Returns the index of the next request.
    pub(crate) const fn ask(self) -> u64 {
        self.0
    }

    /// Updates the index from a response. An index of 0 would cause a loop without blocking, so it counts as
    /// 1; a lower index than before resets it.
    pub(crate) fn answered(&mut self, index: u64) -> Moved {
        let (before, index) = (self.0, index.max(1));
        self.0 = if index < before { 0 } else { index };
        match index {
            _ if before == 0 => Moved::On,
            same if same == before => Moved::Same,
            lower if lower < before => Moved::Back,
            _ => Moved::On,
        }
    }

    /// Resets the index after an error: the next server may have other indexes.
    pub(crate) fn forget(&mut self) {
        self.0 = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_followed() {
        // What is answered, what it means, and what is asked with next; from the top, one after the other.
        let steps = [
            (100, Moved::On, 100),
            (100, Moved::Same, 100),
            (101, Moved::On, 101),
            (5, Moved::Back, 0),
            (5, Moved::On, 5),
            (0, Moved::Back, 0),
            (0, Moved::On, 1),
            (0, Moved::Same, 1),
            (1, Moved::Same, 1),
            (u64::MAX, Moved::On, u64::MAX),
            (u64::MAX - 1, Moved::Back, 0),
        ];
        let mut index = WatchIndex::default();
        for (step, (answer, moved, next)) in steps.into_iter().enumerate() {
            assert_eq!((index.answered(answer), index.ask()), (moved, next), "step {step}");
        }
    }

    #[test]
    fn an_equal_index_after_an_error_is_news() {
        let mut index = WatchIndex::default();
        assert_eq!(index.answered(100), Moved::On);
        index.forget();
        assert_eq!((index.ask(), index.answered(100)), (0, Moved::On));
    }
}
