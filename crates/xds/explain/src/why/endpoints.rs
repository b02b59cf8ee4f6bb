//! Endpoints of a cluster, and endpoints of its host that are left out.

use super::cluster::{NO_ORIGINAL_ADDRESS, NOWHERE, Parts, looks_up_hosts};
use super::{Found, Next, Walk, Way, dropped, list, number, origin, step, text};
use pilotfish_api::counted;
use pilotfish_api::v1::{Dropped, Step, Verdict, Why};
use pilotfish_model::{Endpoint, HealthStatus, Hostname, PortId, Service, label_subset};
use pilotfish_proto::ResourceType;
use pilotfish_translate::Unsent;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// One endpoint of an assignment.
struct Member {
    address: String,
    port: u64,
    health: String,
    priority: u64,
    weight: u64,
    locality: String,
    mtls: bool,
}

impl Member {
    fn is_usable(&self) -> bool {
        matches!(self.health.as_str(), "" | "UNKNOWN" | "HEALTHY" | "DEGRADED")
    }

    fn words(&self) -> String {
        let mut notes = vec![if self.health.is_empty() { "HEALTHY".to_owned() } else { self.health.clone() }];
        notes.push(format!("priority {}", self.priority));
        if self.weight > 1 {
            notes.push(format!("weight {}", self.weight));
        }
        if !self.locality.is_empty() {
            notes.push(self.locality.clone());
        }
        format!("{}:{} ({})", self.address, self.port, notes.join(", "))
    }
}

/// Reasons for which endpoints get no requests: they are not sent, or sent and marked as not ready.
fn without_requests(
    considered: Vec<(Arc<Endpoint>, Option<Unsent>)>,
) -> Vec<(Arc<Endpoint>, Option<Unsent>)> {
    let reason = |(endpoint, unsent): (Arc<Endpoint>, Option<Unsent>)| {
        let unready = (endpoint.health == HealthStatus::Unhealthy).then_some(Unsent::Unready);
        (endpoint, unsent.or(unready))
    };
    considered.into_iter().map(reason).collect()
}

