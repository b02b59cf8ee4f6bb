//! DNS capture, which Pilotfish's sidecars do not support: Istio's agent answers the queries of a Pod, and a
//! stock Envoy has no agent. Envoy's DNS filter cannot replace it: it answers `NXDOMAIN` to a query for IPv6
//! addresses of a name with IPv4 addresses only, so that musl's resolver finds nothing, and refuses all
//! queries that are not for addresses. So queries are not captured, and Pods that ask for it get a warning.

use super::json::Json;
use std::collections::BTreeMap;

/// Annotation with settings of a Pod's own proxy.
const CONFIG: &str = "proxy.istio.io/config";
/// Environment variable that enables DNS capture in Istio's agent; `DNS_CAPTURE` in the metadata of its node.
const CAPTURE: &str = "ISTIO_META_DNS_CAPTURE";
/// Words of templates that bring their own DNS capture.
pub(super) const MENTIONED: [&str; 2] = [CAPTURE, "DNS_CAPTURE"];

/// Warning for a Pod whose annotations ask for DNS capture.
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
        "proxyMetadata.{CAPTURE}: not captured: the sidecar is an Envoy without Istio's agent; names are \
         resolved as without a sidecar"
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
