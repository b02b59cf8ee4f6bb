//! Used fields of Consul's responses. Fields that are missing or `null` are read as empty.

use http::HeaderMap;
use serde::{Deserialize, Deserializer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// `GET /v1/catalog/services`: names, each with the tags of its instances.
pub(crate) type Names = BTreeMap<Arc<str>, Option<BTreeSet<String>>>;

/// One instance of `GET /v1/health/service/NAME`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Entry {
    pub(crate) node: Node,
    pub(crate) service: Instance,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) checks: Vec<Check>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Node {
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) node: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) address: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) datacenter: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) tagged_addresses: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) locality: Place,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Instance {
    #[serde(default, rename = "ID", deserialize_with = "nullable")]
    pub(crate) id: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) kind: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) tags: Vec<String>,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) meta: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) address: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) port: i64,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) tagged_addresses: BTreeMap<String, TaggedAddress>,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) weights: Weights,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) locality: Place,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct TaggedAddress {
    #[serde(default, alias = "address", deserialize_with = "nullable")]
    pub(crate) address: String,
    #[serde(default, alias = "port", deserialize_with = "nullable")]
    pub(crate) port: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Weights {
    #[serde(default = "one")]
    pub(crate) passing: i64,
    #[serde(default = "one")]
    pub(crate) warning: i64,
}

fn one() -> i64 {
    1
}

impl Default for Weights {
    fn default() -> Self {
        Self { passing: 1, warning: 1 }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Place {
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) region: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) zone: String,
}

/// A check, of an instance or (without a service) of its node. Its output is not read: it changes often and
/// does not affect health.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Check {
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) node: String,
    #[serde(default, rename = "CheckID", deserialize_with = "nullable")]
    pub(crate) check_id: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) status: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) service_name: String,
}

fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(given: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(given).map(Option::unwrap_or_default)
}

/// Headers of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct About {
    /// Value of `X-Consul-Index`; the next blocking query waits for a larger one.
    pub(crate) index: u64,
    /// True if the servers have no leader. Responses from an agent's cache do not say it, and count as with a
    /// leader.
    pub(crate) no_leader: bool,
    /// Time since the responding server's last contact with the leader.
    pub(crate) last_contact: Duration,
    /// True if the token may not see everything: Consul reports filtered results, or the request had no token
    /// and the default policy is deny (without a token Consul does not report it).
    pub(crate) incomplete: bool,
}

impl About {
    /// Reads the headers. Returns `None` without an index: such a server is not Consul. An invalid index,
    /// which some versions send, counts as 0.
    pub(crate) fn read(headers: &HeaderMap, has_token: bool) -> Option<Self> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
        let is = |name: &str, value: &str| text(name).is_some_and(|text| text.eq_ignore_ascii_case(value));
        let left_out = is("x-consul-results-filtered-by-acls", "true");
        let stranger = !has_token && is("x-consul-default-acl-policy", "deny");
        let millis = text("x-consul-lastcontact").and_then(|text| text.parse().ok()).unwrap_or_default();
        Some(Self {
            index: text("x-consul-index")?.parse().unwrap_or_default(),
            no_leader: is("x-consul-knownleader", "false"),
            last_contact: Duration::from_millis(millis),
            incomplete: left_out || stranger,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_and_nothing_are_empty() {
        let short = r#"[{"Node": {"Node": "n"}, "Service": {"ID": "a"}}]"#;
        let nulls = r#"[{"Node": {"Node": "n", "TaggedAddresses": null, "Meta": null, "Locality": null}, "Service": {"ID": "a",
            "Tags": null, "Meta": null, "TaggedAddresses": null, "Weights": null, "Port": 0}, "Checks": null}]"#;
        let [short, nulls] = [short, nulls].map(|text| serde_json::from_str::<Vec<Entry>>(text).unwrap());
        assert_eq!(short, nulls);
        assert_eq!(short[0].service.weights, Weights { passing: 1, warning: 1 });
    }

    #[test]
    fn headers_tell_what_an_answer_is_worth() {
        type Headers = &'static [(&'static str, &'static str)];
        let cases: [(Headers, bool, Option<About>); 6] = [
            (&[], true, None),
            (&[("x-consul-index", "7")], true, Some(About { index: 7, ..About::default() })),
            (&[("x-consul-index", "-1")], true, Some(About::default())),
            (
                &[
                    ("x-consul-index", "7"),
                    ("x-consul-knownleader", "false"),
                    ("x-consul-lastcontact", "250"),
                ],
                true,
                Some(About {
                    index: 7,
                    no_leader: true,
                    last_contact: Duration::from_millis(250),
                    incomplete: false,
                }),
            ),
            (
                &[("x-consul-index", "7"), ("x-consul-results-filtered-by-acls", "true")],
                true,
                Some(About { index: 7, incomplete: true, ..About::default() }),
            ),
            (
                &[("x-consul-index", "7"), ("x-consul-default-acl-policy", "deny")],
                false,
                Some(About { index: 7, incomplete: true, ..About::default() }),
            ),
        ];
        for (headers, has_token, want) in cases {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.insert(http::HeaderName::from_static(name), value.parse().unwrap());
            }
            assert_eq!(About::read(&map, has_token), want, "{headers:?}");
        }
    }
}
