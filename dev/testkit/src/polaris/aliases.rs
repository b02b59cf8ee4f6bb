//! Aliases: additional names of services. All rules are from `[rec aliases]`.

use super::batch::{Of, element_answer};
use super::checks::{MAX_SERVICE, check_namespace_of};
use super::codes::{Refusal, info, refusal};
use super::element::{Element, is_name, is_same, now, shaped, text};
use super::http::Answer;
use super::query::{Query, matches, page, value};
use super::server::Server;
use super::store::Store;
use serde_json::{Value, json};

pub(super) const ALIAS_FIELDS: &[&str] = &[
    "service",
    "namespace",
    "alias",
    "alias_namespace",
    "type",
    "owners",
    "comment",
    "service_token",
    "ctime",
    "mtime",
    "id",
    "editable",
    "deleteable",
];

fn key(given: &Element) -> (String, String) {
    let part = |name| text(given, name).unwrap_or_default().to_owned();
    (part("alias_namespace"), part("alias"))
}

pub(super) fn source(given: &Element) -> (String, String) {
    let part = |name| text(given, name).unwrap_or_default().to_owned();
    (part("namespace"), part("service"))
}

/// The request's element with the type that every alias has.
fn echo(given: &Element) -> Element {
    let mut echo = given.clone();
    echo.insert("type".to_owned(), json!("DEFAULT"));
    echo
}

fn check(given: &Element) -> Option<u32> {
    let alias = text(given, "alias").unwrap_or_default();
    let of_alias = Element::from_iter([(
        "namespace".to_owned(),
        given.get("alias_namespace").cloned().unwrap_or_default(),
    )]);
    if !is_name(alias) || alias.len() > MAX_SERVICE {
        return Some(400_133);
    }
    check_namespace_of(&of_alias)
}

impl Store {
    /// Creates an alias, which refers to a service, never to another alias, and has a name that no service
    /// and no alias has.
    fn create_alias(&mut self, given: &Element) -> (Refusal, Element) {
        if let Some(code) = check(given) {
            return (refusal(code), echo(given));
        }
        let (key, source) = (key(given), source(given));
        if self.aliases.contains_key(&source) {
            return ((400_504, info(400_504).to_owned()), echo(given));
        }
        if self.aliases.contains_key(&key) || self.services.contains_key(&key) {
            return (refusal(400_201), echo(given));
        }
        if !self.services.contains_key(&source) {
            return (refusal(400_301), echo(given));
        }
        self.ensure_namespace(&key.0);
        let (token, id) = (self.unique(), self.unique());
        let mut stored = echo(given);
        for (field, value) in [("id", id), ("ctime", now()), ("mtime", now())] {
            stored.insert(field.to_owned(), value);
        }
        self.aliases.insert(key, stored);
        let mut made = echo(given);
        made.retain(|name, _| !["owners", "comment"].contains(&name.as_str()));
        made.insert("service_token".to_owned(), token);
        (refusal(200_000), made)
    }

    fn update_alias(&mut self, given: &Element) -> (Refusal, Element) {
        let key = key(given);
        let Some(stored) = self.aliases.get(&key) else { return (refusal(400_304), echo(given)) };
        if !self.services.contains_key(&source(given)) {
            return (refusal(400_301), echo(given));
        }
        let mut new = stored.clone();
        new.extend(given.clone());
        if is_same(stored, &new) {
            return (refusal(200_002), echo(given));
        }
        new.insert("mtime".to_owned(), now());
        self.aliases.insert(key, new);
        (refusal(200_000), echo(given))
    }

    /// Deletes an alias; for the name of a service, deletes that service and everything in it.
    pub(super) fn delete_alias(&mut self, given: &Element) -> (Refusal, Element) {
        if text(given, "alias_namespace").is_none() {
            return (refusal(400_134), echo(given));
        }
        let key = key(given);
        if self.services.contains_key(&key) {
            self.instances.retain(|_, instance| source(instance) != key);
        }
        let was_there = self.aliases.remove(&key).is_some() || self.services.remove(&key).is_some();
        (refusal(if was_there { 200_000 } else { 400_304 }), echo(given))
    }

    /// True if a service has an alias.
    pub(super) fn has_alias(&self, namespace: &str, service: &str) -> bool {
        let points_here = |alias: &Element| {
            text(alias, "namespace") == Some(namespace) && text(alias, "service") == Some(service)
        };
        self.aliases.values().any(points_here)
    }
}

/// Handles the write of one alias, whose response is not a list.
pub(super) fn write(server: &Server, body: &[u8], is_new: bool) -> Answer {
    let Ok(given) = serde_json::from_slice::<Element>(body) else {
        return Answer::coded(400_001, &json!({"code": 400_001, "info": info(400_001)}));
    };
    let mut store = server.store();
    let (refusal, echo) = if is_new { store.create_alias(&given) } else { store.update_alias(&given) };
    Answer::coded(refusal.0, &element_answer(Of::Aliases, &refusal, Some(&echo)))
}

const QUERY: [&str; 7] = ["alias", "alias_namespace", "service", "namespace", "owner", "offset", "limit"];

pub(super) fn list(server: &Server, query: &Query) -> Answer {
    if query.iter().any(|(name, _)| !QUERY.contains(&name.as_str())) {
        return page(400_103, 0, "aliases", Vec::new(), &Vec::new(), Value::Null);
    }
    let store = server.store();
    let is_wanted = |alias: &&Element| {
        let is = |name: &&str| {
            value(query, name).is_none_or(|pattern| matches(pattern, text(alias, name).unwrap_or_default()))
        };
        ["alias", "alias_namespace", "service", "namespace"].iter().all(is)
            && value(query, "owner").is_none_or(|owner| text(alias, "owners") == Some(owner))
    };
    let shown = |alias: &Element| {
        let mut shown = alias.clone();
        for field in ["owners", "comment"] {
            shown.entry(field.to_owned()).or_insert(json!(""));
        }
        shown.extend(["editable", "deleteable"].map(|field| (field.to_owned(), json!(false))));
        shaped(ALIAS_FIELDS, &shown)
    };
    let found: Vec<Value> = store.aliases.values().filter(is_wanted).map(shown).collect();
    page(200_000, found.len(), "aliases", found, query, Value::Null)
}
