//! Instances, decoded from their registrations.

use crate::wire::{InstanceInfo, PortInfo};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Status of an instance. Unknown texts become [`Status::Unknown`], as in Netflix's client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    // Sorted by name, which is the order in the hash.
    Down,
    OutOfService,
    Starting,
    #[default]
    Unknown,
    Up,
}

impl Status {
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text {
            "DOWN" => Self::Down,
            "OUT_OF_SERVICE" => Self::OutOfService,
            "STARTING" => Self::Starting,
            "UP" => Self::Up,
            _ => Self::Unknown,
        }
    }

    /// Returns the name, as in `OUT_OF_SERVICE`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Down => "DOWN",
            Self::OutOfService => "OUT_OF_SERVICE",
            Self::Starting => "STARTING",
            Self::Unknown => "UNKNOWN",
            Self::Up => "UP",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Hash of a list of instances: their numbers by status, as in `DOWN_1_UP_3_`.
#[must_use]
pub fn hash(counts: &BTreeMap<Status, usize>) -> String {
    counts.iter().map(|(status, count)| format!("{status}_{count}_")).collect()
}

/// Identity of an instance: the application and the id within it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstanceKey {
    pub app: Arc<str>,
    pub id: Arc<str>,
}

/// A decoded instance.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    pub key: InstanceKey,
    /// The status counted by the hash.
    pub status: Status,
    /// The status set by an operator.
    pub overridden: Status,
    pub ip: String,
    pub host_name: String,
    /// Port, if it is enabled (`port.@enabled`).
    pub port: Option<u32>,
    pub secure_port: Option<u32>,
    /// Virtual addresses in lower case, without ports.
    pub vips: Vec<String>,
    pub secure_vips: Vec<String>,
    pub metadata: BTreeMap<String, String>,
    /// Region; empty if unknown.
    pub region: Arc<str>,
    /// Zone; empty if unknown.
    pub zone: Arc<str>,
}

impl InstanceInfo {
    /// Returns the id: its own, else the cloud's, else the host name, in the order of Netflix's client.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        let of_cloud = self.data_center_info.metadata.0.get("instance-id").map(String::as_str);
        let ids = [&*self.instance_id.0, of_cloud.unwrap_or_default(), &*self.host_name.0];
        ids.into_iter().find(|id| !id.is_empty())
    }

    /// Returns the status set by an operator; [`Status::Unknown`] for none.
    #[must_use]
    pub fn overridden(&self) -> Status {
        let texts = [&self.overridden_status.0, &self.overriddenstatus.0];
        let mut statuses = texts.into_iter().map(|text| Status::parse(text));
        statuses.find(|status| *status != Status::Unknown).unwrap_or_default()
    }
}

impl Instance {
    /// Decodes a registration. Returns `None` if it has no identity.
    #[must_use]
    pub fn read(info: InstanceInfo) -> Option<Self> {
        let id = info.id()?.to_owned();
        if info.app.0.is_empty() {
            return None;
        }
        let overridden = info.overridden();
        let (region, zone) = locality(&info.metadata.0, &info.data_center_info.metadata.0);
        let metadata = info.metadata.0;
        Some(Self {
            // Clients may register in any case, and the server compares in upper case.
            key: InstanceKey { app: info.app.0.to_uppercase().into(), id: id.into() },
            status: Status::parse(&info.status.0),
            overridden,
            ip: info.ip_addr.0,
            host_name: info.host_name.0,
            port: enabled(info.port),
            secure_port: enabled(info.secure_port),
            vips: vips(&info.vip_address.0),
            secure_vips: vips(&info.secure_vip_address.0),
            metadata,
            region: region.into(),
            zone: zone.into(),
        })
    }

    /// True if the instance takes traffic. The server copies an operator's override into the status; for
    /// servers that do not, the override is checked here, too.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.status == Status::Up && matches!(self.overridden, Status::Unknown | Status::Up)
    }
}

fn enabled(port: Option<PortInfo>) -> Option<u32> {
    port.filter(|port| port.enabled && (1..=65535).contains(&port.number)).map(|port| port.number)
}

/// Virtual addresses: several are separated by commas, and each may have a port, which is the port of the
/// instance.
fn vips(text: &str) -> Vec<String> {
    let names = text.split(',').map(|vip| vip.split(':').next().unwrap_or_default().trim().to_lowercase());
    let mut vips: Vec<String> = names.filter(|vip| !vip.is_empty()).collect();
    vips.sort();
    vips.dedup();
    vips
}

/// The zone is `zone` of the metadata, as with Spring Cloud, else the cloud's; the region is `region` of the
/// metadata, else that of an availability zone of Amazon.
fn locality(metadata: &BTreeMap<String, String>, cloud: &BTreeMap<String, String>) -> (String, String) {
    let available = cloud.get("availability-zone");
    let zone = metadata.get("zone").or(available).cloned().unwrap_or_default();
    let region = metadata.get("region").cloned();
    let region = region.or_else(|| available.and_then(|zone| region_of(zone)).map(str::to_owned));
    (region.unwrap_or_default(), zone)
}

