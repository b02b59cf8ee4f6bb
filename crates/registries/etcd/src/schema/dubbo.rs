//! URLs of Dubbo providers, percent-encoded in keys:
//! `dubbo://10.0.0.1:20880/org.example.Hello?version=1.0&...`.

use super::address::Address;
use super::reading::Reading;
use pilotfish_model::HealthStatus;

/// Parameters that become labels, with the name of the label.
const LABELS: &[(&str, &str)] = &[
    ("application", "application"),
    ("version", "version"),
    ("group", "group"),
    ("dubbo.tag", "tag"),
    ("environment", "environment"),
];

/// Reads a percent-encoded URL.
pub(super) fn read(encoded: &str, reading: &mut Reading) -> Result<(), String> {
    let url = decode(encoded)?;
    let address = Address::parse(&url)?;
    if address.protocol.is_none() || address.port.is_none() {
        return Err("it is no URL with a protocol and a port".to_owned());
    }
    reading.address(address);
    let query = url.split_once('?').map_or("", |(_, query)| query);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if let Some((_, label)) = LABELS.iter().find(|(known, _)| *known == name) {
            reading.labels.insert((*label).to_owned(), value.to_string());
        }
        match &*name {
            "weight" => {
                reading.weight = Some(value.parse().map_err(|_| "its weight is no number".to_owned())?);
            }
            "disabled" | "enabled" if (value == "true") == (name == "disabled") => {
                reading.health = Some(HealthStatus::Unhealthy);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Decodes `%XX`; other characters, such as `+`, are kept.
fn decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (digits, after) = after.split_at_checked(2).ok_or("it ends within a %XX")?;
        let digits = digits.iter().try_fold(0_u8, |sum, digit| {
            let digit = u8::try_from(char::from(*digit).to_digit(16)?).ok()?;
            Some(sum * 16 + digit)
        });
        bytes.push(digits.ok_or("a % is not followed by two digits")?);
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_are_undone() {
        assert_eq!(decode("a%3A%2F%2fb+c").as_deref(), Ok("a://b+c"));
        assert_eq!(decode("%C3%A4").as_deref(), Ok("ä"));
        for text in ["%", "%4", "%zz", "%+1", "%ff"] {
            assert!(decode(text).is_err(), "{text}");
        }
    }
}
