//! Results of reads in a data centre.

use super::filter::Filter;
use super::options::Rights;
use super::read::{Listed, has_meta};
use super::request::{Answer, Query, refuse};
use super::store::Store;
use super::value::text;
use http::StatusCode;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

impl Store {
    pub(super) fn instances(&self, name: &str) -> impl Iterator<Item = (&str, &Value)> {
        let keys = self.names.get(name).into_iter().flatten();
        keys.filter_map(|key| Some((key.0.as_str(), self.services.get(key)?)))
    }

    /// [health, list service instances] The instance, its node, and the checks of both.
    pub(super) fn entry(&self, node: &str, service: &Value) -> Value {
        let checks =
            self.checks.range((node.to_owned(), String::new())..).take_while(|((on, _), _)| on == node);
        let id = text(service, "ID");
        let own = checks.map(|(_, check)| check).filter(|check| ["", id].contains(&text(check, "ServiceID")));
        let own: Vec<Value> = own.cloned().collect();
        json!({"Node": self.nodes.get(node), "Service": service, "Checks": own})
    }

    /// [catalog, list nodes for service] Instance and node in one object, without health.
    pub(super) fn flat(&self, node: &str, service: &Value) -> Value {
        let mut flat = self.nodes.get(node).cloned().unwrap_or_else(|| json!({}));
        let meta = flat.as_object_mut().and_then(|node| node.remove("Meta")).unwrap_or_default();
        flat["NodeMeta"] = meta;
        flat["ServiceName"] = service["Service"].clone();
        for (name, value) in service.as_object().into_iter().flatten() {
            if !["Service", "CreateIndex", "ModifyIndex"].contains(&name.as_str()) {
                flat[format!("Service{name}")] = value.clone();
            }
        }
        flat["ServiceKind"] = json!(text(service, "Kind"));
        flat["CreateIndex"] = service["CreateIndex"].clone();
        flat["ModifyIndex"] = service["ModifyIndex"].clone();
        flat
    }

    /// [catalog, list services] Service names, each with the tags of all its instances.
    pub(super) fn list_services(&self, query: &Query, rights: &Rights) -> Answer<Listed> {
        let filter = query.get("filter").filter(|text| !text.is_empty()).map(Filter::parse).transpose()?;
        let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let mut filtered = false;
        for ((node, _), service) in &self.services {
            let name = text(service, "Service");
            let meta = self.nodes.get(node).and_then(|node| node.get("Meta"));
            if !query.all("node-meta").all(|pair| has_meta(meta, pair)) {
                continue;
            }
            if !rights.reads_service(name) {
                filtered = true;
                continue;
            }
            if filter.as_ref().is_some_and(|filter| !filter.holds(&self.flat(node, service))) {
                continue;
            }
            let tags = service["Tags"].as_array().into_iter().flatten().filter_map(Value::as_str);
            names.entry(name).or_default().extend(tags);
        }
        Ok(Listed { value: json!(names), filtered })
    }

    pub(super) fn list_checks(&self, rights: &Rights, wanted: impl Fn(&Value) -> bool) -> Listed {
        let checks = self.checks.values().filter(|check| wanted(check));
        Listed::of(checks.map(|check| {
            let service = text(check, "ServiceName");
            let allowed = rights.reads_nodes() && (service.is_empty() || rights.reads_service(service));
            (allowed, check.clone())
        }))
    }

    /// [catalog, list services for node] `null` for an unknown node, which this simulation answers with 404.
    pub(super) fn node_services(&self, name: &str) -> Listed {
        let Some(node) = self.nodes.get(name) else { return Listed::whole(Value::Null) };
        let own = self.services.iter().filter(|((on, _), _)| on == name);
        let services: Map<String, Value> =
            own.map(|((_, id), service)| (id.clone(), service.clone())).collect();
        Listed::whole(json!({"Node": node, "Services": services}))
    }

    /// [kv, read key] 404 for an unknown key.
    pub(super) fn read_key(&self, key: &str, query: &Query) -> Answer<Value> {
        let below = || self.kv.range(key.to_owned()..).take_while(|(name, _)| name.starts_with(key));
        if query.has("keys") {
            let separator = query.get("separator").filter(|separator| !separator.is_empty());
            let cut = |name: &String| {
                let rest = &name[key.len()..];
                let end = separator.and_then(|separator| rest.find(separator).map(|at| at + separator.len()));
                name[..end.map_or(name.len(), |end| key.len() + end)].to_owned()
            };
            let names: BTreeSet<String> = below().map(|(name, _)| cut(name)).collect();
            return if names.is_empty() { refuse(StatusCode::NOT_FOUND, "") } else { Ok(json!(names)) };
        }
        let one = self.kv.get_key_value(key);
        let pairs: Vec<Value> = if query.has("recurse") {
            below().map(|(name, pair)| pair.value(name)).collect()
        } else {
            one.into_iter().map(|(name, pair)| pair.value(name)).collect()
        };
        Ok(if pairs.is_empty() { Value::Null } else { Value::Array(pairs) })
    }
}
