//! Instance that the flags of `pilotfish register` describe.

use super::args::{Register, ServerArgs};
use anyhow::{Result, bail};
use pilotfish_registration::FieldViolation;
use pilotfish_registration_client::{
    Check, ClientOptions, GrpcCheck, HttpCheck, Instance, Port, TcpCheck, check,
};
use pilotfish_registration_server::read_instance;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Placeholder address for checking the other flags.
const EXAMPLE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// Flags by the fields of an instance that they set.
const FLAGS: [(&str, &str); 15] = [
    ("ports[0].number", "--port"),
    ("ports[0].service_port", "--service-port"),
    ("ports[0].protocol", "--protocol"),
    ("service_account", "--service-account"),
    ("service", "--service"),
    ("namespace", "--namespace"),
    ("id", "--id"),
    ("addresses", "--address"),
    ("labels", "--label"),
    ("metadata", "--metadata"),
    ("locality", "--locality"),
    ("network", "--network"),
    ("weight", "--weight"),
    ("ttl", "--ttl"),
    ("checks", "--check"),
];

impl Register {
    /// Checks the flags without the server, which checks the rest.
    ///
    /// # Errors
    /// With all wrong flags.
    pub(super) fn check(&self) -> Result<()> {
        let instance = self.instance(self.address.unwrap_or(EXAMPLE))?;
        // The server's domain is not known here; in a full name it stands behind the namespace.
        let domain = self.service.split_once(".svc.").map_or("cluster.local", |(_, domain)| domain);
        let Err(wrong) = read_instance(instance, domain) else { return Ok(()) };
        let lines = wrong.listed().iter().map(|FieldViolation { field, message }| {
            let flag = FLAGS.iter().find(|(known, _)| field.starts_with(known));
            format!("{} ({field}): {message}", flag.map_or("", |(_, flag)| flag))
        });
        bail!(lines.collect::<Vec<_>>().join("\n"))
    }

    /// Returns the instance at an address.
    pub(super) fn instance(&self, address: IpAddr) -> Result<Instance> {
        let host = std::env::var("HOSTNAME").ok().or_else(host_name).unwrap_or_else(|| address.to_string());
        let checks: Result<Vec<Check>> = self.checks.iter().map(|text| check_of(text)).collect();
        Ok(Instance {
            namespace: self.namespace.clone(),
            service: self.service.clone(),
            id: self.id.clone().unwrap_or_else(|| format!("{host}-{}", self.port)),
            addresses: vec![address.to_string()],
            ports: vec![Port {
                number: self.port.get().into(),
                service_port: self.service_port.get().into(),
                name: String::new(),
                protocol: self.protocol.clone(),
            }],
            labels: pairs(&self.labels),
            metadata: pairs(&self.metadata),
            locality: self.locality.clone().unwrap_or_default(),
            network: self.network.clone().unwrap_or_default(),
            weight: self.weight.unwrap_or_default(),
            healthy: None,
            service_account: self.service_account.clone().unwrap_or_default(),
            ttl: Some(self.ttl.try_into()?),
            checks: checks?,
            drain: None,
        })
    }
}

impl ServerArgs {
    pub(super) fn options(&self) -> ClientOptions {
        ClientOptions {
            token_file: self.token_file.clone(),
            ca_file: self.ca_file.clone(),
            identity: self.cert_file.clone().zip(self.key_file.clone()),
            timeout: Duration::from_secs(5),
            ..ClientOptions::new(self.servers.iter().map(String::as_str))
        }
    }
}

fn pairs(given: &[(String, String)]) -> BTreeMap<String, String> {
    given.iter().cloned().collect()
}

/// Returns the host name of this machine.
fn host_name() -> Option<String> {
    let name = rustix::system::uname().nodename().to_str().ok()?.to_owned();
    (!name.is_empty()).then_some(name)
}

