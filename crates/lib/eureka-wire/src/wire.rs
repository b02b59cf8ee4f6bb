//! Eureka's JSON responses: applications with their instances.
//!
//! Two serializers of this JSON exist: the older one writes a single application or instance as an object
//! instead of a list, and numbers and booleans as strings. Both forms are read. An invalid instance is
//! skipped alone.

use pilotfish_runtime::one_line;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;

/// Maximum number of unreadable instances in a report.
const MAX_REPORTED: usize = 10;

/// A response of `/apps` or `/apps/delta`.
#[derive(Debug, Default, PartialEq)]
pub struct Applications {
    /// The server's instance counts by status. `None` if it sent no hash.
    pub hash: Option<String>,
    /// The instances, in the order of the response.
    pub instances: Vec<InstanceInfo>,
    /// Problems of instances that were skipped.
    pub unreadable: Vec<String>,
}

/// An instance as registered.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstanceInfo {
    pub instance_id: Text,
    pub host_name: Text,
    pub app: Text,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub app_group_name: Text,
    pub ip_addr: Text,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub sid: Text,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub status: Text,
    // Both spellings occur; a struct with an alias would refuse the second one as a duplicate.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub overridden_status: Text,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub overriddenstatus: Text,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<PortInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secure_port: Option<PortInfo>,
    #[serde(skip_serializing_if = "Text::is_empty", serialize_with = "number")]
    pub country_id: Text,
    pub data_center_info: DataCenterInfo,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_info: Option<LeaseInfo>,
    pub metadata: Metadata,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub home_page_url: Text,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub status_page_url: Text,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub health_check_url: Text,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub secure_health_check_url: Text,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub vip_address: Text,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub secure_vip_address: Text,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub is_coordinating_discovery_server: Text,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub last_updated_timestamp: Text,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub last_dirty_timestamp: Text,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub action_type: Text,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub asg_name: Text,
}

/// Data center of an instance.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct DataCenterInfo {
    /// The Java class that clients decode it with.
    #[serde(rename = "@class", skip_serializing_if = "Text::is_empty")]
    pub class: Text,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub name: Text,
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
}

/// Lease of an instance, as its client asks for it. Times are seconds, timestamps milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseInfo {
    #[serde(skip_serializing_if = "Text::is_empty", serialize_with = "number")]
    pub renewal_interval_in_secs: Text,
    #[serde(skip_serializing_if = "Text::is_empty", serialize_with = "number")]
    pub duration_in_secs: Text,
    #[serde(skip_serializing_if = "Text::is_empty", serialize_with = "number")]
    pub registration_timestamp: Text,
    #[serde(skip_serializing_if = "Text::is_empty", serialize_with = "number")]
    pub last_renewal_timestamp: Text,
    #[serde(skip_serializing_if = "Text::is_empty", serialize_with = "number")]
    pub eviction_timestamp: Text,
    #[serde(skip_serializing_if = "Text::is_empty", serialize_with = "number")]
    pub service_up_timestamp: Text,
}

/// A port and its enabled flag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortInfo {
    pub number: u32,
    pub enabled: bool,
}

/// A text, also read from a number, a boolean or null.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord, Clone, Serialize)]
pub struct Text(pub String);

/// Metadata without the serializer's `@class` entry.
#[derive(Debug, Default, PartialEq, Eq, Clone, Serialize)]
pub struct Metadata(pub BTreeMap<String, String>);

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    applications: Body<'a>,
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(rename = "apps__hashcode")]
    hash: Option<Text>,
    #[serde(borrow, default)]
    application: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Application<'a> {
    #[serde(default)]
    name: Text,
    #[serde(borrow, default)]
    instance: Option<&'a RawValue>,
}

impl Applications {
    /// Parses a response.
    ///
    /// # Errors
    /// When the envelope is invalid.
    pub fn read(json: &[u8]) -> Result<Self, serde_json::Error> {
        let body = serde_json::from_slice::<Envelope<'_>>(json)?.applications;
        let mut read = Self { hash: body.hash.map(|hash| hash.0), ..Self::default() };
        for application in list(body.application)? {
            let application: Application<'_> = serde_json::from_str(application.get())?;
            for instance in list(application.instance)? {
                match serde_json::from_str::<InstanceInfo>(instance.get()) {
                    Ok(mut instance) => {
                        if instance.app.0.is_empty() {
                            instance.app = application.name.clone();
                        }
                        read.instances.push(instance);
                    }
                    Err(error) if read.unreadable.len() < MAX_REPORTED => {
                        let application = one_line(&application.name.0);
                        read.unreadable.push(format!("an instance of {application}: {error}"));
                    }
                    Err(_) => {}
                }
            }
        }
        Ok(read)
    }
}

