use super::references::NamedByGateways;
use super::{Right, SecretView};
use crate::engine::{Cx, Query};
use crate::proxy::{Proxy, ProxyKind, SecretAccess};
use crate::routing::gateway::AllGateways;
use crate::testing::{evaluate, line, sidecar, tls_secret, world, yaml, yaml_world};
use crate::translator::Translator;
use pilotfish_model::{ChangeSet, Fact, Kind, SecretReader, Update, World, WorldWriter};
use pilotfish_proto::envoy::config::core::v3::{DataSource, data_source::Specifier};
use pilotfish_proto::envoy::extensions::transport_sockets::tls::v3::{Secret, secret::Type};
use pilotfish_proto::{Any, ResourceType};
use prost::Message;
use std::sync::Arc;

// `c`, `k` and `a` in base64 are Yw==, aw== and YQ==.
const OBJECTS: &str = "
{apiVersion: v1, kind: Secret, metadata: {name: web, namespace: edge}, data: {tls.crt: Yw==, tls.key: aw==, ca.crt: YQ==}}
---
{apiVersion: v1, kind: Secret, metadata: {name: generic, namespace: edge}, data: {cert: Yw==, key: aw==}}
---
{apiVersion: v1, kind: Secret, metadata: {name: generic-cacert, namespace: edge}, data: {cacert: YQ==, crl: Yw==}}
---
{apiVersion: v1, kind: Secret, metadata: {name: broken, namespace: edge}, data: {tls.crt: Yw==}}
---
{apiVersion: v1, kind: Secret, metadata: {name: web, namespace: shop}, data: {tls.crt: Yw==, tls.key: aw==}}
---
{apiVersion: v1, kind: Secret, metadata: {name: open, namespace: shop}, data: {tls.crt: Yw==, tls.key: aw==}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: roots, namespace: shop}, data: {ca.crt: a}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: a-cacert, namespace: yard}, data: {cacert: a, ca.crt: c}}
---
{apiVersion: v1, kind: Secret, metadata: {name: crew, namespace: yard}, data: {cacert: YQ==}}
---
{apiVersion: v1, kind: Secret, metadata: {name: crew-cacert, namespace: yard}, data: {cacert: Yw==}}
---
{apiVersion: v1, kind: Secret, metadata: {name: closed, namespace: yard}, data: {cacert: YQ==}}
---
{apiVersion: gateway.networking.k8s.io/v1beta1, kind: ReferenceGrant, metadata: {name: open, namespace: yard},
 spec: {from: [{group: gateway.networking.k8s.io, kind: Gateway, namespace: edge}], to: [{group: '', kind: Secret, name: crew}]}}
---
{apiVersion: gateway.networking.k8s.io/v1beta1, kind: ReferenceGrant, metadata: {name: open, namespace: shop},
 spec: {from: [{group: gateway.networking.k8s.io, kind: Gateway, namespace: edge}], to: [{group: '', kind: Secret, name: open}]}}
";

/// A Gateway and a DestinationRule that name Secrets of the proxy's namespace.
const NAMES: &str = "
---
{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: gw, namespace: other}, spec: {servers: [
  {port: {number: 443, name: https, protocol: HTTPS}, hosts: ['*'], tls: {mode: MUTUAL, credentialName: web}},
  {port: {number: 444, name: https, protocol: HTTPS}, hosts: ['*'], tls: {mode: SIMPLE, credentialName: 'kubernetes-gateway://shop/open'}},
  {port: {number: 445, name: https, protocol: HTTPS}, hosts: ['*'], tls: {mode: SIMPLE, credentialName: custom}}]}}
---
{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: r, namespace: other}, spec: {host: a.example.com,
  trafficPolicy: {portLevelSettings: [{port: {number: 1}, tls: {mode: MUTUAL, credentialName: generic}}]}}}
---
{apiVersion: v1, kind: Secret, metadata: {name: quiet, namespace: edge}, data: {tls.crt: Yw==, tls.key: aw==}}
---
{apiVersion: v1, kind: Secret, type: example.com/pair, metadata: {name: custom, namespace: edge}, data: {tls.crt: Yw==, tls.key: aw==}}
---
{apiVersion: v1, kind: Secret, type: example.com/pair, metadata: {name: odd, namespace: edge}, data: {tls.crt: Yw==, tls.key: aw==}}
";

fn reader(namespace: &str) -> SecretReader {
    SecretReader { namespace: namespace.into(), service_account: "gateway".into(), vouched: true }
}

