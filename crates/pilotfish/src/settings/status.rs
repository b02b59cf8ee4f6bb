//! What is written to the status of objects.

use super::{Check, Written};
use pilotfish_config::status::{CONTROLLERS, Controllers};
use pilotfish_kube_writer::status::AddressRanges;

/// Whose status is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteStatus {
    /// Nobody's.
    Off,
    /// That of the Gateway API and of Ingresses.
    #[default]
    GatewayApi,
    /// Also that of Istio's kinds, which istiod leaves alone by default.
    All,
}

/// Who gives addresses to hosts of ServiceEntries that have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allocation {
    /// The replica that leads, in the status of entries.
    Status(AddressRanges),
    /// Each process, from the names.
    ByName,
    /// Nobody.
    Off,
}

impl Allocation {
    pub(super) fn ranges(self) -> Option<AddressRanges> {
        match self {
            Self::Status(ranges) => Some(ranges),
            Self::ByName | Self::Off => None,
        }
    }
}

impl Check {
    /// Whose status is written, and who gives addresses.
    pub(super) fn status(&mut self, written: &Written) -> (WriteStatus, Allocation) {
        let write_status = self.write_status(written.write_status.as_deref());
        (write_status, self.allocation(written, write_status))
    }

    fn write_status(&mut self, text: Option<&str>) -> WriteStatus {
        match text {
            None => WriteStatus::default(),
            Some("off") => WriteStatus::Off,
            Some("gateway-api") => WriteStatus::GatewayApi,
            Some("all") => WriteStatus::All,
            Some(other) => {
                self.wrong("--write-status", other, "not one of off, gateway-api and all");
                WriteStatus::default()
            }
        }
    }

    pub(super) fn status_controllers(&mut self, names: &[String]) -> Controllers {
        if names.is_empty() {
            return Controllers::default();
        }
        Controllers::of(names.iter().map(String::as_str)).unwrap_or_else(|| {
            self.wrong(
                "--status-controllers",
                &names.join(","),
                &format!("not of {}", CONTROLLERS.join(", ")),
            );
            Controllers::default()
        })
    }

    fn allocation(&mut self, written: &Written, status: WriteStatus) -> Allocation {
        const NAME: &str = "--allocate-addresses";
        let ranges = self.allocation_ranges(written.allocation_ranges.as_deref());
        let writes = written.kubernetes && status != WriteStatus::Off;
        match written.allocate_addresses.as_deref() {
            None if writes => Allocation::Status(ranges),
            None | Some("name") => Allocation::ByName,
            Some("off") => Allocation::Off,
            Some("status") => {
                if !writes {
                    self.wrong(NAME, "status", "needs --kubernetes, and a --write-status that is not off");
                }
                Allocation::Status(ranges)
            }
            Some(other) => {
                self.wrong(NAME, other, "not one of status, name and off");
                Allocation::ByName
            }
        }
    }

    fn allocation_ranges(&mut self, text: Option<&str>) -> AddressRanges {
        let Some(text) = text else { return AddressRanges::default() };
        let parts = text.split_once(',');
        let ranges = parts.and_then(|(v4, v6)| AddressRanges::parse(v4.trim(), v6.trim()));
        ranges.unwrap_or_else(|| {
            self.wrong(
                "--allocation-ranges",
                text,
                "not a range for IPv4 and one for IPv6 with room for two addresses each, as in 240.240.0.0/16,2001:2::/48",
            );
            AddressRanges::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(written: Written) -> Result<(Option<AddressRanges>, bool), String> {
        let settings = written.check().map_err(|mistakes| mistakes.to_string())?;
        Ok((settings.allocation_ranges, settings.registry.allocate_addresses))
    }

    #[test]
    fn addresses_are_written_where_status_is() {
        let files = || Written { paths: vec![".".into()], ..Written::default() };
        let live = || Written { kubernetes: true, ..Written::default() };
        let with =
            |written: Written, mode: &str| Written { allocate_addresses: Some(mode.into()), ..written };
        let status = Some(AddressRanges::default());
        assert_eq!(of(files()), Ok((None, true)));
        assert_eq!(of(live()), Ok((status, false)));
        assert_eq!(of(Written { write_status: Some("off".into()), ..live() }), Ok((None, true)));
        assert_eq!(of(with(live(), "name")), Ok((None, true)));
        assert_eq!(of(with(live(), "off")), Ok((None, false)));
        assert_eq!(of(with(files(), "off")), Ok((None, false)));
        for (written, told) in [
            (with(files(), "status"), "needs --kubernetes"),
            (with(Written { write_status: Some("off".into()), ..live() }, "status"), "needs --kubernetes"),
            (with(live(), "always"), "not one of status, name and off"),
        ] {
            let mistakes = of(written).unwrap_err();
            assert!(mistakes.contains(told), "{mistakes}");
        }
    }

    #[test]
    fn ranges_have_room() {
        let of = |text: &str| {
            of(Written { kubernetes: true, allocation_ranges: Some(text.into()), ..Written::default() })
        };
        let ranges = AddressRanges::parse("10.200.0.0/20", "fd00::/64");
        assert!(ranges.is_some());
        assert_eq!(of("10.200.0.0/20, fd00::/64"), Ok((ranges, false)));
        for bad in
            ["10.0.0.0/8", "fd00::/64,10.0.0.0/8", "10.0.0.1/32,fd00::/64", "10.0.0.0/8,fd00::/127", "a,b"]
        {
            assert!(of(bad).unwrap_err().contains("--allocation-ranges"), "{bad}");
        }
    }
}
