//! Checks of a service: one with a TTL, which its client reports, and those that Pilotfish runs.

use crate::fields::Fields;
use http::Uri;
use pilotfish_registration::limits::{MAX_CHECK_INTERVAL, MAX_TTL, MIN_CHECK_INTERVAL, MIN_TTL};
use pilotfish_registration::{RegistrationCheck, RegistrationCheckKind};
use pilotfish_registration_server::Failure;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;

/// Timeout of a check without one, as in Consul.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Status of a check, the best first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    #[default]
    Passing,
    Warning,
    Critical,
}

impl Status {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "passing" | "pass" => Some(Self::Passing),
            "warning" | "warn" => Some(Self::Warning),
            "critical" | "fail" => Some(Self::Critical),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Passing => "passing",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// Definition of a check, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CheckDefinition {
    pub(crate) id: String,
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) notes: String,
    pub(crate) kind: Kind,
    /// Status of a new check.
    pub(crate) first: Status,
}

/// Kind of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// The client reports within this many milliseconds.
    Ttl(u64),
    /// A GET that Pilotfish sends.
    Http(Probe),
    Tcp(Probe),
    Grpc(Probe),
}

/// Parameters of a check that Pilotfish runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Probe {
    /// Path for HTTP, service for gRPC.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) path: String,
    pub(crate) interval_ms: u64,
    pub(crate) timeout_ms: u64,
    pub(crate) passes: u32,
    pub(crate) failures: u32,
}

/// Place that a check may ask: the instance's own.
pub(crate) struct Place<'a> {
    pub(crate) address: &'a str,
    pub(crate) port: u32,
}

/// Fields of checks that are not served.
const UNKNOWN: [(&str, &str); 14] = [
    ("Args", "Pilotfish runs no scripts"),
    ("ScriptArgs", "Pilotfish runs no scripts"),
    ("Script", "Pilotfish runs no scripts"),
    ("DockerContainerID", "Pilotfish runs no scripts"),
    ("Shell", "Pilotfish runs no scripts"),
    ("UDP", "checks over UDP are not run"),
    ("H2PING", "checks by HTTP/2 pings are not run"),
    ("OSService", "services of operating systems are not checked"),
    ("AliasNode", "aliases are not served"),
    ("AliasService", "aliases are not served"),
    ("Header", "checks have no headers of their own"),
    ("Body", "checks have no body"),
    ("GRPCUseTLS", "checks use no TLS"),
    ("TCPUseTLS", "checks use no TLS"),
];

impl CheckDefinition {
    /// Reads a check of a service, whose `number` among `count` ones names it if it has no id.
    pub(crate) fn read(
        mut fields: Fields,
        service: (&str, &str),
        (number, count): (usize, usize),
        place: &Place<'_>,
    ) -> Result<Self, Failure> {
        for (name, reason) in UNKNOWN {
            fields.refuse(name, reason)?;
        }
        let (service_id, service_name) = service;
        let first_id = match count {
            1 => format!("service:{service_id}"),
            _ => format!("service:{service_id}:{number}"),
        };
        let or = |text: String, default: String| if text.is_empty() { default } else { text };
        let id = or(fields.text("CheckID")?, first_id);
        let name = or(fields.text("Name")?, format!("Service '{service_name}' check"));
        let (notes, status) = (fields.text("Notes")?, fields.text("Status")?);
        let first = match &*status {
            "" => Status::Critical,
            text => Status::parse(text)
                .ok_or_else(|| fields.wrong("Status", &format!("{text:?} is no status")))?,
        };
        let kind = Kind::read(&mut fields, place)?;
        Ok(Self { id, name, notes, kind, first })
    }

    /// Returns the check for the registrar; `None` for one that the client reports.
    pub(crate) fn registration(&self) -> Option<RegistrationCheck> {
        let (kind, probe) = match &self.kind {
            Kind::Ttl(_) => return None,
            Kind::Http(probe) => {
                (RegistrationCheckKind::Http { path: probe.path.clone(), host: String::new() }, probe)
            }
            Kind::Tcp(probe) => (RegistrationCheckKind::Tcp, probe),
            Kind::Grpc(probe) => (RegistrationCheckKind::Grpc { service: probe.path.clone() }, probe),
        };
        Some(RegistrationCheck {
            kind: Some(kind),
            port: 0,
            interval: Duration::from_millis(probe.interval_ms),
            timeout: Duration::from_millis(probe.timeout_ms),
            healthy_threshold: probe.passes,
            unhealthy_threshold: probe.failures,
        })
    }

    /// Returns the TTL of a check that the client reports.
    pub(crate) fn ttl(&self) -> Option<Duration> {
        match self.kind {
            Kind::Ttl(millis) => Some(Duration::from_millis(millis)),
            _ => None,
        }
    }

