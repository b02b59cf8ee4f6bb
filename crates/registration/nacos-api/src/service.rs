//! Names of services.

use crate::NacosSettings;
use pilotfish_nacos_wire::{
    DEFAULT_GROUP, DEFAULT_HOST, DEFAULT_NAMESPACE, HostPattern, SEPARATOR, split_name,
};
use pilotfish_registration::ServiceKey;
use pilotfish_registration_server::Failure;
use std::fmt;
use std::sync::Arc;

/// Maximum length of a name in bytes, as in Nacos.
const MAX_NAME: usize = 512;
/// Maximum length of a namespace or group in bytes, as in Nacos.
const MAX_SCOPE: usize = 128;
/// Maximum length of the names of clusters that a client wants, in bytes.
const MAX_CLUSTERS: usize = 256;

/// Nacos's namespace and group, in which names of services are unique.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Scope {
    pub(crate) namespace: Arc<str>,
    pub(crate) group: Arc<str>,
}

/// A service of Nacos.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ServiceId {
    pub(crate) scope: Scope,
    pub(crate) name: Arc<str>,
}

/// Instances that a client wants of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Names of clusters with commas between them; empty for all.
    pub(crate) clusters: String,
    pub(crate) healthy_only: bool,
}

impl Wanted {
    /// Reads the names of clusters.
    pub(crate) fn read(clusters: &str, healthy_only: bool) -> Result<Self, Failure> {
        if clusters.len() > MAX_CLUSTERS {
            return Err(Failure::invalid(format!("Param 'clusters' has more than {MAX_CLUSTERS} bytes.")));
        }
        Ok(Self { clusters: clusters.to_owned(), healthy_only })
    }
}

impl Scope {
    /// Reads a namespace and a group; empty ones are the defaults.
    pub(crate) fn read(namespace: &str, group: &str) -> Result<Self, Failure> {
        let namespace = if namespace.is_empty() { DEFAULT_NAMESPACE } else { namespace };
        let group = if group.is_empty() { DEFAULT_GROUP } else { group };
        check("namespaceId", namespace, MAX_SCOPE, "-_")?;
        check("groupName", group, MAX_SCOPE, "-_:.")?;
        Ok(Self { namespace: namespace.into(), group: group.into() })
    }
}

impl ServiceId {
    /// Reads a service; a group in its name takes precedence.
    pub(crate) fn read(namespace: &str, group: &str, name: &str) -> Result<Self, Failure> {
        let (group, name) = split_name(group, name);
        let scope = Scope::read(namespace, group)?;
        check("serviceName", name, MAX_NAME, "@.:_-")?;
        Ok(Self { scope, name: name.into() })
    }

    /// Reads the text of [`fmt::Display`].
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (namespace, rest) = text.split_once('/')?;
        let (group, name) = rest.split_once(SEPARATOR)?;
        let scope = Scope { namespace: namespace.into(), group: group.into() };
        Some(Self { scope, name: name.into() })
    }

    /// Returns the name with its group.
    pub(crate) fn grouped(&self) -> String {
        format!("{}{SEPARATOR}{}", self.scope.group, self.name)
    }

    /// Returns the service of its host, which the registry that reads Nacos's servers has, too.
    pub(crate) fn key(&self, settings: &NacosSettings) -> Result<ServiceKey, Failure> {
        let pattern = HostPattern::parse(DEFAULT_HOST).map_err(Failure::invalid)?;
        let host = pattern.host(&self.scope.namespace, &self.scope.group, &self.name);
        match pilotfish_registry::hostname(&host) {
            Some(host) => Ok(ServiceKey::new(Arc::clone(&settings.namespace), host.as_str())),
            None => Err(Failure::invalid(format!("Param 'serviceName': {host:?} is no host name"))),
        }
    }
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.scope.namespace, self.grouped())
    }
}

/// Checks the characters of a name as Nacos does.
pub(crate) fn check(param: &str, text: &str, most: usize, others: &str) -> Result<(), Failure> {
    if text.is_empty() {
        return Err(Failure::invalid(format!("Param '{param}' is required.")));
    }
    if text.len() > most {
        return Err(Failure::invalid(format!("Param '{param}' has more than {most} bytes.")));
    }
    let is_known = |c: char| c.is_ascii_alphanumeric() || others.contains(c);
    if text.chars().all(is_known) && !text.contains(SEPARATOR) {
        return Ok(());
    }
    let shown: String = text.chars().take(63).collect();
    Err(Failure::invalid(format!(
        "Param '{param}' is illegal: {shown:?} has more than letters, digits and {others}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_those_of_the_registry() {
        for (namespace, group, name, host) in [
            ("", "", "web", "web.default-group.public.nacos"),
            ("3f2a-Dev", "g.h", "Web", "web.g-h.3f2a-dev.nacos"),
            ("", "G", "H@@Order_Service", "order_service.h.public.nacos"),
            (
                "",
                "",
                "providers:com.acme.Greeter:1.0:",
                "providers-com.acme.greeter-1.0.default-group.public.nacos",
            ),
        ] {
            let service = ServiceId::read(namespace, group, name).unwrap();
            assert_eq!(&*service.key(&NacosSettings::default()).unwrap().service, host);
            assert_eq!(ServiceId::parse(&service.to_string()), Some(service));
        }
    }

    #[test]
    fn names_that_nacos_refuses_are_refused() {
        let long = "x".repeat(513);
        for (namespace, group, name, message) in [
            ("", "", "", "Param 'serviceName' is required."),
            ("", "", "a b", "Param 'serviceName' is illegal"),
            ("", "", "a@@b@@c", "Param 'serviceName' is illegal"),
            ("", "", &*long, "Param 'serviceName' has more than 512 bytes."),
            ("a/b", "", "web", "Param 'namespaceId' is illegal"),
            ("", "a b", "web", "Param 'groupName' is illegal"),
        ] {
            let error = ServiceId::read(namespace, group, name).unwrap_err();
            assert!(error.message().starts_with(message), "{error:?}");
        }
    }
}
