//! Names of objects, and links between them.

use pilotfish_model::Namespace;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Name of an object of a known kind. Also used for other pairs of a namespace and a text, such as an address
/// in a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Name {
    pub(crate) namespace: Namespace,
    pub(crate) name: Arc<str>,
}

impl Name {
    pub(crate) fn new(namespace: impl Into<Namespace>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    pub(crate) fn of(key: &pilotfish_model::ObjectKey) -> Self {
        Self { namespace: key.namespace.clone(), name: key.name.clone() }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Directed relation between names, such as from a Pod to its slices, or from a node to its Pods. A flat set,
/// because there are many links and few for each name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Links(BTreeSet<(Name, Name)>);

impl Links {
    pub(crate) fn add(&mut self, from: &Name, to: &Name) {
        self.0.insert((from.clone(), to.clone()));
    }

    pub(crate) fn remove(&mut self, from: &Name, to: &Name) {
        self.0.remove(&(from.clone(), to.clone()));
    }

    pub(crate) fn of<'a>(&'a self, from: &'a Name) -> impl Iterator<Item = &'a Name> {
        self.0
            .range((from.clone(), Name::default())..)
            .take_while(move |(at, _)| at == from)
            .map(|(_, to)| to)
    }
}

/// Returns the names in one namespace.
pub(crate) fn in_namespace<'a, V>(
    map: &'a BTreeMap<Name, V>,
    namespace: &'a Namespace,
) -> impl Iterator<Item = &'a Name> {
    let first = Name { namespace: namespace.clone(), name: Arc::default() };
    map.range(first..).map(|(name, _)| name).take_while(move |name| name.namespace == *namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read_from_the_left() {
        let name = |text: &str| Name::new("ns", text);
        let mut links = Links::default();
        links.add(&name("a"), &name("1"));
        links.add(&name("a"), &name("2"));
        links.add(&name("b"), &name("3"));
        links.remove(&name("a"), &name("1"));
        assert_eq!(links.of(&name("a")).collect::<Vec<_>>(), [&name("2")]);
        assert_eq!(links.of(&name("c")).count(), 0);
    }
}
