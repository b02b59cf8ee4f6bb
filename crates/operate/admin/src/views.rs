//! Conversion from the model to the JSON views.

use pilotfish_api as api;
use pilotfish_model::{Endpoint, ExportTo, Object, Origin, Service, ServiceEndpoints, TlsMode, World};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Seconds since the epoch as RFC 3339; empty for 0, which means unknown.
#[must_use]
pub fn time(seconds: i64) -> String {
    if seconds == 0 {
        return String::new();
    }
    jiff::Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
}

/// View of an origin.
#[must_use]
pub fn provenance(from: &Origin) -> api::Provenance {
    match from {
        Origin::Object(from) => api::Provenance {
            kind: from.object.kind.name().to_owned(),
            namespace: from.object.namespace.to_string(),
            name: from.object.name.to_string(),
            cluster: from.cluster.to_string(),
            ..api::Provenance::default()
        },
        Origin::Registered(from) => api::Provenance {
            registry: from.shard.to_string(),
            id: from.id.to_string(),
            cluster: from.shard.cluster.to_string(),
            ..api::Provenance::default()
        },
    }
}

fn texts(list: &[Arc<str>]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

/// All services, by host name and namespace.
pub(crate) fn services(world: &World) -> Vec<api::Service> {
    world.services().flat_map(|(_, services)| services.iter().map(|service| self::service(service))).collect()
}

pub(crate) fn service(service: &Service) -> api::Service {
    let port = |port: &pilotfish_model::Port| api::Port {
        name: port.name.to_string(),
        port: port.number,
        protocol: port.protocol.as_str().to_owned(),
    };
    let export_to = match &service.export_to {
        ExportTo::Unset => vec![],
        ExportTo::Public => vec!["*".to_owned()],
        ExportTo::Nobody => vec!["~".to_owned()],
        ExportTo::Namespaces(namespaces) => namespaces.iter().map(ToString::to_string).collect(),
    };
    api::Service {
        attributes: api::ServiceAttributes {
            service_registry: service.provider.to_string(),
            name: service.name.to_string(),
            namespace: service.namespace.to_string(),
            labels: (&*service.labels).into(),
            export_to,
            label_selectors: (&*service.selector).into(),
        },
        ports: service.ports.iter().map(port).collect(),
        creation_time: time(service.created),
        hostname: service.hostname.to_string(),
        cluster_vips: service
            .addresses
            .iter()
            .map(|(cluster, list)| (cluster.to_string(), texts(list)))
            .collect(),
        default_address: service.default_address.to_string(),
        resolution: service.resolution.as_str().to_owned(),
        mesh_external: service.mesh_external,
        provenance: provenance(&service.provenance),
    }
}

/// Shards by host and namespace, in istiod's format.
pub(crate) type Endpoints = BTreeMap<String, BTreeMap<String, api::EndpointShards>>;

/// Endpoints of all services, or of hosts that contain `host`.
pub(crate) fn endpoints(world: &World, host: Option<&str>) -> Endpoints {
    let mut out = Endpoints::new();
    for (key, endpoints) in world.endpoints() {
        if host.is_none_or(|host| key.hostname.as_str().contains(host)) {
            let namespaces = out.entry(key.hostname.to_string()).or_default();
            namespaces.insert(key.namespace.to_string(), shards(endpoints));
        }
    }
    out
}

fn shards(endpoints: &ServiceEndpoints) -> api::EndpointShards {
    let list = |list: &Arc<[Arc<Endpoint>]>| list.iter().map(|e| endpoint(e)).collect();
    api::EndpointShards {
        shards: endpoints
            .shards
            .iter()
            .map(|(shard, endpoints)| (shard.to_string(), list(endpoints)))
            .collect(),
        service_accounts: endpoints.identities.iter().map(ToString::to_string).collect(),
    }
}

pub(crate) fn endpoint(endpoint: &Endpoint) -> api::Endpoint {
    api::Endpoint {
        addresses: texts(&endpoint.addresses),
        endpoint_port: endpoint.port,
        service_port_name: endpoint.service_port.to_string(),
        labels: (&*endpoint.attributes.labels).into(),
        locality: endpoint.attributes.locality.to_string(),
        network: endpoint.attributes.network.to_string(),
        lb_weight: endpoint.attributes.weight,
        service_account: endpoint.attributes.identity.as_ref().map(ToString::to_string).unwrap_or_default(),
        health_status: endpoint.health.as_str().to_owned(),
        tls_mode: match endpoint.attributes.tls_mode {
            TlsMode::Istio => "istio".to_owned(),
            TlsMode::Disabled => "disabled".to_owned(),
        },
        node_name: endpoint.attributes.node.to_string(),
        workload_name: endpoint.attributes.workload_name.to_string(),
        namespace: endpoint.attributes.namespace.to_string(),
        provenance: provenance(&endpoint.attributes.provenance),
    }
}

/// View of one object with its content as written.
pub(crate) fn object(object: &Object, spec: serde_json::Value) -> api::ConfigObject {
    let meta = &object.meta;
    api::ConfigObject {
        kind: meta.key.kind.name().to_owned(),
        group: meta.key.kind.group().to_owned(),
        metadata: api::ConfigMetadata {
            name: meta.key.name.to_string(),
            namespace: meta.key.namespace.to_string(),
            labels: (&*meta.labels).into(),
            annotations: BTreeMap::clone(&meta.annotations),
            creation_timestamp: time(meta.created),
            origin: meta.origin.to_string(),
        },
        spec,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_are_rfc_3339_and_nothing_when_not_known() {
        assert_eq!(super::time(0), "");
        assert_eq!(super::time(1_700_000_000), "2023-11-14T22:13:20Z");
    }
}