/// A world where all accounts of the test may read Secrets, or none may, or it is not known.
fn reviewed(text: &str, allowed: Option<bool>) -> Arc<World> {
    let verdicts =
        ["edge", "shop", "yard", "istio-system"].map(|ns| Update::SecretAccess(reader(ns), allowed));
    world(yaml(text).into_iter().chain(verdicts))
}

/// What a proxy gets under a name: the certificate with its key, or the CA with its revocations. `Err` while
/// it is not answered.
fn ask(world: &Arc<World>, proxy: &Proxy, name: &str) -> Result<Option<String>, &'static str> {
    let translator = Translator::new();
    translator.publish(world.clone(), &ChangeSet { facts: [Fact::Kind(Kind::Secret)].into() });
    let client = translator.connect(proxy.clone());
    let snapshot = translator.snapshot();
    let view = snapshot.view(&client, ResourceType::Secret).ok_or("it waits")?;
    Ok(snapshot.get(view, name).and_then(|encoded| text_of(name, &encoded.body)))
}

fn text_of(name: &str, body: &[u8]) -> Option<String> {
    let secret = Secret::decode(&*Any::decode(body).unwrap().value).unwrap();
    assert_eq!(secret.name, name);
    let text = |source: Option<DataSource>| match source.and_then(|source| source.specifier) {
        Some(Specifier::InlineBytes(bytes)) => String::from_utf8(bytes).unwrap(),
        _ => String::new(),
    };
    match secret.r#type? {
        Type::TlsCertificate(tls) => {
            Some(format!("{}+{}", text(tls.certificate_chain), text(tls.private_key)))
        }
        Type::ValidationContext(ca) => Some(format!("ca {}-{}", text(ca.trusted_ca), text(ca.crl))),
        _ => None,
    }
}

/// A router that proved its account, which may read Secrets.
fn known(namespace: &str) -> Proxy {
    let id = format!("spiffe://cluster.local/ns/{namespace}/sa/gateway");
    let proxy = sidecar("gateway", namespace).with_identities([id.as_str()]).unwrap();
    Proxy { kind: ProxyKind::Router, secret_access: SecretAccess::Reviewed(reader(namespace)), ..proxy }
}

fn get(proxy: &Proxy, name: &str) -> Option<String> {
    ask(&reviewed(OBJECTS, Some(true)), proxy, name).ok().flatten()
}

/// Authorities are served under the name that clusters and listeners have for them; a key beside them is not.
/// In a DestinationRule it is a field of Istio 1.32.
#[test]
fn authorities_that_rules_and_servers_name_are_served_without_the_key() {
    let secret = "
---
{apiVersion: v1, kind: Secret, metadata: {name: roots, namespace: edge},
 data: {ca.crt: YQ==, tls.crt: Yw==, tls.key: aw==}}
";
    let rule = "
{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: roots, namespace: other},
 spec: {host: b.example.com, trafficPolicy: {tls: {mode: SIMPLE, caCertCredentialName: roots}}}}";
    let server = "
{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: gw, namespace: other}, spec: {servers: [
  {port: {number: 443, name: https, protocol: HTTPS}, hosts: ['*'],
   tls: {mode: MUTUAL, credentialName: web, caCertCredentialName: roots}}]}}";
    let edge = Proxy { secret_access: SecretAccess::Referenced, ..known("edge") };
    let get = |text: &str, name: &str| ask(&yaml_world(&format!("{text}{secret}")), &edge, name).unwrap();
    for (object, other) in [(rule, "sni"), (server, "caCertificates")] {
        for name in ["kubernetes://roots-cacert", "kubernetes://edge/roots-cacert"] {
            assert_eq!(get(object, name).as_deref(), Some("ca a-"), "{object}");
        }
        assert_eq!(get(object, "kubernetes://roots"), None, "{object}");
        let unnamed = object.replace("caCertCredentialName", other);
        assert_eq!(get(&unnamed, "kubernetes://roots-cacert"), None, "{object}");
        let with_suffix = object.replace("caCertCredentialName: roots", "caCertCredentialName: roots-cacert");
        assert_eq!(get(&with_suffix, "kubernetes://roots-cacert").as_deref(), Some("ca a-"), "{object}");
    }
}

