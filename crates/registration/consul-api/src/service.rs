//! Definitions of services, as clients register them and as they are kept.

use crate::checks::{CheckDefinition, Place};
use crate::fields::Fields;
use pilotfish_registration::limits::{MAX_CHECKS, MAX_REMOVE_AFTER};
use pilotfish_registration_server::Failure;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Minimum time from the lapse of a TTL to the removal, as in Consul.
const MIN_DEREGISTER_AFTER: Duration = Duration::from_secs(60);
/// Maximum weight, as in Consul.
const MAX_WEIGHT: u32 = 65_535;
/// Maximum number of bytes of a definition: far more than of one that is kept.
const MAX_BYTES: usize = 256 << 10;

/// Definition of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Service {
    #[serde(rename = "ID")]
    pub(crate) id: String,
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tags: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) meta: BTreeMap<String, String>,
    /// Address as registered; empty for that of the agent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) address: String,
    pub(crate) port: u32,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) tagged_addresses: BTreeMap<String, TaggedAddress>,
    pub(crate) weights: Weights,
    #[serde(default)]
    pub(crate) enable_tag_override: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) locality: Option<Locality>,
    /// Address of the agent: of the client that registered it.
    pub(crate) node: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) checks: Vec<CheckDefinition>,
    /// Seconds from the lapse of the TTL to the removal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deregister_after: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct TaggedAddress {
    pub(crate) address: String,
    pub(crate) port: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Weights {
    pub(crate) passing: u32,
    pub(crate) warning: u32,
}

