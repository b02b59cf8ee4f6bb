//! End of a certificate's validity (RFC 5280, section 4.1.2.5): the identity that a certificate proves
//! expires with it.

use crate::der::{self, take};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Returns the end of a certificate's validity; `None` if it cannot be parsed.
pub(crate) fn end(certificate: &[u8]) -> Option<SystemTime> {
    let mut signed = der::after_issuer(certificate)?;
    let mut validity = take(&mut signed, der::SEQUENCE)?;
    time(&mut validity)?;
    time(&mut validity)
}

/// Parses `YYMMDDHHMMSSZ`, with years from 50 on in the last century, or the form with a four-digit year.
fn time(der: &mut &[u8]) -> Option<SystemTime> {
    let is_utc = der.first() == Some(&UTC_TIME);
    let text = take(der, if is_utc { UTC_TIME } else { GENERALIZED_TIME })?;
    let mut digits = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let mut number = |length: usize| -> Option<u64> {
        let (found, rest) = digits.split_at_checked(length)?;
        digits = rest;
        found.bytes().all(|byte| byte.is_ascii_digit()).then(|| found.parse().ok())?
    };
    let year = match is_utc {
        true => number(2).map(|year| if year < 50 { 2000 + year } else { 1900 + year })?,
        false => number(4)?,
    };
    let [month, day, hour, minute, second] = [number(2)?, number(2)?, number(2)?, number(2)?, number(2)?];
    let is_date = (1..=12).contains(&month) && (1..=31).contains(&day) && digits.is_empty();
    if !is_date || year < 1970 {
        return None;
    }
    let days = days_before(year, month) + day - 1;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// Returns the days from 1970 to the first of a month.
fn days_before(year: u64, month: u64) -> u64 {
    const BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    let index = usize::try_from(month - 1).unwrap_or_default();
    let in_year = BEFORE.get(index).copied().unwrap_or_default() + u64::from(is_leap && month > 2);
    (year - 1970) * 365 + leaps(year - 1) - leaps(1969) + in_year
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    fn end_of(year: i32, month: u8, day: u8) -> Option<u64> {
        let mut params = CertificateParams::default();
        params.not_before = date_time_ymd(1999, 12, 31);
        params.not_after = date_time_ymd(year, month, day);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let end = end(certificate.der())?;
        Some(end.duration_since(UNIX_EPOCH).unwrap().as_secs())
    }

    #[test]
    fn the_end_of_a_certificate_is_read() {
        for (date, seconds) in [
            ((2000, 2, 29), 951_782_400),
            ((2026, 11, 23), 1_795_392_000),
            ((2024, 3, 1), 1_709_251_200),
            // With four digits from here on.
            ((2050, 1, 1), 2_524_608_000),
            ((2100, 3, 1), 4_107_542_400),
        ] {
            assert_eq!(end_of(date.0, date.1, date.2), Some(seconds), "{date:?}");
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_end() {
        let utc = |text: &[u8]| {
            let mut der = vec![UTC_TIME, u8::try_from(text.len()).unwrap()];
            der.extend(text);
            time(&mut der.as_slice())
        };
        assert!(utc(b"261123000000Z").is_some());
        for text in
            [&b"261123000000"[..], b"2611230000Z", b"261323000000Z", b"26112300000xZ", b"2611230000000Z", b""]
        {
            assert_eq!(utc(text), None);
        }
        for text in [
            &b""[..],
            b"a",
            &[0x30, 0x03, 0x30, 0x01, 0x00],
            &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff],
            &[0x30, 0x80],
        ] {
            assert_eq!(end(text), None, "{text:x?}");
        }
    }
}
