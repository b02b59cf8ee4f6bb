//! Envoy's matching of RBAC policies: yes, no, or dependent on an unknown fact.

use super::arrival::{Arrival, Known, Token};
use super::chain::covers;
use super::matches::{self, shown, string};
use super::{list, number, text};
use regex::Regex;
use serde_json::Value;
use std::net::IpAddr;

/// Maximum number of reasons for one policy.
const REASONS: usize = 3;
/// Metadata namespace with the claims of tokens.
const CLAIMS: &str = "envoy.filters.http.jwt_authn";
/// Headers that proxies add, beside those that begin with `x-envoy-` and `x-b3-`.
const ADDED: [&str; 6] =
    ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-client-cert", "x-request-id", "traceparent", "via"];

/// Three-valued result of a match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Truth {
    Yes,
    /// The actual and the required fact, for each alternative.
    No(Vec<(String, String)>),
    /// A fact that the result depends on, and that is unknown.
    Depends(String),
}

impl Truth {
    /// Conjunction: any `No` decides.
    fn all(parts: impl Iterator<Item = Self>) -> Self {
        let mut found = Self::Yes;
        for part in parts {
            match part {
                Self::No(_) => return part,
                Self::Depends(_) if found == Self::Yes => found = part,
                _ => {}
            }
        }
        found
    }

    /// Disjunction: any `Yes` decides.
    fn any(parts: impl Iterator<Item = Self>) -> Self {
        let mut misses: Vec<(String, String)> = Vec::new();
        let mut depends = None;
        for part in parts {
            match part {
                Self::Yes => return part,
                Self::Depends(_) => depends = depends.or(Some(part)),
                Self::No(more) => {
                    for (fact, wanted) in more {
                        // Alternatives about the same fact are merged.
                        match misses.iter_mut().find(|(known, _)| *known == fact) {
                            Some((_, known)) if *known != wanted => *known = format!("{known} or {wanted}"),
                            Some(_) => {}
                            None => misses.push((fact, wanted)),
                        }
                    }
                }
            }
        }
        depends.unwrap_or(Self::No(misses))
    }

    /// Reason of a mismatch.
    pub(super) fn reason(&self) -> String {
        let Self::No(misses) = self else { return String::new() };
        let told = misses.iter().take(REASONS).map(|(fact, wanted)| match wanted.as_str() {
            "" => fact.clone(),
            wanted => format!("{fact}, and it wants {wanted}"),
        });
        let mut told: Vec<String> = told.collect();
        if misses.len() > REASONS {
            told.push(format!("{} more", misses.len() - REASONS));
        }
        told.join("; ")
    }
}

/// Matches a policy: one of its permissions and one of its principals.
pub(super) fn policy(policy: &Value, arrival: &Arrival<'_>) -> Truth {
    let of = |pointer: &str| Truth::any(list(policy, pointer).map(|rule| eval(rule, arrival, false)));
    let expression = ["condition", "checked_condition"].iter().any(|field| policy.get(*field).is_some());
    let expression = expression.then(|| Truth::Depends("its expression".to_owned()));
    Truth::all([of("/permissions"), of("/principals")].into_iter().chain(expression))
}

/// Matches a permission or a principal, or the negation of one: fields of both differ in name or mean the
/// same.
fn eval(rule: &Value, arrival: &Arrival<'_>, negated: bool) -> Truth {
    let Some((kind, wanted)) = rule.as_object().and_then(|fields| fields.iter().next()) else {
        return Truth::Depends("a rule that is empty".to_owned());
    };
    let parts = |pointer: &str| list(wanted, pointer).map(|part| eval(part, arrival, negated));
    match (kind.as_str(), negated) {
        ("any", false) => Truth::Yes,
        ("any", true) => Truth::No(vec![("it has no rules".to_owned(), String::new())]),
        ("and_rules", false) | ("or_rules", true) => Truth::all(parts("/rules")),
        ("and_rules", true) | ("or_rules", false) => Truth::any(parts("/rules")),
        ("and_ids", false) | ("or_ids", true) => Truth::all(parts("/ids")),
        ("and_ids", true) | ("or_ids", false) => Truth::any(parts("/ids")),
        ("not_rule" | "not_id", _) => eval(wanted, arrival, !negated),
        (kind, _) => Leaf::of(kind, wanted, arrival).truth(negated),
    }
}

struct Leaf {
    fact: String,
    wanted: String,
    holds: Known<bool>,
}

impl Leaf {
    fn new(fact: impl Into<String>, wanted: impl Into<String>, holds: Known<bool>) -> Self {
        Self { fact: fact.into(), wanted: wanted.into(), holds }
    }

    fn truth(self, negated: bool) -> Truth {
        let Self { fact, wanted, holds } = self;
        match holds {
            Err(on) => Truth::Depends(on.to_owned()),
            Ok(holds) if holds != negated => Truth::Yes,
            Ok(_) if negated => Truth::No(vec![(fact, format!("not {wanted}"))]),
            Ok(_) => Truth::No(vec![(fact, wanted)]),
        }
    }

