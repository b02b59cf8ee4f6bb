//! Mapping of applications and instances to services, endpoints and labels.

use pilotfish_eureka_wire::Instance;
use pilotfish_model::{HealthStatus, Locality, Namespace};
use pilotfish_registry::{CatalogInstance, CatalogPort, CatalogService, InstancePort};
use std::sync::Arc;

/// Grouping of instances into services.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum By {
    /// By name of the application (`app`).
    #[default]
    App,
    /// By virtual address, which several applications may share.
    Vip,
}

/// Source of endpoint addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AddressOf {
    /// `ipAddr` of the instance.
    #[default]
    Ip,
    /// `hostName` of the instance.
    HostName,
}

/// Options of the mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) by: By,
    pub(crate) address: AddressOf,
    /// Domain appended to names without a dot, so that they become host names for rules.
    pub(crate) domain: String,
    /// Default region of instances.
    pub(crate) region: String,
    pub(crate) namespace: Namespace,
}

impl By {
    /// Returns the services of an instance.
    pub(crate) fn services(self, instance: &Instance) -> Vec<Arc<str>> {
        match self {
            Self::App => vec![instance.key.app.clone()],
            Self::Vip => {
                let mut names: Vec<&str> =
                    instance.vips.iter().chain(&instance.secure_vips).map(String::as_str).collect();
                names.sort_unstable();
                names.dedup();
                names.into_iter().map(Arc::from).collect()
            }
        }
    }
}

