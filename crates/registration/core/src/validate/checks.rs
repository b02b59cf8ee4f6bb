//! Active checks of an instance.

use super::ports::number;
use super::texts::printable;
use crate::limits::{
    MAX_CHECK_INTERVAL, MAX_CHECK_THRESHOLD, MAX_CHECKS, MAX_TEXT_BYTES, MIN_CHECK_INTERVAL,
};
use crate::{Check, CheckKind, Port, RegistrationCheck, RegistrationCheckKind, Violations};
use std::time::Duration;

const DEFAULT_INTERVAL: Duration = Duration::from_secs(10);
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(2);
const DEFAULT_HEALTHY_THRESHOLD: u32 = 1;
const DEFAULT_UNHEALTHY_THRESHOLD: u32 = 3;

pub(super) fn checks(given: Vec<RegistrationCheck>, ports: &[Port], wrong: &mut Violations) -> Vec<Check> {
    if given.len() > MAX_CHECKS {
        wrong.add("checks", format!("{} checks are more than {MAX_CHECKS}", given.len()));
        return Vec::new();
    }
    let mut checks = Vec::with_capacity(given.len());
    for (index, given) in given.into_iter().enumerate() {
        let mut part = Violations::default();
        checks.extend(check(given, ports, &mut part));
        wrong.nest(&format!("checks[{index}]"), part);
    }
    checks
}

fn check(given: RegistrationCheck, ports: &[Port], wrong: &mut Violations) -> Option<Check> {
    let port = if given.port == 0 { None } else { number("port", given.port, wrong) };
    // An instance without valid ports has its own violation.
    if let Some(port) = port
        && !ports.is_empty()
        && ports.iter().all(|own| own.number != port)
    {
        wrong.add("port", format!("{port} is none of the instance's ports"));
    }
    let interval = if given.interval.is_zero() { DEFAULT_INTERVAL } else { given.interval };
    let timeout = if given.timeout.is_zero() { DEFAULT_TIMEOUT.min(interval) } else { given.timeout };
    super::between("interval", interval, MIN_CHECK_INTERVAL, MAX_CHECK_INTERVAL, wrong);
    if timeout > interval {
        wrong.add("timeout", format!("{timeout:?} is longer than the interval of {interval:?}"));
    }
    let healthy_threshold =
        threshold("healthy_threshold", given.healthy_threshold, DEFAULT_HEALTHY_THRESHOLD, wrong);
    let unhealthy_threshold =
        threshold("unhealthy_threshold", given.unhealthy_threshold, DEFAULT_UNHEALTHY_THRESHOLD, wrong);
    let Some(kind) = given.kind else {
        wrong.add("kind", "one of http, tcp and grpc is needed");
        return None;
    };
    let kind = kind_of(kind, wrong)?;
    Some(Check { kind, port, interval, timeout, healthy_threshold, unhealthy_threshold })
}

fn threshold(field: &str, given: u32, default: u32, wrong: &mut Violations) -> u32 {
    if given > MAX_CHECK_THRESHOLD {
        wrong.add(field, format!("{given} is more than {MAX_CHECK_THRESHOLD}"));
    }
    if given == 0 { default } else { given }
}

fn kind_of(given: RegistrationCheckKind, wrong: &mut Violations) -> Option<CheckKind> {
    let mut text = |field: &str, text: String| match visible(&text) {
        Ok(()) => Some(text.into()),
        Err(message) => {
            wrong.add(field, message);
            None
        }
    };
    Some(match given {
        RegistrationCheckKind::Tcp => CheckKind::Tcp,
        RegistrationCheckKind::Grpc { service } => {
            CheckKind::Grpc { service: text("grpc.service", service)? }
        }
        RegistrationCheckKind::Http { path, host } => {
            let path = if path.is_empty() { "/".to_owned() } else { path };
            if !path.starts_with('/') {
                wrong.add("http.path", "must begin with a slash");
                return None;
            }
            CheckKind::Http { path: text("http.path", path)?, host: text("http.host", host)? }
        }
    })
}

/// Validates text for the request line or a header of an HTTP request.
fn visible(text: &str) -> Result<(), String> {
    printable(text, MAX_TEXT_BYTES)?;
    match text.bytes().all(|c| c.is_ascii_graphic()) {
        true => Ok(()),
        false => Err("only visible ASCII characters are allowed".to_owned()),
    }
}