    fn of(kind: &str, wanted: &Value, arrival: &Arrival<'_>) -> Self {
        let address = |what: &str, own: &Known<IpAddr>| {
            let own = *own;
            let shown = own.map_or_else(|_| "unknown".to_owned(), |own| own.to_string());
            let length = number(wanted, "/prefix_len");
            let prefix = text(wanted, "/address_prefix");
            let holds = own.map(|own| prefix.parse().is_ok_and(|prefix| covers(prefix, length, own)));
            Self::new(format!("{what} is {shown}"), format!("{prefix}/{length}"), holds)
        };
        match kind {
            "header" => header(wanted, arrival),
            "url_path" => path(arrival, &shown(&wanted["path"]), |path| string(&wanted["path"], path)),
            "uri_template" => {
                let template = text(wanted, "/typed_config/path_template");
                path(arrival, template, |path| fits(template, path))
            }
            "destination_ip" => address("the endpoint", &arrival.destination),
            "direct_remote_ip" | "source_ip" => address("the connection's client", &arrival.source),
            "remote_ip" => address("the request's client", &arrival.remote),
            "destination_port" => {
                let port = wanted.as_u64().unwrap_or_default();
                Self::new(format!("the port is {}", arrival.port), port.to_string(), Ok(port == arrival.port))
            }
            "authenticated" => authenticated(wanted, arrival),
            "requested_server_name" => {
                let own = arrival.server_name.clone();
                let fact = format!("the server name is {:?}", own.as_deref().unwrap_or_default());
                Self::new(fact, shown(wanted), own.map(|own| string(wanted, &own)))
            }
            "metadata" if text(wanted, "/filter") == CLAIMS => claim(wanted, arrival),
            _ => Self::new("", "", Err("what Envoy finds out while it handles the request")),
        }
    }
}

fn header(wanted: &Value, arrival: &Arrival<'_>) -> Leaf {
    let name = text(wanted, "/name").to_ascii_lowercase();
    let what = match name.as_str() {
        ":method" => "the method".to_owned(),
        ":authority" => "the host".to_owned(),
        ":path" => "the path".to_owned(),
        _ => format!("header {name}"),
    };
    let Some(way) = arrival.request else {
        return Leaf::new("it is no HTTP", format!("{what} {}", shown(wanted)), Ok(false));
    };
    let own = match name.as_str() {
        ":method" => Some(way.request.method.clone()),
        ":authority" => Some(way.authority()),
        ":path" => Some(way.request.path.clone()),
        _ => way.request.headers.iter().find(|(own, _)| *own == name).map(|(_, value)| value.clone()),
    };
    let fact = match &own {
        Some(own) => format!("{what} is {own:?}"),
        None => format!("{what} is missing"),
    };
    let is_added =
        ADDED.contains(&name.as_str()) || name.starts_with("x-envoy-") || name.starts_with("x-b3-");
    let holds = if way.unsure.contains(&name) {
        Err("a header that the route changes")
    } else if is_added {
        Err("a header that proxies set")
    } else {
        Ok(matches::header(wanted, way).is_ok())
    };
    Leaf::new(fact, shown(wanted), holds)
}

/// Matches the path without its query. Paths that normalisation would change are undecided, since each proxy
/// may normalise differently.
fn path(arrival: &Arrival<'_>, wanted: &str, fits: impl FnOnce(&str) -> bool) -> Leaf {
    let Some(way) = arrival.request else {
        return Leaf::new("it is no HTTP", format!("the path {wanted}"), Ok(false));
    };
    let own = way.request.path_only();
    let holds = if way.unsure.contains(":path") {
        Err("the path, which the route rewrites")
    } else if is_normal(own) {
        Ok(fits(own))
    } else {
        Err("the path, which the proxies normalise")
    };
    Leaf::new(format!("the path is {own:?}"), wanted, holds)
}

fn is_normal(path: &str) -> bool {
    let is_dots = |part: &str| matches!(part, "." | "..");
    !path.contains(['%', '\\']) && !path.contains("//") && !path.split('/').any(is_dots)
}

/// Matches a path with a template, in which `*` is one element and `**` any number.
fn fits(template: &str, path: &str) -> bool {
    let element = |element: &str| match element {
        "*" => "[^/]+".to_owned(),
        "**" => ".*".to_owned(),
        text => regex::escape(text),
    };
    let expression = template.split('/').map(element).collect::<Vec<_>>().join("/");
    Regex::new(&format!("^(?:{expression})$")).is_ok_and(|regex| regex.is_match(path))
}

fn authenticated(wanted: &Value, arrival: &Arrival<'_>) -> Leaf {
    let name = wanted.get("principal_name");
    let words = name.map_or_else(|| "any identity".to_owned(), |name| format!("identity {}", shown(name)));
    match &arrival.identity {
        Err(on) => Leaf::new("", words, Err(on)),
        Ok(None) => Leaf::new("the connection has no identity (it is not mutual TLS)", words, Ok(false)),
        Ok(Some(own)) => {
            Leaf::new(format!("the client is {own}"), words, Ok(name.is_none_or(|name| string(name, own))))
        }
    }
}

/// Matches a claim of a token.
fn claim(wanted: &Value, arrival: &Arrival<'_>) -> Leaf {
    let inverted = wanted.get("invert").and_then(Value::as_bool).unwrap_or_default();
    let path: Vec<&str> = list(wanted, "/path").map(|segment| text(segment, "/key")).skip(1).collect();
    let words = format!("the claim {}", path.join("."));
    match arrival.token {
        Token::Perhaps => Leaf::new("", words, Err("the token of the request")),
        Token::Absent => Leaf::new("the request has no token", words, Ok(inverted)),
        Token::Unchecked => Leaf::new("no RequestAuthentication checks tokens here", words, Ok(inverted)),
    }
}

#[cfg(test)]
mod tests;