#[test]
fn secrets_of_the_own_namespace_are_served_to_accounts_that_may_read_them() {
    let edge = known("edge");
    assert_eq!(get(&edge, "kubernetes://web").as_deref(), Some("c+k"));
    assert_eq!(get(&edge, "kubernetes://edge/web").as_deref(), Some("c+k"));
    assert_eq!(get(&edge, "kubernetes://generic").as_deref(), Some("c+k"));
    assert_eq!(get(&edge, "kubernetes://web-cacert").as_deref(), Some("ca a-"));
    assert_eq!(get(&edge, "kubernetes://generic-cacert").as_deref(), Some("ca a-c"));
    assert_eq!(get(&edge, "kubernetes://broken"), None);
    assert_eq!(get(&edge, "kubernetes://nobody"), None);
    assert_eq!(get(&edge, "kubernetes://shop/web"), None);
    assert_eq!(get(&edge, "configmap://shop/roots-cacert").as_deref(), Some("ca a-"));
    // Authorities of a ConfigMap whose own name ends so.
    assert_eq!(get(&edge, "configmap://yard/a-cacert-cacert").as_deref(), Some("ca a-"));
}

#[test]
fn rights_decide_and_nothing_is_said_before_they_are_known() {
    let edge = known("edge");
    let foreign = Proxy { secret_access: SecretAccess::Foreign, ..edge.clone() };
    let id = "spiffe://elsewhere.example.com/ns/edge/sa/gateway";
    let federated = edge.clone().with_identities([id]).unwrap();
    let some = |text: &str| Ok(Some(text.to_owned()));
    for (proxy, allowed, secret, authorities, map) in [
        (&edge, Some(true), some("c+k"), some("ca a-"), some("ca a-")),
        // As in istiod, certificates of authorities are no secret within the namespace.
        (&edge, Some(false), Ok(None), some("ca a-"), some("ca a-")),
        (&edge, None, Err("it waits"), Err("it waits"), Err("it waits")),
        // The namespaces of that name are others.
        (&federated, Some(true), Ok(None), Ok(None), some("ca a-")),
        (&foreign, Some(true), Ok(None), Ok(None), some("ca a-")),
    ] {
        let world = reviewed(OBJECTS, allowed);
        let names = ["kubernetes://web", "kubernetes://web-cacert", "configmap://shop/roots-cacert"];
        assert_eq!(names.map(|name| ask(&world, proxy, name)), [secret, authorities, map], "{allowed:?}");
    }
}

#[test]
fn a_new_verdict_changes_the_view() {
    let translator = Translator::new();
    let mut writer = WorldWriter::new();
    yaml(OBJECTS).into_iter().for_each(|update| writer.apply(update));
    let client = translator.connect(known("edge"));
    let mut served = |allowed| {
        writer.apply(Update::SecretAccess(reader("edge"), allowed));
        let (world, changes) = writer.publish().unwrap();
        let changes = translator.publish(world, &changes);
        let snapshot = translator.snapshot();
        let view = snapshot.view(&client, ResourceType::Secret);
        let is_served = view.map(|view| snapshot.get(view, "kubernetes://web").is_some());
        (changes.view_changed == [client.id()], is_served)
    };
    assert_eq!(served(Some(true)), (true, Some(true)));
    assert_eq!(served(Some(false)), (true, Some(false)));
    assert_eq!(served(Some(true)), (true, Some(true)));
    assert_eq!(served(None), (true, None));
}

#[test]
fn without_an_api_server_the_configuration_decides() {
    let world = yaml_world(&format!("{OBJECTS}{NAMES}"));
    let edge = Proxy { secret_access: SecretAccess::Referenced, ..known("edge") };
    let beside = Proxy { kind: ProxyKind::Sidecar, ..edge.clone() };
    let get = |proxy, name| ask(&world, proxy, name).unwrap();
    assert_eq!(get(&edge, "kubernetes://web").as_deref(), Some("c+k"));
    assert_eq!(get(&edge, "kubernetes://web-cacert").as_deref(), Some("ca a-"));
    assert_eq!(get(&edge, "kubernetes://generic").as_deref(), Some("c+k"));
    assert_eq!(get(&edge, "kubernetes://quiet"), None, "nothing names it");
    assert_eq!(get(&edge, "configmap://shop/roots-cacert").as_deref(), Some("ca a-"));
    // Gateways are not for a sidecar, DestinationRules are.
    assert_eq!(get(&beside, "kubernetes://web"), None);
    assert_eq!(get(&beside, "kubernetes://generic").as_deref(), Some("c+k"));
}

