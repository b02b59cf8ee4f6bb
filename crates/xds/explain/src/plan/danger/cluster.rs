//! Clusters that are removed, or that protect connections less than before.

use super::{cluster_words, is_tls, list};
use serde_json::Value;

/// Dangers in a change of a cluster.
pub(super) fn dangers(name: &str, before: &Value, after: &Value) -> Vec<String> {
    if before.is_null() {
        return Vec::new();
    }
    if after.is_null() {
        let of_subset = name.split('|').nth(2).is_some_and(|subset| !subset.is_empty());
        let is_gone = name.starts_with("outbound|") && !of_subset;
        return is_gone
            .then(|| format!("{} is not known any more", cluster_words(name)))
            .into_iter()
            .collect();
    }
    let (before, after, words) = (Tls::of(before), Tls::of(after), cluster_words(name));
    if before.encrypts && !after.encrypts {
        return vec![format!("TLS to {words} turns off")];
    }
    let mut found = Vec::new();
    if before.shows_certificate && !after.shows_certificate {
        found.push(format!("mutual TLS to {words} turns off: clients show no certificate any more"));
    }
    if before.checks && !after.checks {
        found.push(format!("certificates of {words} are not checked any more"));
    }
    found
}

/// TLS properties of a cluster's connections, or of those to some of its endpoints.
#[derive(Clone, Copy, Debug, Default)]
struct Tls {
    encrypts: bool,
    /// True if the client presents a certificate.
    shows_certificate: bool,
    /// True if the server's certificate has to be of a configured authority.
    checks: bool,
}

impl Tls {
    fn of(cluster: &Value) -> Self {
        let matches =
            list(cluster, "/transport_socket_matches").filter_map(|one| one.get("transport_socket"));
        let sockets =
            cluster.get("transport_socket").into_iter().chain(matches).filter(|socket| is_tls(socket));
        sockets.fold(Self::default(), |found, socket| {
            let context = socket.pointer("/typed_config/common_tls_context");
            let has = |fields: &[&str]| {
                fields.iter().any(|field| context.is_some_and(|context| context.get(*field).is_some()))
            };
            Self {
                encrypts: true,
                shows_certificate: found.shows_certificate
                    || has(&["tls_certificates", "tls_certificate_sds_secret_configs"]),
                checks: found.checks
                    || has(&[
                        "validation_context",
                        "validation_context_sds_secret_config",
                        "combined_validation_context",
                    ]),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn socket(context: &Value) -> Value {
        json!({"name": "envoy.transport_sockets.tls", "typed_config": {"common_tls_context": context}})
    }

    #[test]
    fn a_cluster_that_protects_less_is_a_danger() {
        let mutual = socket(&json!({
            "tls_certificate_sds_secret_configs": [{"name": "default"}],
            "combined_validation_context": {"default_validation_context": {}},
        }));
        let plain = json!({"name": "outbound|80||web.shop"});
        let always = json!({"transport_socket": mutual});
        let raw = json!({"name": "raw", "transport_socket": {"name": "envoy.transport_sockets.raw_buffer"}});
        let where_it_is =
            json!({"transport_socket_matches": [{"name": "istio", "transport_socket": mutual}, raw]});
        let simple = json!({"transport_socket": socket(&json!({"validation_context": {}}))});
        let unchecked = json!({"transport_socket": socket(&json!({}))});
        let off = "TLS to web.shop:80 turns off";
        let not_mutual = "mutual TLS to web.shop:80 turns off: clients show no certificate any more";
        let not_checked = "certificates of web.shop:80 are not checked any more";
        let table: &[(&Value, &Value, &[&str])] = &[
            (&always, &plain, &[off]),
            (&where_it_is, &plain, &[off]),
            (&where_it_is, &json!({"transport_socket_matches": [raw]}), &[off]),
            (&simple, &plain, &[off]),
            (&always, &simple, &[not_mutual]),
            (&where_it_is, &simple, &[not_mutual]),
            (&always, &unchecked, &[not_mutual, not_checked]),
            (&simple, &unchecked, &[not_checked]),
            (&plain, &always, &[]),
            (&simple, &always, &[]),
            (&always, &where_it_is, &[]),
            (&Value::Null, &plain, &[]),
            (&plain, &Value::Null, &["web.shop:80 is not known any more"]),
        ];
        for (before, after, want) in table {
            assert_eq!(dangers("outbound|80||web.shop", before, after), *want, "{before} {after}");
        }
        assert!(dangers("outbound|80|v1|web.shop", &plain, &Value::Null).is_empty());
    }
}
