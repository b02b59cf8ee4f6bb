//! Times in the form of RFC 3339, to seconds.

/// Seconds since 1970 of a time like `2024-05-01T12:00:00Z` or `2024-05-01T14:00:00.5+02:00`.
pub(crate) fn seconds(text: &str) -> Option<i64> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let mut date = date.splitn(3, '-').map(digits);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (time, offset) = match time.strip_suffix(['Z', 'z']) {
        Some(time) => (time, 0),
        None => zone(time)?,
    };
    let time = time.split_once('.').map_or(time, |(time, _)| time);
    let mut time = time.splitn(3, ':').map(digits);
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    let valid = (1..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    valid.then(|| days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset)
}

fn digits(text: &str) -> Option<i64> {
    let plain = (1..=4).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// Cuts `+02:00` off a time; gives the rest and the offset in seconds.
fn zone(time: &str) -> Option<(&str, i64)> {
    let at = time.rfind(['+', '-'])?;
    let (time, zone) = time.split_at_checked(at)?;
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    Some((time, sign * (digits(hours)? * 3_600 + digits(minutes)? * 60)))
}

/// Days since 1970 of a date. Counts from March, so that the leap day is a year's last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let day_of_era = of_era * 365 + of_era / 4 - of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn times_are_read() {
        assert_eq!(seconds("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(seconds("2000-03-01T00:00:00Z"), Some(951_868_800));
        assert_eq!(seconds("2024-02-29T23:59:59Z"), Some(1_709_251_199));
        assert_eq!(seconds("2024-02-29T23:59:59.999+01:30"), Some(1_709_251_199 - 5_400));
        for wrong in
            ["", "2024", "2024-01-01", "2024-13-01T00:00:00Z", "2024-01-01T00:00Z", "x-01-01T00:00:00Z"]
        {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
