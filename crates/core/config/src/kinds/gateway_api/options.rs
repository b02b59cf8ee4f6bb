//! Options of listeners that Istio added to the Gateway API, and which listeners lead from one network to
//! another.

use super::{Listener, ListenerTls};
use pilotfish_model::LabelMap;
use pilotfish_model::topology::NETWORK;

/// The option with another mode than SIMPLE for a listener that ends TLS: one of [`TERMINATE_MODES`].
pub const TERMINATE_MODE: &str = "gateway.istio.io/tls-terminate-mode";
/// The modes that [`TERMINATE_MODE`] names. istiod takes any other for SIMPLE.
pub const TERMINATE_MODES: [&str; 5] =
    ["SIMPLE", "MUTUAL", "OPTIONAL_MUTUAL", "ISTIO_SIMPLE", "ISTIO_MUTUAL"];
/// The option with ciphers, separated by commas.
pub const CIPHER_SUITES_OPTION: &str = "gateway.istio.io/tls-cipher-suites";
/// The label of a Service or a Gateway with the port for other networks, where it is not 15443.
pub const GATEWAY_PORT: &str = "networking.istio.io/gatewayPort";
/// The port of gateways between networks.
pub const DEFAULT_GATEWAY_PORT: u16 = 15443;

/// The option that makes a listener one of AUTO_PASSTHROUGH, with [`AUTO_PASSTHROUGH`].
const LISTENER_PROTOCOL: &str = "gateway.istio.io/listener-protocol";
const AUTO_PASSTHROUGH: &str = "auto-passthrough";

impl ListenerTls {
    /// The ciphers of its option, as written.
    #[must_use]
    pub fn cipher_suites(&self) -> Vec<String> {
        let text = self.options.get(CIPHER_SUITES_OPTION).map_or("", String::as_str);
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.map(str::to_owned).collect()
    }
}

/// True if a listener of a Gateway with these labels forwards connections of the mesh by their SNI
/// (AUTO_PASSTHROUGH), for other networks: by its option, or by its port if the Gateway has the label of a
/// network.
#[must_use]
pub fn is_auto_passthrough(labels: &LabelMap, listener: &Listener) -> bool {
    let Some(tls) = &listener.tls else { return false };
    let by_option = tls.options.get(LISTENER_PROTOCOL).is_some_and(|option| option == AUTO_PASSTHROUGH);
    let is_of_port = || match labels.get(GATEWAY_PORT) {
        Some(port) => *port == *listener.port.to_string(),
        None => listener.port == DEFAULT_GATEWAY_PORT,
    };
    by_option || labels.get(NETWORK).is_some() && is_of_port()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn tls(options: &[(&str, &str)]) -> ListenerTls {
        let options = options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        ListenerTls { options: options.collect(), ..ListenerTls::default() }
    }

    #[test]
    fn a_listener_leads_between_networks_by_option_or_by_port() {
        const NET: (&str, &str) = (NETWORK, "n");
        let option: &[_] = &[(LISTENER_PROTOCOL, AUTO_PASSTHROUGH)];
        let unknown: &[_] = &[("gateway.istio.io/listener", AUTO_PASSTHROUGH)];
        for (labels, port, options, expected) in [
            (&[NET][..], 15443, Some(&[][..]), true),
            (&[NET], 15443, None, false),
            (&[NET], 443, Some(&[]), false),
            (&[], 15443, Some(&[]), false),
            (&[NET, (GATEWAY_PORT, "443")], 443, Some(&[]), true),
            (&[NET, (GATEWAY_PORT, "443")], 15443, Some(&[]), false),
            (&[NET, (GATEWAY_PORT, "0443")], 443, Some(&[]), false),
            (&[NET, (GATEWAY_PORT, "")], 15443, Some(&[]), false),
            (&[(GATEWAY_PORT, "443")], 443, Some(&[]), false),
            (&[NET], 443, Some(option), true),
            (&[], 443, Some(option), true),
            (&[NET], 443, Some(unknown), false),
            (&[], 443, Some(&[(LISTENER_PROTOCOL, "passthrough")]), false),
        ] {
            let map: LabelMap =
                labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            let listener = Listener { port, tls: options.map(tls), ..Listener::default() };
            assert_eq!(is_auto_passthrough(&map, &listener), expected, "{labels:?} {port} {options:?}");
        }
    }

    #[test]
    fn ciphers_are_separated_by_commas() {
        for (text, expected) in [
            ("", &[][..]),
            (" , ", &[]),
            ("AES128-SHA", &["AES128-SHA"]),
            (" AES128-SHA,X , AES128-SHA", &["AES128-SHA", "X", "AES128-SHA"]),
        ] {
            assert_eq!(tls(&[(CIPHER_SUITES_OPTION, text)]).cipher_suites(), expected, "{text}");
        }
        assert_eq!(
            ListenerTls { options: BTreeMap::new(), ..ListenerTls::default() }.cipher_suites(),
            [""; 0]
        );
    }
}
