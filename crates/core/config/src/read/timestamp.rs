//! Times in the form of RFC 3339, to seconds.

/// Seconds since 1970 of a time like `2024-05-01T12:00:00Z` or `2024-05-01T14:00:00.5+02:00`.
pub(super) fn seconds(text: &str) -> Option<i64> {
    let time: Option<jiff::Timestamp> = is_rfc3339(text).then(|| text.parse().ok()).flatten();
    time.map(jiff::Timestamp::as_second)
}

/// True if the text has the form of RFC 3339. jiff reads more of ISO 8601, which an API server refuses:
/// `20240501T12Z`, or a time zone in brackets.
fn is_rfc3339(text: &str) -> bool {
    const FORM: &[u8; 19] = b"0000-00-00T00:00:00";
    let Some((time, rest)) = text.as_bytes().split_at_checked(FORM.len()) else { return false };
    let fits = |(found, form): (&u8, &u8)| match form {
        b'0' => found.is_ascii_digit(),
        b'T' => matches!(found, b'T' | b't' | b' '),
        mark => found == mark,
    };
    let fraction = rest.strip_prefix(b".").unwrap_or_default();
    let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let zone = if digits > 0 { rest.get(1 + digits..).unwrap_or_default() } else { rest };
    time.iter().zip(FORM).all(fits) && matches!(zone, [b'Z' | b'z'] | [b'+' | b'-', _, _, b':', _, _])
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn times_are_read() {
        assert_eq!(seconds("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(seconds("2000-03-01T00:00:00Z"), Some(951_868_800));
        assert_eq!(seconds("2024-02-29T23:59:59Z"), Some(1_709_251_199));
        assert_eq!(seconds("2024-02-29t23:59:59z"), Some(1_709_251_199));
        assert_eq!(seconds("2024-02-29T23:59:59.999+01:30"), Some(1_709_251_199 - 5_400));
        for wrong in
            ["", "2024", "2024-01-01", "2024-13-01T00:00:00Z", "2024-01-01T00:00Z", "x-01-01T00:00:00Z"]
        {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn days_that_no_month_has_are_refused() {
        for wrong in
            ["2024-02-31T00:00:00Z", "2023-02-29T00:00:00Z", "2024-04-31T12:00:00Z", "2024-01-00T00:00:00Z"]
        {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn other_forms_of_iso_8601_are_refused() {
        for wrong in [
            "20240501T120000Z",
            "2024-05-01T12Z",
            "2024-05-01T12:00:00",
            "2024-05-01T12:00:00+02",
            "2024-05-01T12:00:00+0200",
            "2024-05-01T12:00:00,5Z",
            "2024-05-01T12:00:00.Z",
            "2024-05-01T12:00:00+02:00[Europe/Berlin]",
            "+002024-05-01T12:00:00Z",
        ] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
