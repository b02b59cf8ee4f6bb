//! Instances for tests.

use pilotfish_eureka_wire::{InstanceInfo, Metadata, PortInfo, Text};

pub(crate) fn text(text: &str) -> Text {
    text.into()
}

pub(crate) fn metadata(entries: &[(&str, &str)]) -> Metadata {
    Metadata(entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
}

/// An instance that is up, as its registration.
pub(crate) fn info(app: &str, id: &str) -> InstanceInfo {
    InstanceInfo {
        instance_id: text(id),
        app: text(app),
        ip_addr: text("10.0.0.1"),
        host_name: text("host-1"),
        status: text("UP"),
        overridden_status: text("UNKNOWN"),
        port: Some(PortInfo { number: 8080, enabled: true }),
        secure_port: Some(PortInfo { number: 443, enabled: false }),
        ..InstanceInfo::default()
    }
}
