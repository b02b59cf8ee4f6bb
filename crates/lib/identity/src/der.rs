//! DER parsing of the certificate fields that the TLS library does not return.

pub(crate) const SEQUENCE: u8 = 0x30;
const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const OBJECT_ID: u8 = 0x06;
/// `[0] EXPLICIT`: the version.
const VERSION: u8 = 0xa0;
/// `[1]` and `[2] IMPLICIT`: unique ids of issuer and subject.
const UNIQUE_IDS: [u8; 2] = [0x81, 0x82];
/// `[3] EXPLICIT`: the extensions.
const EXTENSIONS: u8 = 0xa3;
/// `[6] IMPLICIT`: a URI among the alternative names.
const URI: u8 = 0x86;
/// Object id of the extension subjectAltName: 2.5.29.17.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];

/// Returns the content of the first element, which must have this tag, and the rest.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    const LONG: u8 = 0x80;
    let (found, rest) = der.split_first()?;
    let (first, rest) = rest.split_first().filter(|_| *found == tag)?;
    let (length, rest) = match first & LONG {
        0 => (usize::from(*first), rest),
        _ => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & !LONG))?;
            if bytes.is_empty() || bytes.len() > 4 {
                return None;
            }
            (bytes.iter().fold(0, |length, byte| (length << 8) | usize::from(*byte)), rest)
        }
    };
    rest.split_at_checked(length)
}

/// Takes the first element, which must have this tag, and returns its content.
pub(crate) fn take<'a>(der: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    let (content, rest) = element(der, tag)?;
    *der = rest;
    Some(content)
}

/// Returns the part of a certificate after its issuer: validity, subject, key, extensions.
pub(crate) fn after_issuer(certificate: &[u8]) -> Option<&[u8]> {
    let (mut certificate, _) = element(certificate, SEQUENCE)?;
    let mut signed = take(&mut certificate, SEQUENCE)?;
    skip(&mut signed, VERSION);
    take(&mut signed, INTEGER)?;
    // Skips signature algorithm and issuer.
    take(&mut signed, SEQUENCE)?;
    take(&mut signed, SEQUENCE)?;
    Some(signed)
}

/// Returns all URIs in the alternative names of a certificate, valid or not; `None` if the certificate cannot
/// be parsed.
pub(crate) fn uris(certificate: &[u8]) -> Option<Vec<&[u8]>> {
    let mut signed = after_issuer(certificate)?;
    // Skips validity, subject and key.
    for _ in 0..3 {
        take(&mut signed, SEQUENCE)?;
    }
    UNIQUE_IDS.into_iter().for_each(|id| skip(&mut signed, id));
    if signed.is_empty() {
        return Some(Vec::new());
    }
    let mut extensions = take(&mut take(&mut signed, EXTENSIONS)?, SEQUENCE)?;
    let mut uris = Vec::new();
    while !extensions.is_empty() {
        let mut extension = take(&mut extensions, SEQUENCE)?;
        let id = take(&mut extension, OBJECT_ID)?;
        skip(&mut extension, BOOLEAN);
        let mut value = take(&mut extension, OCTET_STRING)?;
        if id != ALTERNATIVE_NAMES {
            continue;
        }
        let mut names = take(&mut value, SEQUENCE)?;
        while let Some(tag) = names.first().copied() {
            let name = take(&mut names, tag)?;
            if tag == URI {
                uris.push(name);
            }
        }
    }
    Some(uris)
}

/// Skips the first element if it has this tag.
fn skip(der: &mut &[u8], tag: u8) {
    if let Some((_, rest)) = element(der, tag) {
        *der = rest;
    }
}
