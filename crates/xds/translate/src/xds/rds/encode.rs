//! Encodes route configurations: routes that many virtual hosts share are encoded once.

use super::encoded_routes::decode;
use bytes::Bytes;
use pilotfish_proto::envoy::config::route::v3::{RouteConfiguration, VirtualHost};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

/// The number of `RouteConfiguration.virtual_hosts`.
const VIRTUAL_HOSTS: u32 = 2;

/// A virtual host, whose routes may be shared with others.
#[derive(Clone, Debug)]
pub(super) struct Host {
    /// The virtual host without shared routes.
    pub(super) own: VirtualHost,
    /// Encoded shared routes, in order.
    pub(super) shared: Vec<Bytes>,
}

impl Host {
    /// Returns the virtual host with all of its routes.
    pub(super) fn into_whole(self) -> VirtualHost {
        let mut host = self.own;
        host.routes.extend(self.shared.iter().flat_map(|fields| decode(fields)));
        host
    }

    fn encoded_len(&self) -> usize {
        self.own.encoded_len() + self.shared.iter().map(Bytes::len).sum::<usize>()
    }
}

impl From<VirtualHost> for Host {
    fn from(own: VirtualHost) -> Self {
        Self { own, shared: Vec::new() }
    }
}

/// The encoded form of a configuration with these virtual hosts.
pub(super) fn encode(config: &RouteConfiguration, hosts: &[Host]) -> Vec<u8> {
    let lengths: Vec<usize> = hosts.iter().map(Host::encoded_len).collect();
    let framed = |length: &usize| key_len(VIRTUAL_HOSTS) + encoded_len_varint(*length as u64) + length;
    let all: usize = lengths.iter().map(framed).sum();
    let mut encoded = Vec::with_capacity(config.encoded_len() + all);
    config.encode_raw(&mut encoded);
    for (host, length) in hosts.iter().zip(lengths) {
        encode_key(VIRTUAL_HOSTS, WireType::LengthDelimited, &mut encoded);
        encode_varint(length as u64, &mut encoded);
        host.own.encode_raw(&mut encoded);
        host.shared.iter().for_each(|fields| encoded.extend_from_slice(fields));
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xds::rds::encoded_routes::RoutesEncoder;
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
        let mut encoder = RoutesEncoder::default();
        assert!(encoder.add(&route("r1")) && encoder.add(&route("r2")));
        let routes = encoder.finish();
        assert_eq!(routes.count(), 2);
        let shared = |name| Host { own: host(name, &[]), shared: vec![routes.all()] };
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
