//! The protocols that providers speak.

/// What the mesh is told about a protocol of Dubbo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Speech {
    /// The name of ports, in Dubbo's words.
    pub(crate) name: &'static str,
    /// The protocol, in Istio's words and `dubbo`.
    pub(crate) protocol: &'static str,
    /// The port that clients connect to.
    pub(crate) port: Option<u16>,
}

/// Dubbo's protocols, with the ports that Dubbo itself uses where nobody names another.
const KNOWN: &[Speech] = &[
    Speech { name: "dubbo", protocol: "dubbo", port: Some(20880) },
    Speech { name: "tri", protocol: "grpc", port: Some(50051) },
    Speech { name: "grpc", protocol: "grpc", port: Some(50051) },
    Speech { name: "rest", protocol: "http", port: Some(80) },
    Speech { name: "http", protocol: "http", port: Some(80) },
    Speech { name: "hessian", protocol: "http", port: Some(80) },
    Speech { name: "webservice", protocol: "http", port: Some(80) },
    Speech { name: "rmi", protocol: "tcp", port: Some(1099) },
    Speech { name: "thrift", protocol: "tcp", port: Some(40880) },
    Speech { name: "redis", protocol: "redis", port: Some(6379) },
    Speech { name: "memcached", protocol: "tcp", port: Some(11211) },
];

/// A protocol that Dubbo does not have itself.
const OTHER: Speech = Speech { name: "tcp", protocol: "tcp", port: None };

/// What is known of a protocol.
pub(crate) fn speech(scheme: &str) -> Speech {
    KNOWN.iter().find(|known| known.name == scheme).copied().unwrap_or(OTHER)
}

/// The port that clients connect to, for a provider that listens on `own`.
pub(crate) fn default_port(speech: Speech, own: u16) -> u32 {
    speech.port.unwrap_or(own).into()
}
