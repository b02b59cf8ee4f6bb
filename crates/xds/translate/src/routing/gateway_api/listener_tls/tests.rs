//! What becomes of listeners with TLS, by tables: the settings of the server and what the status tells.

use crate::routing::gateway_api::{ApiGateways, ApiStatus, StatusView};
use crate::testing::{credentials, evaluate, line, world, yaml};
use pilotfish_config::networking::ServerTlsSettings;
use pilotfish_config::status::{Controllers, Status};
use pilotfish_model::{Kind, ObjectKey, World};
use std::sync::Arc;

const API: &str = "gateway.networking.k8s.io/v1";

/// A Gateway with these fields of `spec`, and these listeners.
fn gateway(labels: &str, rest: &str, listeners: &str) -> String {
    line(
        API,
        "Gateway",
        "edge",
        "gw",
        &format!("{{gatewayClassName: istio, {rest} listeners: [{listeners}]}}"),
    )
    .replace("namespace: edge}", &format!("namespace: edge, labels: {labels}}}"))
}

fn grant(namespace: &str, kind: &str, name: Option<&str>) -> String {
    let name = name.map(|name| format!(", name: {name}")).unwrap_or_default();
    line(
        "gateway.networking.k8s.io/v1beta1",
        "ReferenceGrant",
        namespace,
        "g",
        &format!(
            "{{from: [{{group: gateway.networking.k8s.io, kind: Gateway, namespace: edge}}], to: [{{group: '', kind: {kind}{name}}}]}}"
        ),
    )
}

fn with(text: &str) -> Arc<World> {
    world(yaml(text).into_iter().chain(credentials()))
}

fn settings(tls: &ServerTlsSettings) -> String {
    let names = if tls.credential_names.is_empty() {
        tls.credential_name.clone()
    } else {
        tls.credential_names.join("+")
    };
    format!("{:?} {names} {} {}", tls.mode, tls.ca_cert_credential_name, tls.cipher_suites.join(","))
        .trim()
        .replace("kubernetes-gateway://", "")
}

/// The servers that a world's listeners become, in the order of their names.
fn served(world: &Arc<World>) -> Vec<String> {
    let gateways = evaluate(world, &ApiGateways);
    let servers = gateways.values().flat_map(|(_, gateway)| &gateway.servers);
    servers.map(|server| server.tls.as_ref().map_or("plain".to_owned(), settings)).collect()
}

