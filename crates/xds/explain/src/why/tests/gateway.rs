//! Requests from outside, in plaintext and in TLS that a gateway ends or passes on.

use super::*;

const GATEWAYS: &str = "
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: shop}
spec:
  selector: {app: client}
  servers:
  - {port: {number: 80, name: http, protocol: HTTP}, hosts: [a.example.com]}
  - {port: {number: 443, name: https, protocol: HTTPS}, hosts: [a.example.com], tls: {mode: SIMPLE, credentialName: a}}
  - {port: {number: 443, name: tls, protocol: TLS}, hosts: ['*.pass.example.com'], tls: {mode: PASSTHROUGH}}
  - {port: {number: 5432, name: tcp, protocol: TCP}, hosts: ['*']}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: front, namespace: shop}
spec: {hosts: [a.example.com], gateways: [front], http: [{name: web, route: [{destination: {host: web}}]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: pass, namespace: shop}
spec:
  hosts: ['*.pass.example.com']
  gateways: [front]
  tls: [{match: [{port: 443, sniHosts: [x.pass.example.com]}], route: [{destination: {host: web}}]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: bytes, namespace: shop}
spec: {hosts: ['*'], gateways: [front], tcp: [{match: [{port: 5432}], route: [{destination: {host: web}}]}]}
";

#[test]
fn a_gateway_is_asked_in_what_its_listener_takes() {
    for (to, request) in [
        ("a.example.com", "GET http://a.example.com:80/"),
        ("a.example.com:443", "GET https://a.example.com:443/"),
        ("https://a.example.com", "GET https://a.example.com:443/"),
        ("x.pass.example.com:443", "GET https://x.pass.example.com:443/"),
        ("tls://x.pass.example.com:443", "GET https://x.pass.example.com:443/"),
        ("db.example.com:5432", "GET http://db.example.com:5432/"),
    ] {
        let answer = ask_gateway(&[SHOP, GATEWAYS], to);
        let said = said(&answer);
        assert!(answer.reaches, "{to}: {said}");
        assert_eq!(answer.request, request, "{to}: {said}");
        assert!(answer.endpoints[0].starts_with("10.0.0.1:8080"), "{to}: {said}");
    }
}

#[test]
fn a_gateway_refuses_what_none_of_its_chains_is_for() {
    for (to, outcome) in [
        ("http://a.example.com:443", "the connection is closed: no filter chain matches it"),
        ("https://b.example.com", "the connection is closed: no filter chain matches it"),
        ("https://y.pass.example.com", "the connection is closed: no filter chain matches it"),
        ("b.example.com", "404: no virtual host takes the request"),
        (
            "https://a.example.com:80",
            "the connection fails: the client speaks TLS, and the proxy reads HTTP on this port",
        ),
        ("a.example.com:8443", "the connection is refused: nothing listens on port 8443"),
    ] {
        let answer = ask_gateway(&[SHOP, GATEWAYS], to);
        assert!(!answer.reaches && answer.outcome == outcome, "{to}: {}", said(&answer));
    }
}
