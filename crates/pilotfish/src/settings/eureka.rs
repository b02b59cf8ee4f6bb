//! Eureka's server API in front of registration.

use super::check::Check;
use super::client_listener::{ClientListener, Registration};
use clap::Args;
use pilotfish_eureka_api::EurekaSettings;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[command(next_help_heading = "Registration by clients of Eureka")]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct EurekaArgs {
    /// Listen address for clients of Eureka, usually on port 8761; needs --registration-address, and has its
    /// TLS, tokens and rules. Without TLS only on this machine, unless --eureka-plaintext is set
    #[arg(long, env = "PILOTFISH_EUREKA_ADDRESS", value_name = "HOST:PORT")]
    pub(crate) eureka_address: Option<String>,
    /// Serves clients of Eureka on other machines in plaintext, too: every client that can reach the port can
    /// take part in the mesh
    #[arg(long, env = "PILOTFISH_EUREKA_PLAINTEXT")]
    pub(crate) eureka_plaintext: bool,
    /// Namespace of the services that clients of Eureka register [default: default]
    #[arg(long, env = "PILOTFISH_EUREKA_NAMESPACE", value_name = "NAME")]
    pub(crate) eureka_namespace: Option<String>,
    /// Port on which callers reach these services, whichever the first port of an instance is
    /// [default: the port of the instance]
    #[arg(long, env = "PILOTFISH_EUREKA_SERVICE_PORT", value_name = "PORT")]
    pub(crate) eureka_service_port: Option<String>,
}

/// The listener for clients of Eureka, where it is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EurekaListener {
    pub(crate) address: SocketAddr,
    /// True if other machines are served in plaintext.
    pub(crate) plaintext: bool,
    pub(crate) mapping: EurekaSettings,
}

const LISTENER: ClientListener = ClientListener {
    product: "Eureka",
    address: "--eureka-address",
    plaintext: "--eureka-plaintext",
    namespace: "--eureka-namespace",
    service_port: "--eureka-service-port",
};

impl EurekaArgs {
    /// `None` where no address was given, or something is wrong with it.
    pub(super) fn check(self, registration: Registration<'_>, check: &mut Check) -> Option<EurekaListener> {
        let (namespace, port) = (self.eureka_namespace.as_deref(), self.eureka_service_port.as_deref());
        let Some(text) = &self.eureka_address else {
            LISTENER.unused(&[(LISTENER.namespace, namespace), (LISTENER.service_port, port)], check);
            return None;
        };
        let mut mapping = EurekaSettings::default();
        if let Some(namespace) = LISTENER.namespace(namespace, check) {
            mapping.namespace = namespace;
        }
        mapping.service_port = LISTENER.service_port(port, check);
        let address = LISTENER.address(text, self.eureka_plaintext, registration, check)?;
        Some(EurekaListener { address, plaintext: self.eureka_plaintext, mapping })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{RegistrationArgs, ServeArgs};
    use super::*;
    use pilotfish_registry::RegistryTable;
    use std::num::NonZeroU16;

    fn check(eureka: EurekaArgs, registration: Option<&str>) -> Result<Option<EurekaListener>, String> {
        let registration = RegistrationArgs {
            registration_address: registration.map(str::to_owned),
            data_dir: registration.map(|_| "data".into()),
            ..RegistrationArgs::default()
        };
        let args = ServeArgs { registration, eureka, ..ServeArgs::default() };
        args.check(RegistryTable::default()).map(|all| all.eureka).map_err(|mistakes| mistakes.to_string())
    }

    fn given(address: &str) -> EurekaArgs {
        EurekaArgs { eureka_address: Some(address.into()), ..EurekaArgs::default() }
    }

    #[test]
    fn the_services_are_those_of_the_registry_unless_said_otherwise() {
        let settings = check(given("127.0.0.1:0"), Some("127.0.0.1:0")).unwrap().unwrap();
        assert_eq!(settings.mapping, EurekaSettings::default());
        let args = EurekaArgs {
            eureka_namespace: Some("shop".into()),
            eureka_service_port: Some("80".into()),
            ..given("127.0.0.1:0")
        };
        let mapping = check(args, Some("127.0.0.1:0")).unwrap().unwrap().mapping;
        assert_eq!((&*mapping.namespace, mapping.service_port.map(NonZeroU16::get)), ("shop", Some(80)));
        assert_eq!(check(EurekaArgs::default(), Some("127.0.0.1:0")), Ok(None));
    }

    #[test]
    fn mistakes_are_named() {
        let on = || given("127.0.0.1:0");
        for (args, registration, part) in [
            (on(), None, "without --registration-address"),
            (given("nowhere"), Some("127.0.0.1:0"), "--eureka-address"),
            (given("0.0.0.0:0"), Some("127.0.0.1:0"), "say --eureka-plaintext"),
            (
                EurekaArgs { eureka_namespace: Some("A b".into()), ..on() },
                Some("127.0.0.1:0"),
                "--eureka-namespace",
            ),
            (
                EurekaArgs { eureka_service_port: Some("0".into()), ..on() },
                Some("127.0.0.1:0"),
                "--eureka-service-port",
            ),
            (
                EurekaArgs { eureka_namespace: Some("a".into()), ..EurekaArgs::default() },
                None,
                "without --eureka-address",
            ),
        ] {
            let error = check(args, registration).unwrap_err();
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(
            check(EurekaArgs { eureka_plaintext: true, ..given("0.0.0.0:0") }, Some("127.0.0.1:0")).is_ok()
        );
    }
}