    /// Returns the type in answers.
    pub(crate) fn type_name(&self) -> &'static str {
        match self.kind {
            Kind::Ttl(_) => "ttl",
            Kind::Http(_) => "http",
            Kind::Tcp(_) => "tcp",
            Kind::Grpc(_) => "grpc",
        }
    }
}

impl Kind {
    fn read(fields: &mut Fields, place: &Place<'_>) -> Result<Self, Failure> {
        let ttl = fields.duration("TTL")?;
        let targets = [fields.text("HTTP")?, fields.text("TCP")?, fields.text("GRPC")?];
        let named = targets.iter().filter(|target| !target.is_empty()).count() + usize::from(ttl.is_some());
        if named != 1 {
            return Err(fields.wrong("TTL", "one of TTL, HTTP, TCP and GRPC is needed"));
        }
        if let Some(ttl) = ttl {
            if ttl.is_zero() {
                return Err(fields.wrong("TTL", "it has to be above zero"));
            }
            return Ok(Self::Ttl(millis(ttl.clamp(MIN_TTL, MAX_TTL))));
        }
        let mut probe = Probe::read(fields)?;
        let [http, tcp, grpc] = targets;
        if !http.is_empty() {
            let (path, authority) = http_target(&http).map_err(|message| fields.wrong("HTTP", &message))?;
            place.check(&authority).map_err(|message| fields.wrong("HTTP", &message))?;
            return Ok(Self::Http(Probe { path, ..probe }));
        }
        if !tcp.is_empty() {
            place.check(&tcp).map_err(|message| fields.wrong("TCP", &message))?;
            return Ok(Self::Tcp(probe));
        }
        let (authority, service) = grpc.split_once('/').unwrap_or((&grpc, ""));
        place.check(authority).map_err(|message| fields.wrong("GRPC", &message))?;
        service.clone_into(&mut probe.path);
        Ok(Self::Grpc(probe))
    }
}

impl Probe {
    fn read(fields: &mut Fields) -> Result<Self, Failure> {
        let method = fields.text("Method")?;
        if !method.is_empty() && !method.eq_ignore_ascii_case("GET") {
            return Err(fields.wrong("Method", "checks use GET"));
        }
        let Some(interval) = fields.duration("Interval")?.filter(|interval| !interval.is_zero()) else {
            return Err(fields.wrong("Interval", "it has to be above zero"));
        };
        let interval = interval.clamp(MIN_CHECK_INTERVAL, MAX_CHECK_INTERVAL);
        let timeout = fields.duration("Timeout")?.filter(|timeout| !timeout.is_zero());
        let timeout = timeout.unwrap_or(DEFAULT_TIMEOUT).min(interval);
        let passes = fields.number("SuccessBeforePassing", u32::MAX)?.unwrap_or(0).max(1);
        let failures = fields.number("FailuresBeforeCritical", u32::MAX)?.unwrap_or(0).max(1);
        let (interval_ms, timeout_ms) = (millis(interval), millis(timeout).max(1));
        Ok(Self { path: String::new(), interval_ms, timeout_ms, passes, failures })
    }
}

impl Place<'_> {
    /// Checks that `host:port` is the place of the instance. A name of the client's own machine is, because
    /// Consul's agent runs beside the client.
    fn check(&self, authority: &str) -> Result<(), String> {
        let (host, port) =
            authority.rsplit_once(':').ok_or_else(|| format!("{authority:?} is no host with a port"))?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let address: Option<IpAddr> = bare.parse().ok();
        let own: Option<IpAddr> = self.address.parse().ok();
        let is_own = match address {
            Some(address) => Some(address) == own || address.is_loopback(),
            None => bare.eq_ignore_ascii_case("localhost"),
        };
        if !is_own {
            return Err(format!(
                "{host:?} is not the instance, {}, and Pilotfish checks nothing else",
                self.address
            ));
        }
        if port.parse() != Ok(self.port) {
            return Err(format!("{port} is not the port of the instance, {}", self.port));
        }
        Ok(())
    }
}

