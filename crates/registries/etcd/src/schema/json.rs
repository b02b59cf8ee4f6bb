//! Values in JSON.

use super::address::{Address, parse_port, short};
use super::fields::{Fields, Role};
use super::reading::Reading;
use pilotfish_model::HealthStatus;
use serde_json::Value;

/// Maximum number of ports and of endpoints of a value.
const MAX_PORTS: usize = 64;

/// Parses a value as a JSON object.
pub(super) fn parse(bytes: &[u8]) -> Result<Value, String> {
    let value: Value =
        serde_json::from_slice(bytes).map_err(|error| format!("its value is not JSON: {error}"))?;
    if value.is_object() { Ok(value) } else { Err("its value is JSON, but no object".to_owned()) }
}

/// Reads the fields of a value.
pub(super) fn read(fields: &Fields, value: &Value, reading: &mut Reading) -> Result<(), String> {
    let get = |role| fields.get(role, value);
    if let Some(address) = get(Role::Address) {
        reading.address(Address::parse(text(address, "address")?)?);
    }
    if let Some(port) = get(Role::Port) {
        reading.port(None, number(port, "port", parse_port)?, None);
    }
    if let Some(ports) = get(Role::Ports) {
        read_ports(ports, reading)?;
    }
    if let Some(endpoints) = get(Role::Endpoints) {
        let list = endpoints.as_array().ok_or("the field of endpoints is no list")?;
        for endpoint in list.iter().take(MAX_PORTS) {
            reading.endpoint(Address::parse(text(endpoint, "endpoint")?)?)?;
        }
    }
    if let Some(weight) = get(Role::Weight) {
        reading.weight = Some(number(weight, "weight", |text| {
            text.parse().map_err(|_| format!("{} is no weight", short(text)))
        })?);
    }
    if let Some(health) = get(Role::Health) {
        reading.health = Some(read_health(health)?);
    }
    if let Some(labels) = get(Role::Labels) {
        read_labels(labels, reading);
    }
    for (role, name, place) in [
        (Role::Protocol, "protocol", &mut reading.protocol),
        (Role::Service, "service", &mut reading.service),
        (Role::Namespace, "namespace", &mut reading.namespace),
        (Role::Group, "group", &mut reading.group),
        (Role::Version, "version", &mut reading.version),
        (Role::Region, "region", &mut reading.region),
        (Role::Zone, "zone", &mut reading.zone),
        (Role::SubZone, "subZone", &mut reading.sub_zone),
        (Role::Network, "network", &mut reading.network),
        (Role::Node, "node", &mut reading.node),
    ] {
        // The key takes precedence.
        if place.is_none()
            && let Some(value) = get(role)
        {
            *place = Some(text(value, name)?.to_owned()).filter(|text| !text.is_empty());
        }
    }
    Ok(())
}

fn text<'a>(value: &'a Value, what: &str) -> Result<&'a str, String> {
    value.as_str().ok_or_else(|| format!("the {what} is no text"))
}

/// Reads a number, or a text with a number.
fn number(value: &Value, what: &str, parse: impl FnOnce(&str) -> Result<u32, String>) -> Result<u32, String> {
    match value {
        Value::Number(number) => parse(&number.to_string()),
        Value::String(text) => parse(text),
        _ => Err(format!("the {what} is no number")),
    }
}

/// `{"http": 8080}`, or `[{"name": "http", "port": 8080, "protocol": "http"}]`.
fn read_ports(value: &Value, reading: &mut Reading) -> Result<(), String> {
    match value {
        Value::Object(ports) => ports.iter().take(MAX_PORTS).try_for_each(|(name, port)| {
            reading.port(Some(name.clone()), number(port, "port", parse_port)?, None);
            Ok(())
        }),
        Value::Array(ports) => ports.iter().take(MAX_PORTS).try_for_each(|port| {
            let of = |name| port.get(name).and_then(Value::as_str).map(str::to_owned);
            let number = number(port.get("port").unwrap_or(port), "port", parse_port)?;
            reading.port(of("name"), number, of("protocol"));
            Ok(())
        }),
        _ => Err("the ports are neither an object nor a list".to_owned()),
    }
}

fn read_health(value: &Value) -> Result<HealthStatus, String> {
    let is_healthy = match value {
        Value::Bool(healthy) => *healthy,
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "up" | "healthy" | "ok" | "passing" | "serving" => true,
            "false" | "down" | "unhealthy" | "critical" | "not_serving" => false,
            _ => return Err(format!("{} says not whether it is healthy", short(text))),
        },
        _ => return Err("the health is neither true nor false".to_owned()),
    };
    Ok(if is_healthy { HealthStatus::Healthy } else { HealthStatus::Unhealthy })
}

/// Reads texts, numbers and booleans as labels; skips nested values.
fn read_labels(value: &Value, reading: &mut Reading) {
    for (name, value) in value.as_object().into_iter().flatten() {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(value) => value.to_string(),
            _ => continue,
        };
        reading.labels.entry(name.clone()).or_insert(text);
    }
}
