//! Objects that guard something, with every field that they can have.

use crate::dice::Dice;
use serde_json::{Map, Value, json};

/// Sets a list with one or two of the values, or none.
fn maybe(dice: &mut Dice, fields: &mut Map<String, Value>, field: &str, values: &[&str]) {
    if dice.chance(3) {
        fields.insert(field.into(), json!(dice.some(values)));
    }
}

fn object(api: &str, kind: &str, namespace: &str, spec: Value) -> Value {
    let metadata =
        json!({"name": "guard", "namespace": namespace, "creationTimestamp": "2024-05-01T12:00:00Z"});
    let mut object = json!({"apiVersion": api, "kind": kind, "metadata": metadata});
    object["spec"] = spec;
    object
}

/// A policy is for single workloads, a namespace or the mesh.
fn scope(dice: &mut Dice, spec: &mut Value) -> &'static str {
    if dice.chance(2) {
        spec["selector"] = json!({"matchLabels": {"app": "web"}});
        return "shop";
    }
    dice.pick(&["shop", "shop", "istio-system"])
}

pub(crate) fn authorization_policy(dice: &mut Dice) -> Value {
    let action = dice.pick(&["ALLOW", "ALLOW", "DENY", "DENY", "AUDIT", "CUSTOM"]);
    let rules: Vec<Value> = (0..=dice.roll(2)).map(|_| rule(dice)).collect();
    let mut spec = json!({"action": action, "rules": rules});
    if action == "CUSTOM" {
        spec["provider"] = json!({"name": dice.pick(&["authorizer", "unknown"])});
    }
    let namespace = scope(dice, &mut spec);
    let mut object = object("security.istio.io/v1", "AuthorizationPolicy", namespace, spec);
    if dice.chance(6) && matches!(action, "ALLOW" | "DENY") {
        object["metadata"]["annotations"] = json!({"istio.io/dry-run": "true"});
    }
    object
}

fn rule(dice: &mut Dice) -> Value {
    let mut rule = json!({});
    if dice.roll(3) > 0 {
        rule["from"] = (0..=dice.roll(2)).map(|_| json!({"source": source(dice)})).collect();
    }
    if dice.roll(3) > 0 {
        rule["to"] = (0..=dice.roll(2)).map(|_| json!({"operation": operation(dice)})).collect();
    }
    if dice.chance(2) {
        rule["when"] = (0..=dice.roll(2)).map(|_| condition(dice)).collect();
    }
    rule
}

fn source(dice: &mut Dice) -> Value {
    let mut out = Map::new();
    if dice.chance(4) {
        maybe(dice, &mut out, "serviceAccounts", &["front/ui", "shop/app.v1"]);
        maybe(dice, &mut out, "notServiceAccounts", &["front/ui", "shop/app.v1"]);
    } else {
        let principals = ["cluster.local/ns/front/sa/ui", "cluster.local/ns/front/*", "*/sa/app.v1", "*"];
        maybe(dice, &mut out, "principals", &principals);
        maybe(dice, &mut out, "notPrincipals", &principals);
        maybe(dice, &mut out, "namespaces", &["front", "sh*", "*"]);
        maybe(dice, &mut out, "notNamespaces", &["front", "sh*"]);
    }
    maybe(dice, &mut out, "requestPrincipals", &["https://a.example/alice", "https://a.example/*", "*"]);
    maybe(dice, &mut out, "notRequestPrincipals", &["https://a.example/alice", "*/bob"]);
    maybe(dice, &mut out, "ipBlocks", &["10.1.0.0/16", "10.2.0.7"]);
    maybe(dice, &mut out, "notIpBlocks", &["10.1.0.0/16", "10.2.0.7"]);
    maybe(dice, &mut out, "remoteIpBlocks", &["192.0.2.0/24", "10.1.0.1"]);
    maybe(dice, &mut out, "notRemoteIpBlocks", &["192.0.2.0/24", "10.1.0.1"]);
    if out.is_empty() {
        out.insert("ipBlocks".into(), json!(["10.1.0.0/16"]));
    }
    out.into()
}

