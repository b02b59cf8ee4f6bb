//! Gateway of Istio, and TLS of servers.

use super::{check, spec_of};

const API: &str = "networking.istio.io/v1";

#[test]
fn gateways() {
    let of = |server: &str| spec_of(API, "Gateway")(&format!("servers: [{{{server}}}]"));
    const PORT: &str = "port: {number: 80, name: http, protocol: HTTP}";
    let good = format!("{PORT}, hosts: [a.b]");
    let hosts = |hosts: &str| format!("{PORT}, hosts: [{hosts}]");
    check(
        of,
        &[
            (PORT, "spec.servers[0].hosts: must be set", &good),
            ("hosts: [a.b]", "spec.servers[0].port: must be set", &good),
            (
                &hosts("a_b.c"),
                "spec.servers[0].hosts[0]: \"a_b.c\" is not a host name: \"a_b\" is not a DNS label or a wildcard",
                &hosts("\"*\", \"*.c\", 1.2.3.4, shop/a.b, ./a.b, \"*/a.b\""),
            ),
            (
                &hosts("x_y/a.b"),
                "spec.servers[0].hosts[0]: \"x_y\" is not a namespace, \"*\" or \".\"",
                &good,
            ),
            (
                &hosts("a"),
                "warning: spec.servers[0].hosts[0]: \"a\" is a short name, the full name is needed here",
                &good,
            ),
            (
                &hosts("\"*a.b\""),
                "warning: spec.servers[0].hosts[0]: \"*a.b\" has a wildcard for a part of a label",
                &good,
            ),
            (
                "hosts: [a.b], port: {number: 80, name: http}",
                "spec.servers[0].port.protocol: must be set to one of HTTP, HTTPS, HTTP2, GRPC, GRPC-WEB, TCP, TLS, MONGO, REDIS, \
             MYSQL, UDP",
                &good,
            ),
            (
                "hosts: [a.b], port: {number: 80, name: http, protocol: \"no protocol\"}",
                "spec.servers[0].port.protocol: \"no protocol\" is not a protocol, HTTP, HTTPS, HTTP2, GRPC, GRPC-WEB, TCP, TLS, MONGO, REDIS, MYSQL, UDP",
                &good,
            ),
            (
                "hosts: [a.b], port: {number: 0, name: http, protocol: HTTP}",
                "spec.servers[0].port.number: 0 is not a port, must be 1 to 65535",
                &good,
            ),
            (
                "hosts: [a.b], port: {number: 80, protocol: HTTP}",
                "spec.servers[0].port.name: must be set",
                &good,
            ),
            (
                "hosts: [a.b], port: {number: 80, name: http, protocol: HTTP, targetPort: 8080}",
                "warning: spec.servers[0].port.targetPort: has no effect on gateways",
                &good,
            ),
            (
                &format!("{good}, bind: a.b"),
                "spec.servers[0].bind: \"a.b\" is not an IP address",
                &format!("{good}, bind: 0.0.0.0"),
            ),
            (
                "hosts: [a.b], port: {name: http, protocol: HTTP}, bind: \"unix://a\"",
                "spec.servers[0].bind: \"a\" is not the absolute path of a socket",
                "hosts: [a.b], port: {name: http, protocol: HTTP}, bind: \"unix:///a\"",
            ),
            (
                &format!("{good}, bind: \"unix:///a\""),
                "spec.servers[0].port.number: must be 0 for a Unix domain socket",
                "hosts: [a.b], port: {name: http, protocol: HTTP}, bind: \"unix://@a\"",
            ),
            (
                "hosts: [a.b], port: {number: 443, name: https, protocol: HTTPS}",
                "spec.servers[0].tls: must be set for the protocols HTTPS and TLS",
                "hosts: [a.b], port: {number: 443, name: https, protocol: HTTPS}, tls: {mode: PASSTHROUGH}",
            ),
            (
                &format!("{good}, tls: {{mode: ISTIO_MUTUAL}}"),
                "warning: spec.servers[0].tls: has no effect for plain HTTP, but for httpsRedirect",
                &format!("{good}, tls: {{httpsRedirect: true}}"),
            ),
            (
                "hosts: [a.b], port: {number: 80, name: tcp, protocol: TCP}, tls: {mode: ISTIO_MUTUAL}",
                "warning: spec.servers[0].tls: is not meant for other protocols than HTTPS and TLS",
                "hosts: [a.b], port: {number: 80, name: tcp, protocol: TCP}",
            ),
        ],
    );
    check(
        spec_of(API, "Gateway"),
        &[
            ("selector: {a: b}", "spec.servers: must be set", &format!("servers: [{{{good}}}]")),
            (
                &format!("servers: [{{{good}}}, {{{good}}}]"),
                "warning: spec.servers[1].port.name: is the same as that of item 0, only one has an effect",
                &format!("servers: [{{{good}}}]"),
            ),
        ],
    );
}

