//! Facts about a request at its destination, on which policies decide.

use super::cluster::Connection;
use super::{Walk, Way, list, text};
use pilotfish_model::{WorkloadKey, WorkloadKind};
use serde_json::Value;
use std::net::IpAddr;

/// A fact, or a description of the unknown one.
pub(super) type Known<T> = Result<T, &'static str>;

/// A request or a connection at the proxy that authorizes it.
pub(super) struct Arrival<'a> {
    /// Request as modified by the proxies before; `None` for a stream of bytes.
    pub(super) request: Option<&'a Way>,
    /// Identity of the client's certificate; `None` without one.
    pub(super) identity: Known<Option<String>>,
    /// Peer address of the connection.
    pub(super) source: Known<IpAddr>,
    /// Client address according to headers.
    pub(super) remote: Known<IpAddr>,
    /// Destination address of the connection.
    pub(super) destination: Known<IpAddr>,
    pub(super) port: u64,
    /// SNI of the connection; empty without TLS.
    pub(super) server_name: Known<String>,
    /// Presence of a token, and of a filter that checks it.
    pub(super) token: Token,
}

/// Token (JWT) of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// No filter checks tokens, so claims are unknown.
    Unchecked,
    Absent,
    /// The request may have one, valid or not.
    Perhaps,
}

const JWT: &str = ".http.jwt_authn.v3.JwtAuthentication";

impl Walk<'_> {
    /// Facts for the sidecar of an endpoint about a connection of this proxy.
    pub(super) fn at_endpoint<'a>(
        &self,
        way: &'a Way,
        connection: &Connection,
        chain: &Value,
        (address, port): (&str, u64),
    ) -> Arrival<'a> {
        let destination = address.parse::<IpAddr>().map_err(|_| "the address of the endpoint");
        let request = http_of(chain).is_some().then_some(way);
        let source = destination
            .ok()
            .and_then(|to| self.proxy.ips.iter().copied().find(|own| own.is_ipv4() == to.is_ipv4()));
        let source = source.ok_or("the client's address");
        Arrival {
            request,
            identity: self.identity(connection, chain),
            remote: if request.is_some() { self.forwarded_for(way, source) } else { source },
            source,
            destination,
            port,
            server_name: connection.server_name.clone(),
            token: token(chain, way),
        }
    }

    /// Facts for this gateway about a request from outside.
    pub(super) fn at_gateway<'a>(&self, way: &'a Way, chain: &Value, port: u64) -> Arrival<'a> {
        let socket = chain.get("transport_socket");
        let asks = socket.and_then(|socket| socket.pointer("/typed_config/require_client_certificate"));
        let asks = asks.and_then(Value::as_bool).unwrap_or_default();
        let address = "the address of the client";
        Arrival {
            request: http_of(chain).is_some().then_some(way),
            identity: if asks { Err("the client's certificate") } else { Ok(None) },
            source: Err(address),
            remote: Err(address),
            destination: Err("the address at which it arrives"),
            port,
            server_name: if way.is_tls() {
                Ok(way.request.host.clone())
            } else {
                Err("the server name of TLS")
            },
            token: token(chain, way),
        }
    }

    fn identity(&self, connection: &Connection, chain: &Value) -> Known<Option<String>> {
        // TLS that the workload itself terminates reveals nothing to the proxy.
        if chain.get("transport_socket").is_none() {
            return Ok(None);
        }
        match connection.is_of_mesh {
            Some(true) => {}
            Some(false) => return Err("the identity in the client's certificate"),
            None => return Ok(None),
        }
        if let Some(own) = &self.proxy.identity {
            let (domain, namespace, account) = (&own.trust_domain, &own.namespace, &own.service_account);
            return Ok(Some(format!("spiffe://{domain}/ns/{namespace}/sa/{account}")));
        }
        let key = WorkloadKey {
            kind: WorkloadKind::Pod,
            namespace: self.proxy.namespace.clone(),
            name: self.proxy.name.clone(),
            cluster: self.proxy.cluster.clone(),
        };
        let workload = self.world().workload(&key);
        let identity = workload.and_then(|workload| workload.identity.as_ref());
        identity.map(|identity| Some(identity.to_string())).ok_or("the client's identity")
    }

    /// Client address from `x-forwarded-for`: sidecars pass it on, and gateways append the address of their
    /// client.
    fn forwarded_for(&self, way: &Way, source: Known<IpAddr>) -> Known<IpAddr> {
        let unknown = "the address of the client";
        if self.is_router() || way.unsure.contains("x-forwarded-for") {
            return Err(unknown);
        }
        match way.request.headers.iter().rfind(|(name, _)| name == "x-forwarded-for") {
            None => source,
            Some((_, all)) => all.rsplit(',').next().and_then(|last| last.trim().parse().ok()).ok_or(unknown),
        }
    }
}

/// HTTP connection manager of a filter chain; `None` if it does not read HTTP.
pub(super) fn http_of(chain: &Value) -> Option<&Value> {
    let is_manager = |config: &&Value| text(config, "/@type").ends_with(".v3.HttpConnectionManager");
    list(chain, "/filters").filter_map(|filter| filter.get("typed_config")).find(is_manager)
}

/// Checks for a token in the places that the JWT filter of a chain reads.
fn token(chain: &Value, way: &Way) -> Token {
    let Some(manager) = http_of(chain) else { return Token::Unchecked };
    let configs = list(manager, "/http_filters").filter_map(|filter| filter.get("typed_config"));
    let Some(jwt) = configs.into_iter().find(|config| text(config, "/@type").ends_with(JWT)) else {
        return Token::Unchecked;
    };
    let providers = jwt.get("providers").and_then(Value::as_object);
    let has =
        |name: &str| way.unsure.contains(name) || way.request.headers.iter().any(|(own, _)| own == name);
    let may_have = |provider: &Value| {
        let headers: Vec<String> =
            list(provider, "/from_headers").map(|from| text(from, "/name").to_ascii_lowercase()).collect();
        let mut parameters = list(provider, "/from_params").filter_map(Value::as_str).peekable();
        let mut cookies = list(provider, "/from_cookies").peekable();
        if headers.is_empty() && parameters.peek().is_none() && cookies.peek().is_none() {
            return has("authorization") || way.request.parameter("access_token").is_some();
        }
        headers.iter().any(|name| has(name))
            || parameters.any(|name| way.request.parameter(name).is_some())
            || cookies.peek().is_some() && has("cookie")
    };
    let any = providers.is_some_and(|providers| providers.values().any(may_have));
    if any { Token::Perhaps } else { Token::Absent }
}
