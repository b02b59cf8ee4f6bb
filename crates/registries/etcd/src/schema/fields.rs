//! Roles of the fields of a JSON value.

use serde_json::Value;

/// Meaning of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Address,
    Port,
    Ports,
    Endpoints,
    Protocol,
    Weight,
    Health,
    Labels,
    Service,
    Namespace,
    Group,
    Version,
    Region,
    Zone,
    SubZone,
    Network,
    Node,
}

/// Roles by their name in the option `fields`, with the default fields; the first that exists applies.
const ROLES: &[(Role, &str, &[&str])] = &[
    (Role::Address, "address", &["address", "host", "ip"]),
    (Role::Port, "port", &["port"]),
    (Role::Ports, "ports", &["ports"]),
    (Role::Endpoints, "endpoints", &["endpoints"]),
    (Role::Protocol, "protocol", &["protocol"]),
    (Role::Weight, "weight", &["weight"]),
    (Role::Health, "health", &["healthy", "health"]),
    (Role::Labels, "labels", &["labels", "metadata"]),
    (Role::Service, "service", &["service", "name"]),
    (Role::Namespace, "namespace", &["namespace"]),
    (Role::Group, "group", &["group"]),
    (Role::Version, "version", &["version"]),
    (Role::Region, "region", &["region"]),
    (Role::Zone, "zone", &["zone"]),
    (Role::SubZone, "subZone", &["subZone"]),
    (Role::Network, "network", &["network"]),
    (Role::Node, "node", &["node"]),
];

/// The fields of each role. A path of several fields has dots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fields(Vec<(Role, Vec<String>)>);

impl Default for Fields {
    fn default() -> Self {
        let paths = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Self(ROLES.iter().map(|(role, _, names)| (*role, paths(names))).collect())
    }
}

impl Fields {
    /// Only these roles, each with one field.
    pub(crate) fn of(fields: &[(Role, &str)]) -> Self {
        Self(fields.iter().map(|(role, path)| (*role, vec![(*path).to_owned()])).collect())
    }

    /// Parses `ROLE:FIELD,...` over the defaults. An empty field disables a role.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut this = Self::default();
        for part in text.split(',') {
            let (name, path) = part.split_once(':').ok_or_else(|| format!("{part:?} is not ROLE:FIELD"))?;
            let Some((role, _, _)) = ROLES.iter().find(|(_, known, _)| *known == name.trim()) else {
                let known: Vec<_> = ROLES.iter().map(|(_, name, _)| *name).collect();
                return Err(format!("there is no role {name:?}; known are {}", known.join(", ")));
            };
            let path = path.trim();
            let paths = if path.is_empty() { Vec::new() } else { vec![path.to_owned()] };
            this.0.iter_mut().filter(|(of, _)| of == role).for_each(|(_, known)| known.clone_from(&paths));
        }
        Ok(this)
    }

    /// Returns the value of a role's field; `None` if it is missing or null.
    pub(crate) fn get<'a>(&self, role: Role, value: &'a Value) -> Option<&'a Value> {
        let (_, paths) = self.0.iter().find(|(of, _)| *of == role)?;
        paths.iter().find_map(|path| at(value, path))
    }
}

/// Returns the field at a path. Dots may also be part of a field's name.
fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    let whole = value.get(path);
    let found = whole.or_else(|| path.split('.').try_fold(value, |value, name| value.get(name)));
    found.filter(|found| !found.is_null())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_are_found_by_role() {
        let value = json!({"ip": "a", "host": null, "svc": {"port": 1}, "a.b": 2, "labels": {}});
        let fields = Fields::parse("port:svc.port, weight:a.b,labels:").unwrap();
        assert_eq!(fields.get(Role::Address, &value), Some(&json!("a")));
        assert_eq!(fields.get(Role::Port, &value), Some(&json!(1)));
        assert_eq!(fields.get(Role::Weight, &value), Some(&json!(2)));
        assert_eq!(fields.get(Role::Labels, &value), None, "turned off");
        assert_eq!(Fields::of(&[(Role::Port, "ip")]).get(Role::Address, &value), None);
    }

    #[test]
    fn mistakes_are_told() {
        assert_eq!(Fields::parse("port").unwrap_err(), "\"port\" is not ROLE:FIELD");
        assert!(
            Fields::parse("prot:a").unwrap_err().starts_with("there is no role \"prot\"; known are address,")
        );
    }
}