fn operation(dice: &mut Dice) -> Value {
    let mut out = Map::new();
    maybe(dice, &mut out, "hosts", &["web.shop", "*.example", "*"]);
    maybe(dice, &mut out, "notHosts", &["web.shop", "*.example"]);
    maybe(dice, &mut out, "ports", &["8080", "9000"]);
    maybe(dice, &mut out, "notPorts", &["8080", "9000"]);
    maybe(dice, &mut out, "methods", &["GET", "POST", "*"]);
    maybe(dice, &mut out, "notMethods", &["GET", "POST"]);
    maybe(dice, &mut out, "paths", &["/admin/*", "/public", "/{*}/users", "/{**}"]);
    maybe(dice, &mut out, "notPaths", &["/admin/*", "/public", "/{*}/users"]);
    if out.is_empty() {
        out.insert("methods".into(), json!(["GET"]));
    }
    out.into()
}

fn condition(dice: &mut Dice) -> Value {
    let (key, values) = dice.pick::<(&str, &[&str])>(&[
        ("source.ip", &["10.1.0.0/16"]),
        ("remote.ip", &["192.0.2.0/24"]),
        ("source.namespace", &["front", "shop"]),
        ("source.principal", &["cluster.local/ns/front/sa/ui"]),
        ("source.serviceAccount", &["front/ui"]),
        ("request.auth.principal", &["https://a.example/alice"]),
        ("request.auth.audiences", &["shop"]),
        ("request.auth.presenter", &["cli"]),
        ("request.auth.claims[group]", &["admin"]),
        ("request.headers[x-user]", &["root", "*"]),
        ("destination.ip", &["10.0.0.0/24"]),
        ("destination.port", &["8080"]),
        ("connection.sni", &["web.shop"]),
        ("experimental.envoy.filters.network.mysql_proxy[db.table]", &["[books]"]),
    ]);
    let mut out = json!({"key": key});
    if dice.chance(2) {
        out["notValues"] = json!(dice.some(values));
    } else {
        out["values"] = json!(dice.some(values));
    }
    out
}

pub(crate) fn request_authentication(dice: &mut Dice) -> Value {
    let rules: Vec<Value> = (0..=dice.roll(2)).map(|index| jwt_rule(dice, index)).collect();
    let mut spec = json!({ "jwtRules": rules });
    let namespace = scope(dice, &mut spec);
    object("security.istio.io/v1", "RequestAuthentication", namespace, spec)
}

