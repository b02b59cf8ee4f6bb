//! Filters of HTTPRoute and GRPCRoute.

use super::{BackendObjectReference, ObjectReference};
use crate::kinds::message::message;
use serde::{Deserialize, Serialize};

message! {
/// A step that changes or answers a request; `type` names the field that is set.
pub struct RouteFilter {
    pub r#type: RouteFilterType,
    pub request_header_modifier: Option<HeaderFilter>,
    pub response_header_modifier: Option<HeaderFilter>,
    pub request_mirror: Option<RequestMirrorFilter>,
    pub request_redirect: Option<RequestRedirectFilter>,
    pub url_rewrite: Option<UrlRewriteFilter>,
    pub cors: Option<CorsFilter>,
    pub external_auth: Option<serde_json::Value>,
    pub extension_ref: Option<ObjectReference>,
}

/// Headers that are set, added and removed.
pub struct HeaderFilter {
    pub set: Vec<HttpHeader>,
    pub add: Vec<HttpHeader>,
    pub remove: Vec<String>,
}

pub struct HttpHeader {
    pub name: String,
    pub value: String,
}

/// A copy of requests to another backend; percent and fraction are a oneof.
pub struct RequestMirrorFilter {
    pub backend_ref: BackendObjectReference,
    pub percent: Option<i32>,
    pub fraction: Option<Fraction>,
}

/// Redirect response: scheme, host, port, path and status of its location.
pub struct RequestRedirectFilter {
    pub scheme: Option<String>,
    pub hostname: Option<String>,
    pub path: Option<PathModifier>,
    pub port: Option<u16>,
    /// Status of the response; 302 by default.
    pub status_code: Option<u16>,
}

/// Replacement of host or path towards the backend.
pub struct UrlRewriteFilter {
    pub hostname: Option<String>,
    pub path: Option<PathModifier>,
}

/// Replacement of a path or of its prefix; `type` names the field that is set.
pub struct PathModifier {
    pub r#type: PathModifierType,
    pub replace_full_path: Option<String>,
    pub replace_prefix_match: Option<String>,
}
}

/// Fraction of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Fraction {
    pub numerator: i32,
    pub denominator: i32,
}

impl Default for Fraction {
    fn default() -> Self {
        Self { numerator: 0, denominator: 100 }
    }
}

/// Cross-origin policy (CORS) that the gateway enforces.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CorsFilter {
    pub allow_origins: Vec<String>,
    pub allow_credentials: Option<bool>,
    pub allow_methods: Vec<String>,
    pub allow_headers: Vec<String>,
    pub expose_headers: Vec<String>,
    /// Lifetime of a preflight response in the browser's cache, in seconds; 5 by default.
    pub max_age: i32,
}

impl Default for CorsFilter {
    fn default() -> Self {
        Self {
            allow_origins: Vec::new(),
            allow_credentials: None,
            allow_methods: Vec::new(),
            allow_headers: Vec::new(),
            expose_headers: Vec::new(),
            max_age: 5,
        }
    }
}

/// Discriminator of a filter: names the field that is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum RouteFilterType {
    /// Nothing written; rejected by validation.
    #[default]
    #[serde(skip)]
    Unset,
    RequestHeaderModifier,
    ResponseHeaderModifier,
    RequestMirror,
    RequestRedirect,
    #[serde(rename = "URLRewrite")]
    UrlRewrite,
    #[serde(rename = "CORS")]
    Cors,
    ExternalAuth,
    ExtensionRef,
}

/// Discriminator of a [`PathModifier`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum PathModifierType {
    #[default]
    ReplaceFullPath,
    ReplacePrefixMatch,
}
