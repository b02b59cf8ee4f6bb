//! Queries.

use super::batch::MAX_BATCH;
use super::codes::info;
use super::element::{
    DERIVED, Element, INSTANCE_FIELDS, LIST_FIELDS, NAMESPACE_FIELDS, SERVICE_FIELDS, number, shaped, text,
};
use super::http::Answer;
use super::store::Store;
use serde_json::{Value, json};

pub(super) type Query = Vec<(String, String)>;

pub(super) fn value<'a>(query: &'a Query, name: &str) -> Option<&'a str> {
    query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// [console] A `*` at the end matches anything.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == text, |start| text.starts_with(start))
}

pub(super) fn page(
    code: u32,
    amount: usize,
    field: &str,
    all: Vec<Value>,
    query: &Query,
    summary: Value,
) -> Answer {
    let bound = |name: &str, default: usize| match value(query, name) {
        None => Some(default),
        Some(text) => text.parse::<usize>().ok(),
    };
    let (Some(offset), Some(limit)) = (bound("offset", 0), bound("limit", MAX_BATCH)) else {
        return page(400_103, 0, field, Vec::new(), &Vec::new(), Value::Null);
    };
    let shown: Vec<Value> = all.into_iter().skip(offset).take(limit.min(MAX_BATCH)).collect();
    let mut body = Element::new();
    for (name, value) in [
        ("code", json!(code)),
        ("info", json!(info(code))),
        ("amount", json!(amount)),
        ("size", json!(shown.len())),
    ] {
        body.insert(name.to_owned(), value);
    }
    body.extend(LIST_FIELDS.iter().map(|name| ((*name).to_owned(), json!([]))));
    body.insert(field.to_owned(), json!(shown));
    body.insert("summary".to_owned(), summary);
    Answer::coded(code, &Value::Object(body))
}

/// [rec instances-query] Query parameters for instances.
pub(super) const INSTANCE_QUERY: [&str; 15] = [
    "service",
    "namespace",
    "host",
    "port",
    "protocol",
    "version",
    "weight",
    "healthy",
    "health_status",
    "isolate",
    "keys",
    "values",
    "offset",
    "limit",
    "id",
];

/// All values of a parameter, which may be repeated, and may have several values each.
pub(super) fn list(query: &Query, name: &str) -> Vec<String> {
    let given = query.iter().filter(|(known, _)| known == name);
    given.flat_map(|(_, value)| value.split(',').map(str::to_owned)).collect()
}

pub(super) fn get_instances(store: &Store, query: &Query) -> Answer {
    let refused = |code| page(code, 0, "instances", Vec::new(), &Vec::new(), Value::Null);
    if query.is_empty() {
        return refused(400_104);
    }
    if query.iter().any(|(name, value)| !INSTANCE_QUERY.contains(&&**name) || value.is_empty()) {
        return refused(400_103);
    }
    let (keys, values, hosts) = (list(query, "keys"), list(query, "values"), list(query, "host"));
    if keys.len() != values.len() {
        return refused(400_105);
    }
    let is_wanted = |instance: &&Element| {
        let metadata = |(key, value): (&String, &String)| {
            instance.get("metadata").and_then(|metadata| metadata.get(key)).and_then(Value::as_str)
                == Some(value)
        };
        is_wanted(query, instance)
            && (hosts.is_empty() || hosts.iter().any(|host| Some(host.as_str()) == text(instance, "host")))
            && keys.iter().zip(&values).all(metadata)
    };
    let found: Vec<Value> =
        store.shown_instances().filter(is_wanted).map(|instance| shown_instance(store, instance)).collect();
    page(200_000, found.len(), "instances", found, query, Value::Null)
}

/// True if an instance matches a query by its own fields.
pub(super) fn is_wanted(query: &Query, instance: &Element) -> bool {
    let is = |name: &&str| {
        value(query, name).is_none_or(|pattern| matches(pattern, text(instance, name).unwrap_or_default()))
    };
    // [rec instances-query] Invalid numbers are ignored.
    let equals = |name: &&str| {
        let wanted = value(query, name).and_then(|text| text.parse::<u64>().ok());
        wanted.is_none_or(|wanted| number(instance, name) == Some(wanted))
    };
    let flag = |(asked, name): &(&str, &str)| {
        let wanted = value(query, asked).map(|text| text == "true" || text == "1");
        wanted.is_none_or(|wanted| instance.get(*name).and_then(Value::as_bool) == Some(wanted))
    };
    ["service", "namespace", "protocol", "version", "id"].iter().all(is)
        && ["port", "weight"].iter().all(equals)
        && [("healthy", "healthy"), ("health_status", "healthy"), ("isolate", "isolate")].iter().all(flag)
}

