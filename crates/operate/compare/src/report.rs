//! Result of comparing many proxies: by proxy, and by cause.

use crate::align::align;
use crate::{ALL_KINDS, Comparison, Difference, Held, KINDS, KnownDifferences, form, plain};
use serde::Serialize;
use serde_json::{Map, Value};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of proxies that a cause names, and of objects.
const NAMES: usize = 10;
/// Maximum number of places that a cause lists.
const PLACES: usize = 1_000;
/// Kinds that are rarely the cause of a difference: they configure nothing in Envoy directly.
const PLAIN_KINDS: [&str; 4] = ["Service", "EndpointSlice", "Pod", "Namespace"];

/// Resources by kind and name.
pub type Resources<T> = BTreeMap<(&'static str, String), T>;

/// A resource as a control plane would send it, with the objects that it was made from.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    pub resource: Value,
    pub made_by: Vec<String>,
}

/// Comparison of many proxies.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub proxies: Vec<ProxyResult>,
    /// Unknown ones first, then the most frequent.
    pub causes: Vec<Cause>,
    /// Proxies that could not be compared.
    pub failed: Vec<Failed>,
}

/// Numbers of a proxy's resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProxyResult {
    pub proxy: String,
    pub equal: usize,
    /// Resources whose differences are all known.
    pub known: usize,
    /// Resources with other differences.
    pub unknown: usize,
}

/// A file or proxy that could not be compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failed {
    pub what: String,
    pub error: String,
}

/// Differences with one cause.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    pub is_known: bool,
    /// Reason of a known difference; kind and field of another one.
    pub what: String,
    /// Number of differing fields.
    pub differences: usize,
    pub proxies: usize,
    /// Names of the first proxies.
    pub names: Vec<String>,
    /// Objects that most of the resources were made from; for resources that Pilotfish does not send, those
    /// that istiod names in them.
    pub made_by: Vec<String>,
    pub example: Example,
    /// The first differing fields.
    pub places: Vec<Place>,
    #[serde(skip)]
    objects: BTreeMap<String, usize>,
    #[serde(skip)]
    last: String,
}

/// Both values of a differing field.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Example {
    #[serde(flatten)]
    pub place: Place,
    /// Absent if istiod does not send it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub istiod: Option<Value>,
    /// Absent if Pilotfish does not send it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pilotfish: Option<Value>,
}

/// Field of a resource of a proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    pub proxy: String,
    pub kind: &'static str,
    pub resource: String,
    /// Empty for the whole resource.
    pub field: String,
}

/// Compares the resources of a dump with those that its proxy would be sent. Kinds that an Envoy does not
/// dump are compared where the dump has some.
#[must_use]
pub fn compare(held: &Resources<Held>, sent: &Resources<Sent>) -> Comparison {
    let (mut want, mut got) = (Map::new(), Map::new());
    let is_compared = |kind: &str| KINDS.contains(&kind) || held.keys().any(|(its, _)| *its == kind);
    for kind in ALL_KINDS.into_iter().filter(|kind| is_compared(kind)) {
        let (mut of_held, mut of_sent) = (Map::new(), Map::new());
        for ((_, name), held) in held.iter().filter(|((its, _), _)| *its == kind) {
            of_held.insert(name.clone(), plain(kind, held.latest()));
        }
        for ((_, name), sent) in sent.iter().filter(|((its, _), _)| *its == kind) {
            let mut sent = plain(kind, &sent.resource);
            if let Some(held) = of_held.get_mut(name) {
                align(kind, held, &mut sent);
            }
            of_sent.insert(name.clone(), sent);
        }
        want.insert(kind.to_owned(), of_held.into());
        got.insert(kind.to_owned(), of_sent.into());
    }
    Comparison::of(&want.into(), &got.into())
}

impl Report {
    /// Adds the comparison of a proxy.
    pub fn add(&mut self, proxy: &str, held: &Resources<Held>, sent: &Resources<Sent>) {
        let known = KnownDifferences::of_this_version();
        let comparison = compare(held, sent);
        let mut row =
            ProxyResult { proxy: proxy.to_owned(), equal: comparison.counts().0, ..Default::default() };
        for differences in
            comparison.differences.chunk_by(|a, b| (a.kind, &a.resource) == (b.kind, &b.resource))
        {
            let all: Vec<&Difference> = differences.iter().collect();
            let Some(first) = all.first() else { continue };
            let made_by = match sent.get(&(first.kind, first.resource.clone())) {
                Some(sent) => sent.made_by.clone(),
                None => first.want.as_ref().map(named_objects).unwrap_or_default(),
            };
            let mut is_known = true;
            for difference in &all {
                let reason = known.reason(difference, &all, &made_by);
                is_known &= reason.is_some();
                self.count(proxy, difference, reason, &made_by);
            }
            *(if is_known { &mut row.known } else { &mut row.unknown }) += 1;
        }
        self.proxies.push(row);
    }

