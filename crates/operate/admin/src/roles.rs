//! Roles of the admin API: who has which, by tokens and rules of files.

use parking_lot::RwLock;
use pilotfish_access::{Digest, NamedTokens, Pattern};
use serde::Deserialize;
use std::fmt;
use std::sync::Arc;

/// Maximum number of identities in the rules: each request may be compared with all of them.
const MOST_IDENTITIES: usize = 1_000;
/// Maximum length of an identity in bytes.
const LONGEST_IDENTITY: usize = 2_048;
/// Name of clients of this machine without credentials.
pub(crate) const LOOPBACK: &str = "loopback";

/// Role of a client; each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Reads everything, and computes plans.
    Viewer,
    /// Changes the log level, and accepts losses that a guard holds back.
    Operator,
    /// Rotates the root of the certificate authority.
    Admin,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        })
    }
}

/// Tokens and rules.
#[derive(Debug, Default)]
pub struct RoleTable {
    tokens: NamedTokens,
    rules: RoleRules,
}

/// Rules that map identities to roles.
#[derive(Debug, Default)]
pub struct RoleRules {
    rules: Vec<(Vec<Pattern>, Role)>,
    /// Role of clients of this machine without credentials, if a rule names them.
    loopback: Option<Option<Role>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    rules: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    identities: Vec<String>,
    role: Given,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Given {
    None,
    Viewer,
    Operator,
    Admin,
}

impl From<Given> for Option<Role> {
    fn from(given: Given) -> Self {
        match given {
            Given::None => None,
            Given::Viewer => Some(Role::Viewer),
            Given::Operator => Some(Role::Operator),
            Given::Admin => Some(Role::Admin),
        }
    }
}

impl RoleRules {
    /// Parses the rules of a file (YAML).
    ///
    /// # Errors
    /// With the place and the mistake.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: File = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        let count: usize = file.rules.iter().map(|entry| entry.identities.len()).sum();
        if count > MOST_IDENTITIES {
            return Err(format!("{count} identities: at most {MOST_IDENTITIES} are allowed"));
        }
        let mut rules = Self::default();
        for (index, entry) in file.rules.into_iter().enumerate() {
            rules.add(&entry).map_err(|error| format!("rules[{index}]: {error}"))?;
        }
        Ok(rules)
    }

    fn add(&mut self, entry: &Entry) -> Result<(), String> {
        let role = Option::<Role>::from(entry.role);
        if entry.identities.is_empty() {
            return Err("identities: there are none".to_owned());
        }
        let mut patterns = Vec::new();
        for (index, identity) in entry.identities.iter().enumerate() {
            if identity.is_empty() || identity.len() > LONGEST_IDENTITY {
                return Err(format!("identities[{index}] has to be 1 to {LONGEST_IDENTITY} bytes"));
            }
            if identity == LOOPBACK {
                self.loopback = Some(self.loopback.flatten().max(role));
            } else if !identity.contains('/') && !identity.contains('*') {
                return Err(format!(
                    "identities[{index}] {identity:?} is neither token/NAME nor a SPIFFE ID nor {LOOPBACK}"
                ));
            }
            patterns.push(Pattern::new(identity));
        }
        self.rules.extend(role.map(|role| (patterns, role)));
        Ok(())
    }

    /// Highest role of identities; `None` if no rule gives them one.
    fn role(&self, identities: &[String]) -> Option<Role> {
        let matches = |patterns: &[Pattern]| {
            identities.iter().any(|identity| patterns.iter().any(|pattern| pattern.matches(identity)))
        };
        self.rules.iter().filter(|(patterns, _)| matches(patterns)).map(|(_, role)| *role).max()
    }
}

impl RoleTable {
    #[must_use]
    pub fn new(tokens: NamedTokens, rules: RoleRules) -> Self {
        Self { tokens, rules }
    }
}

/// Tokens and rules in force. Both can be replaced.
#[derive(Debug, Default)]
pub struct Roles(RwLock<Arc<RoleTable>>);

