//! Application protocols of service ports.

/// Protocol of a service port, with Istio's names. `Unsupported` means undeclared: the proxy detects it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
pub enum Protocol {
    Grpc,
    GrpcWeb,
    Http,
    /// HTTP on the sidecar's explicit proxy port.
    HttpProxy,
    Http2,
    /// HTTP over TLS, opaque to the mesh.
    Https,
    Tcp,
    /// TLS, opaque to the mesh.
    Tls,
    /// UDP: parsed, but never routed.
    Udp,
    Mongo,
    Redis,
    Mysql,
    /// Dubbo's own protocol. Istio has no name for it, so only registries can declare it.
    Dubbo,
    Hbone,
    /// Not declared, or declared by an unknown name.
    #[default]
    Unsupported,
}

/// Transport protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Transport {
    /// TCP, and everything that proxies can forward.
    Tcp,
    /// UDP, which proxies do not forward.
    Udp,
}

impl Protocol {
    /// Name in JSON views, which tools read: stays the same when a variant is renamed.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Grpc => "Grpc",
            Self::GrpcWeb => "GrpcWeb",
            Self::Http => "Http",
            Self::HttpProxy => "HttpProxy",
            Self::Http2 => "Http2",
            Self::Https => "Https",
            Self::Tcp => "Tcp",
            Self::Tls => "Tls",
            Self::Udp => "Udp",
            Self::Mongo => "Mongo",
            Self::Redis => "Redis",
            Self::Mysql => "Mysql",
            Self::Dubbo => "Dubbo",
            Self::Hbone => "Hbone",
            Self::Unsupported => "Unsupported",
        }
    }

    /// Name in ports of Istio's kinds; `auto` if proxies detect it.
    #[must_use]
    pub fn istio_name(self) -> &'static str {
        match self {
            Self::Grpc => "GRPC",
            Self::GrpcWeb => "GRPC-Web",
            Self::Http => "HTTP",
            Self::HttpProxy => "HTTP_PROXY",
            Self::Http2 => "HTTP2",
            Self::Https => "HTTPS",
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
            Self::Udp => "UDP",
            Self::Mongo => "Mongo",
            Self::Redis => "Redis",
            Self::Mysql => "MySQL",
            Self::Dubbo => "Dubbo",
            Self::Hbone => "HBONE",
            Self::Unsupported => "auto",
        }
    }

    /// Parses the name of a protocol in any case, as in ServiceEntry and Gateway ports; unknown names are
    /// `Unsupported`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text.to_ascii_lowercase().as_str() {
            "tcp" => Self::Tcp,
            "udp" => Self::Udp,
            "grpc" => Self::Grpc,
            "grpc-web" => Self::GrpcWeb,
            "http" => Self::Http,
            "http_proxy" => Self::HttpProxy,
            "http2" => Self::Http2,
            "https" => Self::Https,
            "tls" => Self::Tls,
            "mongo" => Self::Mongo,
            "redis" => Self::Redis,
            "mysql" => Self::Mysql,
            "hbone" => Self::Hbone,
            _ => Self::Unsupported,
        }
    }

    /// Parses the name of a protocol from a registry: Istio's names, and `dubbo`, which is not allowed in
    /// objects.
    #[must_use]
    pub fn of_registry(text: &str) -> Self {
        if text.eq_ignore_ascii_case("dubbo") { Self::Dubbo } else { Self::parse(text) }
    }

    /// Protocol of a Kubernetes Service port (spec/registry.md 3): from the transport, then `appProtocol`,
    /// then the prefix of the port name, then well-known ports whose servers speak first.
    #[must_use]
    pub fn of_kubernetes_port(number: u32, name: &str, transport: &str, app_protocol: Option<&str>) -> Self {
        if transport == "UDP" {
            return Self::Udp;
        }
        let text = match app_protocol {
            Some("kubernetes.io/h2c") => "http2",
            Some("kubernetes.io/ws") => "http",
            Some("kubernetes.io/wss") => "https",
            Some(other) => other,
            None => name,
        };
        let lower = text.to_ascii_lowercase();
        let head =
            if lower.starts_with("grpc-web") { "grpc-web" } else { lower.split('-').next().unwrap_or("") };
        match Self::parse(head) {
            // "hbone" is a protocol of Gateways; in names of ports it has no meaning.
            Self::Unsupported | Self::Hbone => match number {
                25 | 53 | 3306 | 27017 => Self::Tcp,
                _ => Self::Unsupported,
            },
            known => known,
        }
    }

    /// Transport protocol: UDP for `Udp`, TCP otherwise.
    #[must_use]
    pub fn transport(self) -> Transport {
        if self == Self::Udp { Transport::Udp } else { Transport::Tcp }
    }

    /// True for plaintext HTTP, whose requests can be routed.
    #[must_use]
    pub fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Http2 | Self::HttpProxy | Self::Grpc | Self::GrpcWeb)
    }

    /// True if HTTP/2 is certain.
    #[must_use]
    pub fn is_http2(self) -> bool {
        matches!(self, Self::Http2 | Self::Grpc | Self::GrpcWeb)
    }

    /// True for gRPC in either form.
    #[must_use]
    pub fn is_grpc(self) -> bool {
        matches!(self, Self::Grpc | Self::GrpcWeb)
    }

    /// True for protocols that the mesh handles as TCP.
    #[must_use]
    pub fn is_tcp(self) -> bool {
        matches!(
            self,
            Self::Tcp | Self::Https | Self::Tls | Self::Mongo | Self::Redis | Self::Mysql | Self::Dubbo
        )
    }

    /// True for TLS whose SNI can be matched.
    #[must_use]
    pub fn is_tls(self) -> bool {
        matches!(self, Self::Https | Self::Tls)
    }

    /// True if the protocol is neither declared nor derived, so that proxies detect it.
    #[must_use]
    pub fn is_unsupported(self) -> bool {
        self == Self::Unsupported
    }
}

