//! Kubeconfigs of remote clusters.

use super::checks::one_line;
use crate::input::Input;
use crate::render;
use pilotfish_kube::remote::{InsecureOptions, check_kubeconfig};
use serde_json::{Map, Value, json};

/// Marker in the place of secrets.
const SECRET: &str = "c2VjcmV0LXRva2Vu";
const OPTIONS: &[&str] =
    &["exec", "clientKey", "clientCertificate", "tokenFile", "certificateAuthority", "gcp"];
const USER: &[&str] = &[
    "exec",
    "client-key",
    "client-certificate",
    "tokenFile",
    "token",
    "password",
    "username",
    "client-key-data",
    "client-certificate-data",
    "auth-provider",
    "as",
    "impersonate-groups",
];
const CLUSTER: &[&str] = &[
    "server",
    "certificate-authority",
    "certificate-authority-data",
    "insecure-skip-tls-verify",
    "proxy-url",
    "tls-server-name",
];

pub(super) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    if input.flag() {
        // Any text; messages may contain parts of it.
        let rest = input.all();
        if let Err(error) = check_kubeconfig(rest, &InsecureOptions::default()) {
            let text = error.to_string();
            assert!(!text.is_empty() && text.len() < 4_000 + rest.len(), "{text:?}");
        }
        return;
    }
    let allowed: Vec<&str> = (0..input.below(3)).filter_map(|_| input.pick(OPTIONS)).collect();
    let options = InsecureOptions::of(&allowed).unwrap_or_default();
    let config = config(&mut input);
    let text = if input.flag() { render::json(&config) } else { render::yaml(&config) };
    match check_kubeconfig(text.as_bytes(), &options) {
        Err(error) => {
            one_line(&error.to_string());
            assert!(!error.to_string().contains(SECRET), "a secret is told: {error}");
        }
        Ok(()) if allowed.is_empty() => {
            let user = &config["users"][0]["user"];
            for file in ["exec", "client-key", "client-certificate", "tokenFile"] {
                let is_set = user.get(file).is_some_and(|value| !value.is_null() && *value != "");
                assert!(!is_set, "{file} is allowed: {text}");
            }
        }
        Ok(()) => {}
    }
}

fn config(input: &mut Input<'_>) -> Value {
    let mut config = json!({
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://k"}}],
        "users": [{"name": "u", "user": {}}],
    });
    for _ in 0..input.below(5) {
        let name = input.pick(USER).unwrap_or_default();
        config["users"][0]["user"][name] = value(name, input);
    }
    for _ in 0..input.below(4) {
        let name = input.pick(CLUSTER).unwrap_or_default();
        config["clusters"][0]["cluster"][name] = value(name, input);
    }
    match input.below(12) {
        0 => config["current-context"] = input.text(20).into(),
        1 => config["contexts"] = Value::Null,
        2 => config["users"] = json!({"name": SECRET}),
        3 => config["clusters"][0] = json!({"name": "k"}),
        4 => config["extensions"] = json!([{"name": input.text(8), "extension": {"a": input.text(8)}}]),
        5 => config["preferences"] = json!({"colors": input.flag()}),
        _ => {}
    }
    config
}

fn value(name: &str, input: &mut Input<'_>) -> Value {
    match name {
        "token" | "password" | "client-key-data" | "client-certificate-data" => match input.below(6) {
            0 => json!([SECRET]),
            1 => json!({SECRET: SECRET}),
            _ => SECRET.into(),
        },
        "exec" => json!({"apiVersion": "client.authentication.k8s.io/v1", "command": input.text(8)}),
        "auth-provider" => {
            let mut provider = Map::new();
            provider.insert("name".into(), input.pick(&["oidc", "gcp", "azure", "x"]).into());
            provider.insert("config".into(), json!({"id-token": SECRET}));
            provider.into()
        }
        "insecure-skip-tls-verify" => input.flag().into(),
        _ => match input.below(8) {
            0 => Value::Null,
            1 => "".into(),
            2 => input.byte().into(),
            3 => input.text(30).into(),
            _ => "/etc/file".into(),
        },
    }
}
