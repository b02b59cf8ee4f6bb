//! Format strings with Envoy's variables, in header values and access logs: `%NAME%`, `%NAME(arguments)%`,
//! `%NAME(arguments):length%`. Envoy refuses the whole route configuration or listener for one unknown
//! variable.

use super::names::quoted;

/// Returns why Envoy refuses the variables of a text; `None` if it accepts them. `more` has variables beyond
/// the usual ones.
pub(in crate::validate) fn unknown_variable(text: &str, more: &[&str]) -> Option<String> {
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('%') {
        if let Some(after) = after.strip_prefix('%') {
            rest = after;
            continue;
        }
        let end = after.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
        let (name, tail) = after.split_at(end.unwrap_or(after.len()));
        let (arguments, tail) = match tail.strip_prefix('(') {
            None => (None, tail),
            Some(inner) => match inner.split_once(')') {
                Some((arguments, tail)) => (Some(arguments), tail),
                None => return Some(not_closed(name)),
            },
        };
        let length =
            tail.strip_prefix(':').map(|tail| tail.split_once('%').map_or(tail, |(length, _)| length));
        let tail = length.map_or(tail, |length| tail.get(length.len() + 1..).unwrap_or_default());
        let closed = tail.strip_prefix('%').filter(|_| !name.is_empty());
        let Some(after) = closed.filter(|_| length.is_none_or(|length| length.parse::<u32>().is_ok())) else {
            return Some(not_closed(name));
        };
        if !more.contains(&name)
            && let Some(why) = misused(name, arguments.is_some() || length.is_some())
        {
            return Some(why);
        }
        rest = after;
    }
    None
}

fn not_closed(name: &str) -> String {
    format!(
        "{} begins no variable like %NAME% or %NAME(arguments)%, write %% for a percent sign",
        quoted(&format!("%{name}"))
    )
}

fn misused(name: &str, has_arguments: bool) -> Option<String> {
    if NEEDS_ARGUMENTS.contains(&name) {
        return (!has_arguments).then(|| format!("%{name}% needs arguments, as in %{name}(...)%"));
    }
    if TAKES_NO_ARGUMENTS.contains(&name) {
        return has_arguments.then(|| format!("%{name}% takes no arguments"));
    }
    (!MAY_HAVE_ARGUMENTS.contains(&name)).then(|| format!("Envoy knows no variable %{name}%"))
}

/// Variables that require arguments.
const NEEDS_ARGUMENTS: [&str; 15] = [
    "CEL",
    "CLUSTER_METADATA",
    "COALESCE",
    "COMMON_DURATION",
    "DYNAMIC_METADATA",
    "ENVIRONMENT",
    "FILTER_STATE",
    "METADATA",
    "QUERY_PARAM",
    "REQ",
    "RESP",
    "TRAILER",
    "TYPED_CEL",
    "UPSTREAM_FILTER_STATE",
    "UPSTREAM_METADATA",
];

/// Variables with optional arguments.
const MAY_HAVE_ARGUMENTS: [&str; 19] = [
    "DOWNSTREAM_DIRECT_LOCAL_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_PEER_CERT_V_END",
    "DOWNSTREAM_PEER_CERT_V_START",
    "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
    "EMIT_TIME",
    "EMIT_TIME_LOCAL",
    "GRPC_STATUS",
    "PATH",
    "QUERY_PARAMS",
    "REQUESTED_SERVER_NAME",
    "RESPONSE_CODE_DETAILS",
    "START_TIME",
    "START_TIME_LOCAL",
    "UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
    "UPSTREAM_PEER_CERT_V_END",
    "UPSTREAM_PEER_CERT_V_START",
    "UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
];

