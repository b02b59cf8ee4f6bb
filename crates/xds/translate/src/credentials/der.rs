//! The public key of an X.509 certificate (RFC 5280, section 4.1).
//!
//! rustls reads certificates of version 3 alone, and tools that make a certificate for one host write version
//! 1 as well.

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const SEQUENCE: u8 = 0x30;
/// `[0] EXPLICIT` around the version; version 1 omits it.
const VERSION: u8 = 0xa0;

/// `SubjectPublicKeyInfo` of a certificate or a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PublicKey<'a> {
    /// `AlgorithmIdentifier` without tag and length.
    pub(super) algorithm: &'a [u8],
    /// `subjectPublicKey`, the whole bit string.
    pub(super) key: &'a [u8],
}

impl<'a> PublicKey<'a> {
    /// Reads the key of a certificate. Returns `None` if the bytes are no X.509 certificate.
    pub(super) fn of_certificate(der: &'a [u8]) -> Option<Self> {
        let mut certificate = whole(der)?;
        let mut signed = certificate.take(SEQUENCE)?;
        // Signature algorithm and signature.
        certificate.take(SEQUENCE)?;
        certificate.take(BIT_STRING)?;
        if signed.tag() == Some(VERSION) {
            signed.take(VERSION)?;
        }
        signed.take(INTEGER)?;
        // Signature algorithm, issuer, validity and subject.
        for _ in 0..4 {
            signed.take(SEQUENCE)?;
        }
        Self::read(signed.take(SEQUENCE)?)
    }

    /// Reads an encoded `SubjectPublicKeyInfo`.
    pub(super) fn of_key(der: &'a [u8]) -> Option<Self> {
        Self::read(whole(der)?)
    }

    fn read(mut info: Reader<'a>) -> Option<Self> {
        let algorithm = info.take(SEQUENCE)?.0;
        Some(Self { algorithm, key: info.take(BIT_STRING)?.0 })
    }
}

/// Returns the content of a sequence that fills the input.
fn whole(der: &[u8]) -> Option<Reader<'_>> {
    let mut outer = Reader(der);
    let inner = outer.take(SEQUENCE)?;
    outer.0.is_empty().then_some(inner)
}

/// Remaining bytes of a sequence of DER elements.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn tag(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// Reads the content of the next element, which must have that tag.
    fn take(&mut self, tag: u8) -> Option<Reader<'a>> {
        let (found, rest) = self.0.split_first()?;
        let (length, rest) = length(rest).filter(|_| *found == tag)?;
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(Reader(content))
    }
}

/// Parses the length of an element, in the short or the long form. Returns it with the remaining bytes.
fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    const LONG: u8 = 0x80;
    let (first, rest) = bytes.split_first()?;
    if *first < LONG {
        return Some((usize::from(*first), rest));
    }
    let count = usize::from(*first - LONG);
    let (digits, rest) = rest.split_at_checked(count)?;
    // Four bytes suffice for any Secret.
    if !(1..=4).contains(&count) {
        return None;
    }
    let length =
        digits.iter().try_fold(0_usize, |sum, digit| sum.checked_mul(256)?.checked_add((*digit).into()))?;
    Some((length, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_a_short_and_a_long_form() {
        for (bytes, expected) in [
            (&[0x05, 1][..], Some((5, 1))),
            (&[0x7f], Some((127, 0))),
            (&[0x81, 0x80, 1], Some((128, 1))),
            (&[0x82, 0x01, 0x00], Some((256, 0))),
            (&[0x84, 0xff, 0xff, 0xff, 0xff], Some((0xffff_ffff, 0))),
            (&[0x80], None),
            (&[0x85, 0, 0, 0, 0, 1], None),
            (&[0x82, 0x01], None),
            (&[], None),
        ] {
            assert_eq!(length(bytes).map(|(length, rest)| (length, rest.len())), expected, "{bytes:x?}");
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_key() {
        for text in [
            &b""[..],
            b"a",
            b"not a certificate",
            &[0x30, 0x03, 0x30, 0x01, 0x00],
            &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff],
        ] {
            assert_eq!(PublicKey::of_certificate(text), None, "{text:x?}");
        }
    }
}