    /// Adds a proxy that could not be compared.
    pub fn fail(&mut self, what: impl Into<String>, error: impl Into<String>) {
        self.failed.push(Failed { what: what.into(), error: error.into() });
    }

    fn count(&mut self, proxy: &str, difference: &Difference, reason: Option<&str>, made_by: &[String]) {
        let what = reason.map_or_else(|| form(difference), str::to_owned);
        let place = Place {
            proxy: proxy.to_owned(),
            kind: difference.kind,
            resource: difference.resource.clone(),
            field: difference.field.clone(),
        };
        let is_same = |cause: &Cause| cause.is_known == reason.is_some() && cause.what == what;
        let at = self.causes.iter().position(is_same).unwrap_or_else(|| {
            let (istiod, pilotfish) = (difference.want.clone(), difference.got.clone());
            let example = Example { place: place.clone(), istiod, pilotfish };
            self.causes.push(Cause::new(reason.is_some(), what, example));
            self.causes.len() - 1
        });
        if let Some(cause) = self.causes.get_mut(at) {
            cause.add(place, made_by);
        }
    }

    /// Orders the causes, and names the objects that are most likely behind each.
    pub fn finish(&mut self) {
        self.causes.iter_mut().for_each(Cause::rank_objects);
        self.causes.sort_by(|a, b| {
            let key = |cause: &Cause| (cause.is_known, Reverse(cause.differences));
            key(a).cmp(&key(b)).then_with(|| a.what.cmp(&b.what))
        });
    }

    /// Number of causes that are not known.
    #[must_use]
    pub fn unknown(&self) -> usize {
        self.causes.iter().filter(|cause| !cause.is_known).count()
    }
}

impl Cause {
    fn new(is_known: bool, what: String, example: Example) -> Self {
        Self {
            is_known,
            what,
            differences: 0,
            proxies: 0,
            names: Vec::new(),
            made_by: Vec::new(),
            example,
            places: Vec::new(),
            objects: BTreeMap::new(),
            last: String::new(),
        }
    }

    /// Adds a difference. All calls for one proxy have to be consecutive.
    fn add(&mut self, place: Place, made_by: &[String]) {
        self.differences += 1;
        if self.last != place.proxy || self.proxies == 0 {
            self.proxies += 1;
            self.last.clone_from(&place.proxy);
            if self.names.len() < NAMES {
                self.names.push(place.proxy.clone());
            }
        }
        for object in made_by {
            *self.objects.entry(object.clone()).or_default() += 1;
        }
        if self.places.len() < PLACES {
            self.places.push(place);
        }
    }

    /// Names the objects of most of the resources; of equally frequent ones, those that configure Envoy
    /// first.
    fn rank_objects(&mut self) {
        let mut ranked: Vec<(&String, &usize)> = self.objects.iter().collect();
        let is_plain = |object: &str| PLAIN_KINDS.contains(&object.split(' ').next().unwrap_or_default());
        ranked.sort_by_key(|(object, count)| (Reverse(**count), is_plain(object)));
        self.made_by = ranked.into_iter().take(NAMES).map(|(object, _)| object.clone()).collect();
    }
}

/// Objects that istiod names in the metadata of a resource: services, and the configuration of routes and
/// clusters.
fn named_objects(resource: &Value) -> Vec<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![resource];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(fields) => {
                if let Some(istio) = fields.get("filter_metadata").and_then(|all| all.get("istio")) {
                    found.extend(istio.get("config").and_then(Value::as_str).map(str::to_owned));
                    let services = istio.get("services").and_then(Value::as_array).into_iter().flatten();
                    found.extend(services.filter_map(service));
                }
                open.extend(fields.values());
            }
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    found.into_iter().collect()
}