/// The reasons of ResolvedRefs and Programmed of the only listener.
fn reasons(world: &Arc<World>) -> [String; 2] {
    let view = StatusView { cluster: "Kubernetes".into(), controllers: Controllers::Both, deploys: false };
    let key = ObjectKey::new(Kind::KubernetesGateway, "edge", "gw");
    let Some(Status::Gateway { listeners, .. }) =
        evaluate(world, &ApiStatus { key, of: view }).as_deref().cloned()
    else {
        panic!("no status")
    };
    ["ResolvedRefs", "Programmed"].map(|wanted| {
        let condition = listeners[0].conditions.iter().find(|condition| condition.r#type == wanted).unwrap();
        format!("{}{}", if condition.status { "" } else { "!" }, condition.reason)
    })
}

/// Checks one listener: the settings if it is served, else the reason of ResolvedRefs. `fault` is the reason
/// of one that is served.
fn check(text: &str, expected: Result<&str, &str>, fault: Option<&str>) {
    let world = with(text);
    let servers = served(&world);
    let [refs, programmed] = reasons(&world);
    match expected {
        Ok(expected) => {
            assert_eq!(servers, [expected], "{text}");
            assert_eq!(
                refs,
                fault.map_or("ResolvedRefs".to_owned(), |reason| format!("!{reason}")),
                "{text}"
            );
            assert_eq!(programmed, "Programmed", "{text}");
        }
        Err(reason) => {
            assert!(servers.is_empty(), "{servers:?} {text}");
            assert_eq!([refs, programmed], [format!("!{reason}"), "!Invalid".to_owned()], "{text}");
        }
    }
}

const BAD: &str = "InvalidCertificateRef";
const BAD_CA: &str = "InvalidCACertificateRef";

#[test]
fn certificates_are_one_or_two_that_can_be_used() {
    for (refs, options, expected, fault) in [
        ("{name: quay-cert}", "", Ok("Simple edge/quay-cert"), None),
        ("{name: generic}", "", Ok("Simple edge/generic"), None),
        ("{name: quay-cert}, {name: quay-rsa}", "", Ok("Simple edge/quay-cert+edge/quay-rsa"), None),
        ("{name: quay-cert}, {name: quay-rsa}, {name: quay-other}", "", Err(BAD), None),
        ("{name: quay-cert}, {name: quay-rsa}, {name: nobody}", "", Err(BAD), None),
        ("", "gateway.istio.io/tls-terminate-mode: SIMPLE", Err(BAD), None),
        ("{name: garbled}", "", Err(BAD), None),
        ("{name: mixed-up}", "", Err(BAD), None),
        ("{name: nobody}", "", Err(BAD), None),
        ("{name: crew-secret}", "", Err(BAD), None),
        ("{name: quay-cert, kind: ConfigMap}", "", Err(BAD), None),
        ("{name: quay-cert, group: example.com}", "", Err(BAD), None),
        ("{name: quay-cert, namespace: yard}", "", Err("RefNotPermitted"), None),
        ("{name: nobody}, {name: mixed-up}", "", Err(BAD), None),
        ("{name: quay-cert}, {name: mixed-up}", "", Ok("Simple edge/quay-cert"), Some(BAD)),
        (
            "{name: quay-cert}, {name: x, namespace: yard}",
            "",
            Ok("Simple edge/quay-cert"),
            Some("RefNotPermitted"),
        ),
        ("{name: nobody}, {name: quay-cert}", "", Ok("Simple builtin://"), Some(BAD)),
        // The authorities would be the mesh's, as those beside the first certificate are not there.
        ("{name: nobody}, {name: quay-cert}", "gateway.istio.io/tls-terminate-mode: MUTUAL", Err(BAD), None),
        (
            "{name: nobody}, {name: quay-cert}",
            "gateway.istio.io/tls-terminate-mode: OPTIONAL_MUTUAL",
            Err(BAD),
            None,
        ),
        (
            "{name: quay-cert}, {name: nobody}",
            "gateway.istio.io/tls-terminate-mode: MUTUAL",
            Ok("Mutual edge/quay-cert"),
            Some(BAD),
        ),
    ] {
        for protocol in ["HTTPS", "TLS"] {
            let tls = format!("{{certificateRefs: [{refs}], options: {{{options}}}}}");
            let listener = format!("{{name: l, port: 443, protocol: {protocol}, tls: {tls}}}");
            check(&gateway("{}", "", &listener), expected, fault);
        }
    }
}

#[test]
fn options_select_mode_and_ciphers() {
    for (refs, options, expected) in [
        ("{name: quay-cert}", "tls-terminate-mode: MUTUAL", Ok("Mutual edge/quay-cert")),
        ("{name: quay-cert}", "tls-terminate-mode: OPTIONAL_MUTUAL", Ok("OptionalMutual edge/quay-cert")),
        ("{name: quay-cert}", "tls-terminate-mode: VERY_MUTUAL", Ok("Simple edge/quay-cert")),
        ("", "tls-terminate-mode: ISTIO_SIMPLE", Ok("Simple builtin://")),
        ("{name: nobody}", "tls-terminate-mode: ISTIO_SIMPLE", Ok("Simple builtin://")),
        ("", "tls-terminate-mode: ISTIO_MUTUAL", Ok("IstioMutual")),
        ("", "tls-terminate-mode: MUTUAL", Err(BAD)),
        ("", "tls-cipher-suites: AES128-SHA", Err(BAD)),
        (
            "{name: quay-cert}",
            "tls-cipher-suites: 'AES128-SHA, X'",
            Ok("Simple edge/quay-cert  AES128-SHA,X"),
        ),
        ("{name: quay-cert}", "tls-cipher-suites: ','", Ok("Simple edge/quay-cert")),
    ] {
        let tls = format!("{{certificateRefs: [{refs}], options: {{gateway.istio.io/{options}}}}}");
        let listener = format!("{{name: l, port: 443, protocol: HTTPS, tls: {tls}}}");
        check(&gateway("{}", "", &listener), expected, None);
    }
}

#[test]
fn authorities_of_clients_are_one_object_that_can_be_used() {
    const MAP: &str = "{group: '', kind: ConfigMap, name: crew-ca}";
    let far = |kind: &str, namespace: &str, name: &str| {
        format!("{{group: '', kind: {kind}, name: {name}, namespace: {namespace}}}")
    };
    let other = |name: &str, extra: &str| format!("{{group: '', kind: ConfigMap, name: {name}{extra}}}");
    let masters = far("ConfigMap", "yard", "masters-ca");
    let good = |authority: &str| format!("Mutual edge/quay-cert {authority}");
    let crew = good("configmap://edge/crew-ca-cacert");
    for (refs, grant, expected) in [
        (MAP.to_owned(), String::new(), Ok(crew.clone())),
        (
            "{group: '', kind: Secret, name: crew-secret}".to_owned(),
            String::new(),
            Ok(good("edge/crew-secret-cacert")),
        ),
        (String::new(), String::new(), Err(BAD_CA)),
        (format!("{MAP}, {}", other("more-ca", "")), String::new(), Err(BAD_CA)),
        (format!("{MAP}, {MAP}"), String::new(), Err(BAD_CA)),
        (other("nobody", ""), String::new(), Err(BAD_CA)),
        (other("odd-key", ""), String::new(), Err(BAD_CA)),
        (other("garbled", ""), String::new(), Err(BAD_CA)),
        ("{group: '', kind: Secret, name: quay-cert}".to_owned(), String::new(), Err(BAD_CA)),
        ("{group: '', kind: Service, name: web}".to_owned(), String::new(), Err("InvalidCACertificateKind")),
        (
            "{group: example.com, kind: ConfigMap, name: crew-ca}".to_owned(),
            String::new(),
            Err("InvalidCACertificateKind"),
        ),
        (masters.clone(), String::new(), Err("RefNotPermitted")),
        (masters.clone(), grant("yard", "Secret", None), Err("RefNotPermitted")),
        (masters.clone(), grant("harbour", "ConfigMap", None), Err("RefNotPermitted")),
        (masters.clone(), grant("yard", "ConfigMap", None), Ok(good("configmap://yard/masters-ca-cacert"))),
        // istiod compares the name with `-cacert` at its end.
        (
            masters.clone(),
            grant("yard", "ConfigMap", Some("masters-ca")),
            Ok(good("configmap://yard/masters-ca-cacert")),
        ),
        (masters, grant("yard", "ConfigMap", Some("masters-ca-cacert")), Err("RefNotPermitted")),
    ] {
        for mode in ["AllowValidOnly", "AllowInsecureFallback"] {
            for options in ["{}", "{gateway.istio.io/tls-terminate-mode: OPTIONAL_MUTUAL}"] {
                let frontend = format!(
                    "tls: {{frontend: {{default: {{validation: {{mode: {mode}, caCertificateRefs: [{refs}]}}}}}}}},"
                );
                let tls = format!("{{certificateRefs: [{{name: quay-cert}}], options: {options}}}");
                let listener = format!("{{name: l, port: 443, protocol: HTTPS, tls: {tls}}}");
                let text = format!("{}{grant}", gateway("{}", &frontend, &listener));
                // Rule 42 of Istio 1.31: the option counts before the mode.
                let is_optional = mode == "AllowInsecureFallback" || options != "{}";
                let mode = if is_optional { "OptionalMutual" } else { "Mutual" };
                let expected = expected.as_ref().map(|settings| settings.replacen("Mutual", mode, 1));
                check(&text, expected.as_deref().map_err(|reason| **reason), None);
            }
        }
    }
}

#[test]
fn clients_are_checked_whatever_certificate_the_listener_shows() {
    let frontend = "tls: {frontend: {default: {validation: {caCertificateRefs: [{group: '', kind: ConfigMap, name: crew-ca}]}}}},";
    for (tls, expected, fault) in [
        (
            "{options: {gateway.istio.io/tls-terminate-mode: ISTIO_SIMPLE}}",
            "Mutual builtin:// configmap://edge/crew-ca-cacert",
            None,
        ),
        (
            "{certificateRefs: [{name: nobody}, {name: quay-cert}]}",
            "Mutual builtin:// configmap://edge/crew-ca-cacert",
            Some(BAD),
        ),
        (
            "{certificateRefs: [{name: quay-cert}, {name: quay-rsa}]}",
            "Mutual edge/quay-cert+edge/quay-rsa configmap://edge/crew-ca-cacert",
            None,
        ),
        ("{options: {gateway.istio.io/tls-terminate-mode: ISTIO_MUTUAL}}", "IstioMutual", None),
        ("{mode: Passthrough}", "Passthrough", None),
    ] {
        let listener = format!("{{name: l, port: 443, protocol: TLS, tls: {tls}}}");
        check(&gateway("{}", frontend, &listener), Ok(expected), fault);
    }
}

#[test]
fn an_entry_for_the_port_replaces_the_default() {
    let map = |name: &str| {
        format!("{{validation: {{caCertificateRefs: [{{group: '', kind: ConfigMap, name: {name}}}]}}}}")
    };
    let (crew, garbled) = (map("crew-ca"), map("garbled"));
    const SIMPLE: &str = "Simple edge/quay-cert";
    const CREW: &str = "Mutual edge/quay-cert configmap://edge/crew-ca-cacert";
    for (frontend, expected) in [
        (format!("default: {crew}"), vec![CREW, CREW]),
        (format!("default: {crew}, perPort: [{{port: 443, tls: {{}}}}]"), vec![SIMPLE, CREW]),
        (format!("default: {crew}, perPort: [{{port: 443}}]"), vec![SIMPLE, CREW]),
        (format!("perPort: [{{port: 443, tls: {crew}}}]"), vec![CREW, SIMPLE]),
        (format!("default: {garbled}, perPort: [{{port: 443, tls: {crew}}}]"), vec![CREW]),
        (format!("default: {crew}, perPort: [{{port: 443, tls: {garbled}}}]"), vec![CREW]),
        (format!("default: {garbled}, perPort: [{{port: 80, tls: {crew}}}]"), vec![]),
    ] {
        let listener = |name: &str, port: u16| {
            format!(
                "{{name: {name}, port: {port}, protocol: HTTPS, tls: {{certificateRefs: [{{name: quay-cert}}]}}}}"
            )
        };
        let listeners = format!("{}, {}", listener("a", 443), listener("b", 8443));
        let world = with(&gateway("{}", &format!("tls: {{frontend: {{{frontend}}}}},"), &listeners));
        assert_eq!(served(&world), expected, "{frontend}");
    }
}

#[test]
fn a_listener_for_other_networks_passes_tls_on_by_its_name() {
    const OPTION: &str = "options: {gateway.istio.io/listener-protocol: auto-passthrough}";
    for (labels, port, rest, expected) in [
        ("{}", 443, "", "Passthrough"),
        ("{}", 443, OPTION, "AutoPassthrough"),
        ("{topology.istio.io/network: n}", 15443, "", "AutoPassthrough"),
        ("{topology.istio.io/network: n}", 443, "", "Passthrough"),
        (
            "{topology.istio.io/network: n, networking.istio.io/gatewayPort: '443'}",
            443,
            "",
            "AutoPassthrough",
        ),
        ("{topology.istio.io/network: n, networking.istio.io/gatewayPort: '443'}", 15443, "", "Passthrough"),
    ] {
        let listener =
            format!("{{name: l, port: {port}, protocol: TLS, tls: {{mode: Passthrough, {rest}}}}}");
        check(&gateway(labels, "", &listener), Ok(expected), None);
    }
}

#[test]
fn a_protocol_with_tls_is_not_served_without() {
    for protocol in ["HTTPS", "TLS"] {
        check(&gateway("{}", "", &format!("{{name: l, port: 443, protocol: {protocol}}}")), Err(BAD), None);
    }
    for protocol in ["HTTP", "TCP"] {
        check(
            &gateway("{}", "", &format!("{{name: l, port: 443, protocol: {protocol}}}")),
            Ok("plain"),
            None,
        );
    }
}