#[test]
fn types_that_are_not_for_certificates_are_closed() {
    let secret = |namespace: &str, name: &str, rest: &str| {
        format!(
            "\n---\n{{apiVersion: v1, kind: Secret, metadata: {{name: {name}, namespace: {namespace}{rest}, \
             data: {{tls.crt: Yw==, tls.key: aw==, ca.crt: YQ==}}}}"
        )
    };
    let mut text = format!("{OBJECTS}{NAMES}");
    let root = ["pilotfish-webhook-certificate", "cacerts", "istio-ca-secret", "istiod-tls"];
    for (namespace, name, rest) in [
        ("istio-system", "good", "}, type: Opaque"),
        ("istio-system", "token", "}, type: kubernetes.io/service-account-token"),
        ("istio-system", "root", "}, type: istio.io/ca-root"),
        ("istio-system", "images", "}, type: kubernetes.io/dockerconfigjson"),
        ("istio-system", "join", "}, type: bootstrap.kubernetes.io/token"),
        ("istio-system", "west", ", labels: {istio/multiCluster: 'true'}}"),
        ("edge", "cacerts", "}, type: Opaque"),
    ] {
        text += &secret(namespace, name, rest);
    }
    root.iter().for_each(|name| text += &secret("istio-system", name, "}"));
    let world = reviewed(&text, Some(true));
    let get = |namespace: &str, name: &str| ask(&world, &known(namespace), name).unwrap();
    assert_eq!(get("istio-system", "kubernetes://good").as_deref(), Some("c+k"));
    assert_eq!(get("edge", "kubernetes://cacerts").as_deref(), Some("c+k"), "it is not the mesh's");
    for name in root.into_iter().chain(["token", "root", "images", "join", "west"]) {
        for suffix in ["", "-cacert"] {
            assert_eq!(get("istio-system", &format!("kubernetes://{name}{suffix}")), None, "{name}{suffix}");
        }
    }
    assert_eq!(get("edge", "kubernetes://custom").as_deref(), Some("c+k"), "a Gateway names it");
    assert_eq!(get("edge", "kubernetes://odd"), None);
}

/// What a router of a namespace with all gateways gets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Asked(&'static str, Right, &'static str);

impl Query for Asked {
    type Output = bool;

    fn compute(&self, cx: &Cx<'_>) -> bool {
        let gateways = cx.get(&AllGateways).iter().map(|header| header.id.clone()).collect();
        let view = SecretView { namespace: self.0.into(), right: self.1, gateways };
        view.secret(cx, &self.2.into()).is_some()
    }
}

#[test]
fn secrets_of_the_gateway_api_are_served_where_a_gateway_names_them_and_may() {
    const GATEWAY: &str = "gateway.networking.k8s.io/v1";
    let listener = |name: &str, port: u32, secret: &str| {
        format!("{{name: {name}, port: {port}, protocol: HTTPS, tls: {{certificateRefs: [{secret}]}}}}")
    };
    let listeners = [
        listener("own", 443, "{name: own}"),
        listener("open", 444, "{name: open, namespace: shop}"),
        listener("closed", 445, "{name: closed, namespace: shop}"),
    ];
    let spec = format!("{{gatewayClassName: istio, listeners: [{}]}}", listeners.join(", "));
    let mut text = line(GATEWAY, "Gateway", "edge", "gw", &spec);
    let grant = "{from: [{group: gateway.networking.k8s.io, kind: Gateway, namespace: edge}], to: [{group: '', kind: Secret, name: open}]}";
    text += &line("gateway.networking.k8s.io/v1beta1", "ReferenceGrant", "shop", "open", grant);
    for (namespace, name) in
        [("edge", "own"), ("edge", "quiet"), ("shop", "open"), ("shop", "closed"), ("shop", "quiet")]
    {
        text += &format!(
            "---\n{{apiVersion: v1, kind: Secret, metadata: {{name: {name}, namespace: {namespace}}}, {}}}\n",
            tls_secret()
        );
    }
    let world = yaml_world(&text);
    let served = |namespace, right, name| *evaluate(&world, &Asked(namespace, right, name));
    for (name, expected) in [
        ("kubernetes-gateway://edge/own", true),
        ("kubernetes-gateway://edge/quiet", false),
        ("kubernetes-gateway://shop/open", true),
        ("kubernetes-gateway://shop/closed", false),
        ("kubernetes-gateway://shop/quiet", false),
    ] {
        // Whether the account could list the Secrets does not count: whoever writes Gateways here decides.
        for right in [Right::All, Right::Authorities, Right::Named] {
            assert_eq!(served("edge", right, name), expected, "{name} {right:?}");
        }
        // A router of another namespace, even with the same gateways, is not meant.
        assert!(!served("other", Right::All, name), "{name}");
    }
}

