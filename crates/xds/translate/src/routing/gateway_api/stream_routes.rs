//! TCPRoute and TLSRoute: their rules as routes of a VirtualService.

use super::backends::{Malformed, Referrer, stream_destinations};
use crate::engine::Cx;
use pilotfish_config::gateway_api::StreamRouteRule;
use pilotfish_config::networking::{L4MatchAttributes, TcpRoute, TlsMatchAttributes, TlsRoute};

/// The routes of a TCPRoute, for one port or for all.
pub(super) fn tcp(
    cx: &Cx<'_>,
    rules: &[StreamRouteRule],
    port: Option<u16>,
    referrer: Referrer<'_>,
) -> Result<Vec<TcpRoute>, Malformed> {
    let conditions: Vec<L4MatchAttributes> = port
        .map(|port| L4MatchAttributes { port: port.into(), ..L4MatchAttributes::default() })
        .into_iter()
        .collect();
    let route = |rule: &StreamRouteRule| {
        Ok(TcpRoute {
            r#match: conditions.clone(),
            route: stream_destinations(cx, &rule.backend_refs, referrer)?,
        })
    };
    rules.iter().map(route).collect()
}

/// The routes of a TLSRoute for these server names, for one port or for all.
pub(super) fn tls(
    cx: &Cx<'_>,
    rules: &[StreamRouteRule],
    names: &[String],
    port: Option<u16>,
    referrer: Referrer<'_>,
) -> Result<Vec<TlsRoute>, Malformed> {
    let condition = TlsMatchAttributes {
        sni_hosts: names.to_vec(),
        port: port.map_or(0, u32::from),
        ..TlsMatchAttributes::default()
    };
    let route = |rule: &StreamRouteRule| {
        Ok(TlsRoute {
            r#match: vec![condition.clone()],
            route: stream_destinations(cx, &rule.backend_refs, referrer)?,
        })
    };
    rules.iter().map(route).collect()
}
