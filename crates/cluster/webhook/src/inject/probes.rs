//! Probes of a Pod that its sidecar answers: a kubelet has no certificate, so it cannot probe a program whose
//! connections must be mutual TLS.
//!
//! ```text
//!  kubelet ─▶ sidecar:15020/app-health/CONTAINER/readyz ─▶ program's port, as the Pod's author wrote it
//! ```
//!
//! Paths, annotations and port are Istio's.

use super::json::{Fields, Json};
use serde_json::Number;
use std::collections::BTreeMap;

/// Default port of a sidecar for rewritten probes.
pub const STATUS_PORT: u16 = 15020;
/// Annotation with another port, 0 for none.
pub(super) const STATUS_PORT_ANNOTATION: &str = "status.sidecar.istio.io/port";
/// Value for Pods without that annotation.
pub(super) const STATUS_PORT_VALUE: &str = "statusPort";
/// Annotation that turns rewriting on or off.
const REWRITE_ANNOTATION: &str = "sidecar.istio.io/rewriteAppHTTPProbers";
/// Value for Pods without that annotation.
pub(super) const REWRITE_VALUE: &str = "rewriteAppHTTPProbe";
/// Value that is `false` if the sidecar starts after all init containers.
const NATIVE_VALUE: &str = "nativeSidecar";
/// Ports of the sidecar itself, which need no mutual TLS.
const OWN_PORTS: [u16; 2] = [15021, 15090];
/// Maximum number of rewritten probes. All are in one argument of the sidecar, which Linux limits to 128 KiB.
const MOST: usize = 50;

/// A probe that the sidecar answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Container of the program.
    pub container: String,
    /// Last part of the path: `readyz`, `livez` or `startupz`.
    pub kind: &'static str,
    /// Port of the program.
    pub port: u16,
    /// Time for an answer in seconds.
    pub timeout: u32,
    /// Interval in seconds.
    pub period: u32,
    pub check: Check,
}

/// Check of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    Http {
        /// HTTPS, with any certificate.
        is_tls: bool,
        /// Path and query of the request, as they are sent.
        path: String,
        /// Names of the probe's own headers, in lower case.
        headers: Vec<String>,
    },
    /// The port accepts a connection.
    Tcp,
    /// `grpc.health.v1.Health/Check`.
    Grpc {
        /// Requested service; empty for the server as a whole.
        service: String,
    },
}

impl Probe {
    /// Path at which the sidecar answers.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/app-health/{}/{}", self.container, self.kind)
    }
}

/// Rewritten probes of a Pod.
#[derive(Debug, Default)]
pub(super) struct Rewrite {
    /// Port of the sidecar.
    pub(super) port: u16,
    pub(super) probes: Vec<Probe>,
    /// Field of each probe in the Pod.
    places: Vec<Place>,
    pub(super) warnings: Vec<String>,
}

/// Container list, index in it, and field of a probe.
type Place = (&'static str, usize, &'static str);

/// Fields with the last part of their path.
const KINDS: [(&str, &str); 3] =
    [("readinessProbe", "readyz"), ("livenessProbe", "livez"), ("startupProbe", "startupz")];

/// Reason why a text is no value of [`REWRITE_VALUE`].
pub(super) fn wrong_switch(text: &str) -> Option<String> {
    switch(text).is_none().then(|| format!("{text:?} is neither true nor false"))
}

/// Reason why a text is no value of [`STATUS_PORT_ANNOTATION`].
pub(super) fn wrong_port(text: &str) -> Option<String> {
    text.parse::<u16>().is_err().then(|| format!("{text:?} is no port"))
}

