//! A model of what an Envoy sends to a server, and whether the server has to prove who it is first.

use crate::matchers::{items, string, text};
use serde_json::Value;

/// A server behind a service, as somebody could put it there.
#[derive(Clone, Debug)]
pub(crate) enum Server {
    /// Takes plain text.
    Plain,
    /// Ends TLS with a certificate of that name, signed by that authority: the name of the secret or file of
    /// its certificate.
    Tls { name: &'static str, authority: &'static str },
}

/// Whether a cluster of a proxy sends its requests to such a server.
pub(crate) fn sends(dump: &Value, cluster: &str, server: &Server) -> bool {
    let Some(cluster) = dump["clusters"].get(cluster) else { return false };
    // Endpoints of these tests have no proxy, so of several sockets the one without a condition counts.
    let mut matches = items(cluster, "transport_socket_matches");
    let default = matches.find(|one| one["match"].as_object().is_none_or(serde_json::Map::is_empty));
    let socket = default.map_or(&cluster["transport_socket"], |one| &one["transport_socket"]);
    let tls = text(socket, "name").contains("tls");
    match server {
        Server::Plain => !tls,
        Server::Tls { name, authority } => {
            tls && trusts(&socket["typed_config"]["common_tls_context"], name, authority)
        }
    }
}

fn trusts(context: &Value, name: &str, authority: &str) -> bool {
    let combined = &context["combined_validation_context"];
    let trusted = &combined["validation_context_sds_secret_config"]["name"];
    let names: Vec<&Value> =
        items(&combined["default_validation_context"], "match_subject_alt_names").collect();
    trusted.as_str().is_none_or(|trusted| trusted.contains(authority))
        && (names.is_empty() || names.iter().any(|matcher| string(matcher, name)))
}