/// Parses `tcp`, `http:/healthz` or `grpc[:SERVICE]`.
fn check_of(text: &str) -> Result<Check> {
    let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
    let kind = match kind {
        "tcp" if rest.is_empty() => check::Kind::Tcp(TcpCheck {}),
        "http" if rest.is_empty() || rest.starts_with('/') => {
            check::Kind::Http(HttpCheck { path: rest.to_owned(), host: String::new() })
        }
        "grpc" => check::Kind::Grpc(GrpcCheck { service: rest.to_owned() }),
        _ => bail!("--check {text:?}: not tcp, http:/PATH or grpc[:SERVICE]"),
    };
    Ok(Check { kind: Some(kind), ..Check::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        register: Register,
    }

    fn parse(flags: &[&str]) -> Register {
        let before = ["register", "--service", "web", "--port", "8001"];
        let line = before.iter().chain(flags).chain(&["--", "true"]);
        Line::try_parse_from(line).unwrap_or_else(|error| panic!("{error}")).register
    }

    #[test]
    fn two_flags_are_enough() {
        let register = parse(&[]);
        let instance = register.instance([127, 0, 0, 1].into()).unwrap();
        assert_eq!((&*instance.namespace, &*instance.service), ("default", "web"));
        assert!(instance.id.ends_with("-8001"), "{}", instance.id);
        let port = &instance.ports[0];
        assert_eq!((port.number, port.service_port, &*port.protocol), (8001, 8080, "http"));
        assert_eq!(instance.ttl.unwrap().seconds, 10);
        assert_eq!(register.server.options().servers, ["http://127.0.0.1:15016"]);
        assert_eq!(register.command, ["true"]);
    }

    #[test]
    fn everything_can_be_said() {
        let register = parse(&[
            "--id",
            "a",
            "--namespace",
            "shop",
            "--service-port",
            "80",
            "--protocol",
            "grpc",
            "--label",
            "version=v1",
            "--label",
            "a=b=c",
            "--metadata",
            "owner=me",
            "--locality",
            "eu/a/1",
            "--network",
            "east",
            "--weight",
            "3",
            "--service-account",
            "web",
            "--ttl",
            "30s",
            "--check",
            "tcp",
            "--check",
            "http:/healthz",
            "--check",
            "grpc:web",
        ]);
        let instance = register.instance([10, 0, 0, 1].into()).unwrap();
        assert_eq!((&*instance.id, &*instance.namespace, instance.ports[0].service_port), ("a", "shop", 80));
        assert_eq!(instance.labels["a"], "b=c");
        assert_eq!((&*instance.locality, &*instance.network, instance.weight), ("eu/a/1", "east", 3));
        assert_eq!((&*instance.service_account, instance.ttl.unwrap().seconds), ("web", 30));
        let kinds: Vec<_> = instance.checks.into_iter().filter_map(|check| check.kind).collect();
        let http = HttpCheck { path: "/healthz".into(), host: String::new() };
        assert_eq!(kinds[0], check::Kind::Tcp(TcpCheck {}));
        assert_eq!(kinds[1], check::Kind::Http(http));
        assert_eq!(kinds[2], check::Kind::Grpc(GrpcCheck { service: "web".into() }));
    }

    #[test]
    fn flags_are_checked_before_anything_is_started() {
        for (flags, expected) in [
            (&["--label", "a key=x"][..], "--label (labels[\"a key\"]): "),
            (&["--namespace", "Shop"], "--namespace (namespace): "),
            (&["--id", "a b"], "--id (id): "),
            (&["--address", "169.254.169.254"], "--address (addresses[0]): "),
            (&["--protocol", "quick"], "--protocol (ports[0].protocol): "),
            (&["--ttl", "1ms"], "--ttl (ttl): "),
            (&["--service-account", "A"], "--service-account (service_account): "),
            (&["--service", "Web_1"], "--service (service): \"Web_1\" is no DNS label"),
            (&["--service", "web.default.svc"], "--service (service): "),
        ] {
            let mut register = parse(&[]);
            match flags {
                ["--service", name] => register.service = (*name).to_owned(),
                flags => register = parse(flags),
            }
            let error = register.check().unwrap_err().to_string();
            assert!(error.starts_with(expected) && !error.contains('\n'), "{flags:?}: {error}");
        }
        let mut register = parse(&["--namespace", "Shop", "--ttl", "1ms"]);
        assert_eq!(register.check().unwrap_err().to_string().lines().count(), 2, "all are told");
        register = parse(&["--address", "127.0.0.1"]);
        for service in
            ["web", "web.example.com", "web.default.svc.cluster.local", "web.default.svc.k8s.example"]
        {
            register.service = service.to_owned();
            assert!(register.check().is_ok(), "{service}");
        }
    }

    #[test]
    fn mistakes_are_told() {
        for wrong in ["udp", "http:healthz", "tcp:80", ""] {
            let error = parse(&["--check", wrong]).instance([10, 0, 0, 1].into()).unwrap_err();
            assert!(error.to_string().contains("not tcp, http:/PATH"), "{wrong}: {error}");
        }
        let line = ["register", "--service", "web", "--port", "0", "--", "true"];
        assert!(Line::try_parse_from(line).is_err());
    }
}
