//! Authorization rules of a file.

use super::{AccessError, Action};
use ipnet::IpNet;
use pilotfish_access::Pattern;
use pilotfish_registration::{Instance, InstanceKey};
use serde::Deserialize;
use std::collections::HashMap;

/// Maximum number of rules in a file.
const MOST: usize = 10_000;

/// The rules of a file. Everything else is denied.
#[derive(Debug, Default)]
pub(super) struct Rules {
    rules: Vec<Rule>,
    /// Indexes of rules by exact identity.
    named: HashMap<String, Vec<usize>>,
    /// Rules with identity patterns.
    patterns: Vec<(Vec<Pattern>, usize)>,
}

#[derive(Debug)]
struct Rule {
    namespaces: Vec<Pattern>,
    services: Vec<Pattern>,
    actions: Vec<Action>,
    /// True if the rule includes instances of other owners.
    any_owner: bool,
    /// `None`: the service account of an instance must be that of the client's SPIFFE id.
    service_accounts: Option<Vec<Pattern>>,
    /// Allowed addresses; `None` for all.
    addresses: Option<Vec<IpNet>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    rules: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Entry {
    identities: Vec<String>,
    #[serde(default = "everything")]
    namespaces: Vec<String>,
    #[serde(default = "everything")]
    services: Vec<String>,
    actions: Vec<Action>,
    #[serde(default)]
    instances: Owners,
    service_accounts: Option<Vec<String>>,
    addresses: Option<Vec<IpNet>>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Owners {
    #[default]
    Own,
    Any,
}

fn everything() -> Vec<String> {
    vec!["*".to_owned()]
}

/// Permission of a client for an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// True if it may change instances of other owners.
    pub(crate) any_owner: bool,
}

impl Rules {
    pub(super) fn parse(text: &str) -> Result<Self, AccessError> {
        let file: File =
            serde_saphyr::from_str(text).map_err(|error| AccessError::invalid(error.to_string()))?;
        if file.rules.len() > MOST {
            return Err(AccessError::invalid(format!(
                "{} rules: at most {MOST} are allowed",
                file.rules.len()
            )));
        }
        let mut rules = Self::default();
        for (index, entry) in file.rules.iter().enumerate() {
            rules.rules.push(rule(index, entry)?);
            let (patterns, names): (Vec<&String>, Vec<&String>) =
                entry.identities.iter().partition(|identity| identity.contains('*'));
            for name in names {
                rules.named.entry(name.clone()).or_default().push(index);
            }
            if !patterns.is_empty() {
                rules.patterns.push((patterns.into_iter().map(|text| Pattern::new(text)).collect(), index));
            }
        }
        Ok(rules)
    }

    /// Returns the permission of these identities for an instance; `None` if denied.
    pub(super) fn grant(&self, identities: &[String], action: Action, key: &InstanceKey) -> Option<Grant> {
        let granting = || self.of(identities, action).filter(|rule| rule.covers(action, key));
        granting().next()?;
        Some(Grant { any_owner: granting().any(|rule| rule.any_owner) })
    }

    /// Checks the addresses and service account of an instance whose key is granted.
    pub(super) fn check_instance(
        &self,
        identities: &[String],
        instance: &Instance,
        is_own_account: impl Fn() -> bool,
    ) -> Result<(), &'static str> {
        let mut reason = "";
        let register = Action::Register;
        for rule in self.of(identities, register).filter(|rule| rule.covers(register, &instance.key)) {
            match rule.check_instance(instance, &is_own_account) {
                Ok(()) => return Ok(()),
                Err(why) => reason = why,
            }
        }
        Err(reason)
    }

    /// True if these identities may do this with at least some instances.
    pub(super) fn allows_some(&self, identities: &[String], action: Action) -> bool {
        self.of(identities, action).next().is_some()
    }

    /// Returns the rules of these identities for an action; may contain duplicates.
    fn of(&self, identities: &[String], action: Action) -> impl Iterator<Item = &Rule> {
        let named = identities.iter().filter_map(|identity| self.named.get(identity)).flatten();
        let matching = self.patterns.iter().filter(move |(patterns, _)| any(patterns, identities));
        let indexes = named.chain(matching.map(|(_, index)| index));
        indexes.filter_map(|index| self.rules.get(*index)).filter(move |rule| rule.actions.contains(&action))
    }
}