impl Walk<'_> {
    pub(super) fn endpoints(&self, way: &Way, found: &Found, answer: &mut Why) -> Next<()> {
        let (name, cluster) = (&*found.name, &found.json);
        let (assignment, made_by) = match text(cluster, "/type") {
            "EDS" => {
                let named = text(cluster, "/eds_cluster_config/service_name");
                let named = if named.is_empty() { name } else { named };
                match self.named(ResourceType::Endpoint, named) {
                    Some(found) => (found.json, found.made_by),
                    None => (Value::Null, Vec::new()),
                }
            }
            "ORIGINAL_DST" if self.knows_no_original_address() => {
                answer.steps.push(step("endpoints", Verdict::Ends, "", NO_ORIGINAL_ADDRESS));
                return Next::End(NOWHERE.to_owned());
            }
            "ORIGINAL_DST" => return Next::On(()),
            _ if looks_up_hosts(cluster) => return Next::On(()),
            _ => (cluster.get("load_assignment").cloned().unwrap_or_default(), Vec::new()),
        };
        let members = members(&assignment);
        let usable = members.iter().filter(|member| member.is_usable()).count();
        let considered = without_requests(self.snapshot().endpoints_considered(self.proxy, name));
        let drops: Vec<Dropped> = considered
            .iter()
            .filter_map(|(endpoint, unsent)| Some(self.unsent(endpoint, (*unsent)?, name)))
            .collect();
        // If other ports have endpoints, the missing ones of this port are the answer.
        let other_port: Vec<&(Arc<Endpoint>, Option<Unsent>)> =
            considered.iter().filter(|(_, unsent)| *unsent == Some(Unsent::OtherPort)).collect();
        let relevant = considered.len() > other_port.len();
        answer
            .dropped
            .extend(drops.into_iter().filter(|drop| !relevant || !drop.why.starts_with(OTHER_PORT)));
        answer.endpoints.extend(members.iter().filter(|member| member.is_usable()).map(Member::words));
        let mut at =
            step("endpoints", Verdict::Ok, "", format!("{usable} of {} can take requests", members.len()));
        at.decided_by = made_by;
        if usable == 0 {
            at.verdict = Verdict::Ends;
            at.text = self.none(way, name, &members, &considered);
            answer.steps.push(at);
            return Next::End("503: no healthy endpoint".to_owned());
        }
        self.locality(way, name, &members, &mut at);
        answer.steps.push(at);
        let addresses: Vec<(String, u64, bool)> = members
            .iter()
            .filter(|member| member.is_usable())
            .map(|member| (member.address.clone(), member.port, member.mtls))
            .collect();
        self.inbound(way, found, &addresses, answer)
    }

    /// Reason why a cluster has no usable endpoint.
    fn none(
        &self,
        way: &Way,
        name: &str,
        members: &[Member],
        considered: &[(Arc<Endpoint>, Option<Unsent>)],
    ) -> String {
        let all = |wanted: Unsent| considered.iter().all(|(_, unsent)| *unsent == Some(wanted));
        if !considered.is_empty() && all(Unsent::Unready) {
            return format!("none of its {} is ready", counted(considered.len(), "endpoint"));
        }
        if !members.is_empty() {
            return format!("none of {} is healthy", counted(members.len(), "endpoint"));
        }
        let parts = Parts::of(name);
        // A route may lead to a host other than the requested one.
        let host = parts.as_ref().and_then(|parts| Hostname::parse(parts.host).ok());
        let of_cluster = host.and_then(|host| self.snapshot().host_seen(self.proxy, &host).service);
        let port = parts.as_ref().and_then(|parts| parts.port.parse().ok()).unwrap_or(way.port);
        let Some(service) = &of_cluster.or_else(|| way.service.clone()) else {
            return "it has no endpoints".to_owned();
        };
        if considered.is_empty() {
            return self.nobody(service);
        }
        let subset = parts.map(|parts| parts.subset).filter(|subset| !subset.is_empty());
        if all(Unsent::OtherPort) {
            let names: BTreeSet<&str> =
                considered.iter().map(|(endpoint, _)| &*endpoint.service_port).collect();
            let own = service.port(PortId::tcp(port)).map(|port| port.name.to_string()).unwrap_or_default();
            let names = names.into_iter().collect::<Vec<_>>().join(", ");
            return format!(
                "the port is named {own:?}, and its {} {} ports named {names:?} only",
                counted(considered.len(), "endpoint"),
                if considered.len() == 1 { "has" } else { "have" }
            );
        }
        if all(Unsent::Hidden) {
            return HIDDEN.to_owned();
        }
        if let Some(subset) = subset.filter(|_| all(Unsent::NotInSubset)) {
            return format!(
                "none of its {} has the labels of subset {subset}",
                counted(considered.len(), "endpoint")
            );
        }
        format!("none of its {} is sent to this proxy", counted(considered.len(), "endpoint"))
    }

    /// Reason why a service has no endpoints at all.
    fn nobody(&self, service: &Service) -> String {
        let key = service.key();
        let known = self.world().endpoints_of(&key).map_or(0, |endpoints| endpoints.iter().count());
        if known > 0 || service.selector.is_empty() {
            return format!("{} has no endpoints", service.hostname);
        }
        let labels: Vec<String> =
            service.selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let labels = labels.join(", ");
        let selected = self
            .world()
            .pods_in(&service.namespace)
            .filter(|pod| label_subset(&*service.selector, &pod.labels))
            .count();
        if selected == 0 {
            let pods = self.world().pods_in(&service.namespace).count();
            return format!(
                "its selector {labels} selects none of {pods} Pods of namespace {}",
                service.namespace
            );
        }
        format!("its selector {labels} selects {selected} Pods, and no EndpointSlice has them")
    }

    fn unsent(&self, endpoint: &Endpoint, unsent: Unsent, cluster: &str) -> Dropped {
        let what = format!("{}:{}", endpoint.address(), endpoint.port);
        let by = origin(&endpoint.attributes.provenance);
        let network = &endpoint.attributes.network;
        let why = match unsent {
            Unsent::Hidden => HIDDEN.to_owned(),
            Unsent::Confined => "its cluster keeps it to its own clients".to_owned(),
            Unsent::NotExported => {
                let entry = endpoint.attributes.entry.as_deref().unwrap_or_default();
                format!("it belongs to ServiceEntry {entry}, which is not exported to this namespace")
            }
            Unsent::OtherPort => format!("{OTHER_PORT} {:?}", &*endpoint.service_port),
            Unsent::HostName => "its address is a host name, which a load assignment cannot hold".to_owned(),
            Unsent::OtherNode => format!(
                "the service is for clients of the same node (internalTrafficPolicy: Local), and it is on {}",
                endpoint.attributes.node
            ),
            Unsent::OtherCluster => {
                format!("the host is local to each cluster, and it is in {}", endpoint.attributes.cluster)
            }
            Unsent::UnseenNetwork => format!("its network {network} is not one that the proxy asks for"),
            Unsent::Terminating => "it is not ready, and being deleted (serving and terminating count as \
                true where a slice does not say)"
                .to_owned(),
            Unsent::Unready => "it is not ready".to_owned(),
            Unsent::Draining => "it drains".to_owned(),
            Unsent::NoAddress => "it has no address, and no gateway leads to its network".to_owned(),
            Unsent::NotInSubset => {
                let subset = Parts::of(cluster).map(|parts| parts.subset).unwrap_or_default();
                format!("its labels do not match subset {subset}")
            }
            Unsent::GatewayNeedsMtls => {
                format!("it is in network {network}, whose gateways need mutual TLS, and it has none")
            }
            Unsent::NoGateway => {
                format!("it is in network {network}, and no gateway there has an address for this proxy")
            }
        };
        dropped(format!("{what} ({by})"), why)
    }

    /// Adds a note if locality priorities are configured but not applied.
    fn locality(&self, way: &Way, name: &str, members: &[Member], at: &mut Step) {
        let localities: BTreeSet<&str> = members.iter().map(|member| member.locality.as_str()).collect();
        let priorities: BTreeSet<u64> = members.iter().map(|member| member.priority).collect();
        if localities.len() < 2 || priorities.len() > 1 {
            if priorities.len() > 1 {
                at.text += &format!(", in {} priorities by locality", priorities.len());
            }
            return;
        }
        let (Some(parts), Some(service)) = (Parts::of(name), &way.service) else { return };
        let Ok(port) = parts.port.parse() else { return };
        // A route may lead to a service other than the requested one.
        let seen = Hostname::parse(parts.host).ok().map(|host| self.snapshot().host_seen(self.proxy, &host));
        let service = seen.and_then(|seen| seen.service).unwrap_or_else(|| service.clone());
        let key = service.key();
        if let Some(unranked) = self.snapshot().unranked(self.proxy, &key, parts.subset, port) {
            let rule = unranked.rule.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            at.verdict = Verdict::Doubtful;
            at.text += &format!(
                "; {rule} asks for failover by locality and has no outlierDetection, without which \
                 localities are not ranked"
            );
        }
    }
}

