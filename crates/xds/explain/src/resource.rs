//! Resources as JSON with the field names of Envoy's API and without secrets, and the section of their type.

use pilotfish_api::v1::Section;
use pilotfish_proto::{Any, ResourceType, to_json};
use prost::Message;
use serde_json::{Value, json};

/// Placeholder for a secret.
const HIDDEN: &str = "(hidden)";
/// Fields with secret content, at any depth.
const SECRET: [&str; 5] =
    ["private_key", "password", "session_ticket_keys", "generic_secret", "ISTIO_META_WASM_IMAGE_PULL_SECRET"];

/// Section of a resource type.
#[must_use]
pub fn section(ty: ResourceType) -> Section {
    match ty {
        ResourceType::Cluster => Section::Clusters,
        ResourceType::Endpoint => Section::Endpoints,
        ResourceType::Secret => Section::Secrets,
        ResourceType::ExtensionConfig => Section::Extensions,
        ResourceType::Listener => Section::Listeners,
        ResourceType::Route => Section::Routes,
        ResourceType::NameTable => Section::Names,
    }
}

/// Decodes a resource (a `google.protobuf.Any`) to JSON.
#[must_use]
pub fn json(body: &[u8]) -> Value {
    let packed = Any::decode(body).unwrap_or_default();
    let mut value =
        to_json(&packed.type_url, &packed.value).unwrap_or_else(|error| json!({"@error": error.to_string()}));
    hide(&mut value);
    value
}

/// Policy and rule index of an RBAC rule, from the name that translation gives it:
/// `ns[shop]-policy[none]-rule[0]`. `None` for other names.
pub(crate) fn rule_name(name: &str) -> Option<(String, usize)> {
    let (_, rest) = name.split_once("ns[")?;
    let (namespace, rest) = rest.split_once("]-policy[")?;
    let (policy, rest) = rest.split_once("]-rule[")?;
    let (place, _) = rest.split_once(']')?;
    Some((format!("AuthorizationPolicy {namespace}/{policy}"), place.parse().ok()?))
}

/// Hides the values below secret fields.
fn hide(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if SECRET.contains(&name.as_str()) {
                    *value = Value::from(HIDDEN);
                } else {
                    hide(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_proto::any;
    use pilotfish_proto::envoy::config::core::v3::{DataSource, data_source::Specifier};
    use pilotfish_proto::envoy::extensions::transport_sockets::tls::v3 as tls;

    #[test]
    fn private_keys_are_hidden_and_certificates_are_not() {
        let text = |text: &str| {
            Some(DataSource { specifier: Some(Specifier::InlineString(text.into())), ..Default::default() })
        };
        let certificate = tls::TlsCertificate {
            certificate_chain: text("a certificate"),
            private_key: text("a key"),
            ..Default::default()
        };
        let secret = tls::Secret {
            name: "kubernetes://shop".into(),
            r#type: Some(tls::secret::Type::TlsCertificate(certificate)),
        };
        let shown = json(&any(&secret).encode_to_vec()).to_string();
        assert!(shown.contains("a certificate") && !shown.contains("a key"), "{shown}");
    }

    #[test]
    fn rules_of_filters_name_their_policies() {
        for (name, policy) in [
            ("ns[shop]-policy[none]-rule[1]", Some(("AuthorizationPolicy shop/none", 1))),
            ("istio-ext-authz-ns[a]-policy[b]-rule[0]", Some(("AuthorizationPolicy a/b", 0))),
            ("ns[a]-policy[b]-rule[0]-deny-due-to-bad-CUSTOM-action", Some(("AuthorizationPolicy a/b", 0))),
            ("ns[a]-policy[b]-rule[x]", None),
            ("mine", None),
        ] {
            let found = rule_name(name);
            assert_eq!(found.as_ref().map(|(policy, rule)| (policy.as_str(), *rule)), policy, "{name}");
        }
    }

    #[test]
    fn what_is_no_message_is_said() {
        assert!(json(b"\xff").get("@error").is_some());
    }
}
