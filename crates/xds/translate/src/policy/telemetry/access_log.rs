//! Access logs of connections and requests, configured by Telemetry, or else by the mesh settings.

use super::format;
use crate::engine::Cx;
use crate::policy::provider::{self, ProviderService, provider_service};
use pilotfish_config::mesh::{ExtensionProvider, MeshConfig};
use pilotfish_config::telemetry::{AccessLogging, LogFilter, LogSelector, Telemetry, WorkloadMode};
use pilotfish_model::Typed;
use pilotfish_proto::envoy::config::accesslog::v3::access_log_filter::FilterSpecifier;
use pilotfish_proto::envoy::config::accesslog::v3::{
    AccessLog, AccessLogFilter, AndFilter, ExtensionFilter, ResponseFlagFilter, access_log, extension_filter,
};
use pilotfish_proto::envoy::config::core::v3::ApiVersion;
use pilotfish_proto::envoy::extensions::access_loggers::file::v3::{FileAccessLog, file_access_log};
use pilotfish_proto::envoy::extensions::access_loggers::filters::cel::v3::ExpressionFilter;
use pilotfish_proto::envoy::extensions::access_loggers::grpc::v3::{
    CommonGrpcAccessLogConfig, HttpGrpcAccessLogConfig, TcpGrpcAccessLogConfig,
};
use pilotfish_proto::envoy::extensions::access_loggers::open_telemetry::v3::OpenTelemetryAccessLogConfig;
use pilotfish_proto::{Any, any};
use std::collections::{BTreeMap, BTreeSet};

/// The access logs of one side of a proxy.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AccessLogs {
    /// Access logs of requests.
    pub http: Vec<AccessLog>,
    /// Access logs of connections.
    pub tcp: Vec<AccessLog>,
    /// Access logs of connections without a matching filter chain.
    pub listener: Vec<AccessLog>,
}

/// Filter state of the metadata exchange about the peers, for access logs that are sent to a service.
const PEERS: [&str; 2] = ["upstream_peer", "downstream_peer"];
/// As above, with the names of older proxies.
const PEERS_OF_ALL_VERSIONS: [&str; 6] = [
    "upstream_peer",
    "downstream_peer",
    "wasm.upstream_peer",
    "wasm.upstream_peer_id",
    "wasm.downstream_peer",
    "wasm.downstream_peer_id",
];

const FILE: &str = "envoy.access_loggers.file";
const HTTP_GRPC: &str = "envoy.access_loggers.http_grpc";
const TCP_GRPC: &str = "envoy.tcp_grpc_access_log";
const OPEN_TELEMETRY: &str = "envoy.access_loggers.open_telemetry";

/// The access logs that these Telemetry objects, else the mesh settings, configure.
#[must_use]
pub(crate) fn of(cx: &Cx<'_>, telemetries: &[Typed<Telemetry>], role: WorkloadMode) -> AccessLogs {
    let mesh = cx.mesh();
    let chosen = choose(telemetries, &mesh, role);
    let mut logs = Vec::new();
    for (name, choice) in &chosen {
        let Some(log) = provider::find(&mesh, name).and_then(|found| of_provider(cx, &mesh, found)) else {
            continue;
        };
        logs.push((log, choice));
    }
    if logs.is_empty() {
        return of_mesh(&mesh);
    }
    let filtered = |unmatched: bool| {
        let kept = logs.iter().filter(|(_, choice)| !choice.disabled);
        kept.map(|((name, config), choice)| {
            let filter = choice.filter.as_ref().map(expression);
            log(name, config.clone(), unmatched.then(no_chain).into_iter().chain(filter).collect())
        })
        .collect::<Vec<_>>()
    };
    let listener = if mesh.disable_envoy_listener_log { Vec::new() } else { filtered(true) };
    AccessLogs { http: filtered(false), tcp: filtered(false), listener }
}

/// Settings of one provider, merged from Telemetries.
#[derive(Clone, Debug, Default, PartialEq)]
struct Choice {
    disabled: bool,
    filter: Option<LogFilter>,
}