/// Access log variables of Envoy that take no argument: `%NAME(...)%` is an error.
const TAKES_NO_ARGUMENTS: [&str; 118] = [
    "ACCESS_LOG_TYPE",
    "BYTES_RECEIVED",
    "BYTES_RETRANSMITTED",
    "BYTES_SENT",
    "CONNECTION_ID",
    "CONNECTION_TERMINATION_DETAILS",
    "CUSTOM_FLAGS",
    "DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED",
    "DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_SENT",
    "DOWNSTREAM_DETECTED_CLOSE_TYPE",
    "DOWNSTREAM_DIRECT_LOCAL_ADDRESS",
    "DOWNSTREAM_DIRECT_LOCAL_PORT",
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS",
    "DOWNSTREAM_DIRECT_REMOTE_PORT",
    "DOWNSTREAM_HANDSHAKE_DURATION",
    "DOWNSTREAM_HEADER_BYTES_RECEIVED",
    "DOWNSTREAM_HEADER_BYTES_SENT",
    "DOWNSTREAM_LOCAL_ADDRESS",
    "DOWNSTREAM_LOCAL_ADDRESS_ENDPOINT_ID",
    "DOWNSTREAM_LOCAL_CLOSE_REASON",
    "DOWNSTREAM_LOCAL_DNS_SAN",
    "DOWNSTREAM_LOCAL_EMAIL_SAN",
    "DOWNSTREAM_LOCAL_IP_SAN",
    "DOWNSTREAM_LOCAL_OTHERNAME_SAN",
    "DOWNSTREAM_LOCAL_PORT",
    "DOWNSTREAM_LOCAL_SUBJECT",
    "DOWNSTREAM_LOCAL_URI_SAN",
    "DOWNSTREAM_PEER_CERT",
    "DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_1",
    "DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_256",
    "DOWNSTREAM_PEER_CHAIN_SERIALS",
    "DOWNSTREAM_PEER_DNS_SAN",
    "DOWNSTREAM_PEER_EMAIL_SAN",
    "DOWNSTREAM_PEER_FINGERPRINT_1",
    "DOWNSTREAM_PEER_FINGERPRINT_256",
    "DOWNSTREAM_PEER_IP_SAN",
    "DOWNSTREAM_PEER_ISSUER",
    "DOWNSTREAM_PEER_OTHERNAME_SAN",
    "DOWNSTREAM_PEER_SERIAL",
    "DOWNSTREAM_PEER_SUBJECT",
    "DOWNSTREAM_PEER_URI_SAN",
    "DOWNSTREAM_REMOTE_ADDRESS",
    "DOWNSTREAM_REMOTE_PORT",
    "DOWNSTREAM_TLS_CIPHER",
    "DOWNSTREAM_TLS_GROUP",
    "DOWNSTREAM_TLS_SESSION_ID",
    "DOWNSTREAM_TLS_VERSION",
    "DOWNSTREAM_TRANSPORT_FAILURE_REASON",
    "DOWNSTREAM_WIRE_BYTES_RECEIVED",
    "DOWNSTREAM_WIRE_BYTES_SENT",
    "DURATION",
    "FILTER_CHAIN_NAME",
    "GRPC_STATUS_NUMBER",
    "HOSTNAME",
    "LOCAL_REPLY_BODY",
    "PACKETS_RETRANSMITTED",
    "PROTOCOL",
    "REQUEST_DURATION",
    "REQUEST_HEADERS_BYTES",
    "REQUEST_TX_DURATION",
    "RESPONSE_CODE",
    "RESPONSE_DURATION",
    "RESPONSE_FLAGS",
    "RESPONSE_FLAGS_LONG",
    "RESPONSE_HEADERS_BYTES",
    "RESPONSE_TRAILERS_BYTES",
    "RESPONSE_TX_DURATION",
    "ROUNDTRIP_DURATION",
    "ROUTE_NAME",
    "SPAN_ID",
    "STREAM_ID",
    "TLS_JA3_FINGERPRINT",
    "TLS_JA4_FINGERPRINT",
    "TRACE_ID",
    "UNIQUE_ID",
    "UPSTREAM_CLUSTER",
    "UPSTREAM_CLUSTER_RAW",
    "UPSTREAM_CONNECTION_ID",
    "UPSTREAM_CONNECTION_IDS_ATTEMPTED",
    "UPSTREAM_CONNECTION_POOL_READY_DURATION",
    "UPSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED",
    "UPSTREAM_DECOMPRESSED_HEADER_BYTES_SENT",
    "UPSTREAM_DETECTED_CLOSE_TYPE",
    "UPSTREAM_HEADER_BYTES_RECEIVED",
    "UPSTREAM_HEADER_BYTES_SENT",
    "UPSTREAM_HOST",
    "UPSTREAM_HOSTS_ATTEMPTED",
    "UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT",
    "UPSTREAM_HOST_NAME",
    "UPSTREAM_HOST_NAMES_ATTEMPTED",
    "UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT",
    "UPSTREAM_HOST_NAME_WITHOUT_PORT",
    "UPSTREAM_LOCAL_ADDRESS",
    "UPSTREAM_LOCAL_CLOSE_REASON",
    "UPSTREAM_LOCAL_DNS_SAN",
    "UPSTREAM_LOCAL_IP_SAN",
    "UPSTREAM_LOCAL_PORT",
    "UPSTREAM_LOCAL_URI_SAN",
    "UPSTREAM_PEER_CERT",
    "UPSTREAM_PEER_DNS_SAN",
    "UPSTREAM_PEER_IP_SAN",
    "UPSTREAM_PEER_ISSUER",
    "UPSTREAM_PEER_SUBJECT",
    "UPSTREAM_PEER_URI_SAN",
    "UPSTREAM_PROTOCOL",
    "UPSTREAM_REMOTE_ADDRESS",
    "UPSTREAM_REMOTE_ADDRESS_ENDPOINT_ID",
    "UPSTREAM_REMOTE_PORT",
    "UPSTREAM_REQUEST_ATTEMPT_COUNT",
    "UPSTREAM_SERVER_NAME",
    "UPSTREAM_TLS_CIPHER",
    "UPSTREAM_TLS_GROUP",
    "UPSTREAM_TLS_SESSION_ID",
    "UPSTREAM_TLS_VERSION",
    "UPSTREAM_TRANSPORT_FAILURE_REASON",
    "UPSTREAM_WIRE_BYTES_RECEIVED",
    "UPSTREAM_WIRE_BYTES_SENT",
    "VIRTUAL_CLUSTER_NAME",
];