/// Returns path and `host:port` of an address.
fn http_target(text: &str) -> Result<(String, String), String> {
    let uri: Uri = text.parse().map_err(|error| format!("{text:?}: {error}"))?;
    if uri.scheme_str() != Some("http") {
        return Err("checks use http:// and no TLS".to_owned());
    }
    let host = uri.host().unwrap_or_default();
    let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    Ok((path, format!("{host}:{}", uri.port_u16().unwrap_or(80))))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<CheckDefinition, String> {
        let fields = Fields::of(serde_json::from_str(json).unwrap(), "Check".to_owned());
        let place = Place { address: "10.0.0.1", port: 8080 };
        CheckDefinition::read(fields.unwrap(), ("web-1", "web"), (2, 2), &place)
            .map_err(|failure| failure.message().to_owned())
    }

    #[test]
    fn a_check_with_a_ttl_is_the_lease() {
        let check = read(r#"{"TTL":"15s"}"#).unwrap();
        assert_eq!((&*check.id, &*check.name), ("service:web-1:2", "Service 'web' check"));
        assert_eq!((check.ttl(), check.first), (Some(Duration::from_secs(15)), Status::Critical));
        assert_eq!(check.registration(), None);
        let check = read(r#"{"ttl":"1ms","CheckID":"c","name":"n","status":"passing"}"#).unwrap();
        assert_eq!((&*check.id, &*check.name, check.first), ("c", "n", Status::Passing));
        assert_eq!(check.ttl(), Some(MIN_TTL), "the shortest lease");
    }

    #[test]
    fn checks_that_pilotfish_runs_ask_the_instance() {
        let http = RegistrationCheckKind::Http { path: "/health?x=1".to_owned(), host: String::new() };
        let grpc = |service: &str| RegistrationCheckKind::Grpc { service: service.to_owned() };
        for (json, kind) in [
            (r#"{"HTTP":"http://10.0.0.1:8080/health?x=1","Interval":"5s"}"#, http.clone()),
            (r#"{"HTTP":"http://localhost:8080/health?x=1","Interval":"5s","Method":"get"}"#, http),
            (r#"{"TCP":"10.0.0.1:8080","Interval":"5s"}"#, RegistrationCheckKind::Tcp),
            (r#"{"TCP":"[::1]:8080","Interval":"5s"}"#, RegistrationCheckKind::Tcp),
            (r#"{"GRPC":"127.0.0.1:8080/shop","Interval":"5s"}"#, grpc("shop")),
            (r#"{"GRPC":"127.0.0.1:8080","Interval":"5s"}"#, grpc("")),
        ] {
            let check = read(json).unwrap().registration().unwrap();
            assert_eq!(check.kind, Some(kind), "{json}");
            let seconds = Duration::from_secs(5);
            assert_eq!((check.interval, check.timeout), (seconds, seconds), "{json}");
            assert_eq!((check.healthy_threshold, check.unhealthy_threshold), (1, 1), "{json}");
        }
        let slow = r#"{"TCP":"localhost:8080","Interval":"1m","Timeout":"2s","SuccessBeforePassing":2,
            "failures_before_critical":3}"#;
        let check = read(slow).unwrap().registration().unwrap();
        assert_eq!(check.timeout, Duration::from_secs(2));
        assert_eq!((check.healthy_threshold, check.unhealthy_threshold), (2, 3));
    }

    #[test]
    fn checks_that_are_not_run_are_refused() {
        for (json, part) in [
            ("{}", "Check.TTL: one of TTL, HTTP, TCP and GRPC is needed"),
            (r#"{"TTL":"1s","TCP":"10.0.0.1:8080"}"#, "one of TTL"),
            (r#"{"TTL":"0s"}"#, "Check.TTL: it has to be above zero"),
            (r#"{"Args":["x"],"Interval":"1s"}"#, "Check.Args: Pilotfish runs no scripts"),
            (r#"{"HTTP":"https://10.0.0.1:8080/","Interval":"1s"}"#, "Check.HTTP: checks use http://"),
            (r#"{"HTTP":"http://10.0.0.2:8080/","Interval":"1s"}"#, "is not the instance, 10.0.0.1"),
            (r#"{"HTTP":"http://example.com:8080/","Interval":"1s"}"#, "is not the instance"),
            (r#"{"HTTP":"http://10.0.0.1/","Interval":"1s"}"#, "80 is not the port of the instance, 8080"),
            (r#"{"HTTP":"http://10.0.0.1:8080/"}"#, "Check.Interval: it has to be above zero"),
            (r#"{"HTTP":"http://10.0.0.1:8080/","Interval":"1s","Method":"PUT"}"#, "Check.Method"),
            (r#"{"HTTP":"http://10.0.0.1:8080/","Interval":"1s","Header":{"a":["b"]}}"#, "Check.Header"),
            (r#"{"TCP":"10.0.0.1","Interval":"1s"}"#, "Check.TCP: \"10.0.0.1\" is no host with a port"),
            (r#"{"GRPC":"10.0.0.1:8080","GRPCUseTLS":true,"Interval":"1s"}"#, "Check.GRPCUseTLS"),
            (r#"{"TTL":"1s","Status":"fine"}"#, "Check.Status: \"fine\" is no status"),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.contains(part), "{json}: {error}");
        }
    }
}