/// Rule 39: the certificates of a ListenerSet are those of its namespace, or of one that grants them to it.
#[test]
fn secrets_of_a_listener_set_are_served_to_the_routers_of_its_gateway() {
    const GATEWAY: &str = "gateway.networking.k8s.io/v1";
    let listener = |name: &str, secret: &str| {
        format!(
            "{{name: {name}, protocol: HTTPS, hostname: {name}.org, tls: {{certificateRefs: [{secret}]}}}}"
        )
    };
    let listeners = [
        listener("own", "{name: own}"),
        listener("open", "{name: open, namespace: vault}"),
        listener("closed", "{name: closed, namespace: vault}"),
    ];
    let spec = format!("{{parentRef: {{name: gw, namespace: edge}}, listeners: [{}]}}", listeners.join(", "));
    let gateway = "{gatewayClassName: istio, allowedListeners: {namespaces: {from: All}}, listeners: [{name: http, port: 80, protocol: HTTP}]}";
    let grant = "{from: [{group: gateway.networking.k8s.io, kind: ListenerSet, namespace: team}], to: [{group: '', kind: Secret, name: open}]}";
    let mut text = line(GATEWAY, "Gateway", "edge", "gw", gateway)
        + &line(GATEWAY, "ListenerSet", "team", "s", &spec)
        + &line("gateway.networking.k8s.io/v1beta1", "ReferenceGrant", "vault", "open", grant);
    for (namespace, name) in [("team", "own"), ("team", "quiet"), ("vault", "open"), ("vault", "closed")] {
        text += &format!(
            "---\n{{apiVersion: v1, kind: Secret, metadata: {{name: {name}, namespace: {namespace}}}, {}}}\n",
            tls_secret()
        );
    }
    let world = yaml_world(&text);
    for (name, expected) in [
        ("kubernetes-gateway://team/own", true),
        ("kubernetes-gateway://team/quiet", false),
        ("kubernetes-gateway://vault/open", true),
        ("kubernetes-gateway://vault/closed", false),
    ] {
        assert_eq!(*evaluate(&world, &Asked("edge", Right::Authorities, name)), expected, "{name}");
        assert!(!*evaluate(&world, &Asked("team", Right::All, name)), "{name}");
    }
}

#[test]
fn a_grant_for_one_secret_opens_its_authorities_and_no_other_secret() {
    let authority = include_str!("../../credentials/testdata/p256.crt");
    let listener = "{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: own}]}}";
    let frontend = "{frontend: {default: {validation: {caCertificateRefs: [{group: '', kind: Secret, name: crew, namespace: yard}]}}}}";
    let spec = format!("{{gatewayClassName: istio, listeners: [{listener}], tls: {frontend}}}");
    let mut text = line("gateway.networking.k8s.io/v1", "Gateway", "edge", "gw", &spec);
    let grant = "{from: [{group: gateway.networking.k8s.io, kind: Gateway, namespace: edge}], to: [{group: '', kind: Secret, name: crew}]}";
    text += &line("gateway.networking.k8s.io/v1beta1", "ReferenceGrant", "yard", "open", grant);
    text += &format!(
        "---\n{{apiVersion: v1, kind: Secret, metadata: {{name: own, namespace: edge}}, {}}}\n",
        tls_secret()
    );
    for name in ["crew", "closed"] {
        text += &format!(
            "---\n{{apiVersion: v1, kind: Secret, metadata: {{name: {name}, namespace: yard}}, stringData: {{cacert: {authority:?}}}}}\n"
        );
    }
    let world = yaml_world(&text);
    for (name, expected) in [
        ("kubernetes-gateway://edge/own", true),
        ("kubernetes-gateway://yard/crew-cacert", true),
        ("kubernetes-gateway://yard/crew", false),
        ("kubernetes-gateway://yard/closed-cacert", false),
    ] {
        assert_eq!(*evaluate(&world, &Asked("edge", Right::All, name)), expected, "{name}");
    }
}

#[test]
fn a_gateway_of_istio_opens_no_other_namespace() {
    let world = yaml_world(&format!("{OBJECTS}{NAMES}"));
    assert!(!*evaluate(&world, &Asked("edge", Right::All, "kubernetes-gateway://shop/open")));
    assert!(*evaluate(&world, &Asked("edge", Right::Named, "kubernetes://web")));
    let none = NamedByGateways { namespace: "edge".into(), gateways: Arc::default() };
    assert!(evaluate(&world, &none).is_empty());
}

#[test]
fn node_metadata_proves_nothing() {
    let unknown = sidecar("gateway", "edge");
    assert_eq!(get(&unknown, "kubernetes://web"), None);
    assert_eq!(get(&unknown, "configmap://shop/roots"), None);
    assert_eq!(get(&known("shop"), "kubernetes://edge/web"), None);
}