/// [rec instances-query] An instance in the console's format: with the token of its service.
pub(super) fn shown_instance(store: &Store, instance: &Element) -> Value {
    let mut shown = instance.clone();
    let key = |name| text(instance, name).unwrap_or_default().to_owned();
    if let Some(service) = store.services.get(&(key("namespace"), key("service"))) {
        shown.insert("service_token".to_owned(), service.get("token").cloned().unwrap_or_default());
    }
    if let Some(location) = instance.get("location").and_then(Value::as_object) {
        shown.insert("location".to_owned(), shaped(&["region", "zone", "campus"], location));
    }
    if let Some(Value::Object(metadata)) = shown.get_mut("metadata") {
        metadata.retain(|name, _| !DERIVED.contains(&name.as_str()));
    }
    shaped(INSTANCE_FIELDS, &shown)
}

/// Namespace and service of an instance.
pub(super) fn service_of(instance: &Element) -> (String, String) {
    let part = |field| text(instance, field).unwrap_or_default().to_owned();
    (part("namespace"), part("service"))
}

pub(super) fn counts<'a>(instances: impl Iterator<Item = &'a Element>) -> (usize, usize) {
    instances.fold((0, 0), |(all, healthy), instance| {
        let is_used =
            instance.get("healthy") == Some(&json!(true)) && instance.get("isolate") != Some(&json!(true));
        (all + 1, healthy + usize::from(is_used))
    })
}

pub(super) fn get_services(store: &Store, query: &Query) -> Answer {
    let is = |name: &str, text: &str| value(query, name).is_none_or(|pattern| matches(pattern, text));
    let wanted =
        store.services.iter().filter(|((namespace, name), _)| is("namespace", namespace) && is("name", name));
    let found: Vec<Value> = wanted
        .map(|((namespace, name), service)| {
            let mut shown = service.clone();
            shown.remove("token");
            let texts = [
                "ports",
                "business",
                "department",
                "cmdb_mod1",
                "cmdb_mod2",
                "cmdb_mod3",
                "comment",
                "owners",
                "platform_id",
            ];
            for field in texts {
                shown.entry(field.to_owned()).or_insert(json!(""));
            }
            // [rec instances-create, services-get] A service without ports has those of its instances, some
            // twice.
            if text(&shown, "ports").is_none_or(str::is_empty) {
                let ports =
                    store.instances_of(namespace, name).filter_map(|instance| number(instance, "port"));
                let ports: Vec<String> = ports.map(|port| port.to_string()).collect();
                shown.insert("ports".to_owned(), json!(ports.join(",")));
            }
            let (all, healthy) = counts(store.instances_of(namespace, name));
            let set = [("total_instance_count", json!(all)), ("healthy_instance_count", json!(healthy))];
            shown.extend(set.map(|(field, value)| (field.to_owned(), value)));
            shown.extend(["editable", "deleteable"].map(|field| (field.to_owned(), json!(true))));
            shaped(SERVICE_FIELDS, &shown)
        })
        .collect();
    page(200_000, found.len(), "services", found, query, Value::Null)
}

pub(super) fn get_namespaces(store: &Store, query: &Query) -> Answer {
    let wanted = store
        .namespaces
        .iter()
        .filter(|(name, _)| value(query, "name").is_none_or(|pattern| matches(pattern, name)));
    let mut sums = [0; 3];
    let found: Vec<Value> = wanted
        .map(|(name, namespace)| {
            let services = store.services.keys().filter(|(of, _)| of == name).count();
            let (all, healthy) =
                counts(store.instances.values().filter(|instance| text(instance, "namespace") == Some(name)));
            let mut shown = namespace.clone();
            shown.remove("token");
            let own = [services, healthy, all];
            for ((field, count), sum) in COUNTS.iter().zip(own).zip(&mut sums) {
                shown.insert((*field).to_owned(), json!(count));
                *sum += count;
            }
            for field in ["comment", "owners"] {
                shown.entry(field.to_owned()).or_insert(json!(""));
            }
            shown.extend(["editable", "deleteable"].map(|field| (field.to_owned(), json!(true))));
            shaped(NAMESPACE_FIELDS, &shown)
        })
        .collect();
    let summary = COUNTS.iter().zip(sums).map(|(field, sum)| ((*field).to_owned(), json!(sum))).collect();
    page(200_000, found.len(), "namespaces", found, query, Value::Object(summary))
}

pub(super) const COUNTS: [&str; 3] =
    ["total_service_count", "total_health_instance_count", "total_instance_count"];
