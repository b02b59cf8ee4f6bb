//! External authorization (`CUSTOM`): Envoy's ext_authz filters, for extension providers of the mesh
//! settings.

use super::matchers;
use super::rbac::{HTTP, MARKED, TCP, TCP_STATS};
use crate::engine::Cx;
use crate::envoy::{duration, filters};
use crate::policy::provider::{self, ProviderService, provider_service};
use pilotfish_config::mesh::{
    EnvoyExternalAuthorizationGrpcProvider as GrpcProvider,
    EnvoyExternalAuthorizationHttpProvider as HttpProvider, EnvoyExternalAuthorizationRequestBody as Body,
};
use pilotfish_proto::Duration;
use pilotfish_proto::envoy::config::core::v3::{ApiVersion, GrpcService, HeaderValue, HttpUri, http_uri};
use pilotfish_proto::envoy::config::listener::v3::Filter;
use pilotfish_proto::envoy::extensions::filters::http::ext_authz::v3::{
    AuthorizationRequest, AuthorizationResponse, BufferSettings, ExtAuthz, HttpService, ext_authz::Services,
};
use pilotfish_proto::envoy::extensions::filters::network::ext_authz::v3::ExtAuthz as TcpExtAuthz;
use pilotfish_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use pilotfish_proto::envoy::r#type::matcher::v3::{ListStringMatcher, MetadataMatcher, StringMatcher};
use pilotfish_proto::envoy::r#type::v3::{HttpStatus, StatusCode};

/// Start of the names of rules whose matches go to the authorizer of that provider.
pub(super) fn mark(provider: &str) -> String {
    format!("istio-ext-authz-{provider}")
}

/// True for names that a rule's name may hold: 1 to 63 of `a-z`, `0-9` and `-`, which stands at no end.
fn is_usable_name(provider: &str) -> bool {
    let is_allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    (1..=63).contains(&provider.len())
        && provider.bytes().all(is_allowed)
        && !provider.starts_with('-')
        && !provider.ends_with('-')
}

/// Default timeout of a check; so long that the DestinationRule of the service decides.
const TIMEOUT: Duration = Duration { seconds: 600, nanos: 0 };

/// The ext_authz filters of a service.
#[derive(Clone, Debug)]
pub(super) struct Authorizer {
    /// Filter for requests (HTTP).
    pub(super) http: HttpFilter,
    /// For connections, where the service supports them.
    pub(super) tcp: Option<Filter>,
}

impl Authorizer {
    /// The authorizer of a provider; `None` when there is no such provider, it is no authorizer, its name is
    /// no label of DNS, or its service is unknown.
    pub(super) fn find(cx: &Cx<'_>, name: &str) -> Option<Self> {
        let mesh = cx.mesh();
        let provider = mesh.extension_provider(name).filter(|_| is_usable_name(name))?;
        if let Some(http) = &provider.envoy_ext_authz_http {
            return of_http(name, http, provider_service(cx, &http.service, http.port)?);
        }
        let grpc = provider.envoy_ext_authz_grpc.as_ref()?;
        of_grpc(name, grpc, &provider_service(cx, &grpc.service, grpc.port)?)
    }
}

fn of_http(name: &str, provider: &HttpProvider, service: ProviderService) -> Option<Authorizer> {
    let request = &provider.include_request_headers_in_check;
    let request = if request.is_empty() { &provider.include_headers_in_check } else { request };
    let config = ExtAuthz {
        transport_api_version: ApiVersion::V3.into(),
        failure_mode_allow: provider.fail_open,
        status_on_error: status(&provider.status_on_error)?,
        with_request_body: body(provider.include_request_body_in_check.as_ref()),
        allowed_headers: headers(request),
        filter_enabled_metadata: Some(marked(HTTP, name)),
        services: Some(Services::HttpService(http_service(provider, service))),
        ..Default::default()
    };
    Some(Authorizer { http: filters::http("envoy.filters.http.ext_authz", &config), tcp: None })
}

fn http_service(provider: &HttpProvider, service: ProviderService) -> HttpService {
    let added = provider.include_additional_headers_in_check.iter();
    let added: Vec<HeaderValue> = added
        .map(|(key, value)| HeaderValue { key: key.clone(), value: value.clone(), ..Default::default() })
        .collect();
    let response = AuthorizationResponse {
        allowed_upstream_headers: headers(&provider.headers_to_upstream_on_allow),
        allowed_client_headers: headers(&provider.headers_to_downstream_on_deny),
        allowed_client_headers_on_success: headers(&provider.headers_to_downstream_on_allow),
        ..Default::default()
    };
    HttpService {
        server_uri: Some(HttpUri {
            uri: format!("http://{}", service.host),
            timeout: provider.timeout.map(duration).or(Some(TIMEOUT)),
            http_upstream_type: Some(http_uri::HttpUpstreamType::Cluster(service.cluster)),
        }),
        path_prefix: provider.path_prefix.clone(),
        authorization_request: (!added.is_empty())
            .then(|| AuthorizationRequest { headers_to_add: added, ..Default::default() }),
        authorization_response: (response != AuthorizationResponse::default()).then_some(response),
        ..Default::default()
    }
}

fn of_grpc(name: &str, provider: &GrpcProvider, service: &ProviderService) -> Option<Authorizer> {
    let service =
        GrpcService { timeout: provider.timeout.map(duration).or(Some(TIMEOUT)), ..provider::grpc(service) };
    let http = ExtAuthz {
        transport_api_version: ApiVersion::V3.into(),
        failure_mode_allow: provider.fail_open,
        status_on_error: status(&provider.status_on_error)?,
        with_request_body: body(provider.include_request_body_in_check.as_ref()),
        filter_enabled_metadata: Some(marked(HTTP, name)),
        services: Some(Services::GrpcService(service.clone())),
        ..Default::default()
    };
    let tcp = TcpExtAuthz {
        stat_prefix: TCP_STATS.to_owned(),
        grpc_service: Some(service),
        failure_mode_allow: provider.fail_open,
        transport_api_version: ApiVersion::V3.into(),
        filter_enabled_metadata: Some(marked(TCP, name)),
        ..Default::default()
    };
    Some(Authorizer {
        http: filters::http("envoy.filters.http.ext_authz", &http),
        tcp: Some(filters::network("envoy.filters.network.ext_authz", &tcp)),
    })
}

/// The status of requests when the authorizer fails; the outer `None` when what is written is no status.
fn status(written: &str) -> Option<Option<HttpStatus>> {
    if written.is_empty() {
        return Some(None);
    }
    let code = StatusCode::try_from(written.parse::<i32>().ok()?).ok()?;
    Some(Some(HttpStatus { code: code.into() }))
}

fn body(written: Option<&Body>) -> Option<BufferSettings> {
    written.map(|body| BufferSettings {
        max_request_bytes: body.max_request_bytes,
        allow_partial_message: body.allow_partial_message,
        pack_as_bytes: body.pack_as_bytes,
    })
}

/// Header names, with a `*` at one end; `None` for none.
fn headers(names: &[String]) -> Option<ListStringMatcher> {
    let pattern = |name: &String| StringMatcher { ignore_case: true, ..matchers::text(name) };
    (!names.is_empty()).then(|| ListStringMatcher { patterns: names.iter().map(pattern).collect() })
}

/// Meets requests of which a rule for the provider in the RBAC filter before has matched.
fn marked(filter: &str, provider: &str) -> MetadataMatcher {
    let key = format!("{MARKED}shadow_effective_policy_id");
    matchers::metadata(filter, [key.as_str()], matchers::value(matchers::prefix(&mark(provider))))
}