impl Roles {
    #[must_use]
    pub fn new(table: RoleTable) -> Self {
        Self(RwLock::new(Arc::new(table)))
    }

    /// Puts tokens and rules in force for later requests.
    pub fn replace(&self, table: RoleTable) {
        *self.0.write() = Arc::new(table);
    }

    fn table(&self) -> Arc<RoleTable> {
        self.0.read().clone()
    }

    /// Identity of a token's client.
    pub(crate) fn token(&self, digest: &Digest) -> Option<Arc<str>> {
        self.table().tokens.identity(digest).cloned()
    }

    /// Highest role of identities.
    pub(crate) fn role(&self, identities: &[String]) -> Option<Role> {
        self.table().rules.role(identities)
    }

    /// Role of clients of this machine without credentials.
    pub(crate) fn loopback(&self) -> Option<Role> {
        self.table().rules.loopback.unwrap_or(Some(Role::Operator))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(rules: &str) -> Roles {
        Roles::new(RoleTable::new(NamedTokens::default(), RoleRules::parse(rules).unwrap()))
    }

    #[test]
    fn highest_role_of_matching_rules_counts() {
        let roles = roles(
            r#"
rules:
- {identities: ["spiffe://cluster.local/ns/ops/*", token/ci], role: viewer}
- {identities: ["spiffe://cluster.local/ns/ops/sa/root"], role: admin}
- {identities: [token/ci], role: operator}
- {identities: [token/gone], role: none}
"#,
        );
        for (identities, role) in [
            (&["spiffe://cluster.local/ns/ops/sa/web"][..], Some(Role::Viewer)),
            (&["spiffe://cluster.local/ns/ops/sa/root"], Some(Role::Admin)),
            (&["spiffe://cluster.local/ns/ops2/sa/root"], None),
            (&["spiffe://other/ns/ops/sa/root"], None),
            (&["token/ci"], Some(Role::Operator)),
            (&["token/ci2"], None),
            (&["token/gone"], None),
            (&["token/other", "spiffe://cluster.local/ns/ops/sa/root"], Some(Role::Admin)),
            (&[], None),
        ] {
            let identities: Vec<String> = identities.iter().map(|id| (*id).to_owned()).collect();
            assert_eq!(roles.role(&identities), role, "{identities:?}");
        }
        assert_eq!(roles.loopback(), Some(Role::Operator), "no rule names it");
    }

    #[test]
    fn loopback_has_the_role_of_rules_that_name_it() {
        for (rules, role) in [
            ("rules: [{identities: [loopback], role: none}]", None),
            ("rules: [{identities: [loopback], role: viewer}]", Some(Role::Viewer)),
            ("rules: [{identities: [loopback], role: admin}]", Some(Role::Admin)),
            (
                "rules: [{identities: [loopback], role: viewer}, {identities: [loopback], role: none}]",
                Some(Role::Viewer),
            ),
            ("rules: [{identities: ['*'], role: viewer}]", Some(Role::Operator)),
            ("rules: []", Some(Role::Operator)),
        ] {
            assert_eq!(roles(rules).loopback(), role, "{rules}");
        }
    }

    #[test]
    fn mistakes_name_their_place() {
        for (text, part) in [
            ("rules: [{identities: [token/a], role: root}]", "root"),
            ("rules: [{identities: [], role: viewer}]", "rules[0]: identities: there are none"),
            ("rules: [{identities: [''], role: viewer}]", "rules[0]: identities[0] has to be"),
            (
                "rules: [{identities: [token/a, ci], role: viewer}]",
                "rules[0]: identities[1] \"ci\" is neither token/NAME",
            ),
            ("rules: [{identities: [token/a], role: viewer, more: 1}]", "more"),
            ("rule: []", "rule"),
        ] {
            let error = RoleRules::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        let many = format!("rules: [{{role: viewer, identities: [{}]}}]", "token/a,".repeat(1_001));
        assert!(RoleRules::parse(&many).unwrap_err().contains("at most 1000"));
    }
}
