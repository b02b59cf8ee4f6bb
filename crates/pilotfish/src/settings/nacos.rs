//! Nacos's server API of naming in front of registration.

use super::check::Check;
use super::client_listener::{ClientListener, Registration};
use clap::Args;
use pilotfish_nacos_api::{GRPC_OFFSET, NacosSettings};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[command(next_help_heading = "Registration by clients of Nacos")]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct NacosArgs {
    /// Listen address for clients of Nacos, usually on port 8848; the port above it by 1000 serves gRPC.
    /// Needs --registration-address, and has its TLS, tokens and rules. Without TLS only on this machine,
    /// unless --nacos-plaintext is set
    #[arg(long, env = "PILOTFISH_NACOS_ADDRESS", value_name = "HOST:PORT")]
    pub(crate) nacos_address: Option<String>,
    /// Serves clients of Nacos on other machines in plaintext, too: every client that can reach the port can
    /// take part in the mesh
    #[arg(long, env = "PILOTFISH_NACOS_PLAINTEXT")]
    pub(crate) nacos_plaintext: bool,
    /// Namespace of the services that clients of Nacos register; those of Nacos are in the hosts
    /// [default: default]
    #[arg(long, env = "PILOTFISH_NACOS_NAMESPACE", value_name = "NAME")]
    pub(crate) nacos_namespace: Option<String>,
    /// Port on which callers reach these services, whichever the first port of an instance is
    /// [default: the port of the instance]
    #[arg(long, env = "PILOTFISH_NACOS_SERVICE_PORT", value_name = "PORT")]
    pub(crate) nacos_service_port: Option<String>,
}

/// The listener for clients of Nacos, where it is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NacosListener {
    pub(crate) address: SocketAddr,
    /// True if other machines are served in plaintext.
    pub(crate) plaintext: bool,
    pub(crate) mapping: NacosSettings,
}

const LISTENER: ClientListener = ClientListener {
    product: "Nacos",
    address: "--nacos-address",
    plaintext: "--nacos-plaintext",
    namespace: "--nacos-namespace",
    service_port: "--nacos-service-port",
};

impl NacosArgs {
    /// `None` where no address was given, or something is wrong with it.
    pub(super) fn check(self, registration: Registration<'_>, check: &mut Check) -> Option<NacosListener> {
        let (namespace, port) = (self.nacos_namespace.as_deref(), self.nacos_service_port.as_deref());
        let Some(text) = &self.nacos_address else {
            LISTENER.unused(&[(LISTENER.namespace, namespace), (LISTENER.service_port, port)], check);
            return None;
        };
        let mut mapping = NacosSettings::default();
        if let Some(namespace) = LISTENER.namespace(namespace, check) {
            mapping.namespace = namespace;
        }
        mapping.service_port = LISTENER.service_port(port, check);
        let address = LISTENER.address(text, self.nacos_plaintext, registration, check)?;
        if address.port().checked_add(GRPC_OFFSET).is_none() {
            check.wrong(LISTENER.address, text, "there is no port above it by 1000 for gRPC");
        }
        Some(NacosListener { address, plaintext: self.nacos_plaintext, mapping })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{RegistrationArgs, ServeArgs};
    use super::*;
    use pilotfish_registry::RegistryTable;
    use std::num::NonZeroU16;

    fn check(nacos: NacosArgs, registration: Option<&str>) -> Result<Option<NacosListener>, String> {
        let registration = RegistrationArgs {
            registration_address: registration.map(str::to_owned),
            data_dir: registration.map(|_| "data".into()),
            ..RegistrationArgs::default()
        };
        let args = ServeArgs { registration, nacos, ..ServeArgs::default() };
        args.check(RegistryTable::default()).map(|all| all.nacos).map_err(|mistakes| mistakes.to_string())
    }

    fn given(address: &str) -> NacosArgs {
        NacosArgs { nacos_address: Some(address.into()), ..NacosArgs::default() }
    }

    #[test]
    fn the_services_are_those_of_the_registry_unless_said_otherwise() {
        let settings = check(given("127.0.0.1:0"), Some("127.0.0.1:0")).unwrap().unwrap();
        assert_eq!(settings.mapping, NacosSettings::default());
        let args = NacosArgs {
            nacos_namespace: Some("shop".into()),
            nacos_service_port: Some("80".into()),
            ..given("127.0.0.1:0")
        };
        let mapping = check(args, Some("127.0.0.1:0")).unwrap().unwrap().mapping;
        assert_eq!((&*mapping.namespace, mapping.service_port.map(NonZeroU16::get)), ("shop", Some(80)));
        assert_eq!(check(NacosArgs::default(), Some("127.0.0.1:0")), Ok(None));
    }

    #[test]
    fn mistakes_are_named() {
        let on = || given("127.0.0.1:0");
        for (args, registration, part) in [
            (on(), None, "without --registration-address"),
            (given("nowhere"), Some("127.0.0.1:0"), "--nacos-address"),
            (given("0.0.0.0:0"), Some("127.0.0.1:0"), "say --nacos-plaintext"),
            (given("127.0.0.1:65000"), Some("127.0.0.1:0"), "no port above it by 1000"),
            (
                NacosArgs { nacos_namespace: Some("A b".into()), ..on() },
                Some("127.0.0.1:0"),
                "--nacos-namespace",
            ),
            (
                NacosArgs { nacos_service_port: Some("0".into()), ..on() },
                Some("127.0.0.1:0"),
                "--nacos-service-port",
            ),
            (
                NacosArgs { nacos_namespace: Some("a".into()), ..NacosArgs::default() },
                None,
                "without --nacos-address",
            ),
        ] {
            let error = check(args, registration).unwrap_err();
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(
            check(NacosArgs { nacos_plaintext: true, ..given("0.0.0.0:0") }, Some("127.0.0.1:0")).is_ok()
        );
    }
}
