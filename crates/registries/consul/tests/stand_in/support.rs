//! What the tests share.

use pilotfish_consul::CONSUL;
use pilotfish_testkit::consul::Consul;
use pilotfish_testkit::real::LiveRegistry;
use serde_json::{Value, json};

/// The registry with these options, and with a token variable that nobody sets.
pub(crate) fn registry(consul: &Consul, options: &str) -> LiveRegistry {
    LiveRegistry::start(&CONSUL, &format!("{}?exceptServices=consul&{options}", consul.url()))
}

/// An instance of a service on a node of its own.
pub(crate) fn instance(service: &str, number: usize) -> Value {
    let address = format!("10.{}.{}.{}", number / 65536, number / 256 % 256, number % 256);
    let id = format!("{service}-{number}");
    json!({
        "Node": format!("node-{number}"), "Address": address,
        "Service": {"Service": service, "ID": id, "Port": 8080, "Address": address, "Meta": {"protocol": "http"}},
        "Check": {"CheckID": format!("check-{id}"), "Name": "alive", "ServiceID": id, "Status": "passing"},
    })
}

/// The same with another status of its check.
pub(crate) fn with_status(service: &str, number: usize, status: &str) -> Value {
    let mut instance = instance(service, number);
    instance["Check"]["Status"] = json!(status);
    instance
}

/// What takes an instance away.
pub(crate) fn gone(service: &str, number: usize) -> Value {
    json!({"Node": format!("node-{number}"), "ServiceID": format!("{service}-{number}")})
}