/// Returns the items of a list; a single object counts as a list of one, null as empty.
fn list(raw: Option<&RawValue>) -> Result<Vec<&RawValue>, serde_json::Error> {
    match raw {
        None => Ok(Vec::new()),
        Some(raw) if raw.get().starts_with('[') => serde_json::from_str(raw.get()),
        Some(raw) if raw.get() == "null" => Ok(Vec::new()),
        Some(raw) => Ok(vec![raw]),
    }
}

impl Text {
    /// True for an absent or empty text.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl Metadata {
    /// True if there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Writes a number as a number, and any other text as a text.
fn number<S: Serializer>(text: &Text, serializer: S) -> Result<S::Ok, S::Error> {
    match text.0.parse::<i64>() {
        Ok(number) => serializer.serialize_i64(number),
        Err(_) => serializer.serialize_str(&text.0),
    }
}

impl Serialize for PortInfo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut port = serializer.serialize_struct("PortInfo", 2)?;
        port.serialize_field("$", &self.number)?;
        port.serialize_field("@enabled", if self.enabled { "true" } else { "false" })?;
        port.end()
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Scalar;
        impl Visitor<'_> for Scalar {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a number")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.to_owned()))
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }
            fn visit_f64<E: Error>(self, number: f64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }
            fn visit_bool<E: Error>(self, is: bool) -> Result<Text, E> {
                Ok(Text(is.to_string()))
            }
            fn visit_unit<E: Error>(self) -> Result<Text, E> {
                Ok(Text::default())
            }
        }
        deserializer.deserialize_any(Scalar)
    }
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = Metadata;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("texts by name")
            }
            fn visit_unit<E: Error>(self) -> Result<Metadata, E> {
                Ok(Metadata::default())
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Metadata, E> {
                match text.trim() {
                    "" => Ok(Metadata::default()),
                    _ => Err(E::invalid_type(serde::de::Unexpected::Str(text), &self)),
                }
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Metadata, A::Error> {
                let mut metadata = BTreeMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name.starts_with('@') {
                        map.next_value::<IgnoredAny>()?;
                    } else {
                        metadata.insert(name, map.next_value::<Text>()?.0);
                    }
                }
                Ok(Metadata(metadata))
            }
        }
        deserializer.deserialize_any(Map)
    }
}

