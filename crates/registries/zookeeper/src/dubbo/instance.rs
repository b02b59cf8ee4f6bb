//! Instances of applications in the format of Curator's service discovery: JSON in the nodes below
//! `/services/APPLICATION`. Dubbo and Spring Cloud both use it, with different metadata in `payload`.

use serde::Deserialize;
use std::collections::BTreeMap;

/// Maximum number of ports of an instance; more are ignored.
const MAX_PORTS: usize = 32;
/// Metadata key of Dubbo's protocols and ports.
const ENDPOINTS: &str = "dubbo.endpoints";
const REVISION: &str = "dubbo.metadata.revision";
const STORAGE: &str = "dubbo.metadata.storage-type";

/// An instance of an application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Instance {
    /// An IP address or a host name.
    pub(crate) address: String,
    /// Ports, in the order of the node.
    pub(crate) ports: Vec<InstancePort>,
    pub(crate) metadata: BTreeMap<String, String>,
}

/// A port of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InstancePort {
    /// Dubbo's name of the protocol; `None` if unknown.
    pub(crate) protocol: Option<String>,
    pub(crate) number: u16,
}

/// Error of a node that is not a valid instance.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InstanceError {
    /// Invalid JSON or not an instance of Curator.
    #[error("it is no instance of Curator's service discovery: {0}")]
    Json(#[from] serde_json::Error),
    /// The instance has no address.
    #[error("it has no address")]
    NoAddress,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    #[serde(default)]
    address: Option<String>,
    #[serde(default)]
    port: Option<i64>,
    #[serde(default)]
    ssl_port: Option<i64>,
    #[serde(default)]
    payload: serde_json::Value,
}

#[derive(Deserialize)]
struct WrittenEndpoint {
    port: i64,
    #[serde(default)]
    protocol: String,
}

impl Instance {
    /// Parses the data of a node.
    pub(crate) fn parse(data: &[u8]) -> Result<Self, InstanceError> {
        let written: Written = serde_json::from_slice(data)?;
        let address =
            written.address.filter(|address| !address.is_empty()).ok_or(InstanceError::NoAddress)?;
        let metadata = metadata(&written.payload);
        let mut ports: Vec<InstancePort> = match metadata.get(ENDPOINTS) {
            Some(listed) => {
                let listed: Vec<WrittenEndpoint> = serde_json::from_str(listed)?;
                listed.into_iter().filter_map(WrittenEndpoint::port).collect()
            }
            None => {
                let secure = InstancePort::of(written.ssl_port, Some("https".to_owned()));
                InstancePort::of(written.port, None).into_iter().chain(secure).collect()
            }
        };
        ports.truncate(MAX_PORTS);
        Ok(Self { address, ports, metadata })
    }

    /// True if Dubbo registered the instance.
    pub(crate) fn is_dubbo(&self) -> bool {
        self.metadata.contains_key(ENDPOINTS) || self.metadata.contains_key(REVISION)
    }

    /// Returns the metadata revision if its metadata is stored in ZooKeeper; `None` for `0`, the revision of
    /// an instance without services.
    pub(crate) fn stored_revision(&self) -> Option<&str> {
        let stored = self.metadata.get(STORAGE).is_some_and(|storage| storage == "remote");
        self.metadata.get(REVISION).map(String::as_str).filter(|revision| stored && is_revision(revision))
    }

    /// True if the instance may receive requests. Spring Cloud writes its status into the metadata.
    pub(crate) fn is_up(&self) -> bool {
        self.metadata.get("instance_status").is_none_or(|status| status.eq_ignore_ascii_case("UP"))
    }
}

/// True if the revision is a single path segment, as it names a node.
fn is_revision(text: &str) -> bool {
    !text.is_empty()
        && text != "0"
        && text.len() <= 128
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

impl WrittenEndpoint {
    fn port(self) -> Option<InstancePort> {
        InstancePort::of(Some(self.port), Some(self.protocol).filter(|name| !name.is_empty()))
    }
}

impl InstancePort {
    fn of(number: Option<i64>, protocol: Option<String>) -> Option<Self> {
        let number = number.and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0)?;
        Some(Self { protocol: protocol.map(|name| name.to_ascii_lowercase()), number })
    }
}

