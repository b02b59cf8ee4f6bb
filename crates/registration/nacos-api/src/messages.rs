//! Contents of gRPC messages. Fields that are not used are left out.

use pilotfish_nacos_wire::{Host, ServiceInfo, nullable};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Request of a client about one service.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NamingRequest {
    #[serde(deserialize_with = "nullable")]
    pub(crate) request_id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) namespace: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) group_name: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) service_name: String,
    /// `registerInstance`, `deregisterInstance` or `batchRegisterInstance`.
    #[serde(rename = "type", deserialize_with = "nullable")]
    pub(crate) action: String,
    pub(crate) instance: Option<Host>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) instances: Vec<Host>,
    pub(crate) subscribe: bool,
    #[serde(deserialize_with = "nullable")]
    pub(crate) clusters: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) cluster: String,
    pub(crate) healthy_only: bool,
    pub(crate) page_no: usize,
    pub(crate) page_size: usize,
}

/// Push of the instances of a subscribed service.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NotifySubscriber {
    pub(crate) request_id: String,
    pub(crate) namespace: String,
    pub(crate) group_name: String,
    pub(crate) service_name: String,
    pub(crate) service_info: ServiceInfo,
    pub(crate) module: &'static str,
}

/// An answer: its type and its own fields.
pub(crate) struct Answer {
    pub(crate) kind: &'static str,
    pub(crate) fields: Map<String, Value>,
}

impl Answer {
    pub(crate) fn new(kind: &'static str, fields: Value) -> Self {
        let fields = if let Value::Object(fields) = fields { fields } else { Map::new() };
        Self { kind, fields }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_clients_are_read() {
        let text = r#"{"headers":{},"requestId":null,"namespace":"public","serviceName":"web","groupName":"G",
            "instance":{"instanceId":null,"ip":"10.0.0.1","port":80,"weight":1.0,"healthy":true,"enabled":true,
            "ephemeral":true,"clusterName":null,"serviceName":null,"metadata":{"a":"b"},
            "instanceHeartBeatInterval":5000},"type":"registerInstance","module":"naming"}"#;
        let request: NamingRequest = serde_json::from_str(text).unwrap();
        assert_eq!((&*request.action, &*request.group_name), ("registerInstance", "G"));
        assert_eq!(request.instance.map(|host| host.ip).as_deref(), Some("10.0.0.1"));
        let text =
            r#"{"namespace":null,"serviceName":"web","clusters":null,"subscribe":true,"instances":null}"#;
        let request: NamingRequest = serde_json::from_str(text).unwrap();
        assert!(request.subscribe && request.instances.is_empty() && request.clusters.is_empty());
    }
}