fn service(service: &Value) -> Option<String> {
    let text = |field| service.get(field).and_then(Value::as_str);
    Some(format!("Service {}/{}", text("namespace")?, text("name")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Names, held, node, subscribed, to_dump};
    use serde_json::json;

    fn dump(resources: &[(&'static str, &str, Value)]) -> Value {
        let node =
            json!({"id": "sidecar~10.0.0.1~web-0.shop~x", "extensions": ["many"], "metadata": {"A": "b"}});
        to_dump(
            &node,
            &Names::new(),
            resources.iter().map(|(kind, name, value)| (*kind, *name, value.clone())),
        )
    }

    fn sent(resources: &[(&'static str, &str, Value, &[&str])]) -> Resources<Sent> {
        let one = |(kind, name, resource, made_by): &(&'static str, &str, Value, &[&str])| {
            let made_by = made_by.iter().map(ToString::to_string).collect();
            ((*kind, (*name).to_owned()), Sent { resource: resource.clone(), made_by })
        };
        resources.iter().map(one).collect()
    }

    fn cluster(name: &str, timeout: &str) -> Value {
        json!({"@type": "x", "name": name, "type": "EDS", "connect_timeout": timeout})
    }

    #[test]
    fn dumps_that_are_written_are_read_again() {
        let resources = [
            ("clusters", "a", cluster("a", "1s")),
            (
                "endpoints",
                "a",
                json!({"cluster_name": "a", "endpoints": [{"lb_endpoints": [{"endpoint": {}}]}]}),
            ),
            ("extensions", "e", json!({"name": "e", "typed_config": {}})),
            ("listeners", "l", json!({"name": "l"})),
            ("names", "", json!({"table": {"web.shop": {"ips": ["10.1.0.1"]}}})),
            ("routes", "80", json!({"name": "80"})),
        ];
        let dump = dump(&resources);
        let names = Names::from([("listeners".to_owned(), vec!["l".to_owned()])]);
        assert_eq!(subscribed(&to_dump(&json!({}), &names, [])), names);
        assert!(subscribed(&dump).is_empty());
        let read = held(&dump);
        let read: Vec<_> = read.into_iter().map(|((kind, name), held)| (kind, name, held.resource)).collect();
        let written: Vec<_> =
            resources.into_iter().map(|(kind, name, value)| (kind, name.to_owned(), value)).collect();
        assert_eq!(read, written);
        assert_eq!(node(&dump), Some(json!({"id": "sidecar~10.0.0.1~web-0.shop~x", "metadata": {"A": "b"}})));
        assert_eq!(node(&json!({"configs": []})), None);
    }

    #[test]
    fn differences_are_counted_by_proxy_and_by_cause_with_the_most_likely_object() {
        let mut report = Report::default();
        let routed = json!({"name": "r", "virtual_hosts": [{"metadata": {"filter_metadata": {"istio": {
            "config": "/apis/networking.istio.io/v1/namespaces/shop/virtual-service/web"}}}}]});
        for proxy in ["web-0.shop", "web-1.shop"] {
            let dump = dump(&[
                ("clusters", "same", cluster("same", "0.250s")),
                ("clusters", "a", cluster("a", "1s")),
                ("clusters", "b", cluster("b", "1s")),
                ("routes", "r", routed.clone()),
            ]);
            let sent = sent(&[
                ("clusters", "same", cluster("same", "0.25s"), &[]),
                ("clusters", "a", cluster("a", "2s"), &["DestinationRule shop/all", "Service shop/a"]),
                ("clusters", "b", cluster("b", "2s"), &["DestinationRule shop/all", "Service shop/b"]),
            ]);
            report.add(proxy, &held(&dump), &sent);
        }
        report.fail("c.json", "no dump");
        report.finish();
        let row = |proxy: &str| ProxyResult { proxy: proxy.into(), equal: 1, known: 0, unknown: 3 };
        assert_eq!(report.proxies, [row("web-0.shop"), row("web-1.shop")]);
        let causes: Vec<_> =
            report.causes.iter().map(|it| (&*it.what, it.differences, it.proxies, &*it.made_by[0])).collect();
        assert_eq!(
            causes,
            [
                ("clusters: connect_timeout", 4, 2, "DestinationRule shop/all"),
                ("routes: missing", 2, 2, "/apis/networking.istio.io/v1/namespaces/shop/virtual-service/web"),
            ]
        );
        assert_eq!(report.unknown(), 2);
        let example = &report.causes[0].example;
        assert_eq!((&*example.place.resource, &example.istiod), ("a", &Some("1s".into())));
    }

    #[test]
    fn extensions_and_name_tables_are_compared_where_the_dump_has_some() {
        let sent = sent(&[("extensions", "e", json!({"name": "e", "typed_config": {"a": 1}}), &[])]);
        assert_eq!(compare(&held(&dump(&[])), &sent).counts(), (0, 0));
        let dump = dump(&[("extensions", "e", json!({"name": "e", "typed_config": {"a": 2}}))]);
        assert_eq!(compare(&held(&dump), &sent).counts(), (0, 1));
    }

    #[test]
    fn known_differences_are_counted_apart() {
        let mut report = Report::default();
        let listener = |name: &str| json!({"name": "l", "filter_chains": [{"filter_chain_match": {"server_names": [name]}}]});
        let dump = dump(&[("listeners", "l", listener("Shop.Example"))]);
        report.add("gateway.edge", &held(&dump), &sent(&[("listeners", "l", listener("shop.example"), &[])]));
        report.finish();
        let row = &report.proxies[0];
        assert_eq!((row.equal, row.known, row.unknown, report.unknown()), (0, 1, 0, 0));
        assert!(report.causes[0].is_known && report.causes[0].what.contains("small letters"), "{report:?}");
    }

    #[test]
    fn private_keys_are_equal_in_either_way_of_hiding_them() {
        let key = |key: Value| json!({"name": "c", "transport_socket": {"private_key": key}});
        let dump = dump(&[("clusters", "c", key(json!({"inline_bytes": "W3JlZGFjdGVkXQ=="})))]);
        let found = compare(&held(&dump), &sent(&[("clusters", "c", key("(hidden)".into()), &[])]));
        assert_eq!(found.counts(), (1, 1));
    }
}