#[cfg(test)]
mod tests {
    use super::unknown_variable;

    #[test]
    fn variables_are_those_of_envoy() {
        let good = [
            "",
            "100%% of %PROTOCOL%",
            "%REQ(X-A?Y):10% %START_TIME%",
            "%START_TIME(%s.%3f)%",
            "%DYNAMIC_METADATA(a:b)%%RESPONSE_CODE%",
        ];
        for text in good {
            assert_eq!(unknown_variable(text, &[]), None, "{text}");
        }
        let wrong = [
            ("%NO_SUCH%", "Envoy knows no variable %NO_SUCH%"),
            ("a %NO_SUCH(a)%", "Envoy knows no variable %NO_SUCH%"),
            ("%REQ%", "%REQ% needs arguments, as in %REQ(...)%"),
            ("%PROTOCOL(a)%", "%PROTOCOL% takes no arguments"),
            (
                "100%",
                "\"%\" begins no variable like %NAME% or %NAME(arguments)%, write %% for a percent sign",
            ),
            (
                "%REQ(%",
                "\"%REQ\" begins no variable like %NAME% or %NAME(arguments)%, write %% for a percent sign",
            ),
            (
                "%REQ(a):b%",
                "\"%REQ\" begins no variable like %NAME% or %NAME(arguments)%, write %% for a percent sign",
            ),
        ];
        for (text, why) in wrong {
            assert_eq!(unknown_variable(text, &[]).as_deref(), Some(why), "{text}");
        }
        assert_eq!(unknown_variable("%REQ_WITHOUT_QUERY(a)%", &["REQ_WITHOUT_QUERY"]), None);
    }
}
