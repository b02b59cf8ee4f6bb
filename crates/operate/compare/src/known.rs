//! Known differences from istiod, recognised in any mesh.
//!
//! `oracle/differences.yaml` lists them for the recorded cases. In another mesh the same form of difference
//! can have another cause, such as a cluster that is missing. So an entry counts there only with evidence:
//! one of its signs in the differing values, or in the objects that made the resource.

use crate::{Difference, form};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// The list of the recorded cases.
const LIST: &str = include_str!("../../../../oracle/differences.yaml");
/// Explanation of an endpoint that only the Envoy takes for unhealthy.
const EJECTED: &str = "The Envoy has taken the endpoint out after failed requests or health checks: the \
    state of the proxy, and no configuration.";

static KNOWN: LazyLock<KnownDifferences> =
    LazyLock::new(|| KnownDifferences::parse(LIST).unwrap_or_default());

/// Known differences by form.
#[derive(Debug, Default)]
pub struct KnownDifferences(Vec<Recognised>);

#[derive(Debug)]
struct Recognised {
    reason: String,
    signs: Vec<String>,
    forms: BTreeSet<Shape>,
}

/// Form of a difference, and whether istiod and Pilotfish have the value.
type Shape = (String, bool, bool);

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    kept: Vec<Entry>,
    #[serde(default)]
    open: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    reason: String,
    #[serde(default)]
    signs: Vec<String>,
    /// Resources by `CASE/PROXY`, then by kind and name.
    differs: BTreeMap<String, BTreeMap<String, Listed>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Listed {
    /// `missing`, or `extra` with a digest.
    Whole(String),
    Fields(BTreeMap<String, Sides>),
}

#[derive(Deserialize)]
struct Sides {
    istiod: Option<IgnoredAny>,
    pilotfish: Option<IgnoredAny>,
}

impl KnownDifferences {
    /// Those of this version of Pilotfish.
    #[must_use]
    pub fn of_this_version() -> &'static Self {
        &KNOWN
    }

    fn parse(text: &str) -> Result<Self, serde_saphyr::Error> {
        let List { kept, open } = serde_saphyr::from_str(text)?;
        let recognised = |entry: Entry| Recognised {
            reason: entry.reason.trim().to_owned(),
            signs: entry.signs,
            forms: entry.differs.into_values().flatten().flat_map(|(name, how)| shapes(&name, how)).collect(),
        };
        Ok(Self(kept.into_iter().chain(open).map(recognised).collect()))
    }

    /// Reason of a difference, if it is known. `resource` has all differences of its resource, and `made_by`
    /// the objects that made that.
    #[must_use]
    pub fn reason(
        &self,
        difference: &Difference,
        resource: &[&Difference],
        made_by: &[String],
    ) -> Option<&str> {
        if is_ejected(difference) {
            return Some(EJECTED);
        }
        let shape = (form(difference), difference.want.is_some(), difference.got.is_some());
        // A number or a text has no evidence of its own, and is the consequence of another difference.
        let is_large = |value: &Option<Value>| matches!(value, Some(Value::Object(_) | Value::Array(_)));
        let is_own = is_large(&difference.want) || is_large(&difference.got);
        let evidence = if is_own { &[difference] } else { resource };
        let is_meant = |known: &&Recognised| {
            known.forms.contains(&shape)
                && (differs_in_capitals(difference)
                    || known.signs.iter().any(|sign| is_shown(sign, evidence, made_by)))
        };
        self.0.iter().find(is_meant).map(|known| known.reason.as_str())
    }
}

/// Shapes of a listed resource, `KIND NAME`.
fn shapes(resource: &str, how: Listed) -> Vec<Shape> {
    let kind = resource.split(' ').next().unwrap_or_default();
    match how {
        Listed::Whole(text) if text == "missing" => vec![(format!("{kind}: missing"), true, false)],
        Listed::Whole(_) => vec![(format!("{kind}: extra"), false, true)],
        Listed::Fields(fields) => {
            let shape = |(field, sides): (String, Sides)| {
                let form = format!("{kind}: {}", crate::without_numbers(&field));
                (form, sides.istiod.is_some(), sides.pilotfish.is_some())
            };
            fields.into_iter().map(shape).collect()
        }
    }
}

/// True if the values are equal but for capital letters.
fn differs_in_capitals(difference: &Difference) -> bool {
    let small = |value: &Option<Value>| value.as_ref().map(|value| value.to_string().to_lowercase());
    difference.want.is_some() && small(&difference.want) == small(&difference.got)
}

fn is_shown(sign: &str, resource: &[&Difference], made_by: &[String]) -> bool {
    let has = |value: &Option<Value>| value.as_ref().is_some_and(|value| value.to_string().contains(sign));
    made_by.iter().any(|object| object.contains(sign))
        || resource.iter().any(|it| it.field.contains(sign) || has(&it.want) || has(&it.got))
}

