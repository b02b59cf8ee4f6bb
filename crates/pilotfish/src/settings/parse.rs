//! Texts of settings as values. An error describes a good text; the caller puts the flag's name before it.

use super::check::Check;
use pilotfish_control_plane::control::Window;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

/// An address to listen on.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    // A name is resolved once, at the start: addresses to listen on are this machine's.
    match text.to_socket_addrs().map(|mut found| found.next()) {
        Ok(Some(address)) => Ok(address),
        _ if lacks_port(text) => Err("port missing: not HOST:PORT, as in 127.0.0.1:15010".into()),
        _ => Err("not HOST:PORT of this machine, as in 127.0.0.1:15010 or [::]:15010".into()),
    }
}

fn lacks_port(text: &str) -> bool {
    let is_bare_ip = text.parse::<IpAddr>().is_ok() || text.ends_with(']');
    !text.is_empty() && (is_bare_ip || !text.contains(':'))
}

/// A limit: a whole number above 0.
pub(super) fn limit(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "not a whole number above 0".into())
}

/// Values of a template, `NAME=VALUE` each; `flag` names them in mistakes.
pub(super) fn pairs(flag: &str, pairs: &[String], check: &mut Check) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    for pair in pairs {
        match pair.split_once('=') {
            Some((name, value)) => drop(values.insert(name.to_owned(), value.to_owned())),
            None => check.wrong(flag, pair, "not NAME=VALUE, as in cpu=50m"),
        }
    }
    values
}

/// A duration as Istio writes it: `10s`, `1m30s`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    pilotfish_duration::parse(text).map_err(|error| error.to_string())
}

/// A debounce window: pause and ceiling.
pub(super) fn window(text: &str) -> Result<Window, String> {
    let mut parts = text.split(',').map(|part| duration(part.trim()));
    match (parts.next(), parts.next(), parts.next()) {
        (Some(Ok(quiet)), Some(Ok(ceiling)), None) if quiet <= ceiling => Ok(Window { quiet, ceiling }),
        _ => Err("not PAUSE,CEILING with the ceiling at least as long, as in 3ms,30ms".into()),
    }
}

/// The name of a namespace.
pub(super) fn namespace(text: &str) -> Result<String, String> {
    if is_label(text) {
        Ok(text.to_owned())
    } else {
        Err("not a namespace: 1 to 63 of a-z, 0-9 and '-'".into())
    }
}

/// The name of a revision. Names of Services are made of it.
pub(super) fn revision(text: &str) -> Result<String, String> {
    // `pilotfish-NAME` is the label of a host name.
    const LONGEST: usize = 53;
    if is_label(text) && text.len() <= LONGEST && !text.starts_with('-') && !text.ends_with('-') {
        Ok(text.to_owned())
    } else {
        Err(format!("not a revision: 1 to {LONGEST} of a-z, 0-9 and '-', not '-' at the ends"))
    }
}

/// True if a text can be a label of a host name (RFC 1123), as names of Services and namespaces are.
pub(super) fn is_label(text: &str) -> bool {
    let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text.len() <= 63 && text.chars().all(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_port_is_told_from_other_mistakes() {
        for text in ["localhost", "127.0.0.1", "::1", "[::1]"] {
            assert!(address(text).unwrap_err().starts_with("port missing"), "{text}");
        }
        for text in ["", ":", "127.0.0.1:x", "127.0.0.1:70000"] {
            assert!(address(text).unwrap_err().starts_with("not HOST:PORT"), "{text}");
        }
        assert_eq!(address("[::1]:9").unwrap(), SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 9)));
    }

    #[test]
    fn a_window_is_a_pause_and_a_ceiling() {
        let ms = Duration::from_millis;
        assert_eq!(window("3ms, 30ms"), Ok(Window { quiet: ms(3), ceiling: ms(30) }));
        for text in ["", "3ms", "30ms,3ms", "3ms,30ms,1s", "a,b"] {
            assert!(window(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn revision_is_part_of_the_name_of_a_service() {
        for text in ["canary", "1-24-0", "default", &"a".repeat(53)] {
            assert_eq!(revision(text).as_deref(), Ok(text));
        }
        for text in ["", "Canary", "1.24", "-a", "a-", "a b", &"a".repeat(54)] {
            assert!(revision(text).unwrap_err().starts_with("not a revision"), "{text:?}");
        }
    }

    #[test]
    fn limits_are_above_zero() {
        assert_eq!(limit("1"), Ok(1));
        for text in ["0", "-1", "many", ""] {
            assert!(limit(text).is_err(), "{text:?}");
        }
    }
}
