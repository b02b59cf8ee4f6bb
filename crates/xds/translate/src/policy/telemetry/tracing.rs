//! Tracing: how many requests, where to, and with which tags; by Telemetry, else by the proxy's own settings.

use crate::engine::Cx;
use crate::envoy::duration;
use crate::policy::provider::{self, ProviderService, provider_service};
use hcm::http_connection_manager::Tracing;
use pilotfish_config::mesh::{
    ExtensionProvider, MeshConfig, OpenTelemetryTracingProvider, ProxyConfig, ServiceAttributeEnrichment,
    TraceContextOption, ZipkinTracingProvider,
};
use pilotfish_config::telemetry::{CustomTag as Written, Telemetry, Tracing as Setting, WorkloadMode};
use pilotfish_model::Typed;
use pilotfish_proto::envoy::config::core::v3::{HttpService, TypedExtensionConfig};
use pilotfish_proto::envoy::config::trace::v3::tracing::{Http, http};
use pilotfish_proto::envoy::config::trace::v3::{
    DatadogConfig, OpenTelemetryConfig, SkyWalkingConfig, ZipkinConfig, zipkin_config,
};
use pilotfish_proto::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use pilotfish_proto::envoy::extensions::tracers::opentelemetry::resource_detectors::v3::{
    DynatraceResourceDetectorConfig, EnvironmentResourceDetectorConfig,
};
use pilotfish_proto::envoy::extensions::tracers::opentelemetry::samplers::v3::DynatraceSamplerConfig;
use pilotfish_proto::envoy::r#type::metadata::v3::metadata_key::{PathSegment, path_segment};
use pilotfish_proto::envoy::r#type::metadata::v3::metadata_kind::{Kind, Request};
use pilotfish_proto::envoy::r#type::metadata::v3::{MetadataKey, MetadataKind};
use pilotfish_proto::envoy::r#type::tracing::v3::{CustomTag, custom_tag};
use pilotfish_proto::envoy::r#type::v3::Percent;
use pilotfish_proto::{Any, Duration, any, config_any};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Names of a proxy in its spans.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Tags {
    /// Label `service.istio.io/canonical-name` of the workload.
    pub service: Arc<str>,
    /// Label `service.istio.io/canonical-revision` of the workload.
    pub revision: Arc<str>,
    /// Node metadata `MESH_ID`, sent as `istio.mesh_id`.
    pub mesh: Arc<str>,
    /// Node metadata `CLUSTER_ID`, sent as `istio.cluster_id`.
    pub cluster: Arc<str>,
    /// Node metadata `NAMESPACE`, sent as `istio.namespace`.
    pub namespace: Arc<str>,
    /// The service name of its spans, which is the node's cluster.
    pub service_name: Arc<str>,
    /// The service name by OpenTelemetry's conventions.
    pub workload_name: Arc<str>,
    /// True if its Envoy can leave trace headers alone.
    pub can_stop_propagation: bool,
    /// True if it starts a span of its own for requests that it passes on.
    pub is_router: bool,
}

/// The tracing settings of a connection manager.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Traced {
    /// The tracing; `None` when nothing is traced.
    pub tracing: Option<Tracing>,
    /// True if the request id decides which requests are traced.
    pub sample_by_request_id: bool,
}

/// Default timeout of exports to a collector.
const TIMEOUT: Duration = Duration { seconds: 5, nanos: 0 };

/// The tracing of one side of a proxy.
#[must_use]
pub(crate) fn of(
    cx: &Cx<'_>,
    telemetries: &[Typed<Telemetry>],
    role: WorkloadMode,
    config: &ProxyConfig,
    tags: &Tags,
) -> Traced {
    let mesh = cx.mesh();
    let settings: Vec<&Setting> = telemetries.iter().flat_map(|telemetry| &telemetry.tracing).collect();
    if settings.is_empty() && mesh.default_providers.tracing.is_empty() {
        return Traced { tracing: of_proxy(&mesh, config, tags), sample_by_request_id: true };
    }
    let spec = Spec::merge(&settings, &mesh, role);
    let found = spec.provider.filter(|_| !spec.disabled).and_then(|found| of_provider(cx, found, tags));
    let Some(found) = found else { return Traced { tracing: None, sample_by_request_id: true } };
    let own = spec.sampling.unwrap_or_else(|| sampling(config));
    let mut tracing = found.tracing;
    tracing.no_context_propagation = spec.no_propagation && tags.can_stop_propagation;
    sample(&mut tracing, if found.samples_itself { 100.0 } else { own });
    let written = if spec.tags.is_empty() { tags_of_proxy(config) } else { spec.tags.clone() };
    tracing.custom_tags = custom_tags(spec.istio_tags.then_some(tags), &written);
    if tracing.max_path_tag_length.is_none() {
        tracing.max_path_tag_length = path_length(config);
    }
    Traced { tracing: Some(tracing), sample_by_request_id: spec.by_request_id }
}

