//! Validation of registrations: every field is checked once, here.

mod checks;
mod names;
mod ports;
#[cfg(test)]
mod tests;
mod texts;

use crate::limits::{MAX_ADDRESSES, MAX_DRAIN, MAX_REMOVE_AFTER, MAX_TTL, MAX_WEIGHT, MIN_TTL};
use crate::{Instance, InstanceKey, Registration, Violations};
use pilotfish_model::{Locality, SpecialAddress};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub use names::{check_host, check_short_host, instance_key, service_key};
pub use texts::is_label;

impl Registration {
    /// Validates the registration and converts it to an instance. `domain` is that of the cluster
    /// (`cluster.local`): `web` in namespace `default` and `web.default.svc.cluster.local` are the same
    /// service.
    ///
    /// # Errors
    /// All invalid fields.
    pub fn validate(self, domain: &str) -> Result<Instance, Violations> {
        let mut wrong = Violations::default();
        let key = instance_key(&self.namespace, &self.service, &self.id, domain).unwrap_or_else(|part| {
            wrong.extend(part);
            InstanceKey::new("", "", "")
        });
        if let Err(message) = check_host(&key.service_key(), domain) {
            wrong.add("service", message);
        }
        let addresses = addresses(&self.addresses, &mut wrong);
        let ports = ports::ports(&self.ports, &mut wrong);
        let checks = checks::checks(self.checks, &ports, &mut wrong);
        let labels = texts::labels(self.labels, &mut wrong);
        let metadata = texts::metadata(self.metadata, &mut wrong);
        let locality = locality(&self.locality, &mut wrong);
        let network = texts::name("network", self.network, &mut wrong);
        let service_account = texts::service_account(self.service_account, &mut wrong);
        between("ttl", self.ttl.unwrap_or(MIN_TTL), MIN_TTL, MAX_TTL, &mut wrong);
        between("drain", self.drain, Duration::ZERO, MAX_DRAIN, &mut wrong);
        let remove_after = self.remove_after;
        between(
            "remove_after",
            remove_after.unwrap_or_default(),
            Duration::ZERO,
            MAX_REMOVE_AFTER,
            &mut wrong,
        );
        if self.weight > MAX_WEIGHT {
            wrong.add("weight", format!("{} is more than {MAX_WEIGHT}", self.weight));
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let (weight, healthy, ttl, drain) = (self.weight, self.healthy, self.ttl, self.drain);
        Ok(Instance {
            key,
            addresses,
            ports,
            labels,
            metadata,
            locality,
            network,
            weight,
            healthy,
            service_account,
            ttl,
            checks,
            drain,
            remove_after,
        })
    }
}

/// Validates addresses: unicast and without duplicates. Loopback is accepted here, for a mesh on one machine;
/// the caller decides.
fn addresses(given: &[String], wrong: &mut Violations) -> Vec<IpAddr> {
    if given.is_empty() {
        wrong.add("addresses", "at least one IP address is needed");
    }
    if given.len() > MAX_ADDRESSES {
        wrong.add("addresses", format!("{} addresses are more than {MAX_ADDRESSES}", given.len()));
        return Vec::new();
    }
    let mut addresses = Vec::with_capacity(given.len());
    for (index, text) in given.iter().enumerate() {
        match address(text) {
            Ok(address) if addresses.contains(&address) => {
                wrong.add(format!("addresses[{index}]"), format!("{address} is there twice"));
            }
            Ok(address) => addresses.push(address),
            Err(message) => wrong.add(format!("addresses[{index}]"), message),
        }
    }
    addresses
}

fn address(text: &str) -> Result<IpAddr, String> {
    let address: IpAddr = text
        .parse()
        .map_err(|_| format!("{} is no IP address: names are not resolved", texts::short(text)))?;
    match SpecialAddress::of(address) {
        None | Some(SpecialAddress::Loopback) => Ok(address.to_canonical()),
        Some(special) => Err(format!("{address} is {special}: others do not reach an instance there")),
    }
}

fn locality(text: &str, wrong: &mut Violations) -> Locality {
    let parts = text.split('/').count();
    if parts > 3 {
        wrong.add("locality", format!("{parts} parts: region/zone/sub_zone is all that there is"));
    }
    if let Err(message) = texts::printable(text, crate::limits::MAX_TEXT_BYTES) {
        wrong.add("locality", message);
    }
    let mut parts = text.split('/').map(Arc::from);
    let mut part = || parts.next().unwrap_or_default();
    Locality { region: part(), zone: part(), sub_zone: part() }
}

fn between(field: &str, given: Duration, least: Duration, most: Duration, wrong: &mut Violations) {
    if given < least || given > most {
        wrong.add(field, format!("{given:?} is not between {least:?} and {most:?}"));
    }
}
