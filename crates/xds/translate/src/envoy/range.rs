//! Addresses and blocks of addresses as Envoy matches them.

use pilotfish_proto::envoy::config::core::v3::CidrRange;
use std::net::IpAddr;

/// Parses an address, or a block of addresses such as `10.0.0.0/8`; `None` if the text is neither. A prefix
/// longer than an address of its family (`10.0.0.0/33`) is rejected: Envoy would treat it as one address.
pub(crate) fn range(text: &str) -> Option<CidrRange> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length.parse::<u32>().ok()?)),
        None => (text, None),
    };
    let whole = if address.parse::<IpAddr>().ok()?.is_ipv4() { 32 } else { 128 };
    let length = length.unwrap_or(whole);
    (length <= whole).then(|| CidrRange { address_prefix: address.to_owned(), prefix_len: Some(length) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        for (text, want) in [
            ("10.0.0.1", Some(("10.0.0.1", 32))),
            ("10.0.0.0/8", Some(("10.0.0.0", 8))),
            ("10.0.0.0/32", Some(("10.0.0.0", 32))),
            ("10.0.0.0/33", None),
            ("2001:db8::1", Some(("2001:db8::1", 128))),
            ("2001:db8::/33", Some(("2001:db8::", 33))),
            ("2001:db8::/129", None),
            ("0.0.0.0/0", Some(("0.0.0.0", 0))),
            ("10.0.0.0/-1", None),
            ("10.0.0.0/", None),
            ("host", None),
        ] {
            let got = range(text);
            let got =
                got.as_ref().map(|range| (range.address_prefix.as_str(), range.prefix_len.unwrap_or(0)));
            assert_eq!(got, want, "{text}");
        }
    }
}