/// Tracing to the collector of the proxy's own bootstrap.
fn of_proxy(mesh: &MeshConfig, config: &ProxyConfig, tags: &Tags) -> Option<Tracing> {
    if !mesh.enable_tracing {
        return None;
    }
    let settings = config.tracing.as_ref();
    let istio_tags = settings.and_then(|settings| settings.enable_istio_tags).unwrap_or(true);
    let mut tracing = Tracing {
        max_path_tag_length: path_length(config),
        custom_tags: custom_tags(istio_tags.then_some(tags), &tags_of_proxy(config)),
        ..Default::default()
    };
    sample(&mut tracing, sampling(config));
    Some(tracing)
}

/// The settings of Telemetry objects for one side, the later ones overriding.
struct Spec<'a> {
    provider: Option<&'a ExtensionProvider>,
    disabled: bool,
    sampling: Option<f64>,
    tags: BTreeMap<String, Written>,
    by_request_id: bool,
    istio_tags: bool,
    no_propagation: bool,
}

impl<'a> Spec<'a> {
    fn merge(settings: &[&Setting], mesh: &'a MeshConfig, role: WorkloadMode) -> Self {
        let default = mesh.default_providers.tracing.first();
        let mut spec = Self {
            provider: default.and_then(|name| provider::find(mesh, name)),
            disabled: false,
            sampling: None,
            tags: BTreeMap::new(),
            by_request_id: true,
            istio_tags: true,
            no_propagation: false,
        };
        let fits = |setting: &&&Setting| {
            let mode = setting.r#match.as_ref().map_or(WorkloadMode::ClientAndServer, |m| m.mode);
            mode == WorkloadMode::ClientAndServer || mode == role
        };
        for setting in settings.iter().filter(fits) {
            if let Some(first) = setting.providers.first() {
                spec.provider = provider::find(mesh, &first.name);
            }
            spec.disabled = setting.disable_span_reporting.unwrap_or(spec.disabled);
            spec.sampling = setting.random_sampling_percentage.or(spec.sampling);
            spec.by_request_id = setting.use_request_id_for_trace_sampling.unwrap_or(spec.by_request_id);
            spec.no_propagation = setting.disable_context_propagation.unwrap_or(spec.no_propagation);
            spec.istio_tags = setting.enable_istio_tags.unwrap_or(spec.istio_tags);
            if !setting.custom_tags.is_empty() {
                spec.tags.clone_from(&setting.custom_tags);
            }
        }
        spec
    }
}

/// Tracing settings of one provider.
struct Tracer {
    tracing: Tracing,
    /// True if the tracer decides which requests are traced.
    samples_itself: bool,
}

/// The tracer of a provider; `None` when it is no tracer that is served, or its service is unknown.
fn of_provider(cx: &Cx<'_>, found: &ExtensionProvider, tags: &Tags) -> Option<Tracer> {
    let (mut length, mut samples_itself) = (0, false);
    let mut child = tags.is_router.then_some(true);
    let (name, config): (&str, Any) = if let Some(zipkin) = &found.zipkin {
        length = zipkin.max_tag_length;
        (
            "envoy.tracers.zipkin",
            any(&of_zipkin(zipkin, &provider_service(cx, &zipkin.service, zipkin.port)?)),
        )
    } else if let Some(datadog) = &found.datadog {
        length = datadog.max_tag_length;
        let service = provider_service(cx, &datadog.service, datadog.port)?;
        let config = DatadogConfig {
            collector_cluster: service.cluster,
            service_name: tags.service_name.to_string(),
            collector_hostname: service.host,
            ..Default::default()
        };
        ("envoy.tracers.datadog", any(&config))
    } else if let Some(skywalking) = &found.skywalking {
        child = Some(true);
        let service = provider_service(cx, &skywalking.service, skywalking.port)?;
        let config = SkyWalkingConfig { grpc_service: Some(provider::grpc(&service)), ..Default::default() };
        ("envoy.tracers.skywalking", any(&config))
    } else {
        let otel = found.opentelemetry.as_ref()?;
        length = otel.max_tag_length;
        samples_itself = otel.dynatrace_sampler.is_some();
        ("envoy.tracers.opentelemetry", any(&of_open_telemetry(cx, otel, tags)?))
    };
    let tracing = Tracing {
        provider: Some(Http {
            name: name.to_owned(),
            config_type: Some(http::ConfigType::TypedConfig(config)),
        }),
        max_path_tag_length: (length > 0).then_some(length),
        spawn_upstream_span: child,
        ..Default::default()
    };
    Some(Tracer { tracing, samples_itself })
}