impl Default for Weights {
    fn default() -> Self {
        Self { passing: 1, warning: 1 }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Locality {
    pub(crate) region: String,
    pub(crate) zone: String,
}

impl Service {
    /// Reads the body of a registration by the client of this agent.
    pub(crate) fn read(body: &[u8], node: &str) -> Result<Self, Failure> {
        if body.len() > MAX_BYTES {
            let message = format!("the service has {} bytes, more than {MAX_BYTES}", body.len());
            return Err(Failure::invalid(message));
        }
        let mut fields = Fields::of_body(body)?;
        refuse_mesh(&mut fields)?;
        let name = fields.text("Name")?;
        if name.is_empty() {
            return Err(fields.wrong("Name", "a service needs one"));
        }
        let id = Some(fields.text("ID")?).filter(|id| !id.is_empty()).unwrap_or_else(|| name.clone());
        let address = fields.text("Address")?;
        let is_ip = |text: &str| text.parse::<IpAddr>().is_ok();
        if !address.is_empty() && !is_ip(&address) {
            return Err(
                fields.wrong("Address", &format!("{address:?} is no IP address: names are not resolved"))
            );
        }
        let Some(port) = fields.number("Port", 65_535)?.filter(|port| *port > 0) else {
            return Err(fields.wrong("Port", "Envoys reach an instance at a port: it needs one"));
        };
        let mut service = Self {
            tags: fields.texts("Tags")?,
            meta: fields.text_map("Meta")?,
            tagged_addresses: tagged_addresses(&mut fields)?,
            weights: weights(&mut fields)?,
            enable_tag_override: fields.flag("EnableTagOverride")?,
            locality: locality(&mut fields)?,
            node: node.to_owned(),
            id,
            name,
            address,
            port,
            ..Self::default()
        };
        service.read_checks(&mut fields)?;
        Ok(service)
    }

    /// Returns the address where the instance is reached.
    pub(crate) fn place(&self) -> &str {
        if self.address.is_empty() { &self.node } else { &self.address }
    }

    /// Returns the check that the client reports.
    pub(crate) fn ttl_check(&self) -> Option<&CheckDefinition> {
        self.checks.iter().find(|check| check.ttl().is_some())
    }

    /// Returns the time from the lapse of the TTL to the removal.
    pub(crate) fn remove_after(&self) -> Duration {
        self.deregister_after.map_or(MAX_REMOVE_AFTER, Duration::from_secs)
    }

    fn read_checks(&mut self, fields: &mut Fields) -> Result<(), Failure> {
        let mut given: Vec<(String, Fields)> = Vec::new();
        given.extend(fields.nested("Check")?.map(|check| ("Check".to_owned(), check)));
        for (index, value) in fields.list("Checks")?.into_iter().enumerate() {
            let place = format!("Checks[{index}]");
            given.push((place.clone(), Fields::of(value, place)?));
        }
        if given.len() > MAX_CHECKS {
            return Err(fields.wrong("Checks", &format!("{} are more than {MAX_CHECKS}", given.len())));
        }
        let count = given.len();
        let place = Place { address: self.place(), port: self.port };
        let (mut checks, mut after): (Vec<CheckDefinition>, Option<Duration>) = (Vec::new(), None);
        for (index, (at, mut check)) in given.into_iter().enumerate() {
            let own = check.duration("DeregisterCriticalServiceAfter")?.filter(|own| !own.is_zero());
            let service = (&*self.id, &*self.name);
            let check = CheckDefinition::read(check, service, (index + 1, count), &place)?;
            if checks.iter().any(|known| known.id == check.id) {
                return Err(Failure::invalid(format!("{at}.CheckID: {:?} is there twice", check.id)));
            }
            if check.ttl().is_some() {
                if checks.iter().any(|known| known.ttl().is_some()) {
                    return Err(Failure::invalid(format!("{at}.TTL: a service has one check with a TTL")));
                }
                after = own;
            }
            checks.push(check);
        }
        self.checks = checks;
        self.deregister_after =
            after.map(|after| after.clamp(MIN_DEREGISTER_AFTER, MAX_REMOVE_AFTER).as_secs());
        Ok(())
    }
}

/// Refuses services of Consul's own mesh.
fn refuse_mesh(fields: &mut Fields) -> Result<(), Failure> {
    let kind = fields.text("Kind")?;
    if !["", "typical"].contains(&&*kind) {
        return Err(fields.wrong("Kind", "proxies and gateways of Consul's own mesh are not served"));
    }
    fields.refuse("Proxy", "proxies of Consul's own mesh are not served")?;
    fields.refuse("SocketPath", "instances are reached at an address and a port")?;
    if let Some(mut connect) = fields.nested("Connect")? {
        connect.refuse("SidecarService", "proxies of Consul's own mesh are not served")?;
    }
    Ok(())
}

fn tagged_addresses(fields: &mut Fields) -> Result<BTreeMap<String, TaggedAddress>, Failure> {
    let place = fields.place_of("TaggedAddresses");
    let read = |(name, value)| {
        let mut own = Fields::of(value, format!("{place}[{name:?}]"))?;
        let (address, port) = (own.text("Address")?, own.number("Port", 65_535)?.unwrap_or_default());
        Ok((name, TaggedAddress { address, port }))
    };
    fields.map("TaggedAddresses")?.into_iter().map(read).collect()
}

fn weights(fields: &mut Fields) -> Result<Weights, Failure> {
    let Some(mut own) = fields.nested("Weights")? else { return Ok(Weights::default()) };
    let passing = own.number("Passing", MAX_WEIGHT)?.unwrap_or(1);
    let warning = own.number("Warning", MAX_WEIGHT)?.unwrap_or(1);
    if passing == 0 {
        return Err(own.wrong("Passing", "it has to be above zero"));
    }
    Ok(Weights { passing, warning })
}

fn locality(fields: &mut Fields) -> Result<Option<Locality>, Failure> {
    let Some(mut own) = fields.nested("Locality")? else { return Ok(None) };
    let (region, zone) = (own.text("Region")?, own.text("Zone")?);
    for (name, text) in [("Region", &region), ("Zone", &zone)] {
        if text.contains('/') {
            return Err(own.wrong(name, &format!("{text:?} has a slash")));
        }
    }
    Ok(Some(Locality { region, zone }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_value_of_a_field_is_read_or_refused(
            name in "Name|ID|Address|Port|Tags|Meta|TaggedAddresses|Weights|Locality|Check|Checks|Kind|Connect",
            value in r#"null|true|-?[0-9]{1,12}|"\PC{0,5}"|\[\{\}\]|\{"(TTL|HTTP|TCP|Interval)":"?[0-9a-z:/.]{0,9}"?\}"#,
        ) {
            let body = format!(r#"{{"Name":"a","Port":1,"{name}":{value}}}"#);
            if let Ok(service) = Service::read(body.as_bytes(), "10.0.0.9") {
                let text = serde_json::to_string(&service).unwrap();
                prop_assert_eq!(serde_json::from_str::<Service>(&text).unwrap(), service);
            }
        }
    }

    fn read(body: &str) -> Result<Service, String> {
        Service::read(body.as_bytes(), "10.0.0.9").map_err(|failure| failure.message().to_owned())
    }

    #[test]
    fn a_definition_is_read_as_clients_write_it() {
        let full = read(
            r#"{"Name":"web","ID":"web-1","Address":"10.0.0.1","Port":80,"Tags":["a","v|1"],"Meta":{"k":"v"},
            "TaggedAddresses":{"wan":{"Address":"1.2.3.4","Port":90}},"Weights":{"Passing":5,"Warning":2},
            "EnableTagOverride":true,"Locality":{"Region":"r","Zone":"z"},"Connect":{"Native":true},
            "Check":{"TTL":"9s","DeregisterCriticalServiceAfter":"90m"},
            "Checks":[{"TCP":"10.0.0.1:80","Interval":"5s"}]}"#,
        )
        .unwrap();
        assert_eq!((&*full.id, &*full.name, full.place(), full.port), ("web-1", "web", "10.0.0.1", 80));
        assert_eq!(full.tags, ["a", "v|1"]);
        assert_eq!(full.tagged_addresses["wan"].port, 90);
        assert_eq!(full.weights, Weights { passing: 5, warning: 2 });
        let ids: Vec<_> = full.checks.iter().map(|check| &*check.id).collect();
        assert_eq!(ids, ["service:web-1:1", "service:web-1:2"]);
        assert_eq!(full.remove_after(), Duration::from_secs(90 * 60));
        let text = serde_json::to_string(&full).unwrap();
        assert_eq!(serde_json::from_str::<Service>(&text).unwrap(), full);

        let short = read(r#"{"name":"web","port":80,"check":{"ttl":"1s"},"tags":null}"#).unwrap();
        assert_eq!((&*short.id, short.place(), short.weights), ("web", "10.0.0.9", Weights::default()));
        assert_eq!(short.ttl_check().map(|check| &*check.id), Some("service:web"));
        assert_eq!(short.remove_after(), MAX_REMOVE_AFTER, "Consul reaps a lost agent after this time");
        let soon = r#"{"Name":"a","Port":1,"Check":{"TTL":"1s","DeregisterCriticalServiceAfter":"1s"}}"#;
        assert_eq!(read(soon).unwrap().remove_after(), MIN_DEREGISTER_AFTER);
    }

    #[test]
    fn definitions_that_are_not_served_are_refused_with_the_place() {
        let ttl = r#"{"TTL":"1s"}"#;
        let two = format!(r#"{{"Name":"a","Port":1,"Check":{ttl},"Checks":[{ttl}]}}"#);
        let many = format!(r#"{{"Name":"a","Port":1,"Checks":[{}]}}"#, [ttl; 9].join(","));
        let twice = r#"{"Name":"a","Port":1,"Checks":[{"CheckID":"c","TTL":"1s"},
            {"CheckID":"c","TCP":"localhost:1","Interval":"1s"}]}"#;
        for (body, part) in [
            (r#"{"Port":1}"#, "Name: a service needs one"),
            (r#"{"Name":"a"}"#, "Port: Envoys reach"),
            (r#"{"Name":"a","Port":0}"#, "Port: Envoys reach"),
            (r#"{"Name":"a","Port":1,"Address":"web"}"#, "Address: \"web\" is no IP address"),
            (r#"{"Name":"a","Port":1,"Kind":"connect-proxy"}"#, "Kind: proxies and gateways"),
            (r#"{"Name":"a","Port":1,"Connect":{"SidecarService":{"Port":2}}}"#, "Connect.SidecarService"),
            (r#"{"Name":"a","Port":1,"SocketPath":"/x"}"#, "SocketPath"),
            (r#"{"Name":"a","Port":1,"Weights":{"Passing":0}}"#, "Weights.Passing"),
            (r#"{"Name":"a","Port":1,"Meta":{"k":1}}"#, "Meta[\"k\"]: it is no text"),
            (r#"{"Name":"a","Port":1,"Locality":{"Zone":"a/b"}}"#, "Locality.Zone"),
            (
                r#"{"Name":"a","Port":1,"TaggedAddresses":{"lan":"x"}}"#,
                "TaggedAddresses[\"lan\"]: it is no object",
            ),
            (r#"{"Name":"a","Port":1,"Checks":[{}]}"#, "Checks[0].TTL: one of TTL"),
            (&two, "Checks[0].TTL: a service has one check with a TTL"),
            (&many, "Checks: 9 are more than 8"),
            (twice, "Checks[1].CheckID: \"c\" is there twice"),
        ] {
            let error = read(body).unwrap_err();
            assert!(error.starts_with(part), "{body}: {error}");
        }
        let long = " ".repeat(MAX_BYTES + 1);
        assert!(read(&long).unwrap_err().contains("more than 262144"));
    }
}
