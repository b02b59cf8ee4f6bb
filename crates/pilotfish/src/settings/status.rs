//! Writing of status and of allocated addresses to objects.

use super::check::Check;
use clap::Args;
use pilotfish_config::status::{CONTROLLERS, Controllers};
use pilotfish_kube_writer::status::AddressRanges;
use serde::{Deserialize, Serialize};

#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[command(next_help_heading = "Status and addresses")]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct StatusArgs {
    /// Objects that get a status, written by one replica: off (none), gateway-api (and Ingress), all (also
    /// Istio's kinds: what is wrong with them) [default: gateway-api]
    #[arg(long, env = "PILOTFISH_WRITE_STATUS", value_name = "MODE")]
    pub(crate) write_status: Option<String>,
    /// Controllers whose Gateways and routes get a status; beside a running istiod, name
    /// pilotfish.io/gateway-controller alone
    /// [default: istio.io/gateway-controller,pilotfish.io/gateway-controller]
    #[arg(long, env = "PILOTFISH_STATUS_CONTROLLERS", value_name = "NAME", value_delimiter = ',')]
    pub(crate) status_controllers: Vec<String>,
    /// Allocation of addresses for hosts of ServiceEntries without one: status (one replica writes them to
    /// the entries' status, as istiod does), name (each process computes them from the names), off (only
    /// addresses that a status already has count) [default: status where status is written, else name]
    #[arg(long, env = "PILOTFISH_ALLOCATE_ADDRESSES", value_name = "MODE")]
    pub(crate) allocate_addresses: Option<String>,
    /// The ranges of those addresses [default: 240.240.0.0/16,2001:2::/48]
    #[arg(long, env = "PILOTFISH_ALLOCATION_RANGES", value_name = "IPV4,IPV6")]
    pub(crate) allocation_ranges: Option<String>,
}

/// Writing of status and of allocated addresses to objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatusSettings {
    pub(crate) write: WriteStatus,
    /// Controllers whose Gateways and routes get a status.
    pub(crate) controllers: Controllers,
    /// Ranges for addresses of ServiceEntries' hosts in their status; `None` if addresses are not written
    /// there.
    pub(crate) address_ranges: Option<AddressRanges>,
    /// True if each process computes addresses from the names of hosts instead.
    pub(crate) addresses_by_name: bool,
}

/// Kinds whose status is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WriteStatus {
    /// Status is not written.
    Off,
    /// The Gateway API's kinds, and Ingress.
    #[default]
    GatewayApi,
    /// Also that of Istio's kinds, which istiod leaves alone by default.
    All,
}

/// Allocator of addresses for hosts of ServiceEntries without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allocation {
    /// The replica that leads, in the status of entries.
    Status,
    /// Each process, from the names.
    Name,
    Off,
}

impl StatusArgs {
    pub(super) fn check(self, reads_cluster: bool, check: &mut Check) -> StatusSettings {
        let write = check.parse("--write-status", self.write_status.as_deref(), WriteStatus::parse);
        let write = write.unwrap_or_default();
        let writes = reads_cluster && write != WriteStatus::Off;
        let ranges = check.parse("--allocation-ranges", self.allocation_ranges.as_deref(), ranges);
        let allocation =
            check.parse("--allocate-addresses", self.allocate_addresses.as_deref(), |mode| match mode {
                "name" => Ok(Allocation::Name),
                "off" => Ok(Allocation::Off),
                "status" if writes => Ok(Allocation::Status),
                "status" => Err("needs --kubernetes, and a --write-status that is not off".into()),
                _ => Err("not one of status, name and off".into()),
            });
        let allocation = allocation.unwrap_or(if writes { Allocation::Status } else { Allocation::Name });
        StatusSettings {
            write,
            controllers: controllers(&self.status_controllers, check),
            address_ranges: (allocation == Allocation::Status).then(|| ranges.unwrap_or_default()),
            addresses_by_name: allocation == Allocation::Name,
        }
    }
}

impl WriteStatus {
    fn parse(mode: &str) -> Result<Self, String> {
        match mode {
            "off" => Ok(Self::Off),
            "gateway-api" => Ok(Self::GatewayApi),
            "all" => Ok(Self::All),
            _ => Err("not one of off, gateway-api and all".into()),
        }
    }
}

fn controllers(names: &[String], check: &mut Check) -> Controllers {
    if names.is_empty() {
        return Controllers::default();
    }
    Controllers::of(names.iter().map(String::as_str)).unwrap_or_else(|| {
        let known = format!("not of {}", CONTROLLERS.join(", "));
        check.wrong("--status-controllers", &names.join(","), &known);
        Controllers::default()
    })
}

fn ranges(text: &str) -> Result<AddressRanges, String> {
    let parts = text.split_once(',');
    parts.and_then(|(v4, v6)| AddressRanges::parse(v4.trim(), v6.trim())).ok_or_else(|| {
        "not a range for IPv4 and one for IPv6 with room for two addresses each, as in \
         240.240.0.0/16,2001:2::/48"
            .into()
    })
}

#[cfg(test)]
mod tests {
    use super::super::{ServeArgs, SourceArgs};
    use super::*;
    use pilotfish_registry::RegistryTable;

    fn of(kubernetes: bool, status: StatusArgs) -> Result<(Option<AddressRanges>, bool), String> {
        let sources = SourceArgs { paths: vec![".".into()], kubernetes, ..SourceArgs::default() };
        let args = ServeArgs { sources, status, ..ServeArgs::default() };
        let settings = args.check(RegistryTable::default()).map_err(|mistakes| mistakes.to_string())?;
        Ok((settings.status.address_ranges, settings.registries.settings.allocate_addresses))
    }

    #[test]
    fn addresses_are_written_where_status_is() {
        let default = StatusArgs::default;
        let off = || StatusArgs { write_status: Some("off".into()), ..default() };
        let with =
            |args: StatusArgs, mode: &str| StatusArgs { allocate_addresses: Some(mode.into()), ..args };
        let status = Some(AddressRanges::default());
        assert_eq!(of(false, default()), Ok((None, true)));
        assert_eq!(of(true, default()), Ok((status, false)));
        assert_eq!(of(true, off()), Ok((None, true)));
        assert_eq!(of(true, with(default(), "name")), Ok((None, true)));
        assert_eq!(of(true, with(default(), "off")), Ok((None, false)));
        assert_eq!(of(false, with(default(), "off")), Ok((None, false)));
        for (kubernetes, args, expected) in [
            (false, with(default(), "status"), "needs --kubernetes"),
            (true, with(off(), "status"), "needs --kubernetes"),
            (true, with(default(), "always"), "not one of status, name and off"),
        ] {
            let mistakes = of(kubernetes, args).unwrap_err();
            assert!(mistakes.contains(expected), "{mistakes}");
        }
    }

    #[test]
    fn ranges_have_room() {
        let of = |text: &str| {
            of(true, StatusArgs { allocation_ranges: Some(text.into()), ..StatusArgs::default() })
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
