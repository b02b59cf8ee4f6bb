//! Extension providers of the mesh config. An invalid provider affects only the objects that use it, so its
//! problems are warnings.

use crate::mesh::ExtensionProvider;
use crate::path::Path;
use crate::problem::Checker;
use crate::validate::fields::names::{fqdn_problem, is_ip, is_port, quoted, wildcard_problem};
use crate::validate::fields::values::{log_format, log_labels};
use std::collections::BTreeSet;

pub(super) fn check(providers: &[ExtensionProvider], at: &Path<'_>, checker: &mut Checker) {
    let mut names = BTreeSet::new();
    for (index, provider) in providers.iter().enumerate() {
        let at = at.index(index);
        if provider.name.is_empty() {
            checker.warning(&at.field("name"), "is not set, so nothing can use the provider");
        } else if !names.insert(&provider.name) {
            let message = format!("{} is the name of another provider as well", quoted(&provider.name));
            checker.warning(&at.field("name"), message);
        }
        kinds(provider, &at, checker);
        for service in services(provider) {
            service.check(&at.field(service.kind), checker);
        }
        rest(provider, &at, checker);
    }
}

fn kinds(provider: &ExtensionProvider, at: &Path<'_>, checker: &mut Checker) {
    let others = [
        ("stackdriver", provider.stackdriver.is_some()),
        ("prometheus", provider.prometheus.is_some()),
        ("envoyFileAccessLog", provider.envoy_file_access_log.is_some()),
    ];
    let set: Vec<_> = others
        .into_iter()
        .filter(|(_, set)| *set)
        .map(|(name, _)| name)
        .chain(services(provider).into_iter().map(|service| service.kind))
        .collect();
    match set.len() {
        0 => checker.warning(at, "is of no kind that is known"),
        1 => {}
        _ => checker.warning(at, format!("only one of {} may be set", set.join(", "))),
    }
}

/// The service that a provider runs as.
struct Service<'a> {
    kind: &'static str,
    name: &'a str,
    port: u32,
}

fn services(provider: &ExtensionProvider) -> Vec<Service<'_>> {
    macro_rules! services {
        ($($field:ident = $kind:literal;)*) => {
            [$(provider.$field.as_ref().map(|p| Service { kind: $kind, name: &p.service, port: p.port }),)*]
        };
    }
    let all = services! {
        envoy_ext_authz_http = "envoyExtAuthzHttp";
        envoy_ext_authz_grpc = "envoyExtAuthzGrpc";
        zipkin = "zipkin";
        lightstep = "lightstep";
        datadog = "datadog";
        opencensus = "opencensus";
        skywalking = "skywalking";
        opentelemetry = "opentelemetry";
        envoy_http_als = "envoyHttpAls";
        envoy_tcp_als = "envoyTcpAls";
        envoy_otel_als = "envoyOtelAls";
        sds = "sds";
    };
    all.into_iter().flatten().collect()
}

impl Service<'_> {
    fn check(&self, at: &Path<'_>, checker: &mut Checker) {
        if !is_port(self.port.into()) {
            checker.warning(&at.field("port"), format!("{} is not a port, must be 1 to 65535", self.port));
        }
        // `namespace/host`, or the host alone.
        let good = match self.name.split_once('/') {
            Some((_, host)) => wildcard_problem(host).is_none(),
            None => is_ip(self.name) || fqdn_problem(self.name).is_none(),
        };
        if !good {
            let message = format!("{} is not a service, host or namespace/host", quoted(self.name));
            checker.warning(&at.field("service"), message);
        }
    }
}

fn rest(provider: &ExtensionProvider, at: &Path<'_>, checker: &mut Checker) {
    let status = |text: &str, at: &Path<'_>, checker: &mut Checker| {
        if !text.is_empty() && !text.parse::<u16>().is_ok_and(|code| (200..=599).contains(&code)) {
            let message = format!("{} is not the status of an answer, 200 to 599", quoted(text));
            checker.warning(&at.field("statusOnError"), message);
        }
    };
    if let Some(format) = provider.envoy_file_access_log.as_ref().and_then(|log| log.log_format.as_ref()) {
        let log = at.field("envoyFileAccessLog");
        let at = log.field("logFormat");
        log_format(format.text.as_deref().unwrap_or_default(), &at.field("text"), checker);
        for (label, value) in format.labels.iter().flatten() {
            let labels = at.field("labels");
            log_labels(value, &labels.key(label), checker);
        }
    }
    if let Some(authorizer) = &provider.envoy_ext_authz_http {
        let at = at.field("envoyExtAuthzHttp");
        status(&authorizer.status_on_error, &at, checker);
        if !authorizer.path_prefix.is_empty() && !authorizer.path_prefix.starts_with('/') {
            checker.warning(&at.field("pathPrefix"), "must begin with '/'");
        }
    }
    if let Some(authorizer) = &provider.envoy_ext_authz_grpc {
        status(&authorizer.status_on_error, &at.field("envoyExtAuthzGrpc"), checker);
    }
    if provider.lightstep.as_ref().is_some_and(|tracer| tracer.access_token.is_empty()) {
        checker.warning(&at.field("lightstep").field("accessToken"), "is not set");
    }
    if provider.opentelemetry.as_ref().is_some_and(|tracer| tracer.http.is_some() && tracer.grpc.is_some()) {
        checker.warning(&at.field("opentelemetry"), "only one of http, grpc may be set");
    }
}
