//! Envoy's JWT filter.

use crate::call::{Place, Request, Token};
use crate::matchers::{items, only, text};
use serde_json::{Map, Value, json};

/// What checking the tokens of a request came to.
enum Found {
    /// As required, with the claims of the token that was checked.
    Good(Option<Value>),
    Missing,
    Bad,
}

/// The claims of a request that the filter lets through; `None` when it refuses the request.
pub(crate) fn verify(config: &Value, request: &Request) -> Option<Option<Value>> {
    let providers = config["providers"].as_object().expect("providers");
    let rule = items(config, "rules").next().expect("a rule");
    assert_eq!(rule["match"]["prefix"], "/", "the rule is for every request");
    match required(&rule["requires"], providers, request) {
        Found::Good(claims) => Some(claims),
        Found::Missing | Found::Bad => None,
    }
}

fn required(requirement: &Value, providers: &Map<String, Value>, request: &Request) -> Found {
    let (kind, value) = only(requirement);
    match kind {
        "provider_name" => by(&providers[value.as_str().expect("a name")], request),
        "allow_missing" => {
            let there = || providers.values().filter(|provider| here(provider, request).is_some());
            let good = |found: Found| matches!(found, Found::Good(_));
            match there().next() {
                None => Found::Good(None),
                Some(_) if there().any(|provider| good(by(provider, request))) => Found::Good(None),
                Some(_) => Found::Bad,
            }
        }
        "requires_any" => {
            let mut last = Found::Missing;
            for one in items(value, "requirements") {
                last = required(one, providers, request);
                if let Found::Good(_) = last {
                    break;
                }
            }
            last
        }
        "requires_all" => {
            let mut claims = None;
            for one in items(value, "requirements") {
                match required(one, providers, request) {
                    Found::Good(found) => claims = claims.or(found),
                    other => return other,
                }
            }
            Found::Good(claims)
        }
        other => panic!("no requirement {other} is known"),
    }
}

/// The token that a provider finds in the request.
fn here<'a>(provider: &Value, request: &'a Request) -> Option<&'a Token> {
    let token = request.token.as_ref()?;
    let listed = |field| items(provider, field).filter_map(Value::as_str);
    let nowhere =
        ["from_headers", "from_params", "from_cookies"].iter().all(|field| provider[field].is_null());
    let found = match token.place {
        Place::Header(name, prefix) if nowhere => name == "authorization" && prefix == "Bearer ",
        Place::Parameter(name) if nowhere => name == "access_token",
        Place::Header(name, prefix) => items(provider, "from_headers").any(|header| {
            text(header, "name").eq_ignore_ascii_case(name)
                && prefix.starts_with(&text(header, "value_prefix"))
        }),
        Place::Parameter(name) => listed("from_params").any(|written| written == name),
        Place::Cookie(name) => listed("from_cookies").any(|written| written == name),
    };
    found.then_some(token)
}

fn by(provider: &Value, request: &Request) -> Found {
    let Some(token) = here(provider, request) else { return Found::Missing };
    let issuer = text(provider, "issuer");
    let audiences: Vec<&str> = items(provider, "audiences").filter_map(Value::as_str).collect();
    let keys = match (&provider["local_jwks"], &provider["remote_jwks"]) {
        (local @ Value::Object(_), _) => text(local, "inline_string"),
        (_, remote) => text(&remote["http_uri"], "uri"),
    };
    let good = (issuer.is_empty() || issuer == token.issuer)
        && (audiences.is_empty() || audiences.contains(&token.audience))
        && keys.contains(token.key);
    if good { Found::Good(Some(claims(token))) } else { Found::Bad }
}

fn claims(token: &Token) -> Value {
    let mut claims = json!({"iss": token.issuer, "sub": token.subject, "aud": [token.audience]});
    for (name, value) in &token.claims {
        claims[*name] = (*value).into();
    }
    claims
}
