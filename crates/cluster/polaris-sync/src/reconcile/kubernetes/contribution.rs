//! Conversion of one Service with its slices and Pods.

use super::ObjectName;
use super::annotations::{Options, version};
use crate::reconcile::{DesiredService, Instance, Place, ServiceKey, Target, Text};
use pilotfish_config::kubernetes::{
    AddressType, Endpoint, EndpointPort, EndpointSlice, Service, TransportProtocol,
};
use pilotfish_model::{Labels, Typed};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of problems kept for one Service; more are only counted.
const MOST_PROBLEMS: usize = 10;

/// Result of converting a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contribution {
    /// Service name in the other registry.
    pub(super) target: ServiceKey,
    /// `None` if the service cannot exist in the other registry.
    pub(super) service: Option<DesiredService>,
    /// The Pods of its endpoints.
    pub(super) pods: BTreeSet<ObjectName>,
    /// One line per problem.
    pub(super) problems: Vec<String>,
}

/// Slices and Pods of a Service.
pub(super) struct Endpoints<'a> {
    pub(super) slices: Vec<&'a Typed<EndpointSlice>>,
    pub(super) pods: &'a BTreeMap<ObjectName, Labels>,
}

/// Returns the desired services and problems of a Service.
pub(super) fn contribution(
    target: &dyn Target,
    service: &Typed<Service>,
    endpoints: &Endpoints<'_>,
) -> Contribution {
    let (namespace, name) = (service.namespace().as_str(), service.name());
    let (options, problems) = Options::read(namespace, name, &service.meta().annotations);
    let mut maker = Maker { target, options, namespace: namespace.into(), problems, pods: BTreeSet::new() };
    let made = maker.service(service, endpoints);
    let Maker { options, mut problems, pods, .. } = maker;
    if problems.len() > MOST_PROBLEMS {
        let more = problems.len() - MOST_PROBLEMS;
        problems.truncate(MOST_PROBLEMS);
        problems.push(format!("and {more} more of this kind"));
    }
    Contribution { target: options.target, service: made, pods, problems }
}

struct Maker<'a> {
    target: &'a dyn Target,
    options: Options,
    namespace: Text,
    problems: Vec<String>,
    pods: BTreeSet<ObjectName>,
}

impl Maker<'_> {
    fn service(&mut self, service: &Typed<Service>, endpoints: &Endpoints<'_>) -> Option<DesiredService> {
        if let Err(problem) = self.target.check_service(&self.options.target) {
            self.problems.push(format!("{problem}; the Service is not synced"));
            return None;
        }
        let alias = self.options.alias.clone().filter(|alias| match self.target.check_service(&alias.0) {
            Ok(()) => true,
            Err(problem) => {
                self.problems.push(format!("alias {alias}: {problem}; there is no alias"));
                false
            }
        });
        let labels = service.meta().labels.iter();
        let mut made = DesiredService {
            metadata: labels.map(|(key, value)| (key.clone(), value.clone())).collect(),
            ports: service.spec.ports.iter().map(|port| port.port).collect(),
            aliases: alias.into_iter().collect(),
            instances: BTreeMap::new(),
        };
        self.problems.extend(self.target.fit_service(&mut made));
        if self.options.registers {
            made.instances = self.instances(endpoints);
        }
        Some(made)
    }

    fn instances(&mut self, endpoints: &Endpoints<'_>) -> BTreeMap<Place, Instance> {
        let mut made = BTreeMap::new();
        for slice in &endpoints.slices {
            if slice.address_type == AddressType::Fqdn {
                self.problems
                    .push(format!("EndpointSlice {}: names are no addresses; it is left out", slice.name()));
                continue;
            }
            for endpoint in &slice.endpoints {
                self.endpoint(endpoint, &slice.ports, endpoints.pods, &mut made);
            }
        }
        made
    }

    fn endpoint(
        &mut self,
        endpoint: &Endpoint,
        ports: &[EndpointPort],
        pods: &BTreeMap<ObjectName, Labels>,
        made: &mut BTreeMap<Place, Instance>,
    ) {
        let pod = endpoint.target_ref.as_ref().filter(|target| target.kind == "Pod").map(|target| {
            let own = target.namespace.is_empty();
            let namespace = if own { self.namespace.clone() } else { target.namespace.as_str().into() };
            ObjectName::new(namespace, target.name.as_str())
        });
        let labels = pod.as_ref().and_then(|pod| pods.get(pod)).cloned().unwrap_or_default();
        // A missing condition counts as ready.
        let ready = endpoint.conditions.ready.unwrap_or(true);
        // Additional addresses lead to the same endpoint.
        let Some(address) = endpoint.addresses.first() else { return };
        for port in ports {
            let Some(number) = port.port.filter(|number| *number > 0) else { continue };
            let place = Place::new(address.clone(), number);
            let mut metadata = self.options.metadata.clone();
            metadata.extend(labels.iter().map(|(key, value)| (key.clone(), value.clone())));
            let mut instance = Instance {
                protocol: protocol(port),
                version: version(&metadata),
                weight: self.options.weight(pod.as_ref().map(|pod| &*pod.name), number),
                ready,
                ttl: self.options.ttl,
                metadata,
            };
            match self.target.fit_instance(&place, &mut instance) {
                Ok(problems) => {
                    self.problems.extend(problems.into_iter().map(|text| format!("{place}: {text}")))
                }
                Err(problem) => {
                    self.problems.push(format!("{place}: {problem}; it is not registered"));
                    continue;
                }
            }
            merge(made, place, instance);
        }
        self.pods.extend(pod);
    }
}

/// Adds an instance. Each place is one instance: if two ports have the same number, or an endpoint is in two
/// slices while it moves, the first protocol in order wins, and the instance is ready if either is.
fn merge(made: &mut BTreeMap<Place, Instance>, place: Place, instance: Instance) {
    let ready = instance.ready;
    let kept = made.entry(place).or_insert_with(|| instance.clone());
    let ready = kept.ready || ready;
    if (&instance.protocol, &instance.version) < (&kept.protocol, &kept.version) {
        *kept = instance;
    }
    kept.ready = ready;
}

fn protocol(port: &EndpointPort) -> Text {
    let transport = match port.protocol {
        TransportProtocol::Tcp => "TCP",
        TransportProtocol::Udp => "UDP",
        TransportProtocol::Sctp => "SCTP",
    };
    format!("{}/{transport}", port.name).into()
}