/// A boolean as Go's `strconv.ParseBool` reads it.
fn switch(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

impl Rewrite {
    /// Finds the probes to rewrite.
    pub(super) fn of(
        pod: &Json,
        annotations: &BTreeMap<&str, &str>,
        values: &BTreeMap<String, String>,
    ) -> Self {
        let mut this = Self { port: STATUS_PORT, ..Self::default() };
        let port = annotations.get(STATUS_PORT_ANNOTATION).copied();
        let port = port.or_else(|| values.get(STATUS_PORT_VALUE).map(String::as_str));
        if let Some(port) = port.and_then(|text| text.parse().ok()) {
            this.port = port;
        }
        let is_on = values.get(REWRITE_VALUE).and_then(|text| switch(text)).unwrap_or(true);
        let own = annotations.get(REWRITE_ANNOTATION);
        if let Some(why) = own.and_then(|text| wrong_switch(text)) {
            this.warnings.push(format!("metadata.annotations[{REWRITE_ANNOTATION:?}]: {why}; ignored"));
        }
        if this.port == 0 || !own.and_then(|text| switch(text)).unwrap_or(is_on) {
            return this;
        }
        // The probes of init containers are made before a sidecar that is none of them starts.
        let is_native = values.get(NATIVE_VALUE).is_none_or(|text| text != "false");
        let lists: &[&'static str] =
            if is_native { &["containers", "initContainers"] } else { &["containers"] };
        for &list in lists {
            let containers = pod.at(&["spec", list]).map(Json::items).unwrap_or_default();
            for (index, container) in containers.iter().enumerate() {
                this.add_container(container, list, index);
            }
        }
        if this.probes.len() > MOST {
            let many = this.probes.len();
            this.warnings.push(format!("{many} probes; the sidecar answers {MOST} of them at most"));
            this.probes.truncate(MOST);
            this.places.truncate(MOST);
        }
        this
    }

    fn add_container(&mut self, container: &Json, list: &'static str, index: usize) {
        let name = container.word("name");
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        // API servers refuse other names.
        if name.is_empty() || !name.chars().all(is_plain) {
            return;
        }
        for (field, kind) in KINDS {
            let Some((check, port)) = container.get(field).and_then(|probe| read(probe, container)) else {
                continue;
            };
            if port == self.port || OWN_PORTS.contains(&port) {
                continue;
            }
            let seconds = |name: &str, default| {
                let written = container.get(field).and_then(|probe| number(probe.get(name)?));
                written.filter(|seconds| *seconds != 0).unwrap_or(default)
            };
            self.probes.push(Probe {
                container: name.to_owned(),
                kind,
                port,
                timeout: seconds("timeoutSeconds", 1),
                period: seconds("periodSeconds", 10),
                check,
            });
            self.places.push((list, index, field));
        }
    }

    /// Points the kubelet to the sidecar. The probes' other fields stay.
    pub(super) fn apply(&self, pod: &mut Json) {
        for (probe, (list, index, field)) in self.probes.iter().zip(&self.places) {
            let Some(Json::List(containers)) = pod.at_mut(&["spec", list]) else { continue };
            let written = containers.get_mut(*index).and_then(|container| container.at_mut(&[field]));
            let Some(Json::Map(written)) = written else { continue };
            let old = ["httpGet", "tcpSocket", "grpc"].map(|handler| written.shift_remove(handler));
            let mut request = Fields::new();
            request.insert("path".to_owned(), Json::Text(probe.path()));
            request.insert("port".to_owned(), Json::Number(Number::from(self.port)));
            if let Some(headers) = old[0].as_ref().and_then(|old| old.get("httpHeaders")) {
                request.insert("httpHeaders".to_owned(), headers.clone());
            }
            written.shift_insert(0, "httpGet".to_owned(), Json::Map(request));
        }
    }
}

/// Check and port of a probe; `None` if no connection to the Pod is made, or its port is unknown.
fn read(probe: &Json, container: &Json) -> Option<(Check, u16)> {
    let given = |handler: &str| probe.get(handler).filter(|value| matches!(value, Json::Map(_)));
    let (handler, check) = match (given("httpGet"), given("tcpSocket"), given("grpc")) {
        (Some(http), None, None) => (http, http_check(http)),
        (None, Some(tcp), None) => (tcp, Check::Tcp),
        (None, None, Some(grpc)) => (grpc, Check::Grpc { service: grpc.word("service").to_owned() }),
        // None of these, or more than Kubernetes permits.
        _ => return None,
    };
    // Kubelets connect to that host, and not to the Pod.
    if !handler.word("host").is_empty() {
        return None;
    }
    Some((check, port_of(handler.get("port")?, container)?))
}

fn http_check(http: &Json) -> Check {
    let headers = http.get("httpHeaders").map(Json::items).unwrap_or_default();
    Check::Http {
        is_tls: http.word("scheme").eq_ignore_ascii_case("HTTPS"),
        path: target(http.word("path")),
        headers: headers.iter().map(|header| header.word("name").to_ascii_lowercase()).collect(),
    }
}

/// Request target of a path as kubelets send it: absolute, without a fragment, and encoded.
fn target(path: &str) -> String {
    let path = path.split('#').next().unwrap_or_default();
    let mut target = String::with_capacity(path.len() + 1);
    if !path.starts_with('/') {
        target.push('/');
    }
    for byte in path.bytes() {
        match byte {
            b'!'..=b'~' => target.push(char::from(byte)),
            _ => target.push_str(&format!("%{byte:02X}")),
        }
    }
    target
}

/// Port of a probe by its number, or by its name in the container.
fn port_of(port: &Json, container: &Json) -> Option<u16> {
    let number = match port {
        Json::Text(name) => {
            let ports = container.get("ports").map(Json::items).unwrap_or_default();
            match ports.iter().find(|port| port.word("name") == name) {
                Some(named) => number(named.get("containerPort")?)?,
                None => name.parse().ok()?,
            }
        }
        port => number(port)?,
    };
    u16::try_from(number).ok().filter(|port| *port != 0)
}

fn number(value: &Json) -> Option<u32> {
    match value {
        Json::Number(number) => number.as_u64().and_then(|number| u32::try_from(number).ok()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
