//! Rules for the tokens of issuers, from a file with the names of Istio's `jwtRules`.

use crate::keys::KeySet;
use pilotfish_access::Pattern;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Maximum number of issuers in a file: the keys of each are read at an interval.
const MOST: usize = 64;
/// Maximum length of a namespace or an account in bytes, as Kubernetes has it.
const LONGEST_NAME: usize = 253;

/// Error of a file of rules, with its place.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RulesError(String);

/// Rules for the tokens of issuers.
#[derive(Debug, Default)]
pub struct JwtRules {
    pub(crate) rules: Vec<Rule>,
}

/// Rule for the tokens of one issuer.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) issuer: String,
    pub(crate) audiences: Vec<String>,
    pub(crate) keys: Keys,
    pub(crate) ca_file: Option<PathBuf>,
    /// Values that claims must have.
    required: Vec<(Vec<String>, Value)>,
    namespace: Mapping,
    service_account: Mapping,
    /// Namespaces that tokens may be of; `None` for all.
    namespaces: Option<Vec<Pattern>>,
}

/// Source of an issuer's keys, as written.
#[derive(Clone, Debug)]
pub(crate) enum Keys {
    Inline(KeySet),
    File(PathBuf),
    Uri(String),
    /// The document `/.well-known/openid-configuration` names it.
    Discovery,
}

