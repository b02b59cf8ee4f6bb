//! Services of an application: the metadata of a revision (`/dubbo/metadata/APPLICATION/REVISION`), and the
//! applications that provide an interface (`/dubbo/mapping/INTERFACE`).

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of services of one revision; more are ignored.
const MAX_SERVICES: usize = 10_000;
/// Maximum number of applications of one interface; more are ignored.
const MAX_APPLICATIONS: usize = 1_000;

/// Metadata of one revision of an application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Metadata {
    pub(crate) services: Vec<Provided>,
}

/// An interface that an application provides over one protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Provided {
    pub(crate) interface: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) protocol: String,
    /// Port of the service; 0 for the instance's port of the protocol.
    pub(crate) port: u16,
    /// Parameters of the provider's URL.
    pub(crate) parameters: BTreeMap<String, String>,
}

/// A node is not valid metadata.
#[derive(Debug, thiserror::Error)]
#[error("it is no metadata of Dubbo: {0}")]
pub(crate) struct MetadataError(#[from] serde_json::Error);

#[derive(Deserialize)]
struct Written {
    #[serde(default)]
    services: BTreeMap<String, WrittenService>,
}

#[derive(Deserialize)]
struct WrittenService {
    name: String,
    #[serde(default)]
    group: Option<String>,
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    protocol: Option<String>,
    #[serde(default)]
    port: Option<i64>,
    #[serde(default)]
    params: BTreeMap<String, Option<String>>,
}

impl Metadata {
    /// Parses the data of a node.
    pub(crate) fn parse(data: &[u8]) -> Result<Self, MetadataError> {
        let written: Written = serde_json::from_slice(data)?;
        Ok(Self {
            services: written.services.into_values().take(MAX_SERVICES).map(WrittenService::read).collect(),
        })
    }
}

impl WrittenService {
    fn read(self) -> Provided {
        let parameters = self.params.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        Provided {
            interface: self.name,
            group: self.group.unwrap_or_default(),
            version: self.version.unwrap_or_default(),
            protocol: self.protocol.unwrap_or_default().to_ascii_lowercase(),
            port: self.port.and_then(|port| u16::try_from(port).ok()).unwrap_or_default(),
            parameters,
        }
    }
}

/// Parses a mapping node: application names separated by commas.
pub(crate) fn mapped_applications(data: &[u8]) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(data);
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty() && !name.contains('/'));
    names.take(MAX_APPLICATIONS).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_name_each_interface_by_each_protocol() {
        let text = r#"{"app":"a","revision":"f47","services":{
            "g1/org.example.Greeter:1.2.0:tri":{"group":"g1","name":"org.example.Greeter","params":{"weight":"200","zone":"a","none":null},
              "path":"org.example.Greeter","port":21051,"protocol":"tri","version":"1.2.0"},
            "org.example.Other:dubbo":{"name":"org.example.Other","params":{},"protocol":"dubbo"}}}"#;
        let metadata = Metadata::parse(text.as_bytes()).unwrap();
        let [greeter, other] = metadata.services.as_slice() else { panic!("{metadata:?}") };
        assert_eq!((greeter.interface.as_str(), greeter.group.as_str()), ("org.example.Greeter", "g1"));
        assert_eq!(
            (greeter.version.as_str(), greeter.protocol.as_str(), greeter.port),
            ("1.2.0", "tri", 21051)
        );
        assert_eq!(greeter.parameters.keys().collect::<Vec<_>>(), ["weight", "zone"]);
        assert_eq!((other.protocol.as_str(), other.port), ("dubbo", 0));
        for text in ["", "{", "7", r#"{"services":{"x":{}}}"#] {
            assert!(Metadata::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_mapping_is_a_list_of_names() {
        let names = |text: &str| mapped_applications(text.as_bytes()).into_iter().collect::<Vec<_>>();
        assert_eq!(names("greeter,remoteapp"), ["greeter", "remoteapp"]);
        assert_eq!(names(" b , a,,a"), ["a", "b"]);
        assert_eq!(names(""), Vec::<String>::new());
        assert_eq!(names("../x,ok"), ["ok"]);
    }
}