impl<'de> Deserialize<'de> for PortInfo {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Shape {
            #[serde(rename = "$")]
            number: Text,
            #[serde(rename = "@enabled")]
            enabled: Option<Text>,
        }
        let shape = Shape::deserialize(deserializer)?;
        let number: u32 = shape.number.0.parse().map_err(|_| D::Error::custom("a port is no number"))?;
        // Old clients omit the flag of an enabled port.
        Ok(Self { number, enabled: shape.enabled.is_none_or(|enabled| enabled.0 == "true") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the server of Spring Cloud Netflix 4.2.1 writes an instance of its client.
    const SPRING: &str = r#"{"applications":{"versions__delta":"1","apps__hashcode":"UP_1_","application":[
        {"name":"ORDERS","instance":[{"instanceId":"orders-1","hostName":"localhost","app":"ORDERS",
        "ipAddr":"127.0.0.1","status":"UP","overriddenStatus":"UNKNOWN","port":{"$":18080,"@enabled":"true"},
        "securePort":{"$":443,"@enabled":"false"},"countryId":1,
        "dataCenterInfo":{"@class":"com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo","name":"MyOwn"},
        "leaseInfo":{"renewalIntervalInSecs":30,"durationInSecs":90,"registrationTimestamp":1795374715649,
        "lastRenewalTimestamp":1795374715649,"evictionTimestamp":0,"serviceUpTimestamp":1795374715648},
        "metadata":{"zone":"z1","management.port":"18080"},"homePageUrl":"http://localhost:18080/",
        "vipAddress":"Orders","secureVipAddress":"Orders","isCoordinatingDiscoveryServer":"false",
        "lastUpdatedTimestamp":"1795374715649","lastDirtyTimestamp":"1795374715603","actionType":"ADDED"}]}]}}"#;

    fn text(text: &str) -> Text {
        Text(text.to_owned())
    }

    #[test]
    fn what_springs_server_writes_is_read() {
        let read = Applications::read(SPRING.as_bytes()).expect("it is an answer");
        assert_eq!(read.hash.as_deref(), Some("UP_1_"));
        assert_eq!(read.unreadable, [""; 0]);
        let [instance] = &read.instances[..] else { panic!("{read:?}") };
        assert_eq!(instance.instance_id, text("orders-1"));
        assert_eq!(instance.app, text("ORDERS"));
        assert_eq!(instance.overridden_status, text("UNKNOWN"));
        assert_eq!(instance.port, Some(PortInfo { number: 18080, enabled: true }));
        assert_eq!(instance.secure_port, Some(PortInfo { number: 443, enabled: false }));
        assert_eq!(instance.metadata.0.get("zone").map(String::as_str), Some("z1"));
        assert_eq!(instance.action_type, text("ADDED"));
    }

    #[test]
    fn objects_in_place_of_lists_and_texts_in_place_of_numbers_are_read() {
        let read = Applications::read(
            br#"{"applications":{"versions__delta":1,"apps__hashcode":"UP_1_","application":{"name":"A","instance":
            {"hostName":"h","port":{"@enabled":true,"$":"8080"},"securePort":{"$":8443,"@enabled":false},
            "overriddenstatus":"OUT_OF_SERVICE","metadata":{"@class":"java.util.Collections$EmptyMap","weight":3,"on":true},
            "dataCenterInfo":{"@class":"x","name":"Amazon","metadata":{"availability-zone":"us-east-1c"}}}}}}"#,
        )
        .expect("it is an answer");
        let [instance] = &read.instances[..] else { panic!("{read:?}") };
        assert_eq!(instance.app, text("A"), "of the application around it");
        assert_eq!(instance.port, Some(PortInfo { number: 8080, enabled: true }));
        assert_eq!(instance.overriddenstatus, text("OUT_OF_SERVICE"));
        let metadata: Vec<_> = instance.metadata.0.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(metadata, [("on", "true"), ("weight", "3")]);
        let zone = instance.data_center_info.metadata.0.get("availability-zone");
        assert_eq!(zone.map(String::as_str), Some("us-east-1c"));
    }

    #[test]
    fn both_spellings_of_the_overridden_status_may_stand_side_by_side() {
        let read = Applications::read(
            br#"{"applications":{"application":[{"name":"A","instance":[
            {"overriddenStatus":"DOWN","overriddenstatus":"DOWN"}]}]}}"#,
        );
        assert_eq!(read.expect("it is an answer").instances.len(), 1);
    }

    #[test]
    fn nothing_is_there_in_every_spelling_of_nothing() {
        for body in ["", r#","application":[]"#, r#","application":null"#, r#","application":{"name":"A"}"#] {
            let json = format!(r#"{{"applications":{{"apps__hashcode":""{body}}}}}"#);
            let read = Applications::read(json.as_bytes()).expect(&json);
            assert_eq!((read.hash.as_deref(), read.instances.len()), (Some(""), 0), "{json}");
        }
    }

    #[test]
    fn an_instance_without_sense_costs_that_instance() {
        let read = Applications::read(
            br#"{"applications":{"application":[{"name":"A","instance":[{"instanceId":"1"},{"instanceId":[]},
            {"instanceId":"2","port":{"$":"x"}},{"instanceId":"3"}]}]}}"#,
        )
        .expect("it is an answer");
        let ids: Vec<_> = read.instances.iter().map(|instance| &*instance.instance_id.0).collect();
        assert_eq!(ids, ["1", "3"]);
        assert_eq!(read.unreadable.len(), 2);
        assert!(
            read.unreadable[1].starts_with("an instance of A: a port is no number"),
            "{:?}",
            read.unreadable
        );
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        let cases: [&[u8]; 6] =
            [b"", b"{}", b"[]", b"<applications/>", b"{\"applications\":7}", b"{\"applications\":{\"appl"];
        for json in cases {
            assert!(Applications::read(json).is_err(), "{json:?}");
        }
        for end in 1..SPRING.len() {
            assert!(Applications::read(&SPRING.as_bytes()[..end]).is_err(), "cut after {end}");
        }
    }
}