/// Returns the region in `us-east-1c`: the part before the letter.
fn region_of(zone: &str) -> Option<&str> {
    let region = zone.strip_suffix(|last: char| last.is_ascii_lowercase())?;
    region.ends_with(|last: char| last.is_ascii_digit()).then_some(region)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{DataCenterInfo, Metadata, Text};

    fn text(text: &str) -> Text {
        Text(text.to_owned())
    }

    fn metadata(entries: &[(&str, &str)]) -> Metadata {
        Metadata(entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    /// An instance that is up, as its registration.
    fn info(app: &str, id: &str) -> InstanceInfo {
        InstanceInfo {
            instance_id: text(id),
            app: text(app),
            ip_addr: text("10.0.0.1"),
            host_name: text("host-1"),
            status: text("UP"),
            overridden_status: text("UNKNOWN"),
            port: Some(PortInfo { number: 8080, enabled: true }),
            secure_port: Some(PortInfo { number: 443, enabled: false }),
            ..InstanceInfo::default()
        }
    }

    fn read(info: InstanceInfo) -> Instance {
        Instance::read(info).expect("it has a name")
    }

    #[test]
    fn an_instance_takes_traffic_when_it_is_up_and_nobody_ordered_otherwise() {
        for (status, overridden, is_up) in [
            ("UP", "UNKNOWN", true),
            ("UP", "", true),
            ("UP", "UP", true),
            ("UP", "OUT_OF_SERVICE", false),
            ("UP", "DOWN", false),
            ("OUT_OF_SERVICE", "OUT_OF_SERVICE", false),
            ("DOWN", "UNKNOWN", false),
            // The order of an operator does not start what has not started.
            ("STARTING", "UP", false),
            ("UNKNOWN", "UNKNOWN", false),
            ("up", "UNKNOWN", false),
            ("", "", false),
        ] {
            let info =
                InstanceInfo { status: text(status), overridden_status: text(overridden), ..info("A", "1") };
            assert_eq!(read(info).is_up(), is_up, "{status} {overridden}");
        }
        let old = InstanceInfo { overriddenstatus: text("OUT_OF_SERVICE"), ..info("A", "1") };
        assert!(!read(old).is_up());
    }

    #[test]
    fn the_id_is_its_own_or_the_clouds_or_the_host_name() {
        let cloud =
            || DataCenterInfo { metadata: metadata(&[("instance-id", "i-7")]), ..DataCenterInfo::default() };
        let info = || InstanceInfo { data_center_info: cloud(), ..info("a", "") };
        assert_eq!(&*read(InstanceInfo { instance_id: text("x"), ..info() }).key.id, "x");
        assert_eq!(&*read(info()).key.id, "i-7");
        assert_eq!(
            &*read(InstanceInfo { data_center_info: DataCenterInfo::default(), ..info() }).key.id,
            "host-1"
        );
        let nameless = InstanceInfo {
            data_center_info: DataCenterInfo::default(),
            host_name: Text::default(),
            ..info()
        };
        assert_eq!(Instance::read(nameless), None);
        assert_eq!(&*read(info()).key.app, "A", "in capitals, as with the server");
        assert_eq!(Instance::read(InstanceInfo { app: Text::default(), ..info() }), None);
    }

    #[test]
    fn only_ports_that_are_on_and_are_ports_count() {
        let port = |number, enabled| enabled_of(PortInfo { number, enabled });
        assert_eq!(
            [port(80, true), port(80, false), port(0, true), port(70_000, true)],
            [Some(80), None, None, None]
        );
        fn enabled_of(port: PortInfo) -> Option<u32> {
            enabled(Some(port))
        }
    }

    #[test]
    fn virtual_addresses_are_lists_with_ports() {
        assert_eq!(vips("Orders"), ["orders"]);
        assert_eq!(vips("b.example.net:7001, a,,b.example.net"), ["a", "b.example.net"]);
        assert_eq!(vips(""), [""; 0]);
    }

    #[test]
    fn the_locality_is_what_the_metadata_or_the_cloud_says() {
        for (own, cloud, expected) in [
            (&[][..], &[][..], ("", "")),
            (&[("zone", "z1")], &[], ("", "z1")),
            (&[("zone", "z1"), ("region", "r")], &[("availability-zone", "us-east-1c")], ("r", "z1")),
            (&[], &[("availability-zone", "us-east-1c")], ("us-east-1", "us-east-1c")),
            (&[], &[("availability-zone", "rack7")], ("", "rack7")),
            (&[], &[("availability-zone", "abc")], ("", "abc")),
        ] {
            let found = locality(&metadata(own).0, &metadata(cloud).0);
            assert_eq!((&*found.0, &*found.1), expected, "{own:?} {cloud:?}");
        }
    }
}