impl Rule {
    /// True if the rule covers the instance. Host names with dots are outside of namespaces: only patterns
    /// with a dot allow their registration.
    fn covers(&self, action: Action, key: &InstanceKey) -> bool {
        let is_host = action == Action::Register && key.service.contains('.');
        self.namespaces.iter().any(|pattern| pattern.matches(&key.namespace))
            && self
                .services
                .iter()
                .any(|pattern| pattern.matches(&key.service) && (!is_host || pattern.is_of_hosts()))
    }

    fn check_instance(
        &self,
        instance: &Instance,
        is_own_account: &impl Fn() -> bool,
    ) -> Result<(), &'static str> {
        let account = &*instance.service_account;
        let accounts = match &self.service_accounts {
            Some(allowed) => account.is_empty() || allowed.iter().any(|pattern| pattern.matches(account)),
            None => is_own_account(),
        };
        if !accounts {
            return Err("no rule allows this service account");
        }
        let known = |networks: &[IpNet]| {
            instance.addresses.iter().all(|address| networks.iter().any(|network| network.contains(address)))
        };
        if self.addresses.as_deref().is_none_or(known) {
            Ok(())
        } else {
            Err("no rule allows these addresses")
        }
    }
}

fn rule(index: usize, entry: &Entry) -> Result<Rule, AccessError> {
    for (name, list) in
        [("identities", &entry.identities), ("namespaces", &entry.namespaces), ("services", &entry.services)]
    {
        if list.is_empty() || list.iter().any(String::is_empty) {
            return Err(AccessError::invalid(format!(
                "rules[{index}].{name}: it names nothing; `\"*\"` means everything"
            )));
        }
    }
    if entry.actions.is_empty() {
        return Err(AccessError::invalid(format!("rules[{index}].actions: it names nothing")));
    }
    let patterns = |list: &[String]| list.iter().map(|text| Pattern::new(text)).collect();
    Ok(Rule {
        namespaces: patterns(&entry.namespaces),
        services: patterns(&entry.services),
        actions: entry.actions.clone(),
        any_owner: matches!(entry.instances, Owners::Any),
        service_accounts: entry.service_accounts.as_deref().map(patterns),
        addresses: entry.addresses.clone(),
    })
}

