//! Consul's HTTP API in front of registration.

use super::check::Check;
use super::client_listener::{ClientListener, Registration};
use clap::Args;
use pilotfish_consul_api::ConsulSettings;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::Arc;

#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[command(next_help_heading = "Registration by clients of Consul")]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ConsulArgs {
    /// Listen address for clients of Consul, usually on port 8500; needs --registration-address, and has its
    /// TLS, tokens and rules. Without TLS only on this machine, unless --consul-plaintext is set
    #[arg(long, env = "PILOTFISH_CONSUL_ADDRESS", value_name = "HOST:PORT")]
    pub(crate) consul_address: Option<String>,
    /// Serves clients of Consul on other machines in plaintext, too: every client that can reach the port can
    /// take part in the mesh
    #[arg(long, env = "PILOTFISH_CONSUL_PLAINTEXT")]
    pub(crate) consul_plaintext: bool,
    /// Namespace of the services that clients of Consul register [default: default]
    #[arg(long, env = "PILOTFISH_CONSUL_NAMESPACE", value_name = "NAME")]
    pub(crate) consul_namespace: Option<String>,
    /// Name of the data centre in answers to clients of Consul [default: dc1]
    #[arg(long, env = "PILOTFISH_CONSUL_DATACENTER", value_name = "NAME")]
    pub(crate) consul_datacenter: Option<String>,
    /// Port on which callers reach these services, whichever port an instance has
    /// [default: the port of the instance]
    #[arg(long, env = "PILOTFISH_CONSUL_SERVICE_PORT", value_name = "PORT")]
    pub(crate) consul_service_port: Option<String>,
}

/// The listener for clients of Consul, where it is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConsulListener {
    pub(crate) address: SocketAddr,
    /// True if other machines are served in plaintext.
    pub(crate) plaintext: bool,
    pub(crate) mapping: ConsulSettings,
}

const LISTENER: ClientListener = ClientListener {
    product: "Consul",
    address: "--consul-address",
    plaintext: "--consul-plaintext",
    namespace: "--consul-namespace",
    service_port: "--consul-service-port",
};

const DATACENTER: &str = "--consul-datacenter";

/// A name of a data centre, by the rules of Consul.
fn datacenter(text: &str) -> Result<Arc<str>, String> {
    let is_known = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"-_".contains(&c);
    match !text.is_empty() && text.len() <= 63 && text.bytes().all(is_known) {
        true => Ok(text.into()),
        false => Err("not 1 to 63 small letters, digits, dashes and underscores".to_owned()),
    }
}

impl ConsulArgs {
    /// `None` where no address was given, or something is wrong with it.
    pub(super) fn check(self, registration: Registration<'_>, check: &mut Check) -> Option<ConsulListener> {
        let (namespace, port) = (self.consul_namespace.as_deref(), self.consul_service_port.as_deref());
        let Some(text) = &self.consul_address else {
            let given = [
                (LISTENER.namespace, namespace),
                (LISTENER.service_port, port),
                (DATACENTER, self.consul_datacenter.as_deref()),
            ];
            LISTENER.unused(&given, check);
            return None;
        };
        let mut mapping = ConsulSettings::default();
        if let Some(namespace) = LISTENER.namespace(namespace, check) {
            mapping.namespace = namespace;
        }
        if let Some(name) = check.parse(DATACENTER, self.consul_datacenter.as_deref(), datacenter) {
            mapping.datacenter = name;
        }
        mapping.service_port = LISTENER.service_port(port, check);
        let address = LISTENER.address(text, self.consul_plaintext, registration, check)?;
        Some(ConsulListener { address, plaintext: self.consul_plaintext, mapping })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{RegistrationArgs, ServeArgs};
    use super::*;
    use pilotfish_registry::RegistryTable;
    use std::num::NonZeroU16;

    fn check(consul: ConsulArgs, registration: Option<&str>) -> Result<Option<ConsulListener>, String> {
        let registration = RegistrationArgs {
            registration_address: registration.map(str::to_owned),
            data_dir: registration.map(|_| "data".into()),
            ..RegistrationArgs::default()
        };
        let args = ServeArgs { registration, consul, ..ServeArgs::default() };
        args.check(RegistryTable::default()).map(|all| all.consul).map_err(|mistakes| mistakes.to_string())
    }

    fn given(address: &str) -> ConsulArgs {
        ConsulArgs { consul_address: Some(address.into()), ..ConsulArgs::default() }
    }

    #[test]
    fn the_services_are_those_of_the_registry_unless_said_otherwise() {
        let settings = check(given("127.0.0.1:0"), Some("127.0.0.1:0")).unwrap().unwrap();
        assert_eq!(settings.mapping, ConsulSettings::default());
        let args = ConsulArgs {
            consul_namespace: Some("shop".into()),
            consul_service_port: Some("80".into()),
            consul_datacenter: Some("dc2".into()),
            ..given("127.0.0.1:0")
        };
        let mapping = check(args, Some("127.0.0.1:0")).unwrap().unwrap().mapping;
        assert_eq!((&*mapping.namespace, mapping.service_port.map(NonZeroU16::get)), ("shop", Some(80)));
        assert_eq!(&*mapping.datacenter, "dc2");
        assert_eq!(check(ConsulArgs::default(), Some("127.0.0.1:0")), Ok(None));
    }

    #[test]
    fn mistakes_are_named() {
        let on = || given("127.0.0.1:0");
        for (args, registration, part) in [
            (on(), None, "without --registration-address"),
            (given("nowhere"), Some("127.0.0.1:0"), "--consul-address"),
            (given("0.0.0.0:0"), Some("127.0.0.1:0"), "say --consul-plaintext"),
            (
                ConsulArgs { consul_namespace: Some("A b".into()), ..on() },
                Some("127.0.0.1:0"),
                "--consul-namespace",
            ),
            (
                ConsulArgs { consul_datacenter: Some("DC 1".into()), ..on() },
                Some("127.0.0.1:0"),
                "--consul-datacenter",
            ),
            (
                ConsulArgs { consul_service_port: Some("0".into()), ..on() },
                Some("127.0.0.1:0"),
                "--consul-service-port",
            ),
            (
                ConsulArgs { consul_namespace: Some("a".into()), ..ConsulArgs::default() },
                None,
                "without --consul-address",
            ),
        ] {
            let error = check(args, registration).unwrap_err();
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(
            check(ConsulArgs { consul_plaintext: true, ..given("0.0.0.0:0") }, Some("127.0.0.1:0")).is_ok()
        );
    }
}
