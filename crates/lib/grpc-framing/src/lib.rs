//! Boundaries of the messages of a gRPC call: each message of a body has a prefix with a flag of compression
//! and its length (gRPC over HTTP/2, `Length-Prefixed-Message`).

/// Length of a prefix in bytes.
pub const PREFIX: usize = 5;

/// The prefix of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    pub is_compressed: bool,
    /// Bytes of the message behind the prefix.
    pub length: usize,
}

impl Prefix {
    /// Reads the prefix at the beginning of `bytes`; `None` if they are fewer than [`PREFIX`].
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (&[flag, a, b, c, d], _) = bytes.split_first_chunk::<PREFIX>()?;
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        Some(Self { is_compressed: flag != 0, length })
    }

    /// The prefix of an uncompressed message of `length` bytes. A length over 4 GiB, which gRPC cannot
    /// express, is written as the largest one.
    #[must_use]
    pub fn uncompressed(length: usize) -> [u8; PREFIX] {
        let [a, b, c, d] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
        [0, a, b, c, d]
    }
}

/// Place of a reader in a body that arrives in pieces.
#[derive(Clone, Debug, Default)]
pub struct Boundaries {
    prefix: [u8; PREFIX],
    /// Bytes of the prefix so far.
    known: usize,
    /// Bytes of the message that are still to come.
    left: usize,
}

/// The messages that begin in a piece of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Begun {
    /// Sum of their announced lengths, with prefixes.
    pub bytes: usize,
    /// Announced length of the longest one, without its prefix.
    pub longest: usize,
}

impl Boundaries {
    /// True within a message or its prefix.
    #[must_use]
    pub fn is_within(&self) -> bool {
        self.known > 0 || self.left > 0
    }

    /// Reads the next piece, and returns the messages whose prefix ends in it.
    pub fn read(&mut self, mut piece: &[u8]) -> Begun {
        let mut begun = Begun::default();
        loop {
            let passed = self.left.min(piece.len());
            self.left -= passed;
            piece = piece.get(passed..).unwrap_or_default();
            let Some((first, rest)) = piece.split_first() else { return begun };
            if let Some(place) = self.prefix.get_mut(self.known) {
                *place = *first;
            }
            self.known += 1;
            piece = rest;
            if self.known == PREFIX {
                self.known = 0;
                self.left = Prefix::read(&self.prefix).map_or(0, |prefix| prefix.length);
                begun.bytes = begun.bytes.saturating_add(self.left).saturating_add(PREFIX);
                begun.longest = begun.longest.max(self.left);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(message: &[u8]) -> Vec<u8> {
        [&Prefix::uncompressed(message.len())[..], message].concat()
    }

    #[test]
    fn a_prefix_is_read_as_written() {
        let prefix = Prefix::read(&framed(b"abc"));
        assert_eq!(prefix, Some(Prefix { is_compressed: false, length: 3 }));
        assert_eq!(Prefix::read(&[1, 0, 0, 0, 1, 9]), Some(Prefix { is_compressed: true, length: 1 }));
        assert_eq!(Prefix::read(&[0, 0, 0, 0]), None);
        assert_eq!(Prefix::uncompressed(usize::MAX), [0, 255, 255, 255, 255]);
    }

    #[test]
    fn boundaries_are_the_same_however_a_body_is_cut() {
        let body = [framed(b"abc"), framed(b""), framed(&[7; 300])].concat();
        for size in 1..=body.len() {
            let mut boundaries = Boundaries::default();
            let mut bytes = 0;
            let mut longest = 0;
            for piece in body.chunks(size) {
                let begun = boundaries.read(piece);
                bytes += begun.bytes;
                longest = longest.max(begun.longest);
            }
            assert_eq!(
                (bytes, longest, boundaries.is_within()),
                (body.len(), 300, false),
                "pieces of {size}"
            );
        }
    }

    #[test]
    fn announced_bytes_count_before_they_arrive() {
        let mut boundaries = Boundaries::default();
        let begun = boundaries.read(&[&framed(b"abc")[..], b"\0\0\x10\0\0ab"].concat());
        assert_eq!(begun, Begun { bytes: 3 + 5 + (1 << 20) + 5, longest: 1 << 20 });
        assert!(boundaries.is_within());
    }

    #[test]
    fn within_a_message_means_after_its_first_byte_and_before_its_last() {
        let mut boundaries = Boundaries::default();
        let body = framed(b"ab");
        for (at, byte) in body.iter().enumerate() {
            boundaries.read(std::slice::from_ref(byte));
            assert_eq!(boundaries.is_within(), at + 1 < body.len(), "after byte {at}");
        }
    }
}
