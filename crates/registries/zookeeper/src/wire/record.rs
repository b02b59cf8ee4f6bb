//! Jute encoding: big-endian numbers; texts and bytes with a length prefix, -1 for null.

use bytes::{BufMut, BytesMut};

/// A frame that is not valid jute or not the expected record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server's answer is garbled: {0}")]
pub(crate) struct Garbled(pub(crate) &'static str);

const SHORT: Garbled = Garbled("a record ends too early");

/// Decoder of jute records.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Garbled> {
        let (head, tail) = self.0.split_at_checked(count).ok_or(SHORT)?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Garbled> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or(SHORT)?;
        self.0 = tail;
        Ok(*head)
    }

    pub(super) fn int(&mut self) -> Result<i32, Garbled> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(super) fn long(&mut self) -> Result<i64, Garbled> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// Reads length-prefixed bytes; null is empty.
    pub(super) fn buffer(&mut self) -> Result<&'a [u8], Garbled> {
        match self.int()? {
            -1 => Ok(&[]),
            length => self.bytes(usize::try_from(length).map_err(|_| Garbled("a length is negative"))?),
        }
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Garbled> {
        std::str::from_utf8(self.buffer()?).map_err(|_| Garbled("a text is not UTF-8"))
    }

    /// Reads a list of texts. A text has at least four bytes, so a forged count cannot cause a large
    /// allocation.
    pub(super) fn texts(&mut self) -> Result<Vec<String>, Garbled> {
        let count = usize::try_from(self.int()?.max(0)).map_err(|_| SHORT)?;
        if count > self.0.len() / 4 {
            return Err(Garbled("a list is longer than its frame"));
        }
        (0..count).map(|_| self.text().map(str::to_owned)).collect()
    }
}

/// Encoder of a frame.
pub(super) struct Writer<'a> {
    out: &'a mut BytesMut,
    start: usize,
}

impl<'a> Writer<'a> {
    /// Starts a frame: reserves its length prefix.
    pub(super) fn new(out: &'a mut BytesMut) -> Self {
        let start = out.len();
        out.put_i32(0);
        Self { out, start }
    }

    pub(super) fn int(&mut self, value: i32) -> &mut Self {
        self.out.put_i32(value);
        self
    }

    pub(super) fn long(&mut self, value: i64) -> &mut Self {
        self.out.put_i64(value);
        self
    }

    pub(super) fn bool(&mut self, value: bool) -> &mut Self {
        self.out.put_u8(value.into());
        self
    }

    pub(super) fn buffer(&mut self, value: &[u8]) -> &mut Self {
        // Paths and secrets are short: they have their own limits.
        self.out.put_i32(i32::try_from(value.len()).unwrap_or(i32::MAX));
        self.out.put_slice(value);
        self
    }
}

impl Drop for Writer<'_> {
    /// Writes the length of the frame at its start.
    fn drop(&mut self) {
        let length = i32::try_from(self.out.len() - self.start - 4).unwrap_or(i32::MAX);
        if let Some(head) = self.out.get_mut(self.start..self.start + 4) {
            head.copy_from_slice(&length.to_be_bytes());
        }
    }
}