fn jwt_rule(dice: &mut Dice, index: usize) -> Value {
    let (issuer, key) = [("https://a.example", "key-a"), ("https://b.example", "key-b")][index];
    let mut rule = json!({"issuer": issuer});
    match dice.roll(3) {
        0 => rule["jwksUri"] = format!("https://keys.example/{key}").into(),
        1 => rule["jwksUri"] = format!("https://nobody.example/{key}").into(),
        _ => rule["jwks"] = format!(r#"{{"keys":[{{"kty":"oct","kid":"{key}","k":"c2VjcmV0"}}]}}"#).into(),
    }
    let optional = [
        ("audiences", json!(["shop"])),
        ("fromHeaders", json!([{"name": "x-token", "prefix": "JWT "}])),
        ("fromParams", json!(["token"])),
        ("fromCookies", json!(["session"])),
        ("outputPayloadToHeader", json!("x-payload")),
        ("forwardOriginalToken", json!(true)),
        ("outputClaimToHeaders", json!([{"header": "x-sub", "claim": "sub"}])),
        ("timeout", json!("5s")),
        ("spaceDelimitedClaims", json!(["groups"])),
        ("presence", json!("REQUIRED")),
    ];
    for (field, value) in optional {
        if dice.chance(3) {
            rule[field] = value;
        }
    }
    rule
}

pub(crate) fn peer_authentication(dice: &mut Dice) -> Value {
    let mode = |dice: &mut Dice| json!({"mode": dice.pick(&["UNSET", "PERMISSIVE", "STRICT", "STRICT"])});
    let mut spec = json!({});
    let namespace = scope(dice, &mut spec);
    if dice.roll(4) > 0 {
        spec["mtls"] = mode(dice);
    }
    if spec.get("selector").is_some() && dice.chance(2) {
        spec["portLevelMtls"] = json!({"8080": mode(dice), "9000": mode(dice)});
    }
    object("security.istio.io/v1", "PeerAuthentication", namespace, spec)
}

pub(crate) fn gateway(dice: &mut Dice) -> Value {
    let mut servers = vec![tls_server(dice, "shop.example")];
    if dice.chance(2) {
        servers.push(tls_server(dice, "*.wide.example"));
    }
    if dice.chance(2) {
        servers.push(json!({
            "port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": ["shop.example"],
            "tls": {"httpsRedirect": dice.chance(2)},
        }));
    }
    let mut spec = json!({ "servers": servers });
    if dice.roll(3) > 0 {
        spec["selector"] = json!({"istio": "edge"});
    }
    object("networking.istio.io/v1", "Gateway", "shop", spec)
}

fn tls_server(dice: &mut Dice, host: &str) -> Value {
    let mode = dice.pick(&["SIMPLE", "MUTUAL", "MUTUAL", "OPTIONAL_MUTUAL", "ISTIO_MUTUAL"]);
    let mut tls = json!({"mode": mode});
    if mode != "ISTIO_MUTUAL" {
        if dice.chance(2) {
            tls["credentialName"] = "shop-cert".into();
        } else {
            tls["serverCertificate"] = "/etc/cert.pem".into();
            tls["privateKey"] = "/etc/key.pem".into();
            if mode != "SIMPLE" {
                tls["caCertificates"] = "/etc/ca.pem".into();
            }
        }
    }
    let optional = [
        ("subjectAltNames", json!(["spiffe://cluster.local/ns/front/sa/ui"])),
        ("minProtocolVersion", json!("TLSV1_3")),
        ("maxProtocolVersion", json!("TLSV1_3")),
        ("cipherSuites", json!(["ECDHE-RSA-AES256-GCM-SHA384"])),
        ("verifyCertificateSpki", json!(["MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="])),
    ];
    for (field, value) in optional {
        if dice.chance(4) {
            tls[field] = value;
        }
    }
    let mut server = json!({
        "port": {"number": 443, "name": format!("https-{}", host.len()), "protocol": "HTTPS"},
        "hosts": [host], "tls": tls,
    });
    if dice.chance(3) {
        server["name"] = "front".into();
    }
    server
}

pub(crate) fn destination_rule(dice: &mut Dice) -> Value {
    let mut policy = json!({});
    if dice.roll(4) > 0 {
        policy["tls"] = client_tls(dice);
    }
    if dice.chance(3) {
        policy["portLevelSettings"] = json!([{"port": {"number": 8080}, "tls": client_tls(dice)}]);
    }
    if dice.chance(2) {
        policy["connectionPool"] = json!({"tcp": {"maxConnections": 7}});
    }
    let mut spec = json!({"host": dice.pick(&["web.shop.svc.cluster.local", "*.shop.svc.cluster.local"]), "trafficPolicy": policy});
    if dice.chance(2) {
        spec["subsets"] =
            json!([{"name": "v1", "labels": {"version": "v1"}, "trafficPolicy": {"tls": client_tls(dice)}}]);
    }
    if dice.chance(3) {
        spec["exportTo"] = json!(["."]);
    }
    object("networking.istio.io/v1", "DestinationRule", "shop", spec)
}

fn client_tls(dice: &mut Dice) -> Value {
    let mut tls = json!({"mode": dice.pick(&["SIMPLE", "MUTUAL", "ISTIO_MUTUAL", "DISABLE"])});
    if dice.chance(2) {
        tls["caCertificates"] = "/etc/good-ca.pem".into();
    }
    if tls["mode"] == "MUTUAL" {
        tls["clientCertificate"] = "/etc/cert.pem".into();
        tls["privateKey"] = "/etc/key.pem".into();
    }
    if dice.chance(2) {
        tls["subjectAltNames"] = json!(["web.example"]);
    }
    if dice.chance(3) {
        tls["sni"] = "web.example".into();
    }
    tls
}

pub(crate) fn backend_tls_policy(dice: &mut Dice) -> Value {
    let mut validation = json!({"hostname": "web.example"});
    if dice.chance(2) {
        validation["wellKnownCACertificates"] = "System".into();
    } else {
        validation["caCertificateRefs"] = json!([{"group": "", "kind": "ConfigMap", "name": "roots"}]);
    }
    if dice.chance(2) {
        validation["subjectAltNames"] = json!([
            {"type": "Hostname", "hostname": "other.example"},
            {"type": "URI", "uri": "spiffe://cluster.local/ns/shop/sa/default"},
        ]);
    }
    let mut target = json!({"group": "", "kind": "Service", "name": "web"});
    if dice.chance(3) {
        target["sectionName"] = "http".into();
    }
    let spec = json!({"targetRefs": [target], "validation": validation});
    object("gateway.networking.k8s.io/v1", "BackendTLSPolicy", "shop", spec)
}