fn any(patterns: &[Pattern], names: &[String]) -> bool {
    names.iter().any(|name| patterns.iter().any(|pattern| pattern.matches(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_registration::Registration;

    const FILE: &str = r#"
rules:
- identities: ["token/payments", "spiffe://cluster.local/ns/shop/*", "spiffe://other.org/ns/shop/sa/web"]
  namespaces: [shop]
  services: ["pay-*", payments]
  actions: [register, deregister]
  addresses: [10.0.0.0/8]
- identities: [token/agent]
  actions: [register, deregister, read]
  instances: any
  serviceAccounts: ["web-*"]
- identities: ["*"]
  namespaces: [shop, public]
  actions: [read]
"#;

    fn granted(identity: &str, action: Action, namespace: &str, service: &str) -> Option<bool> {
        let rules = Rules::parse(FILE).unwrap();
        let key = InstanceKey::new(namespace, service, "a");
        rules.grant(&[identity.to_owned()], action, &key).map(|grant| grant.any_owner)
    }

    #[test]
    fn what_no_rule_allows_is_denied() {
        use Action::{Deregister, Read, Register};
        for (identity, action, namespace, service, expected) in [
            ("token/payments", Register, "shop", "payments", Some(false)),
            ("token/payments", Register, "shop", "pay-1", Some(false)),
            ("token/payments", Register, "shop", "web", None),
            ("token/payments", Register, "public", "payments", None),
            ("token/payments2", Register, "shop", "payments", None),
            ("spiffe://cluster.local/ns/shop/sa/x", Deregister, "shop", "payments", Some(false)),
            ("spiffe://cluster.local/ns/other/sa/x", Deregister, "shop", "payments", None),
            ("token/agent", Deregister, "any", "thing", Some(true)),
            ("anonymous", Read, "public", "web", Some(false)),
            ("anonymous", Read, "private", "web", None),
            ("anonymous", Register, "public", "web", None),
        ] {
            assert_eq!(
                granted(identity, action, namespace, service),
                expected,
                "{identity} {action:?} {namespace}/{service}"
            );
        }
    }

    #[test]
    fn hosts_with_dots_need_a_pattern_that_is_written_for_hosts() {
        use Action::{Deregister, Read, Register};
        let granted = |services: &str, action, service: &str| {
            let text = format!(
                "rules:\n- identities: [a]\n  services: [{services}]\n  actions: [register, deregister, read]\n"
            );
            let key = InstanceKey::new("shop", service, "i");
            Rules::parse(&text).unwrap().grant(&["a".to_owned()], action, &key).is_some()
        };
        for (services, action, service, expected) in [
            ("'*'", Register, "web", true),
            ("'*'", Register, "web.example.com", false),
            ("'web*'", Register, "web.example.com", false),
            ("'*com'", Register, "web.example.com", false),
            ("'*.example.com'", Register, "web.example.com", true),
            ("web.example.com", Register, "web.example.com", true),
            ("'*.example.com'", Register, "web", false),
            ("'*'", Read, "web.example.com", true),
            ("'*'", Deregister, "web.example.com", true),
        ] {
            assert_eq!(granted(services, action, service), expected, "{services} {action:?} {service}");
        }
    }

    #[test]
    fn addresses_and_service_accounts_are_part_of_a_rule() {
        let rules = Rules::parse(FILE).unwrap();
        let check = |identity: &str, address: &str, account: &str| {
            let mut registration = Registration::new("shop", "payments", "a");
            registration.addresses = vec![address.to_owned()];
            registration.service_account = account.to_owned();
            registration.ports =
                vec![pilotfish_registration::RegistrationPort { number: 80, ..Default::default() }];
            let instance = registration.validate("cluster.local").unwrap();
            let identities = [identity.to_owned()];
            let is_own = || crate::access::is_own_account(&identities, &instance, &crate::mesh::NoMesh);
            rules.check_instance(&identities, &instance, is_own)
        };
        let own = "spiffe://cluster.local/ns/shop/sa/web";
        let foreign = "spiffe://other.org/ns/shop/sa/web";
        for (identity, address, account, expected) in [
            ("token/payments", "10.1.2.3", "", Ok(())),
            ("token/payments", "192.0.2.1", "", Err("no rule allows these addresses")),
            ("token/payments", "10.1.2.3", "web", Err("no rule allows this service account")),
            (own, "10.1.2.3", "web", Ok(())),
            (own, "10.1.2.3", "other", Err("no rule allows this service account")),
            (foreign, "10.1.2.3", "", Ok(())),
            (foreign, "10.1.2.3", "web", Err("no rule allows this service account")),
            ("token/agent", "192.0.2.1", "web-1", Ok(())),
            ("token/agent", "192.0.2.1", "admin", Err("no rule allows this service account")),
        ] {
            assert_eq!(check(identity, address, account), expected, "{identity} {address} {account}");
        }
    }

    #[test]
    fn bad_files_name_the_place() {
        for (text, part) in [
            ("rules:\n- identities: []\n  actions: [read]\n", "rules[0].identities"),
            ("rules:\n- identities: [a]\n  actions: []\n", "rules[0].actions"),
            ("rules:\n- identities: [a]\n  actions: [write]\n", "write"),
            ("rules:\n- identities: [a]\n  actions: [read]\n  service: [b]\n", "service"),
            ("rules:\n- identities: [a]\n  actions: [read]\n  services: [\"\"]\n", "rules[0].services"),
            ("rules:\n- identities: [a]\n  actions: [read]\n  addresses: [10.0.0.0/99]\n", "10.0.0.0/99"),
            ("{", ""),
        ] {
            let error = Rules::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