/// True for an endpoint that was sent as healthy, and that the Envoy does not use.
fn is_ejected(difference: &Difference) -> bool {
    form(difference) == "endpoints: endpoints[].lb_endpoints[].health_status"
        && difference.want.as_ref().is_some_and(|health| health == "UNHEALTHY")
        && difference.got.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn difference(kind: &'static str, field: &str, want: Option<Value>, got: Option<Value>) -> Difference {
        Difference { kind, resource: "r".into(), field: field.into(), want, got }
    }

    fn reason<'a>(known: &'a KnownDifferences, one: &Difference, made_by: &[&str]) -> Option<&'a str> {
        let made_by: Vec<String> = made_by.iter().map(ToString::to_string).collect();
        known.reason(one, &[one], &made_by)
    }

    const SAMPLE: &str = r#"
kept:
- reason: small letters
  differs:
    a/p:
      listeners l:
        chains[0].names[3]: {istiod: A, pilotfish: a}
- reason: policies
  signs: [BackendTLSPolicy]
  differs:
    a/p:
      clusters c:
        transport_socket: {pilotfish: "object 1"}
open:
- reason: dynamic hosts
  signs: [dynamic_forward_proxy]
  differs:
    b/p:
      clusters d: missing
- reason: without a sign
  differs: {b/p: {routes r: missing}}
"#;

    #[test]
    fn known_differences_need_their_form_and_evidence() {
        let known = KnownDifferences::parse(SAMPLE).unwrap();
        let names = |want: &str, got: &str| {
            difference("listeners", "chains[7].names[0]", Some(want.into()), Some(got.into()))
        };
        let missing = |kind, value: Value| difference(kind, "", Some(value), None);
        let socket = |field| difference("clusters", field, None, Some(json!({"name": "tls"})));
        let dynamic = json!({"cluster_type": {"name": "envoy.clusters.dynamic_forward_proxy"}});
        for (one, made_by, expected) in [
            (names("Shop.Example", "shop.example"), &[][..], Some("small letters")),
            (names("shop.example", "else.example"), &[], None),
            (socket("transport_socket"), &["BackendTLSPolicy shop/a"], Some("policies")),
            (socket("transport_socket"), &["DestinationRule shop/a"], None),
            (socket("other"), &["BackendTLSPolicy shop/a"], None),
            (missing("clusters", dynamic.clone()), &[], Some("dynamic hosts")),
            (missing("clusters", json!({"type": "EDS"})), &[], None),
            (missing("listeners", dynamic), &[], None),
            (missing("routes", json!({})), &[], None),
        ] {
            assert_eq!(reason(&known, &one, made_by), expected, "{one:?}");
        }
    }

    #[test]
    fn numbers_are_known_by_other_differences_of_the_resource_and_objects_by_their_own() {
        let list = "kept: [{reason: not ready, signs: [UNHEALTHY], differs: {a/p: {endpoints e: {weight: {istiod: 2, pilotfish: 1}, \
                    'endpoints[0]': {istiod: object 1}}}}}]";
        let known = KnownDifferences::parse(list).unwrap();
        let weight = difference("endpoints", "weight", Some(4.into()), Some(3.into()));
        let endpoint = difference("endpoints", "endpoints[0]", Some(json!({"health": "UNHEALTHY"})), None);
        assert_eq!(known.reason(&weight, &[&weight, &endpoint], &[]), Some("not ready"));
        assert_eq!(known.reason(&weight, &[&weight], &[]), None);
        let healthy = difference("endpoints", "endpoints[1]", Some(json!({"health": "HEALTHY"})), None);
        let all = [&weight, &endpoint, &healthy];
        assert_eq!(known.reason(&endpoint, &all, &[]), Some("not ready"));
        assert_eq!(known.reason(&healthy, &all, &[]), None, "a lost endpoint is not excused by another one");
    }

    #[test]
    fn endpoint_that_only_the_envoy_takes_for_unhealthy_is_its_state() {
        let field = "endpoints[0].lb_endpoints[2].health_status";
        let known = KnownDifferences::default();
        let health = |want: &str, got: Option<Value>| difference("endpoints", field, Some(want.into()), got);
        assert_eq!(reason(&known, &health("UNHEALTHY", None), &[]), Some(EJECTED));
        assert_eq!(reason(&known, &health("UNHEALTHY", Some("DRAINING".into())), &[]), None);
        let sent = difference("endpoints", field, None, Some("UNHEALTHY".into()));
        assert_eq!(reason(&known, &sent, &[]), None, "Pilotfish takes it for unhealthy, istiod did not");
    }

    #[test]
    fn list_of_this_version_can_be_read() {
        let known = KnownDifferences::parse(LIST).unwrap();
        assert!(known.0.iter().all(|entry| !entry.forms.is_empty() && !entry.reason.is_empty()));
        assert!(!known.0.is_empty() && known.0.len() == KnownDifferences::of_this_version().0.len());
    }
}