/// Origin of a name.
#[derive(Clone, Debug)]
enum Mapping {
    Fixed(String),
    /// Path of a claim.
    Claim(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct File {
    jwt_rules: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Entry {
    issuer: String,
    audiences: Vec<String>,
    jwks: Option<String>,
    jwks_uri: Option<String>,
    jwks_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    #[serde(default)]
    required_claims: BTreeMap<String, Value>,
    namespace: Option<Given>,
    service_account: Option<Given>,
    namespaces: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    value: Option<String>,
    claim: Option<String>,
}

impl JwtRules {
    /// Parses a file (YAML).
    ///
    /// # Errors
    /// With the place and the mistake.
    pub fn parse(text: &str) -> Result<Self, RulesError> {
        let file: File = serde_saphyr::from_str(text).map_err(|error| RulesError(error.to_string()))?;
        if file.jwt_rules.len() > MOST {
            let count = file.jwt_rules.len();
            return Err(RulesError(format!("{count} issuers: at most {MOST} are allowed")));
        }
        let mut rules: Vec<Rule> = Vec::new();
        for (index, entry) in file.jwt_rules.into_iter().enumerate() {
            let at = |error: String| RulesError(format!("jwtRules[{index}].{error}"));
            if rules.iter().any(|rule| rule.issuer == entry.issuer) {
                return Err(at(format!("issuer: {:?} has a rule already", entry.issuer)));
            }
            rules.push(rule(entry).map_err(at)?);
        }
        Ok(Self { rules })
    }
}

fn rule(entry: Entry) -> Result<Rule, String> {
    if entry.issuer.is_empty() {
        return Err("issuer: it is empty".to_owned());
    }
    if entry.audiences.is_empty() || entry.audiences.iter().any(String::is_empty) {
        return Err("audiences: at least one is needed, and none is empty".to_owned());
    }
    let keys = match (entry.jwks, entry.jwks_uri, entry.jwks_file) {
        (Some(text), None, None) => {
            Keys::Inline(KeySet::parse(text.as_bytes()).map_err(|error| format!("jwks: {error}"))?)
        }
        (None, Some(uri), None) => Keys::Uri(uri),
        (None, None, Some(path)) => Keys::File(path),
        (None, None, None) => Keys::Discovery,
        _ => return Err("jwks: only one of jwks, jwksUri and jwksFile counts".to_owned()),
    };
    let required = entry.required_claims.into_iter().map(|(path, value)| Ok((claim(&path)?, value)));
    let required: Result<_, String> = required.collect();
    let namespaces = entry.namespaces.map(|all| all.iter().map(|text| Pattern::new(text)).collect());
    Ok(Rule {
        issuer: entry.issuer,
        audiences: entry.audiences,
        keys,
        ca_file: entry.ca_file,
        required: required.map_err(|error| format!("requiredClaims: {error}"))?,
        namespace: mapping(entry.namespace, "[kubernetes.io][namespace]")
            .map_err(|error| format!("namespace: {error}"))?,
        service_account: mapping(entry.service_account, "[kubernetes.io][serviceaccount][name]")
            .map_err(|error| format!("serviceAccount: {error}"))?,
        namespaces,
    })
}

/// Returns the mapping that is given, or else that of Kubernetes' tokens.
fn mapping(given: Option<Given>, of_kubernetes: &str) -> Result<Mapping, String> {
    match given.map(|given| (given.value, given.claim)) {
        None => Ok(Mapping::Claim(claim(of_kubernetes)?)),
        Some((Some(value), None)) if is_name(&value) => Ok(Mapping::Fixed(value)),
        Some((Some(value), None)) => Err(format!("{value:?} is not a name")),
        Some((None, Some(path))) => Ok(Mapping::Claim(claim(&path)?)),
        Some(_) => Err("it needs either value or claim".to_owned()),
    }
}

/// Parses the path of a claim: `NAME`, or `[NAME][NAME]` for nested ones, as Istio's conditions have it.
fn claim(text: &str) -> Result<Vec<String>, String> {
    let wrong = || format!("{text:?} is neither NAME nor [NAME][NAME]");
    let Some(inner) = text.strip_prefix('[') else {
        let is_plain = !text.is_empty() && !text.contains(['[', ']']);
        return if is_plain { Ok(vec![text.to_owned()]) } else { Err(wrong()) };
    };
    let inner = inner.strip_suffix(']').ok_or_else(wrong)?;
    let parts: Vec<String> = inner.split("][").map(str::to_owned).collect();
    if parts.iter().any(|part| part.is_empty() || part.contains(['[', ']'])) {
        return Err(wrong());
    }
    Ok(parts)
}

impl Rule {
    /// True if the keys of both come from the same file or address.
    pub(crate) fn has_source_of(&self, other: &Self) -> bool {
        let is_same = match (&self.keys, &other.keys) {
            (Keys::File(one), Keys::File(other)) => one == other,
            (Keys::Uri(one), Keys::Uri(other)) => one == other,
            (Keys::Discovery, Keys::Discovery) => true,
            _ => false,
        };
        is_same && self.issuer == other.issuer && self.ca_file == other.ca_file
    }

    /// Namespace and account of verified claims.
    ///
    /// # Errors
    /// If a claim is missing, is no name, or has another value than the required one.
    pub(crate) fn account(&self, claims: &Value) -> Result<(String, String), String> {
        for (path, value) in &self.required {
            if found(claims, path) != Some(value) {
                return Err(format!("the claim {} has not the required value", path.join(".")));
            }
        }
        let namespace = self.namespace.name(claims)?;
        if self.namespaces.as_ref().is_some_and(|all| !all.iter().any(|one| one.matches(&namespace))) {
            return Err("the issuer may not name this namespace".to_owned());
        }
        Ok((namespace, self.service_account.name(claims)?))
    }
}

impl Mapping {
    fn name(&self, claims: &Value) -> Result<String, String> {
        match self {
            Self::Fixed(name) => Ok(name.clone()),
            Self::Claim(path) => {
                let name = found(claims, path).and_then(Value::as_str).filter(|name| is_name(name));
                name.map(str::to_owned).ok_or_else(|| format!("the claim {} is not a name", path.join(".")))
            }
        }
    }
}

fn found<'a>(claims: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(claims, |value, name| value.get(name))
}

/// True for a name that Kubernetes allows for accounts, which is safe in a SPIFFE id.
fn is_name(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let is_edge = |byte: Option<&u8>| byte.is_some_and(|byte| !b"-.".contains(byte));
    let bytes = name.as_bytes();
    bytes.len() <= LONGEST_NAME
        && bytes.iter().all(|byte| known(*byte))
        && is_edge(bytes.first())
        && is_edge(bytes.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_name_their_place() {
        for (text, part) in [
            ("{issuer: '', audiences: [a]}", "jwtRules[0].issuer"),
            ("{issuer: a, audiences: []}", "jwtRules[0].audiences"),
            ("{issuer: a, audiences: [a], jwksUri: 'https://a/', jwksFile: f}", "only one of"),
            ("{issuer: a, audiences: [a], jwks: '{}'}", "jwtRules[0].jwks"),
            ("{issuer: a, audiences: [a]}, {issuer: a, audiences: [b]}", "jwtRules[1].issuer"),
            ("{issuer: a, audiences: [a], namespace: {value: a/b}}", "jwtRules[0].namespace: \"a/b\""),
            ("{issuer: a, audiences: [a], namespace: {value: a, claim: b}}", "either value or claim"),
            ("{issuer: a, audiences: [a], serviceAccount: {claim: '[a'}}", "jwtRules[0].serviceAccount"),
            ("{issuer: a, audiences: [a], serviceAccount: {claim: 'a[b]'}}", "neither NAME nor"),
            ("{issuer: a, audiences: [a], requiredClaims: {'[]': x}}", "jwtRules[0].requiredClaims"),
            ("{issuer: a, audiences: [a], jwksURI: x}", "jwksURI"),
        ] {
            let error = JwtRules::parse(&format!("jwtRules: [{text}]")).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn claims_become_namespace_and_account() {
        let rules = |text: &str| {
            let text = format!("jwtRules: [{{issuer: a, audiences: [a]{text}}}]");
            JwtRules::parse(&text).unwrap().rules.remove(0)
        };
        let claims = serde_json::json!({
            "team": "shop", "job": "build", "env": "prod", "bad": "../x", "number": 7,
            "kubernetes.io": {"namespace": "pay", "serviceaccount": {"name": "api"}},
        });
        let own = ", namespace: {claim: team}, serviceAccount: {claim: job}";
        for (text, expected) in [
            (String::new(), Some(("pay", "api"))),
            (own.to_owned(), Some(("shop", "build"))),
            (", namespace: {value: ci}".to_owned(), Some(("ci", "api"))),
            (format!("{own}, namespaces: [shop, 'a*']"), Some(("shop", "build"))),
            (format!("{own}, namespaces: [pay]"), None),
            (format!("{own}, requiredClaims: {{env: prod}}"), Some(("shop", "build"))),
            (format!("{own}, requiredClaims: {{env: test}}"), None),
            (format!("{own}, requiredClaims: {{'[kubernetes.io][namespace]': shop}}"), None),
            (", namespace: {claim: bad}".to_owned(), None),
            (", namespace: {claim: number}".to_owned(), None),
            (", namespace: {claim: missing}".to_owned(), None),
        ] {
            let found = rules(&text).account(&claims).ok();
            let found = found.as_ref().map(|(namespace, name)| (namespace.as_str(), name.as_str()));
            assert_eq!(found, expected, "{text}");
        }
    }
}
