//! Labels and annotations that registries read, and the values derived from them.

use pilotfish_model::topology::HOSTNAME as NODE;
pub(crate) use pilotfish_model::topology::{CLUSTER, NETWORK, REGION, SUB_ZONE, ZONE};
use pilotfish_model::{
    ClusterId, HealthStatus, LabelMap, Labels, Locality, NetworkId, TlsMode, TrafficDistribution,
};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

const OLD_REGION: &str = "failure-domain.beta.kubernetes.io/region";
const OLD_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const LOCALITY: &str = "topology.istio.io/locality";
const OLD_LOCALITY: &str = "istio-locality";
const TLS_MODE: &str = "security.istio.io/tlsMode";
const DRAINING: &str = "istio.io/draining";
pub(crate) const WORKLOAD_NAME: &str = "service.istio.io/workload-name";
pub(crate) const TRAFFIC_DISTRIBUTION: &str = "networking.istio.io/traffic-distribution";

/// Keys of the labels that are added to every workload, shared by all workloads.
static PLACE: LazyLock<[Arc<str>; 5]> =
    LazyLock::new(|| [REGION, ZONE, SUB_ZONE, CLUSTER, NODE].map(Arc::from));
static NETWORK_KEY: LazyLock<Arc<str>> = LazyLock::new(|| NETWORK.into());

/// Adds the topology labels to the labels of a workload. A network label that exists stays.
pub(crate) fn augment(
    labels: &LabelMap,
    cluster: &ClusterId,
    locality: &Locality,
    node: &Arc<str>,
    network: &NetworkId,
) -> Labels {
    let Locality { region, zone, sub_zone } = locality.clone();
    let place = PLACE.iter().cloned().zip([region, zone, sub_zone, cluster.clone().into(), node.clone()]);
    let new_network = !network.is_empty() && labels.get(NETWORK).is_none_or(str::is_empty);
    let network = new_network.then(|| (NETWORK_KEY.clone(), network.clone().into()));
    Arc::new(labels.with(place.filter(|(_, value)| !value.is_empty()).chain(network)))
}

/// Returns the locality of a workload's own labels: `region.zone.sub-zone`, with dots or slashes.
pub(crate) fn locality(labels: &LabelMap) -> Option<Locality> {
    let text = [LOCALITY, OLD_LOCALITY].into_iter().find_map(|key| labels.get(key));
    text.filter(|text| !text.is_empty()).map(Locality::parse)
}

/// Returns the locality of a node's labels.
pub(crate) fn node_locality(labels: &LabelMap) -> Locality {
    let first = |keys: [&str; 2]| -> Arc<str> {
        let found = keys.into_iter().find_map(|key| labels.shared(key).filter(|value| !value.is_empty()));
        found.map_or_else(Arc::default, Arc::clone)
    };
    Locality {
        region: first([REGION, OLD_REGION]),
        zone: first([ZONE, OLD_ZONE]),
        sub_zone: first([SUB_ZONE, SUB_ZONE]),
    }
}

/// Returns the TLS mode of the labels; `None` without such a label.
pub(crate) fn tls_mode(labels: &LabelMap) -> Option<TlsMode> {
    let mode = labels.get(TLS_MODE)?;
    Some(if mode == "istio" { TlsMode::Istio } else { TlsMode::Disabled })
}

/// Returns the health of an endpoint: `Draining` with the draining label, unless `health` keeps the endpoint
/// from being sent at all.
pub(crate) fn health(labels: &LabelMap, health: HealthStatus) -> HealthStatus {
    let drains = labels.get(DRAINING).is_some_and(|value| !value.is_empty());
    match health {
        HealthStatus::Terminating | HealthStatus::Deregistering => health,
        _ if drains => HealthStatus::Draining,
        _ => health,
    }
}

/// Returns the traffic distribution of the object's annotation, else of its namespace's. An unknown value
/// counts as none, and hides the namespace's.
pub(crate) fn traffic_distribution(
    object: &BTreeMap<String, String>,
    namespace: Option<&str>,
) -> TrafficDistribution {
    let own = object.get(TRAFFIC_DISTRIBUTION).map(String::as_str).filter(|value| !value.is_empty());
    match own.or(namespace).unwrap_or_default().to_ascii_lowercase().as_str() {
        "preferclose" | "prefersamezone" => TrafficDistribution::PreferSameZone,
        "prefersamenode" => TrafficDistribution::PreferSameNode,
        _ => TrafficDistribution::Any,
    }
}

/// Converts a text. All empty texts share one allocation, because very many values have one.
pub(crate) fn text(text: &str) -> Arc<str> {
    if text.is_empty() { Arc::default() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        Arc::new(pairs.iter().copied().collect())
    }

    #[test]
    fn the_place_is_added_to_labels() {
        let own = labels(&[("app", "web"), (NETWORK, "own")]);
        let locality = Locality::parse("r/z");
        let all = augment(&own, &"c1".into(), &locality, &"node-a".into(), &"other".into());
        let want =
            [("app", "web"), (NODE, "node-a"), (CLUSTER, "c1"), (NETWORK, "own"), (REGION, "r"), (ZONE, "z")];
        assert_eq!(all, labels(&want));
        let none =
            augment(&labels(&[]), &"c1".into(), &Locality::default(), &Arc::default(), &NetworkId::default());
        assert_eq!(none, labels(&[(CLUSTER, "c1")]));
    }

    #[test]
    fn localities_come_from_labels() {
        let text = |labels: Labels| super::locality(&labels).map(|locality| locality.to_string());
        assert_eq!(text(labels(&[("istio-locality", "r.z.s")])).as_deref(), Some("r/z/s"));
        assert_eq!(text(labels(&[(LOCALITY, "a/b"), (OLD_LOCALITY, "r")])).as_deref(), Some("a/b"));
        assert_eq!(text(labels(&[])), None);
        let node = |pairs: &[(&str, &str)]| node_locality(&labels(pairs)).to_string();
        assert_eq!(node(&[(OLD_REGION, "r"), (ZONE, "z"), (SUB_ZONE, "s")]), "r/z/s");
        assert_eq!(node(&[(OLD_ZONE, "z")]), "/z");
        assert_eq!(node(&[]), "");
    }

    #[test]
    fn traffic_distribution_stops_at_the_first_annotation() {
        use TrafficDistribution::{Any, PreferSameNode, PreferSameZone};
        let table = [
            (Some("PreferClose"), None, PreferSameZone),
            (Some("preferSAMEzone"), None, PreferSameZone),
            (Some("PreferSameNode"), Some("PreferClose"), PreferSameNode),
            (None, Some("preferclose"), PreferSameZone),
            (Some("junk"), Some("PreferClose"), Any),
            (Some(""), Some("PreferClose"), PreferSameZone),
            (None, None, Any),
        ];
        for (own, namespace, want) in table {
            let annotation = own.map(|own| (TRAFFIC_DISTRIBUTION.to_owned(), own.to_owned()));
            let object: BTreeMap<String, String> = annotation.into_iter().collect();
            assert_eq!(traffic_distribution(&object, namespace), want, "{own:?} {namespace:?}");
        }
    }
}
