//! The HTTP API of Nacos 1, and its remainder in Nacos 2.

use crate::api::{ApiError, LIMIT, TIMEOUT};
use crate::follower::{ListPage, PAGE};
use crate::mapping::{Scope, ServiceName};
use crate::wire::{Login, ServerState, ServiceListBody};
use bytes::Bytes;
use form_urlencoded::Serializer;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use pilotfish_connect::{HttpClient, HttpRequest, Server};
use pilotfish_nacos_wire::{SEPARATOR, ServiceInfo};
use serde::de::DeserializeOwned;

/// Maximum number of characters of a refusal's message.
const MESSAGE: usize = 200;
/// Login paths of versions 1 and 2, and of version 3.
const LOGINS: [&str; 2] = ["/v1/auth/login", "/v3/auth/user/login"];

/// The HTTP API of one server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct HttpApi {
    client: HttpClient,
    server: Server,
    /// Path prefix of `/v1`, as in `/nacos`.
    base: String,
}

impl HttpApi {
    pub(crate) fn new(client: HttpClient, server: Server, base: &str) -> Self {
        Self { client, server, base: base.to_owned() }
    }

    /// Returns the version of the server; `None` if it does not report one.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub(crate) async fn version(&self) -> Result<Option<String>, ApiError> {
        match self.get::<ServerState>("/v1/console/server/state", "", None).await {
            Ok(state) => Ok(Some(state.version).filter(|version| !version.is_empty())),
            Err(ApiError::Http(error)) => Err(error.into()),
            Err(_) => Ok(None),
        }
    }

    /// Logs in and returns a token with its lifetime.
    ///
    /// # Errors
    /// When the login fails.
    pub(crate) async fn login(&self, username: &str, password: &str) -> Result<Login, ApiError> {
        let body = Serializer::new(String::new())
            .append_pair("username", username)
            .append_pair("password", password)
            .finish();
        let mut result = Err(ApiError::malformed("the login", &"it was not tried"));
        for path in LOGINS {
            let headers: HeaderMap =
                [(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"))]
                    .into_iter()
                    .collect();
            let request = HttpRequest {
                method: Method::POST,
                path: format!("{}{path}", self.base),
                headers,
                body: Bytes::from(body.clone()),
                timeout: TIMEOUT,
                limit: LIMIT,
            };
            result = self.send(path, request).await;
            let is_elsewhere = |code| [404, 405, 410, 501].contains(&code);
            if !matches!(result, Err(ApiError::Refused { code, .. }) if is_elsewhere(code)) {
                break;
            }
        }
        result
    }

    /// Returns one page of the names in a scope.
    ///
    /// # Errors
    /// When the request fails.
    pub(crate) async fn list(
        &self,
        scope: &Scope,
        page: u32,
        token: Option<&str>,
    ) -> Result<ListPage, ApiError> {
        let query = Serializer::new(String::new())
            .append_pair("pageNo", &page.to_string())
            .append_pair("pageSize", &PAGE.to_string())
            .append_pair("groupName", &scope.group)
            .append_pair("namespaceId", &scope.namespace)
            .finish();
        let body: ServiceListBody = self.get("/v1/ns/service/list", &query, token).await?;
        Ok(ListPage { count: body.count, names: body.doms })
    }

    /// Returns the instances of a service, including unhealthy ones.
    ///
    /// # Errors
    /// When the request fails.
    pub(crate) async fn instances(
        &self,
        name: &ServiceName,
        token: Option<&str>,
    ) -> Result<ServiceInfo, ApiError> {
        let query = Serializer::new(String::new())
            .append_pair("serviceName", &format!("{}{SEPARATOR}{}", name.scope.group, name.name))
            .append_pair("namespaceId", &name.scope.namespace)
            .append_pair("healthyOnly", "false")
            .finish();
        self.get("/v1/ns/instance/list", &query, token).await
    }

    async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &str,
        token: Option<&str>,
    ) -> Result<T, ApiError> {
        let mut request = HttpRequest::get(format!("{}{path}?{query}", self.base));
        (request.timeout, request.limit) = (TIMEOUT, LIMIT);
        if let Some(token) = token {
            // In headers, because queries are logged. Servers read one or the other.
            for (name, value) in
                [(AUTHORIZATION.as_str(), format!("Bearer {token}")), ("accessToken", token.to_owned())]
            {
                let mut value = HeaderValue::try_from(value).map_err(|_| {
                    ApiError::malformed("the token", &"it has characters that no header may have")
                })?;
                value.set_sensitive(true);
                let name =
                    http::HeaderName::try_from(name).map_err(|error| ApiError::malformed(name, &error))?;
                request.headers.insert(name, value);
            }
        }
        self.send(path, request).await
    }

    async fn send<T: DeserializeOwned>(&self, path: &str, request: HttpRequest) -> Result<T, ApiError> {
        let answer = self.client.send(&self.server, request).await?;
        if answer.status != StatusCode::OK {
            let message = String::from_utf8_lossy(&answer.body).chars().take(MESSAGE).collect();
            return Err(ApiError::Refused {
                what: path.to_owned(),
                code: answer.status.as_u16().into(),
                message,
            });
        }
        serde_json::from_slice(&answer.body).map_err(|error| ApiError::malformed(path, &error))
    }
}
