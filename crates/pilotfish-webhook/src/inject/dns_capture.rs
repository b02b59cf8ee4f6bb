//! DNS capture, which the sidecars of Pilotfish do not have: Istio's agent answers the queries of a Pod, and there is none beside a stock
//! Envoy. Envoy's own DNS filter is no substitute: it answers `NXDOMAIN` to a query for IPv6 addresses of a name that has IPv4 ones, which makes
//! musl's resolver find nothing, and refuses every query that is not for addresses. So queries take their usual way, and who asks for more is
//! told.

use super::json::Json;
use std::collections::BTreeMap;

/// The annotation with settings of a Pod's own proxy.
const CONFIG: &str = "proxy.istio.io/config";
/// The environment variable by which Istio's agent captures DNS; the metadata of its node has it as `DNS_CAPTURE`.
const CAPTURE: &str = "ISTIO_META_DNS_CAPTURE";
/// What a template mentions that brings something to answer queries.
pub(super) const MENTIONED: [&str; 2] = [CAPTURE, "DNS_CAPTURE"];

/// What to tell of a Pod whose annotations ask for DNS capture.
pub(super) fn warning(annotations: &BTreeMap<&str, &str>) -> Option<String> {
    let written = annotations.get(CONFIG)?;
    let warning = |why: &str| Some(format!("metadata.annotations[{CONFIG:?}]: {why}"));
    let config: Option<Json> = match serde_saphyr::from_str(written) {
        Ok(config) => config,
        Err(_) => return warning("not YAML; the sidecar does not read it"),
    };
    let is_asked_for = match config?.at(&["proxyMetadata", CAPTURE])? {
        Json::Bool(asked) => *asked,
        Json::Text(text) => matches!(text.as_str(), "true" | "1"),
        Json::Number(number) => number.as_u64() == Some(1),
        _ => false,
    };
    if !is_asked_for {
        return None;
    }
    warning(&format!(
        "proxyMetadata.{CAPTURE}: not captured: the sidecar is an Envoy without Istio's agent; names are resolved as without a sidecar"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_capture_is_told_that_there_is_none() {
        let of = |config: &str| warning(&BTreeMap::from([(CONFIG, config)]));
        for asks in [
            "proxyMetadata: {ISTIO_META_DNS_CAPTURE: \"true\"}",
            "concurrency: 2\nproxyMetadata:\n  ISTIO_META_DNS_CAPTURE: true\n  ISTIO_META_DNS_AUTO_ALLOCATE: 'true'",
            r#"{"proxyMetadata": {"ISTIO_META_DNS_CAPTURE": 1}}"#,
        ] {
            let warning = of(asks).unwrap_or_default();
            assert!(
                warning.contains("proxyMetadata.ISTIO_META_DNS_CAPTURE: not captured"),
                "{asks}: {warning}"
            );
            // The API server cuts longer ones.
            assert!(warning.len() <= 256, "{} bytes", warning.len());
        }
        for does_not in [
            "",
            "concurrency: 2",
            "proxyMetadata: {ISTIO_META_DNS_CAPTURE: 'false'}",
            "proxyMetadata: []",
            "7",
        ] {
            assert_eq!(of(does_not), None, "{does_not}");
        }
        assert!(of("{").unwrap_or_default().contains("not YAML"));
        assert_eq!(warning(&BTreeMap::new()), None);
    }
}