fn of_zipkin(written: &ZipkinTracingProvider, service: &ProviderService) -> ZipkinConfig {
    let path = if written.path.is_empty() { "/api/v2/spans" } else { &written.path };
    let timeout = written.timeout.map(duration).or(Some(TIMEOUT));
    let uri = format!("http://{}{path}", service.host);
    ZipkinConfig {
        collector_endpoint_version: zipkin_config::CollectorEndpointVersion::HttpJson.into(),
        trace_id_128bit: !written.enable_64bit_trace_id,
        shared_span_context: Some(false),
        collector_service: Some(provider::http(service, uri, timeout, &written.headers)),
        trace_context_option: match written.trace_context_option {
            TraceContextOption::UseB3 => zipkin_config::TraceContextOption::UseB3.into(),
            TraceContextOption::UseB3WithW3cPropagation => {
                zipkin_config::TraceContextOption::UseB3WithW3cPropagation.into()
            }
        },
        ..Default::default()
    }
}

fn of_open_telemetry(
    cx: &Cx<'_>,
    written: &OpenTelemetryTracingProvider,
    tags: &Tags,
) -> Option<OpenTelemetryConfig> {
    let service = provider_service(cx, &written.service, written.port)?;
    let by_conventions =
        written.service_attribute_enrichment == ServiceAttributeEnrichment::OtelSemanticConventions;
    let service_name = if by_conventions { &tags.workload_name } else { &tags.service_name };
    let mut config = OpenTelemetryConfig { service_name: service_name.to_string(), ..Default::default() };
    if let Some(http) = &written.http {
        let uri = join(&service.host, &http.path);
        let timeout = http.timeout.map(duration);
        config.http_service = Some(provider::http(&service, uri, timeout, &http.headers));
    } else {
        let mut grpc = provider::grpc(&service);
        if let Some(settings) = &written.grpc {
            grpc.timeout = settings.timeout.map(duration);
            grpc.initial_metadata = settings.initial_metadata.iter().map(provider::header_value).collect();
        }
        config.grpc_service = Some(grpc);
    }
    let detectors = written.resource_detectors.as_ref();
    let detector = |name: &str, typed_config: Option<Any>| TypedExtensionConfig {
        name: format!("envoy.tracers.opentelemetry.resource_detectors.{name}"),
        typed_config,
    };
    let environment = detectors.and_then(|detectors| detectors.environment.as_ref());
    let dynatrace = detectors.and_then(|detectors| detectors.dynatrace.as_ref());
    let of_environment =
        || detector("environment", config_any(&EnvironmentResourceDetectorConfig::default()));
    let found = [
        environment.map(|_| of_environment()),
        dynatrace.map(|_| detector("dynatrace", config_any(&DynatraceResourceDetectorConfig::default()))),
        (by_conventions && environment.is_none()).then(of_environment),
    ];
    config.resource_detectors = found.into_iter().flatten().collect();
    if written.dynatrace_sampler.is_some() {
        config.sampler = Some(dynatrace_sampler(cx, written, &service)?);
    }
    Some(config)
}

/// The sampler calls Dynatrace's API, by default where spans go.
fn dynatrace_sampler(
    cx: &Cx<'_>,
    written: &OpenTelemetryTracingProvider,
    service: &ProviderService,
) -> Option<TypedExtensionConfig> {
    let sampler = written.dynatrace_sampler.as_ref()?;
    let http_service: HttpService = match &sampler.http_service {
        None => {
            let http = written.http.as_ref()?;
            let uri = join(&service.host, "api/v2/samplingConfiguration");
            provider::http(service, uri, http.timeout.map(duration), &http.headers)
        }
        Some(api) => {
            let named = provider_service(cx, &api.service, api.port)?;
            let http = api.http.as_ref()?;
            let uri = join(&named.host, &http.path);
            provider::http(&named, uri, http.timeout.map(duration), &http.headers)
        }
    };
    let config = DynatraceSamplerConfig {
        tenant: sampler.tenant.clone(),
        cluster_id: sampler.cluster_id,
        root_spans_per_minute: sampler.root_spans_per_minute,
        http_service: Some(http_service),
    };
    Some(TypedExtensionConfig {
        name: "envoy.tracers.opentelemetry.samplers.dynatrace".to_owned(),
        typed_config: config_any(&config),
    })
}