impl Mapping {
    /// Returns the service of these instances.
    pub(crate) fn service<'a>(
        &self,
        name: &Arc<str>,
        instances: impl Iterator<Item = &'a Arc<Instance>>,
    ) -> CatalogService {
        let mut service = CatalogService::new(name.clone(), self.host(name), self.namespace.clone());
        service.instances = instances.filter_map(|instance| self.instance(name, instance)).collect();
        service
    }

    fn host(&self, name: &str) -> String {
        let name = name.to_lowercase();
        // A virtual address may be a full host name.
        let is_full = self.by == By::Vip && name.contains('.');
        if is_full || self.domain.is_empty() { name } else { format!("{name}.{}", self.domain) }
    }

    /// Returns the endpoint of an instance, or `None` if it has no address.
    fn instance(&self, service: &str, instance: &Instance) -> Option<CatalogInstance> {
        let preferred = match self.address {
            AddressOf::Ip => [&instance.ip, &instance.host_name],
            AddressOf::HostName => [&instance.host_name, &instance.ip],
        };
        let address = preferred.into_iter().find(|address| !address.is_empty())?;
        let id = match self.by {
            By::App => instance.key.id.clone(),
            By::Vip => format!("{}/{}", instance.key.app, instance.key.id).into(),
        };
        let mut mapped = CatalogInstance::new(id, address.as_str());
        mapped.ports = self.ports(service, instance);
        mapped.labels = instance.metadata.clone();
        mapped.labels.entry("app".to_owned()).or_insert_with(|| instance.key.app.to_lowercase());
        mapped.locality = self.locality(instance);
        // The metadata key of Spring Cloud LoadBalancer.
        mapped.weight = instance.metadata.get("weight").and_then(|weight| weight.parse().ok()).unwrap_or(0);
        mapped.health = if instance.is_up() { HealthStatus::Healthy } else { HealthStatus::Unhealthy };
        Some(mapped)
    }

    /// Returns the ports, the plain one first: the option `port` applies to it.
    fn ports(&self, service: &str, instance: &Instance) -> Vec<InstancePort> {
        let is_of = |vips: &[String]| self.by == By::App || vips.iter().any(|vip| vip == service);
        let plain = instance.port.filter(|_| is_of(&instance.vips));
        let secure = instance.secure_port.filter(|_| is_of(&instance.secure_vips));
        let port = |number, protocol: Option<&str>| InstancePort {
            service: CatalogPort { number, name: None, protocol: protocol.map(str::to_owned) },
            number,
        };
        let plain = plain.map(|number| port(number, None));
        let secure = secure.map(|number| port(number, Some("https")));
        plain.into_iter().chain(secure).collect()
    }

    fn locality(&self, instance: &Instance) -> Locality {
        let own = Some(&instance.region).filter(|region| !region.is_empty());
        let region = own.cloned().unwrap_or_else(|| self.region.as_str().into());
        Locality { region, zone: instance.zone.clone(), sub_zone: "".into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{info, metadata, text};
    use pilotfish_eureka_wire::{InstanceInfo, PortInfo};

    fn mapping(by: By) -> Mapping {
        Mapping {
            by,
            address: AddressOf::Ip,
            domain: "eureka".into(),
            region: "home".into(),
            namespace: "default".into(),
        }
    }

    fn read(info: InstanceInfo) -> Arc<Instance> {
        Arc::new(Instance::read(info).expect("it has a name"))
    }

    fn service(mapping: &Mapping, name: &str, infos: Vec<InstanceInfo>) -> CatalogService {
        let instances: Vec<_> = infos.into_iter().map(read).collect();
        mapping.service(&name.into(), instances.iter())
    }

    fn ports(instance: &CatalogInstance) -> Vec<(u32, Option<&str>)> {
        instance.ports.iter().map(|port| (port.number, port.service.protocol.as_deref())).collect()
    }

    #[test]
    fn an_application_is_a_service_below_the_domain() {
        let mut info = info("ORDERS", "o-1");
        info.metadata = metadata(&[("version", "v2"), ("zone", "z1"), ("weight", "7")]);
        let service = service(&mapping(By::App), "ORDERS", vec![info]);
        assert_eq!((&*service.id, &*service.host), ("ORDERS", "orders.eureka"));
        let [instance] = &service.instances[..] else { panic!("{service:?}") };
        assert_eq!((&*instance.id, &instance.addresses[..]), ("o-1", &["10.0.0.1".to_owned()][..]));
        assert_eq!(ports(instance), [(8080, None)]);
        let labels: Vec<_> = instance.labels.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(labels, [("app", "orders"), ("version", "v2"), ("weight", "7"), ("zone", "z1")]);
        assert_eq!((&*instance.locality.region, &*instance.locality.zone), ("home", "z1"));
        assert_eq!((instance.weight, instance.health), (7, HealthStatus::Healthy));
    }

    #[test]
    fn hosts_without_a_domain_and_of_full_names() {
        let bare = Mapping { domain: String::new(), ..mapping(By::App) };
        assert_eq!(bare.host("ORDERS"), "orders");
        assert_eq!(mapping(By::Vip).host("orders"), "orders.eureka");
        assert_eq!(mapping(By::Vip).host("orders.example.net"), "orders.example.net");
        assert_eq!(mapping(By::App).host("ORDERS.V1"), "orders.v1.eureka");
    }

    #[test]
    fn what_is_not_up_stays_and_is_marked() {
        let down = InstanceInfo { status: text("DOWN"), ..info("A", "1") };
        let service = service(&mapping(By::App), "A", vec![down, info("A", "2")]);
        let health: Vec<_> = service.instances.iter().map(|instance| instance.health).collect();
        assert_eq!(health, [HealthStatus::Unhealthy, HealthStatus::Healthy]);
    }

    #[test]
    fn both_ports_count_where_both_are_on() {
        let on = |number| Some(PortInfo { number, enabled: true });
        let both = InstanceInfo { port: on(80), secure_port: on(443), ..info("A", "1") };
        let secure = InstanceInfo { port: None, secure_port: on(8443), ..info("A", "2") };
        let service = service(&mapping(By::App), "A", vec![both, secure]);
        let found: Vec<_> = service.instances.iter().map(ports).collect();
        assert_eq!(found, [vec![(80, None), (443, Some("https"))], vec![(8443, Some("https"))]]);
    }

    #[test]
    fn a_virtual_address_has_the_port_that_it_is_for() {
        let on = |number| Some(PortInfo { number, enabled: true });
        let info = || InstanceInfo {
            port: on(80),
            secure_port: on(443),
            vip_address: text("a,both"),
            secure_vip_address: text("s,both"),
            ..info("A", "1")
        };
        assert_eq!(By::Vip.services(&read(info())), ["a".into(), "both".into(), "s".into()] as [Arc<str>; 3]);
        for (vip, expected) in [("a", &[80][..]), ("s", &[443]), ("both", &[80, 443])] {
            let service = service(&mapping(By::Vip), vip, vec![info()]);
            let [instance] = &service.instances[..] else { panic!("{service:?}") };
            let found: Vec<_> = instance.ports.iter().map(|port| port.number).collect();
            assert_eq!((found, &*instance.id), (expected.to_vec(), "A/1"), "{vip}");
        }
    }

    #[test]
    fn the_address_is_the_one_asked_for_or_the_other() {
        let by_name = Mapping { address: AddressOf::HostName, ..mapping(By::App) };
        let address = |mapping: &Mapping, info| {
            let service = service(mapping, "A", vec![info]);
            service.instances.first().map(|instance| instance.addresses[0].clone())
        };
        assert_eq!(address(&by_name, info("A", "1")).as_deref(), Some("host-1"));
        let nameless = InstanceInfo { host_name: text(""), ..info("A", "1") };
        assert_eq!(address(&by_name, nameless).as_deref(), Some("10.0.0.1"));
        let without = InstanceInfo { host_name: text(""), ip_addr: text(""), ..info("A", "1") };
        assert_eq!(address(&by_name, without), None);
    }

    #[test]
    fn a_weight_that_is_none_is_not_set() {
        for (weight, expected) in
            [("3", 3), ("0", 0), ("-1", 0), ("heavy", 0), ("1.5", 0), ("99999999999", 0)]
        {
            let mut info = info("A", "1");
            info.metadata = metadata(&[("weight", weight)]);
            assert_eq!(service(&mapping(By::App), "A", vec![info]).instances[0].weight, expected, "{weight}");
        }
    }
}