/// Returns the metadata of a payload: numbers and booleans as text; other values are skipped.
fn metadata(payload: &serde_json::Value) -> BTreeMap<String, String> {
    let listed = payload.get("metadata").and_then(serde_json::Value::as_object);
    let text = |(key, value): (&String, &serde_json::Value)| match value {
        serde_json::Value::String(text) => Some((key.clone(), text.clone())),
        serde_json::Value::Number(number) => Some((key.clone(), number.to_string())),
        serde_json::Value::Bool(switch) => Some((key.clone(), switch.to_string())),
        _ => None,
    };
    listed.into_iter().flatten().filter_map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DUBBO: &str = r#"{"name":"greeter","id":"192.0.2.2:21880","address":"192.0.2.2","port":21880,"sslPort":null,"payload":
        {"@class":"org.apache.dubbo.registry.zookeeper.ZookeeperInstance","id":"192.0.2.2:21880","name":"greeter","metadata":
        {"dubbo.endpoints":"[{\"port\":21880,\"protocol\":\"dubbo\"},{\"port\":21051,\"protocol\":\"tri\"}]",
        "dubbo.metadata.revision":"ae861431","dubbo.metadata.storage-type":"remote","timestamp":"1795374480493"}},
        "registrationTimeUTC":1795374481009,"serviceType":"DYNAMIC","uriSpec":null}"#;

    #[test]
    fn an_instance_of_dubbo_has_the_ports_of_its_protocols() {
        let instance = Instance::parse(DUBBO.as_bytes()).unwrap();
        let ports: Vec<_> =
            instance.ports.iter().map(|port| (port.protocol.as_deref(), port.number)).collect();
        assert_eq!(ports, [(Some("dubbo"), 21880), (Some("tri"), 21051)]);
        assert_eq!((instance.is_dubbo(), instance.stored_revision()), (true, Some("ae861431")));
        let local = DUBBO.replace("remote", "local");
        assert_eq!(Instance::parse(local.as_bytes()).unwrap().stored_revision(), None);
        let path = DUBBO.replace("ae861431", "../ae");
        assert_eq!(Instance::parse(path.as_bytes()).unwrap().stored_revision(), None);
    }

    #[test]
    fn an_instance_of_spring_cloud_has_its_port_and_status() {
        let text = r#"{"name":"shop","id":"1","address":"10.0.0.9","port":8080,"sslPort":8443,"payload":{"@class":"x","id":"shop-1",
            "name":"shop","metadata":{"instance_status":"OUT_OF_SERVICE","zone":"b","weight":3,"nested":{}}},"serviceType":"DYNAMIC"}"#;
        let instance = Instance::parse(text.as_bytes()).unwrap();
        let ports: Vec<_> =
            instance.ports.iter().map(|port| (port.protocol.as_deref(), port.number)).collect();
        assert_eq!(ports, [(None, 8080), (Some("https"), 8443)]);
        assert!(!instance.is_up() && !instance.is_dubbo());
        assert_eq!(instance.metadata.get("weight").map(String::as_str), Some("3"));
        assert!(!instance.metadata.contains_key("nested"));
        let bare = Instance::parse(br#"{"address":"10.0.0.9","port":80,"payload":null}"#).unwrap();
        assert!(bare.is_up());
        assert_eq!(bare.ports.len(), 1);
    }

    #[test]
    fn what_is_no_instance_is_refused() {
        for text in
            ["", "{", "[]", "null", r#"{"port":80}"#, r#"{"address":"","port":80}"#, r#"{"address":7}"#]
        {
            assert!(Instance::parse(text.as_bytes()).is_err(), "{text}");
        }
        for port in ["-1", "0", "70000", "null"] {
            let text = format!(r#"{{"address":"10.0.0.9","port":{port}}}"#);
            assert_eq!(Instance::parse(text.as_bytes()).unwrap().ports, [], "{text}");
        }
        assert!(Instance::parse(DUBBO.replace("[{", "{").as_bytes()).is_err(), "garbled endpoints");
    }

    proptest! {
        #[test]
        fn truncated_and_garbled_instances_do_not_panic(cut in 0..DUBBO.len(), at in 0..DUBBO.len(), byte: u8) {
            let mut data = DUBBO.as_bytes().to_vec();
            data[at] = byte;
            data.truncate(cut);
            let _ = Instance::parse(&data);
        }
    }
}
