//! docs/limits.md says what the limits are.

use pilotfish_registration::Limits;
use pilotfish_registration_api::{MAX_ITEMS, MAX_VALUES};
use pilotfish_registration_server::{Limit, ServerLimits};

fn mebibytes(bytes: usize) -> String {
    format!("{} MiB", bytes >> 20)
}

#[test]
fn every_limit_has_a_row_with_its_default() {
    let (server, kept) = (ServerLimits::default(), Limits::default());
    let mut rows: Vec<(&str, String)> = vec![
        ("batch-items", MAX_ITEMS.to_string()),
        ("request-values", MAX_VALUES.to_string()),
        ("watches", kept.watches.to_string()),
        ("owner-watches", kept.owner_watches.to_string()),
        ("instances", kept.instances.to_string()),
        ("service-instances", kept.service_instances.to_string()),
        ("owner-instances", kept.owner_instances.to_string()),
        ("owner-bytes", mebibytes(kept.owner_bytes)),
        ("instance-bytes", mebibytes(kept.instance_bytes)),
        ("services", kept.services.to_string()),
    ];
    rows.extend(Limit::ALL.map(|limit| {
        let value = match limit {
            Limit::RequestBytes => mebibytes(server.request_bytes),
            Limit::ConnectionRequestBytes => mebibytes(server.connection_request_bytes),
            Limit::AllRequestBytes => mebibytes(server.all_request_bytes),
            Limit::RequestsPerSecond => server.requests_per_second.to_string(),
            Limit::FramesPerSecond => server.frames_per_second.to_string(),
            Limit::RefusalsPerSecond => server.refusals_per_second.to_string(),
            Limit::Connections => server.connections.to_string(),
            Limit::AddressConnections => server.address_connections.to_string(),
            Limit::ConnectionStreams => server.connection_streams.to_string(),
            Limit::OwnerStreams => server.owner_streams.to_string(),
        };
        (limit.as_str(), value)
    }));
    let page = include_str!("../../../../docs/limits.md");
    let page = page.split_once("## Of registration").map(|(_, rest)| rest).unwrap_or_default();
    for (name, value) in rows {
        let row = format!("| `{name}` | {value} |");
        assert!(page.contains(&row), "no row {row:?}");
    }
    assert_eq!(MAX_ITEMS, pilotfish_registration::limits::MAX_BATCH, "both sides of one limit");
}
