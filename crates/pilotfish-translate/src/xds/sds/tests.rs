use crate::proxy::Proxy;
use crate::testing::{sidecar, yaml_world};
use crate::translator::Translator;
use pilotfish_model::{ChangeSet, Fact, Kind};
use pilotfish_proto::envoy::config::core::v3::{DataSource, data_source::Specifier};
use pilotfish_proto::envoy::extensions::transport_sockets::tls::v3::{Secret, secret::Type};
use pilotfish_proto::{Any, ResourceType};
use prost::Message;

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

/// What a proxy gets under a name: the certificate with its key, or the CA with its revocations.
fn get(proxy: &Proxy, name: &str) -> Option<String> {
    let translator = Translator::new();
    translator.publish(yaml_world(OBJECTS), &ChangeSet { facts: [Fact::Kind(Kind::Secret)].into() });
    let client = translator.connect(proxy.clone());
    let snapshot = translator.snapshot();
    let encoded = snapshot.get(snapshot.view(&client, ResourceType::Secret)?, name)?;
    let secret = Secret::decode(&*Any::decode(encoded.body).unwrap().value).unwrap();
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

fn known(namespace: &str) -> Proxy {
    let id = format!("spiffe://cluster.local/ns/{namespace}/sa/gateway");
    sidecar("gateway", namespace).with_identities([id.as_str()]).unwrap()
}

#[test]
fn secrets_of_the_own_namespace_are_served() {
    let edge = known("edge");
    assert_eq!(get(&edge, "kubernetes://web").as_deref(), Some("c+k"));
    assert_eq!(get(&edge, "kubernetes://edge/web").as_deref(), Some("c+k"));
    assert_eq!(get(&edge, "kubernetes://generic").as_deref(), Some("c+k"));
    assert_eq!(get(&edge, "kubernetes://web-cacert").as_deref(), Some("ca a-"));
    assert_eq!(get(&edge, "kubernetes://generic-cacert").as_deref(), Some("ca a-c"));
    assert_eq!(get(&edge, "kubernetes://broken"), None);
    assert_eq!(get(&edge, "kubernetes://nobody"), None);
}

#[test]
fn other_namespaces_need_a_grant() {
    let edge = known("edge");
    assert_eq!(get(&edge, "kubernetes://shop/web"), None);
    assert_eq!(get(&edge, "kubernetes://shop/open"), None);
    assert_eq!(get(&edge, "kubernetes-gateway://shop/web"), None);
    assert_eq!(get(&edge, "kubernetes-gateway://shop/open").as_deref(), Some("c+k"));
    assert_eq!(get(&known("other"), "kubernetes-gateway://shop/open"), None);
    assert_eq!(get(&edge, "configmap://shop/roots-cacert").as_deref(), Some("ca a-"));
}

#[test]
fn a_grant_for_one_secret_opens_its_authorities_and_no_other_secret() {
    let edge = known("edge");
    assert_eq!(get(&edge, "kubernetes-gateway://yard/crew-cacert").as_deref(), Some("ca a-"));
    assert_eq!(get(&edge, "kubernetes-gateway://yard/crew"), None);
    assert_eq!(get(&edge, "kubernetes-gateway://yard/closed-cacert"), None);
    let yard = known("yard");
    assert_eq!(get(&yard, "kubernetes-gateway://yard/crew-cacert").as_deref(), Some("ca c-"));
    assert_eq!(get(&yard, "kubernetes-gateway://yard/closed-cacert").as_deref(), Some("ca a-"));
    // Authorities of a ConfigMap whose own name ends so.
    assert_eq!(get(&edge, "configmap://yard/a-cacert-cacert").as_deref(), Some("ca a-"));
}

#[test]
fn node_metadata_proves_nothing() {
    let unknown = sidecar("gateway", "edge");
    assert_eq!(get(&unknown, "kubernetes://web"), None);
    assert_eq!(get(&unknown, "configmap://shop/roots"), None);
    assert_eq!(get(&known("shop"), "kubernetes://edge/web"), None);
}