#[test]
fn server_tls() {
    let of = |tls: &str| {
        let port = "port: {number: 443, name: https, protocol: HTTPS}";
        spec_of(API, "Gateway")(&format!("servers: [{{{port}, hosts: [a.b], tls: {{{tls}}}}}]"))
    };
    const AT: &str = "spec.servers[0].tls";
    let at = |rest: &str| format!("{AT}{rest}");
    let warned = |rest: &str| format!("warning: {AT}{rest}");
    const FILES: &str = "serverCertificate: /c, privateKey: /k";
    check(
        of,
        &[
            (
                "mode: SIMPLE, privateKey: /k",
                &at(".serverCertificate: must be set for this mode, or credentialName instead"),
                &format!("mode: SIMPLE, {FILES}"),
            ),
            (
                &format!("mode: MUTUAL, {FILES}"),
                &at(".caCertificates: must be set for this mode, or credentialName instead"),
                "mode: MUTUAL, credentialName: a",
            ),
            (
                "mode: SIMPLE, tlsCertificates: [{serverCertificate: /c}]",
                &at(".tlsCertificates[0].privateKey: must be set for this mode, or credentialName instead"),
                &format!("mode: SIMPLE, tlsCertificates: [{{{FILES}}}]"),
            ),
            (
                "mode: SIMPLE, credentialName: a, credentialNames: [b]",
                &at(": only one of credentialName, credentialNames may be set"),
                "mode: SIMPLE, credentialNames: [a, b]",
            ),
            (
                "mode: SIMPLE, credentialNames: [a, b, c]",
                &at(".credentialNames: has 3 items, at most 2 are allowed"),
                "mode: SIMPLE, credentialNames: [a]",
            ),
            (
                "mode: ISTIO_MUTUAL, credentialName: a",
                &warned(".credentialName: has no effect for mode ISTIO_MUTUAL"),
                "mode: ISTIO_MUTUAL",
            ),
            (
                "mode: PASSTHROUGH, credentialName: a",
                &warned(".credentialName: has no effect, as the mode does not end TLS"),
                "mode: PASSTHROUGH",
            ),
            (
                "mode: SIMPLE, credentialName: a, caCrl: /crl",
                &warned(".caCrl: has no effect beside credentialName, whose secret has it"),
                "mode: MUTUAL, serverCertificate: /c, privateKey: /k, caCertificates: /ca, caCrl: /crl",
            ),
            (
                "mode: SIMPLE, credentialName: a, minProtocolVersion: TLSV1_1",
                &warned(
                    ".minProtocolVersion: is below TLS 1.2, whose ciphers are not among the defaults, set cipherSuites as well",
                ),
                "mode: SIMPLE, credentialName: a, minProtocolVersion: TLSV1_1, cipherSuites: [AES128-SHA]",
            ),
            (
                "mode: SIMPLE, credentialName: a, minProtocolVersion: TLSV1_3, maxProtocolVersion: TLSV1_2",
                &warned(".minProtocolVersion: is above maxProtocolVersion, nothing can connect"),
                "mode: SIMPLE, credentialName: a, minProtocolVersion: TLSV1_2, maxProtocolVersion: TLSV1_3",
            ),
            (
                "mode: SIMPLE, credentialName: a, cipherSuites: [ROT13]",
                &warned(".cipherSuites[0]: \"ROT13\" is not a cipher that Envoy knows, it is ignored"),
                "mode: SIMPLE, credentialName: a, cipherSuites: [AES128-GCM-SHA256]",
            ),
            (
                "mode: SIMPLE, credentialName: a, ecdhCurves: [P-1]",
                &warned(".ecdhCurves[0]: \"P-1\" is not a curve that Envoy knows, it is ignored"),
                "mode: SIMPLE, credentialName: a, ecdhCurves: [X25519]",
            ),
            (
                "mode: SIMPLE, credentialName: a, cipherSuites: [AES128-SHA, AES128-SHA]",
                &warned(".cipherSuites[1]: is there twice"),
                "mode: SIMPLE, credentialName: a, cipherSuites: [AES128-SHA]",
            ),
        ],
    );
}
