//! JSON messages of Nacos. Fields that are not used are left out.

use pilotfish_nacos_wire::{ServiceInfo, nullable};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// A request without content.
#[derive(Debug, Serialize)]
pub(crate) struct Empty {}

/// The first message on the stream of a connection.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConnectionSetup<'a> {
    pub(crate) client_version: &'a str,
    pub(crate) tenant: &'a str,
    pub(crate) labels: HashMap<&'static str, &'static str>,
    pub(crate) abilities: Empty,
}

/// One page of the names of a group.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceListRequest<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) group_name: &'a str,
    pub(crate) service_name: &'a str,
    pub(crate) page_no: u32,
    pub(crate) page_size: u32,
}

/// Starts or ends a subscription.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SubscribeServiceRequest<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) group_name: &'a str,
    pub(crate) service_name: &'a str,
    pub(crate) subscribe: bool,
    /// Always empty: all clusters.
    pub(crate) clusters: &'static str,
}

/// Common fields of all gRPC answers.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ResultHead {
    pub(crate) result_code: i64,
    pub(crate) error_code: i64,
    pub(crate) message: Option<String>,
}

/// Acknowledgement of a message on the stream.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Acknowledgement<'a> {
    pub(crate) request_id: Option<&'a str>,
    pub(crate) result_code: i64,
    pub(crate) error_code: i64,
    pub(crate) success: bool,
}

/// Common fields of messages on the stream.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PushHead {
    pub(crate) request_id: Option<String>,
}

/// gRPC answer to a list.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceListResponse {
    pub(crate) count: usize,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) service_names: Vec<String>,
}

/// HTTP answer to a list.
#[derive(Debug, Deserialize)]
pub(crate) struct ServiceListBody {
    pub(crate) count: usize,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) doms: Vec<String>,
}

/// gRPC answer to a subscription.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SubscribeServiceResponse {
    pub(crate) service_info: ServiceInfo,
}

/// Push of the instances of a subscribed service.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NotifySubscriberRequest {
    pub(crate) service_info: ServiceInfo,
}

/// Answer to a login.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Login {
    pub(crate) access_token: String,
    pub(crate) token_ttl: u64,
}

/// Response body of `/v1/console/server/state`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct ServerState {
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) version: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_nacos_wire::{SUCCESS, split_name};

    #[test]
    fn an_answer_of_version_2_is_read() {
        // In the shape that Java's server writes, with all its fields.
        let text = r#"{"resultCode":200,"errorCode":0,"message":null,"requestId":"7","success":true,"serviceInfo":{
            "name":"web","groupName":"DEFAULT_GROUP","clusters":"","cacheMillis":10000,"lastRefTime":1700000000000,"checksum":"",
            "allIPs":false,"reachProtectionThreshold":false,"valid":true,"key":"web","keyEncoded":"web","hosts":[
            {"instanceId":null,"ip":"10.0.0.1","port":8080,"weight":1.0,"healthy":true,"enabled":true,"ephemeral":true,
             "clusterName":"DEFAULT","serviceName":"DEFAULT_GROUP@@web","metadata":{"version":"v1","empty":null},
             "instanceHeartBeatInterval":5000,"instanceIdGenerator":"simple","ipDeleteTimeout":30000,"instanceHeartBeatTimeOut":15000}]}}"#;
        let response: SubscribeServiceResponse = serde_json::from_str(text).unwrap();
        let host = &response.service_info.hosts[0];
        assert_eq!((host.ip.as_str(), host.port, host.cluster_name.as_str()), ("10.0.0.1", 8080, "DEFAULT"));
        assert_eq!(host.metadata.get("version"), Some(&Some("v1".to_owned())));
        let head: ResultHead = serde_json::from_str(text).unwrap();
        assert_eq!((head.result_code, head.error_code, head.message), (SUCCESS, 0, None));
    }

    #[test]
    fn an_answer_of_version_1_is_read() {
        let text = r#"{"hosts":[{"ip":"10.0.0.1","port":80,"valid":true,"healthy":true,"marked":false,"instanceId":"x","metadata":{},
            "enabled":true,"weight":2,"clusterName":"c","serviceName":"web","ephemeral":true}],"dom":"web","name":"DEFAULT_GROUP@@web",
            "cacheMillis":3000,"lastRefTime":1,"checksum":"c","useSpecifiedURL":false,"clusters":"","env":"","metadata":{}}"#;
        let info: ServiceInfo = serde_json::from_str(text).unwrap();
        assert_eq!(split_name(&info.group_name, &info.name), ("DEFAULT_GROUP", "web"));
        assert_eq!((info.hosts[0].weight, info.reach_protection_threshold), (2.0, false));
        let list: ServiceListBody = serde_json::from_str(r#"{"count":1,"doms":["web"]}"#).unwrap();
        assert_eq!((list.count, list.doms), (1, vec!["web".to_owned()]));
    }

    #[test]
    fn an_answer_without_instances_is_none() {
        for text in
            ["{}", r#"{"hosts":null}"#, r#"{"name":"web"}"#, r#"{"hosts":[{"ip":"10.0.0.1"}]}"#, "[]", ""]
        {
            assert!(serde_json::from_str::<ServiceInfo>(text).is_err(), "{text}");
        }
        assert!(serde_json::from_str::<ServiceListBody>("{}").is_err());
        assert!(serde_json::from_str::<SubscribeServiceResponse>(r#"{"serviceInfo":null}"#).is_err());
    }
}
