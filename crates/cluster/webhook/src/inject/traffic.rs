//! Traffic of a Pod that its sidecar intercepts: annotations, and parameters of the program that writes the
//! rules.

use super::probes;
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Maximum number of ports or blocks in a list: each is a rule.
const MOST: usize = 256;

/// All, or a list: `*`, or comma-separated entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed<T> {
    All,
    /// These entries; none for an empty text.
    These(BTreeSet<T>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Block {
    address: IpAddr,
    length: u8,
}

impl Block {
    #[must_use]
    pub fn is_ipv6(&self) -> bool {
        self.address.is_ipv6()
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl FromStr for Block {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no block of addresses, as 10.0.0.0/8 is");
        let (address, length) = text.split_once('/').ok_or_else(wrong)?;
        let (address, length) = (address.parse().map_err(|_| wrong())?, length.parse().map_err(|_| wrong())?);
        let longest = if matches!(address, IpAddr::V4(_)) { 32 } else { 128 };
        if length > longest { Err(wrong()) } else { Ok(Self { address, length }) }
    }
}

/// A port number, not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port(u16);

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Port {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = text.parse().ok().filter(|port| *port != 0);
        port.map(Self).ok_or_else(|| format!("{text:?} is no port"))
    }
}

impl<T: FromStr<Err = String> + Ord> FromStr for Listed<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "*" => Ok(Self::All),
            text => Ok(Self::These(list(text)?)),
        }
    }
}

/// Comma-separated entries. Empty ones are ignored.
///
/// # Errors
/// If one is malformed, or there are too many.
pub fn list<T: FromStr<Err = String> + Ord>(text: &str) -> Result<BTreeSet<T>, String> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let entries: BTreeSet<T> = entries.map(str::parse).collect::<Result<_, _>>()?;
    match entries.len() {
        0..=MOST => Ok(entries),
        many => Err(format!("{many} entries, {MOST} at most")),
    }
}

/// An annotation of a Pod, and the validation of its value.
type Annotation = (&'static str, fn(&str) -> Option<String>);

const ANNOTATIONS: [Annotation; 9] = [
    ("sidecar.istio.io/interceptionMode", |text| {
        let known = ["NONE", "REDIRECT", "TPROXY"].iter().any(|mode| text.eq_ignore_ascii_case(mode));
        (!known).then(|| "neither NONE, REDIRECT nor TPROXY".to_owned())
    }),
    ("traffic.sidecar.istio.io/includeOutboundIPRanges", |text| text.parse::<Listed<Block>>().err()),
    ("traffic.sidecar.istio.io/excludeOutboundIPRanges", |text| list::<Block>(text).err()),
    ("traffic.sidecar.istio.io/includeOutboundPorts", |text| list::<Port>(text).err()),
    ("traffic.sidecar.istio.io/excludeOutboundPorts", |text| list::<Port>(text).err()),
    ("traffic.sidecar.istio.io/includeInboundPorts", |text| text.parse::<Listed<Port>>().err()),
    ("traffic.sidecar.istio.io/excludeInboundPorts", |text| list::<Port>(text).err()),
    ("traffic.sidecar.istio.io/excludeInterfaces", |text| list::<Interface>(text).err()),
    (probes::STATUS_PORT_ANNOTATION, probes::wrong_port),
];

/// Name of the template value that an annotation overrides.
pub(crate) fn value_of(annotation: &str) -> &str {
    match annotation.rsplit_once('/').map_or(annotation, |(_, name)| name) {
        "interceptionMode" => "interception",
        "port" => probes::STATUS_PORT_VALUE,
        name => name,
    }
}

/// First invalid annotation: its name, and the reason. A Pod whose rules cannot be written would never start.
pub(crate) fn wrong<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Option<(&'static str, String)> {
    ANNOTATIONS.iter().find_map(|(name, check)| Some((*name, check(annotation(name)?)?)))
}

/// Name of a network interface, or a prefix of names with a `+`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interface(String);

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Interface {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = |c: char| c.is_ascii_alphanumeric() || "._-@+".contains(c);
        let good = (1..16).contains(&text.len()) && text.chars().all(known) && !text.starts_with('-');
        if good { Ok(Self(text.to_owned())) } else { Err(format!("{text:?} is no network interface")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_istio_writes_them() {
        let ports = |text: &str| text.parse::<Listed<Port>>();
        assert_eq!(ports("*"), Ok(Listed::All));
        assert_eq!(ports(""), Ok(Listed::These(BTreeSet::new())));
        assert_eq!(ports("90, 80,,90"), Ok(Listed::These([Port(80), Port(90)].into())));
        for wrong in ["0", "65536", "a", "80-90", "80;90", "-1", "*,80"] {
            assert!(ports(wrong).is_err(), "{wrong}");
        }
        let blocks = list::<Block>("10.0.0.0/8,fd00::/16").unwrap();
        let texts: Vec<_> = blocks.iter().map(|block| (block.to_string(), block.is_ipv6())).collect();
        assert_eq!(texts, [("10.0.0.0/8".to_owned(), false), ("fd00::/16".to_owned(), true)]);
        for wrong in ["10.0.0.0", "10.0.0.0/33", "10.0.0/8", "::/129", "a/8", "10.0.0.0/-1"] {
            assert!(wrong.parse::<Block>().is_err(), "{wrong}");
        }
        for wrong in ["-j ACCEPT", "a b", "an-interface-that-is-too-long", "$(reboot)"] {
            assert!(wrong.parse::<Interface>().is_err(), "{wrong}");
        }
        let many: Vec<_> = (1..=MOST + 1).map(|port| port.to_string()).collect();
        assert!(list::<Port>(&many.join(",")).unwrap_err().contains("257 entries"));
    }

    #[test]
    fn the_annotation_that_is_wrong_is_named() {
        let check = |name: &'static str, value: &'static str| wrong(|key| (key == name).then_some(value));
        assert_eq!(check("traffic.sidecar.istio.io/excludeInboundPorts", "80,443"), None);
        assert_eq!(check("sidecar.istio.io/interceptionMode", "redirect"), None);
        for (name, value) in [
            ("sidecar.istio.io/interceptionMode", "TPROXI"),
            ("traffic.sidecar.istio.io/excludeInboundPorts", "http"),
            ("traffic.sidecar.istio.io/includeOutboundIPRanges", "10.0.0.0"),
            ("traffic.sidecar.istio.io/excludeOutboundIPRanges", "*"),
        ] {
            assert_eq!(check(name, value).map(|(name, _)| name), Some(name), "{name} {value}");
        }
    }
}