fn join(host: &str, path: &str) -> String {
    match path.trim_start_matches('/') {
        "" => host.to_owned(),
        path => format!("{host}/{path}"),
    }
}

fn sample(tracing: &mut Tracing, random: f64) {
    tracing.client_sampling = Some(Percent { value: 100.0 });
    tracing.random_sampling = Some(Percent { value: random });
    tracing.overall_sampling = Some(Percent { value: 100.0 });
}

/// One percent where nothing sensible is written.
fn sampling(config: &ProxyConfig) -> f64 {
    let written = config.tracing.as_ref().map_or(0.0, |settings| settings.sampling);
    if written > 0.0 && written <= 100.0 { written } else { 1.0 }
}

fn path_length(config: &ProxyConfig) -> Option<u32> {
    config.tracing.as_ref().map(|settings| settings.max_path_tag_length).filter(|length| *length > 0)
}

/// The tags of the proxy's own settings, which know no format strings.
fn tags_of_proxy(config: &ProxyConfig) -> BTreeMap<String, Written> {
    let mut tags = config.tracing.as_ref().map(|s| s.custom_tags.clone()).unwrap_or_default();
    tags.retain(|_, tag| !matches!(tag, Written::Formatter(_)));
    tags
}

/// Tags in order of their names.
fn custom_tags(own: Option<&Tags>, written: &BTreeMap<String, Written>) -> Vec<CustomTag> {
    let own = own.into_iter().flat_map(|tags| dry_run_tags().chain(istio_tags(tags)));
    let all = own.chain(written.iter().filter_map(custom));
    let mut list: Vec<CustomTag> = all.map(|(tag, kind)| CustomTag { tag, r#type: Some(kind) }).collect();
    list.sort_by(|a, b| a.tag.cmp(&b.tag));
    list
}

/// Tags with the decisions of authorization policies in dry-run mode.
fn dry_run_tags() -> impl Iterator<Item = (String, custom_tag::Type)> {
    let parts = [("name", "effective_policy_id"), ("result", "engine_result")];
    ["allow", "deny"].into_iter().flat_map(move |action| {
        parts.into_iter().map(move |(part, key)| {
            let segment = path_segment::Segment::Key(format!("istio_dry_run_{action}_shadow_{key}"));
            let metadata = custom_tag::Metadata {
                kind: Some(MetadataKind { kind: Some(Kind::Request(Request {})) }),
                metadata_key: Some(MetadataKey {
                    key: "envoy.filters.http.rbac".to_owned(),
                    path: vec![PathSegment { segment: Some(segment) }],
                }),
                ..Default::default()
            };
            let tag = format!("istio.authorization.dry_run.{action}_policy.{part}");
            (tag, custom_tag::Type::Metadata(metadata))
        })
    })
}

/// Tags that identify the proxy (`istio.*`).
fn istio_tags(tags: &Tags) -> impl Iterator<Item = (String, custom_tag::Type)> {
    let named = [
        ("canonical_revision", &tags.revision),
        ("canonical_service", &tags.service),
        ("cluster_id", &tags.cluster),
        ("mesh_id", &tags.mesh),
        ("namespace", &tags.namespace),
    ];
    named.map(|(tag, value)| (format!("istio.{tag}"), literal(value))).into_iter()
}

fn literal(value: &str) -> custom_tag::Type {
    custom_tag::Type::Literal(custom_tag::Literal { value: value.to_owned() })
}

/// A tag of the settings; one without a source of its value is left out.
fn custom((tag, written): (&String, &Written)) -> Option<(String, custom_tag::Type)> {
    let value = match written {
        Written::Unset => return None,
        Written::Literal(written) => literal(&written.value),
        Written::Environment(variable) => custom_tag::Type::Environment(custom_tag::Environment {
            name: variable.name.clone(),
            default_value: variable.default_value.clone(),
        }),
        Written::Header(header) => custom_tag::Type::RequestHeader(custom_tag::Header {
            name: header.name.clone(),
            default_value: header.default_value.clone(),
        }),
        Written::Formatter(formatter) => custom_tag::Type::Value(formatter.value.clone()),
    };
    Some((tag.clone(), value))
}
