//! Protocols of providers.

/// Port name, protocol and default port of a Dubbo protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Speech {
    /// Port name: Dubbo's name of the protocol.
    pub(crate) name: &'static str,
    /// Istio's protocol, or `dubbo`.
    pub(crate) protocol: &'static str,
    /// The service port for clients.
    pub(crate) port: Option<u16>,
}

/// Dubbo's protocols with their default ports in Dubbo.
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

/// Any protocol that is not one of Dubbo's.
const OTHER: Speech = Speech { name: "tcp", protocol: "tcp", port: None };

/// Returns the properties of a protocol.
pub(crate) fn speech(scheme: &str) -> Speech {
    KNOWN.iter().find(|known| known.name == scheme).copied().unwrap_or(OTHER)
}

/// Returns the service port for a provider that listens on `own`.
pub(crate) fn default_port(speech: Speech, own: u16) -> u32 {
    speech.port.unwrap_or(own).into()
}
