//! Encodes route configurations in which many virtual hosts have the same routes: these are encoded once.

use super::sidecar::Rules;
use pilotfish_proto::envoy::config::route::v3::{RouteConfiguration, VirtualHost};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len, message};
use std::collections::HashMap;
use std::sync::Arc;

/// The numbers of `RouteConfiguration.virtual_hosts` and `VirtualHost.routes`.
const VIRTUAL_HOSTS: u32 = 2;
const ROUTES: u32 = 3;

/// A virtual host, whose routes may be shared with others.
#[derive(Clone, Debug)]
pub(super) struct Host {
    /// Without the routes that are shared.
    pub(super) own: VirtualHost,
    pub(super) shared: Option<Arc<Rules>>,
}

impl Host {
    /// One with all of its routes.
    pub(super) fn into_whole(self) -> VirtualHost {
        let mut host = self.own;
        host.routes.extend(self.shared.iter().flat_map(|rules| rules.routes.iter().cloned()));
        host
    }
}

impl From<VirtualHost> for Host {
    fn from(own: VirtualHost) -> Self {
        Self { own, shared: None }
    }
}

/// The encoded form of a configuration with these virtual hosts.
pub(super) fn encode(config: &RouteConfiguration, hosts: &[Host]) -> Vec<u8> {
    let mut routes: HashMap<*const Rules, Vec<u8>> = HashMap::new();
    for rules in hosts.iter().filter_map(|host| host.shared.as_ref()) {
        routes.entry(Arc::as_ptr(rules)).or_insert_with(|| {
            let mut encoded = Vec::with_capacity(rules.bytes);
            rules.routes.iter().for_each(|route| message::encode(ROUTES, route, &mut encoded));
            encoded
        });
    }
    let shared = |host: &Host| {
        host.shared.as_ref().and_then(|rules| routes.get(&Arc::as_ptr(rules))).map_or(&[][..], Vec::as_slice)
    };
    let length = |host: &Host| host.own.encoded_len() + shared(host).len();
    let framed = |length: usize| key_len(VIRTUAL_HOSTS) + encoded_len_varint(length as u64) + length;
    let all: usize = hosts.iter().map(|host| framed(length(host))).sum();
    let mut encoded = Vec::with_capacity(config.encoded_len() + all);
    config.encode_raw(&mut encoded);
    for host in hosts {
        encode_key(VIRTUAL_HOSTS, WireType::LengthDelimited, &mut encoded);
        encode_varint(length(host) as u64, &mut encoded);
        host.own.encode_raw(&mut encoded);
        encoded.extend_from_slice(shared(host));
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_proto::envoy::config::route::v3::Route;

    #[test]
    fn what_is_encoded_once_is_there_for_each_host() {
        let route = |name: &str| Route { name: name.into(), ..Route::default() };
        let host = |name: &str, routes: &[&str]| VirtualHost {
            name: name.into(),
            domains: vec![name.into()],
            routes: routes.iter().map(|name| route(name)).collect(),
            include_request_attempt_count: true,
            ..VirtualHost::default()
        };
        let rules = Arc::new(Rules::new(vec![route("r1"), route("r2")], Vec::new()));
        let shared = |name| Host { own: host(name, &[]), shared: Some(Arc::clone(&rules)) };
        let hosts = [shared("a"), Host::from(host("b", &["own"])), shared("c")];
        let config = RouteConfiguration {
            name: "80".into(),
            ignore_port_in_host_matching: true,
            ..RouteConfiguration::default()
        };
        let decoded = RouteConfiguration::decode(&encode(&config, &hosts)[..]).unwrap();
        let whole = [host("a", &["r1", "r2"]), host("b", &["own"]), host("c", &["r1", "r2"])];
        assert_eq!(decoded, RouteConfiguration { virtual_hosts: whole.to_vec(), ..config });
        assert_eq!(hosts.map(Host::into_whole), whole);
    }
}