#[cfg(test)]
mod tests {
    use super::Protocol::{self, *};

    #[test]
    fn only_registries_say_dubbo() {
        assert_eq!(Protocol::of_registry("dubbo"), Dubbo);
        assert_eq!(Protocol::of_registry("GRPC"), Grpc);
        assert_eq!(Protocol::of_registry("tri"), Unsupported);
        assert_eq!(Protocol::parse("dubbo"), Unsupported, "as istiod reads it");
        assert_eq!(Protocol::of_kubernetes_port(20880, "dubbo", "TCP", None), Unsupported);
    }

    #[test]
    fn kubernetes_ports_follow_the_table_of_the_spec() {
        #[rustfmt::skip]
        let table: &[(u32, &str, &str, Option<&str>, Protocol)] = &[
            (8888, "", "TCP", None, Unsupported), (25, "", "TCP", None, Tcp), (53, "", "TCP", None, Tcp),
            (3306, "", "TCP", None, Tcp), (27017, "", "TCP", None, Tcp), (8888, "http", "TCP", None, Http),
            (8888, "http-test", "TCP", None, Http), (8888, "http", "UDP", None, Udp),
            (8888, "httptest", "TCP", None, Unsupported), (25, "httptest", "TCP", None, Tcp),
            (25, "http-x", "TCP", None, Http), (8888, "https-test", "TCP", None, Https),
            (8888, "http2-test", "TCP", None, Http2), (8888, "grpc-test", "TCP", None, Grpc),
            (8888, "grpc-web-test", "TCP", None, GrpcWeb), (8888, "GRPC-WEB-x", "TCP", None, GrpcWeb),
            (8888, "mongo", "TCP", None, Mongo), (8888, "redis-x", "TCP", None, Redis),
            (8888, "tcp", "TCP", Some("http"), Http), (8888, "http", "TCP", Some("tcp"), Tcp),
            (8888, "x", "TCP", Some("kubernetes.io/h2c"), Http2), (8888, "x", "TCP", Some("HTTP"), Http),
            (8888, "x", "UDP", Some("http"), Udp), (8888, "http", "TCP", Some(""), Unsupported),
        ];
        for (number, name, transport, app, want) in table {
            let got = Protocol::of_kubernetes_port(*number, name, transport, *app);
            assert_eq!(got, *want, "{number} {name:?} {transport} {app:?}");
        }
    }
}