/// Reason for the endpoints of a Service without clients.
const HIDDEN: &str =
    "its Service is exported to nobody (networking.istio.io/exportTo: ~), so no client gets its endpoints";
const OTHER_PORT: &str = "it belongs to the port named";

fn members(assignment: &Value) -> Vec<Member> {
    let mut all = Vec::new();
    for locality in list(assignment, "/endpoints") {
        let place = ["region", "zone", "sub_zone"].map(|part| text(locality, &format!("/locality/{part}")));
        let place: Vec<&str> = place.into_iter().filter(|part| !part.is_empty()).collect();
        for endpoint in list(locality, "/lb_endpoints") {
            let address = &endpoint["endpoint"]["address"];
            let socket = text(address, "/socket_address/address");
            let tls = endpoint.pointer("/metadata/filter_metadata/envoy.transport_socket_match/tlsMode");
            all.push(Member {
                address: if socket.is_empty() {
                    text(address, "/pipe/path").to_owned()
                } else {
                    socket.to_owned()
                },
                port: number(address, "/socket_address/port_value"),
                health: text(endpoint, "/health_status").to_owned(),
                priority: number(locality, "/priority"),
                weight: number(endpoint, "/load_balancing_weight"),
                locality: place.join("/"),
                mtls: tls.is_some_and(|tls| tls == "istio"),
            });
        }
    }
    all
}
