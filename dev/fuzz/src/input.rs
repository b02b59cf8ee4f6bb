//! Choices derived from bytes.

/// Bytes as a source of choices. Once they are used up, every choice is the first one.
#[derive(Clone, Debug)]
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// True if all bytes are used up.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    /// A number below `limit`, which should be at most 256 for an even distribution; 0 without bytes.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let byte = usize::from(self.byte());
        match limit {
            0 => 0,
            1..=256 => byte % limit,
            _ => (byte << 8 | usize::from(self.byte())) % limit,
        }
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: u8) -> bool {
        self.byte() % times.max(1) == 1
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// One of a few values.
    pub(crate) fn pick<'b, T: ?Sized>(&mut self, of: &[&'b T]) -> Option<&'b T> {
        of.get(self.below(of.len())).copied()
    }

    pub(crate) fn number(&mut self) -> u32 {
        u32::from_be_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// A slice of the bytes, whose length is encoded first.
    pub(crate) fn piece(&mut self, longest: usize) -> &'a [u8] {
        let length = self.below(longest + 1).min(self.rest.len());
        let (piece, rest) = self.rest.split_at(length);
        self.rest = rest;
        piece
    }

    /// A text, with invalid bytes replaced.
    pub(crate) fn text(&mut self, longest: usize) -> String {
        String::from_utf8_lossy(self.piece(longest)).into_owned()
    }

    /// Takes all remaining bytes.
    pub(crate) fn all(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_end_with_the_bytes() {
        let mut input = Input::new(&[7, 2, b'a', b'b', b'c']);
        assert_eq!(input.below(5), 2);
        assert_eq!(input.text(200), "ab");
        assert!(!input.is_empty());
        assert_eq!(input.byte(), b'c');
        assert_eq!((input.byte(), input.below(9), input.text(9)), (0, 0, String::new()));
        assert!(input.is_empty());
    }
}