/// Returns the providers in use, by name. An object that names providers for the role replaces those of
/// objects before it.
fn choose(
    telemetries: &[Typed<Telemetry>],
    mesh: &MeshConfig,
    role: WorkloadMode,
) -> BTreeMap<String, Choice> {
    let default = &mesh.default_providers.access_logging;
    let levels: Vec<&[AccessLogging]> =
        telemetries.iter().map(|t| &*t.access_logging).filter(|level| !level.is_empty()).collect();
    if levels.is_empty() {
        return default.iter().map(|name| (name.clone(), Choice::default())).collect();
    }
    let names =
        |logging: &AccessLogging| logging.providers.iter().map(|p| p.name.clone()).collect::<Vec<_>>();
    let mut in_scope: BTreeSet<String> = default.iter().cloned().collect();
    let mut filters: BTreeMap<String, Option<LogFilter>> = BTreeMap::new();
    for level in &levels {
        let fitting: Vec<_> = level.iter().filter(|logging| fits(logging.r#match.as_ref(), role)).collect();
        for logging in &fitting {
            filters.extend(names(logging).into_iter().map(|name| (name, logging.filter.clone())));
        }
        let named: BTreeSet<String> = fitting.iter().flat_map(|logging| names(logging)).collect();
        if !named.is_empty() {
            in_scope = named;
        }
    }
    let mut inherited = default.clone();
    let mut chosen = BTreeMap::new();
    for logging in levels.into_iter().flatten() {
        let own = names(logging);
        inherited = if own.is_empty() { inherited } else { own };
        if !fits(logging.r#match.as_ref(), role) {
            continue;
        }
        for name in inherited.iter().filter(|name| in_scope.contains(*name)) {
            let disabled = logging.disabled == Some(true);
            let filter = filters.get(name).cloned().flatten().filter(|_| !disabled);
            chosen.insert(name.clone(), Choice { disabled, filter });
        }
    }
    chosen
}

fn fits(selector: Option<&LogSelector>, role: WorkloadMode) -> bool {
    selector.is_none_or(|selector| selector.mode == WorkloadMode::ClientAndServer || selector.mode == role)
}

fn log(name: &str, config: Any, mut filters: Vec<AccessLogFilter>) -> AccessLog {
    let filter = match filters.len() {
        0 | 1 => filters.pop(),
        _ => Some(AccessLogFilter {
            filter_specifier: Some(FilterSpecifier::AndFilter(AndFilter { filters })),
        }),
    };
    AccessLog {
        name: name.to_owned(),
        filter,
        config_type: Some(access_log::ConfigType::TypedConfig(config)),
    }
}

/// Matches connections without a matching filter chain.
fn no_chain() -> AccessLogFilter {
    let flags = ResponseFlagFilter { flags: vec!["NR".to_owned()] };
    AccessLogFilter { filter_specifier: Some(FilterSpecifier::ResponseFlagFilter(flags)) }
}

fn expression(filter: &LogFilter) -> AccessLogFilter {
    let config = ExpressionFilter { expression: filter.expression.clone(), ..Default::default() };
    let extension = ExtensionFilter {
        name: "envoy.access_loggers.extension_filters.cel".to_owned(),
        config_type: Some(extension_filter::ConfigType::TypedConfig(any(&config))),
    };
    AccessLogFilter { filter_specifier: Some(FilterSpecifier::ExtensionFilter(extension)) }
}

/// Returns the name and configuration of a provider's log; `None` if it is no log provider, or its service is
/// unknown.
fn of_provider(cx: &Cx<'_>, mesh: &MeshConfig, found: &ExtensionProvider) -> Option<(&'static str, Any)> {
    let or = |written: &str, default: &str| {
        if written.is_empty() { default.to_owned() } else { written.to_owned() }
    };
    let states = |written: &[String]| -> Vec<String> {
        if written.is_empty() { PEERS.map(str::to_owned).to_vec() } else { written.to_vec() }
    };
    if let Some(file) = &found.envoy_file_access_log {
        // The built-in provider follows the mesh settings, unless it has a format of its own.
        let plain = found.name == "envoy" && file.log_format.is_none() && !file.omit_empty_values;
        let format = if plain { format::of_mesh(mesh) } else { format::of_file(file) };
        return Some((FILE, any(&file_log(&or(&file.path, "/dev/stdout"), format))));
    }
    if let Some(als) = &found.envoy_http_als {
        let service = provider_service(cx, &als.service, als.port)?;
        let name = or(&als.log_name, "http_envoy_accesslog");
        let config = HttpGrpcAccessLogConfig {
            common_config: Some(common(name, &service, states(&als.filter_state_objects_to_log))),
            additional_request_headers_to_log: als.additional_request_headers_to_log.clone(),
            additional_response_headers_to_log: als.additional_response_headers_to_log.clone(),
            additional_response_trailers_to_log: als.additional_response_trailers_to_log.clone(),
        };
        return Some((HTTP_GRPC, any(&config)));
    }
    if let Some(als) = &found.envoy_tcp_als {
        let service = provider_service(cx, &als.service, als.port)?;
        let name = or(&als.log_name, "tcp_envoy_accesslog");
        let common = common(name, &service, states(&als.filter_state_objects_to_log));
        return Some((TCP_GRPC, any(&TcpGrpcAccessLogConfig { common_config: Some(common) })));
    }
    let als = found.envoy_otel_als.as_ref()?;
    let service = provider_service(cx, &als.service, als.port)?;
    let name = or(&als.log_name, "otel_envoy_accesslog");
    let states = PEERS_OF_ALL_VERSIONS.map(str::to_owned).to_vec();
    #[allow(deprecated, reason = "istiod writes the older field, and proxies of any version understand it")]
    let config = OpenTelemetryAccessLogConfig {
        common_config: Some(common(name, &service, states)),
        disable_builtin_labels: true,
        ..format::open_telemetry(als.log_format.as_ref())
    };
    Some((OPEN_TELEMETRY, any(&config)))
}

fn common(log_name: String, service: &ProviderService, states: Vec<String>) -> CommonGrpcAccessLogConfig {
    CommonGrpcAccessLogConfig {
        log_name,
        grpc_service: Some(provider::grpc(service)),
        transport_api_version: ApiVersion::V3.into(),
        filter_state_objects_to_log: states,
        ..Default::default()
    }
}

fn file_log(
    path: &str,
    format: pilotfish_proto::envoy::config::core::v3::SubstitutionFormatString,
) -> FileAccessLog {
    FileAccessLog {
        path: path.to_owned(),
        access_log_format: Some(file_access_log::AccessLogFormat::LogFormat(format)),
    }
}

/// The access logs of `accessLogFile` and `enableEnvoyAccessLogService`.
fn of_mesh(mesh: &MeshConfig) -> AccessLogs {
    let mut logs = AccessLogs::default();
    if !mesh.access_log_file.is_empty() {
        let config = any(&file_log(&mesh.access_log_file, format::of_mesh(mesh)));
        logs.http.push(log(FILE, config.clone(), Vec::new()));
        logs.tcp.push(log(FILE, config.clone(), Vec::new()));
        logs.listener.push(log(FILE, config, vec![no_chain()]));
    }
    if mesh.enable_envoy_access_log_service {
        // A cluster of the proxy's own bootstrap.
        let service = ProviderService { host: String::new(), cluster: "envoy_accesslog_service".to_owned() };
        let states = || PEERS_OF_ALL_VERSIONS.map(str::to_owned).to_vec();
        let tcp = |name: &str| {
            let common = common(name.to_owned(), &service, states());
            any(&TcpGrpcAccessLogConfig { common_config: Some(common) })
        };
        let common = common("http_envoy_accesslog".to_owned(), &service, states());
        let http = HttpGrpcAccessLogConfig { common_config: Some(common), ..Default::default() };
        logs.http.push(log(HTTP_GRPC, any(&http), Vec::new()));
        logs.tcp.push(log(TCP_GRPC, tcp("tcp_envoy_accesslog"), Vec::new()));
        logs.listener.push(log(TCP_GRPC, tcp("listener_envoy_accesslog"), vec![no_chain()]));
    }
    if mesh.disable_envoy_listener_log {
        logs.listener.clear();
    }
    logs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use pilotfish_config::telemetry::ProviderRef;

    fn logging(providers: &[&str], mode: WorkloadMode, disabled: bool) -> AccessLogging {
        AccessLogging {
            r#match: Some(LogSelector { mode }),
            providers: providers.iter().map(|name| ProviderRef { name: (*name).to_owned() }).collect(),
            disabled: disabled.then_some(true),
            ..Default::default()
        }
    }

    fn chosen(levels: &[Vec<AccessLogging>], role: WorkloadMode) -> Vec<String> {
        let telemetries: Vec<Typed<Telemetry>> = levels
            .iter()
            .map(|level| Telemetry { access_logging: level.clone(), ..Default::default() })
            .filter_map(|spec| object("ns", "t", spec).typed())
            .collect();
        let chosen = choose(&telemetries, &MeshConfig::default(), role);
        chosen.iter().filter(|(_, choice)| !choice.disabled).map(|(name, _)| name.clone()).collect()
    }

    #[test]
    fn the_innermost_object_that_names_providers_decides() {
        use WorkloadMode::{Client, ClientAndServer, Server};
        let root = vec![logging(&["a"], ClientAndServer, false)];
        let own = vec![logging(&["b"], Server, false)];
        assert_eq!(chosen(&[root.clone(), own.clone()], Server), ["b"]);
        assert_eq!(chosen(&[root.clone(), own], Client), ["a"]);
        assert!(chosen(&[root.clone(), vec![logging(&[], Server, true)]], Server).is_empty());
        assert_eq!(chosen(&[root, vec![logging(&[], Server, true)]], Client), ["a"]);
    }
}
