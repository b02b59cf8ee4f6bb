//! Service identity of an instance, and the host name of a service.

use std::fmt;

/// A service of the key space.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) namespace: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) service: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in [&self.namespace, &self.group].into_iter().flatten() {
            write!(f, "{part}/")?;
        }
        f.write_str(&self.service)
    }
}

/// The host name of a service, as in `{service}.{group}.etcd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostTemplate(String);

const NAMES: [&str; 3] = ["{service}", "{group}", "{namespace}"];

impl HostTemplate {
    /// Parses a template. It must name the service: otherwise all services would have one host.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let rest = NAMES.iter().fold(text.to_owned(), |rest, name| rest.replace(name, ""));
        if rest.contains(['{', '}']) {
            return Err(format!("known names are {}", NAMES.join(", ")));
        }
        if text.contains(NAMES[0]) {
            Ok(Self(text.to_owned()))
        } else {
            Err("it has no {service}".to_owned())
        }
    }

    /// Returns the host of a service. Parts that the service does not have are omitted, with their dot.
    pub(crate) fn host(&self, place: &Place) -> String {
        let labels = self.0.split('.').map(|label| {
            let values = [Some(&place.service), place.group.as_ref(), place.namespace.as_ref()];
            NAMES.iter().zip(values).fold(label.to_owned(), |text, (name, value)| {
                text.replace(name, value.map_or("", String::as_str))
            })
        });
        labels.filter(|label| !label.is_empty()).collect::<Vec<_>>().join(".")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_made_of_what_a_service_has() {
        let place = |namespace: Option<&str>, group: Option<&str>| Place {
            namespace: namespace.map(str::to_owned),
            group: group.map(str::to_owned),
            service: "web.v1".to_owned(),
        };
        let template = HostTemplate::parse("{service}.{group}.{namespace}.etcd").unwrap();
        assert_eq!(template.host(&place(Some("n"), Some("g"))), "web.v1.g.n.etcd");
        assert_eq!(template.host(&place(None, None)), "web.v1.etcd");
        let template = HostTemplate::parse("{service}-{group}.x").unwrap();
        assert_eq!(template.host(&place(None, Some("g"))), "web.v1-g.x");
        assert!(HostTemplate::parse("{group}.x").is_err());
        assert!(HostTemplate::parse("{service}.{zone}").is_err());
        assert_eq!(place(Some("n"), Some("g")).to_string(), "n/g/web.v1");
    }
}
