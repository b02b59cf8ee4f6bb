//! Connections that a port of a workload accepts, by mutual TLS mode and protocol.

use crate::envoy::filters::{PLAINTEXT_HTTP, RAW_BUFFER, TLS};
use crate::policy::peer_authentication::MtlsMode;
use pilotfish_model::Protocol;

/// ALPN protocols of HTTP requests between proxies.
const MUTUAL_HTTP: &[&str] = &["istio-http/1.0", "istio-http/1.1", "istio-h2"];
/// ALPN protocols of TCP streams between proxies.
const MUTUAL_TCP: &[&str] = &["istio-peer-exchange", "istio"];
/// ALPN protocols of all traffic between proxies.
const MUTUAL: &[&str] = &["istio", "istio-peer-exchange", "istio-http/1.0", "istio-http/1.1", "istio-h2"];

/// One kind of connection, and how it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Match {
    /// The ALPN protocols; empty for any.
    pub(super) alpn: &'static [&'static str],
    /// The transport protocol; empty for any.
    pub(super) transport: &'static str,
    /// True if TLS is terminated.
    pub(super) terminates: bool,
    /// True if the traffic is handled as HTTP.
    pub(super) http: bool,
}

const fn mutual(alpn: &'static [&'static str], http: bool) -> Match {
    Match { alpn, transport: TLS, terminates: true, http }
}

const fn plain(alpn: &'static [&'static str], http: bool) -> Match {
    Match { alpn, transport: RAW_BUFFER, terminates: false, http }
}

/// TLS that the workload itself terminates.
const FOREIGN_TLS: Match = Match { alpn: &[], transport: TLS, terminates: false, http: false };

/// Returns the connections that a port accepts, in the order of the filter chains.
pub(super) fn of(mode: MtlsMode, protocol: Protocol) -> Vec<Match> {
    use MtlsMode::{Disable, Permissive, Strict};
    // UDP has no listeners; TCP connections to such a port are passed through.
    let (http, sniffed) = (protocol.is_http(), protocol.is_unsupported());
    match mode {
        Permissive if sniffed => vec![
            mutual(MUTUAL_HTTP, true),
            plain(&PLAINTEXT_HTTP, true),
            mutual(MUTUAL_TCP, false),
            plain(&[], false),
            FOREIGN_TLS,
        ],
        Permissive if http => vec![mutual(MUTUAL, true), plain(&[], true)],
        Permissive => vec![mutual(MUTUAL, false), FOREIGN_TLS, plain(&[], false)],
        Strict if sniffed => vec![mutual(MUTUAL_HTTP, true), mutual(&[], false)],
        Strict => vec![mutual(&[], http)],
        Disable if sniffed => vec![plain(&PLAINTEXT_HTTP, true), plain(&[], false)],
        Disable => vec![plain(&[], http)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_of_modes_and_protocols() {
        use MtlsMode::{Disable, Permissive, Strict};
        use Protocol::{Http, Tcp, Unsupported};
        #[rustfmt::skip]
        let table = [
            (Permissive, Unsupported, "tls+http raw_http tls+tcp raw_tcp tls-tcp"),
            (Permissive, Http, "tls+http raw_http"),
            (Permissive, Tcp, "tls+tcp tls-tcp raw_tcp"),
            (Strict, Unsupported, "tls+http tls+tcp"),
            (Strict, Http, "tls+http"),
            (Strict, Tcp, "tls+tcp"),
            (Disable, Unsupported, "raw_http raw_tcp"),
            (Disable, Http, "raw_http"),
            (Disable, Tcp, "raw_tcp"),
        ];
        for (mode, protocol, want) in table {
            let text = |m: &Match| {
                let transport = match (m.transport, m.terminates) {
                    ("tls", true) => "tls+",
                    ("tls", false) => "tls-",
                    ("raw_buffer", _) => "raw_",
                    _ => "any_",
                };
                format!("{transport}{}", if m.http { "http" } else { "tcp" })
            };
            let got: Vec<String> = of(mode, protocol).iter().map(text).collect();
            assert_eq!(got.join(" "), want, "{mode:?} {protocol:?}");
        }
    }
}
