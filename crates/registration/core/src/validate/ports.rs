//! Ports of an instance.

use super::names::check_label;
use super::texts::short;
use crate::limits::MAX_PORTS;
use crate::{Port, RegistrationPort, Violations};
use pilotfish_model::Protocol;
use std::num::NonZeroU16;
use std::sync::Arc;

/// Validates ports: numbers between 1 and 65535, without duplicate port numbers, service ports and names.
pub(super) fn ports(given: &[RegistrationPort], wrong: &mut Violations) -> Vec<Port> {
    if given.is_empty() {
        wrong.add("ports", "at least one port is needed");
    }
    if given.len() > MAX_PORTS {
        wrong.add("ports", format!("{} ports are more than {MAX_PORTS}", given.len()));
        return Vec::new();
    }
    let mut ports: Vec<Port> = Vec::with_capacity(given.len());
    for (index, port) in given.iter().enumerate() {
        let mut part = Violations::default();
        if let Some(port) = read(port, &mut part) {
            duplicates(&ports, &port, &mut part);
            ports.push(port);
        }
        wrong.nest(&format!("ports[{index}]"), part);
    }
    ports
}

fn read(given: &RegistrationPort, wrong: &mut Violations) -> Option<Port> {
    let number = number("number", given.number, wrong);
    let service_port = match given.service_port {
        0 => number,
        port => self::number("service_port", port, wrong),
    };
    if !given.name.is_empty()
        && let Err(message) = check_label(&given.name)
    {
        wrong.add("name", message);
    }
    let protocol = given.protocol.to_ascii_lowercase();
    if !protocol.is_empty() && Protocol::of_registry(&protocol).is_unsupported() {
        wrong.add("protocol", format!("{} is no protocol that is known", short(&given.protocol)));
    }
    let (number, service_port) = (number?, service_port?);
    Some(Port { number, service_port, name: Arc::from(given.name.as_str()), protocol: protocol.into() })
}

/// Validates a port number.
pub(super) fn number(field: &str, given: u32, wrong: &mut Violations) -> Option<NonZeroU16> {
    let number = u16::try_from(given).ok().and_then(NonZeroU16::new);
    if number.is_none() {
        wrong.add(field, format!("{given} is not between 1 and 65535"));
    }
    number
}

fn duplicates(before: &[Port], port: &Port, wrong: &mut Violations) {
    if before.iter().any(|other| other.service_port == port.service_port) {
        wrong.add("service_port", format!("{} is there twice", port.service_port));
    }
    if !port.name.is_empty() && before.iter().any(|other| other.name == port.name) {
        wrong.add("name", format!("{:?} is there twice", &*port.name));
    }
}
