//! Calls that change the content of a target.

use crate::reconcile::{AliasKey, Instance, InstanceKey, Metadata, ServiceKey, Text};
use std::collections::BTreeSet;

/// One call. Its elements succeed or fail independently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    CreateNamespaces(Vec<Text>),
    CreateServices(Vec<ServiceWrite>),
    UpdateServices(Vec<ServiceWrite>),
    /// Creates an alias of a service.
    CreateAlias(AliasKey, ServiceKey),
    /// Points an existing alias to this service.
    UpdateAlias(AliasKey, ServiceKey),
    CreateInstances(Vec<InstanceWrite>),
    UpdateInstances(Vec<InstanceWrite>),
    /// Isolates instances that are deleted next.
    RetireInstances(Vec<InstanceRetirement>),
    DeleteInstances(Vec<InstanceKey>),
    DeleteAliases(Vec<AliasKey>),
}

impl Call {
    /// Returns the operation for logs, tables and metric labels.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        match self {
            Self::CreateNamespaces(_) => "create_namespaces",
            Self::CreateServices(_) => "create_services",
            Self::UpdateServices(_) => "update_services",
            Self::CreateAlias(..) => "create_alias",
            Self::UpdateAlias(..) => "update_alias",
            Self::CreateInstances(_) => "create_instances",
            Self::UpdateInstances(_) => "update_instances",
            Self::RetireInstances(_) => "retire_instances",
            Self::DeleteInstances(_) => "delete_instances",
            Self::DeleteAliases(_) => "delete_aliases",
        }
    }

    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::CreateNamespaces(all) => all.len(),
            Self::CreateServices(all) | Self::UpdateServices(all) => all.len(),
            Self::CreateAlias(..) | Self::UpdateAlias(..) => 1,
            Self::CreateInstances(all) | Self::UpdateInstances(all) => all.len(),
            Self::RetireInstances(all) => all.len(),
            Self::DeleteInstances(all) => all.len(),
            Self::DeleteAliases(all) => all.len(),
        }
    }

    /// True if it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the call reduced to the elements whose index, from 0, is wanted.
    #[must_use]
    pub fn only(&self, wanted: impl Fn(usize) -> bool) -> Self {
        fn some<T: Clone>(all: &[T], wanted: impl Fn(usize) -> bool) -> Vec<T> {
            all.iter().enumerate().filter(|(at, _)| wanted(*at)).map(|(_, one)| one.clone()).collect()
        }
        match self {
            Self::CreateNamespaces(all) => Self::CreateNamespaces(some(all, wanted)),
            Self::CreateServices(all) => Self::CreateServices(some(all, wanted)),
            Self::UpdateServices(all) => Self::UpdateServices(some(all, wanted)),
            Self::CreateInstances(all) => Self::CreateInstances(some(all, wanted)),
            Self::UpdateInstances(all) => Self::UpdateInstances(some(all, wanted)),
            Self::RetireInstances(all) => Self::RetireInstances(some(all, wanted)),
            Self::DeleteInstances(all) => Self::DeleteInstances(some(all, wanted)),
            Self::DeleteAliases(all) => Self::DeleteAliases(some(all, wanted)),
            Self::CreateAlias(..) | Self::UpdateAlias(..) => self.clone(),
        }
    }

    /// Returns the service of an element; `None` for a namespace.
    #[must_use]
    pub fn service(&self, at: usize) -> Option<&ServiceKey> {
        match self {
            Self::CreateNamespaces(_) => None,
            Self::CreateServices(all) | Self::UpdateServices(all) => all.get(at).map(|write| &write.key),
            Self::CreateAlias(_, service) | Self::UpdateAlias(_, service) => Some(service),
            Self::CreateInstances(all) | Self::UpdateInstances(all) => {
                all.get(at).map(|write| &write.key.service)
            }
            Self::RetireInstances(all) => all.get(at).map(|one| &one.key.service),
            Self::DeleteInstances(all) => all.get(at).map(|key| &key.service),
            Self::DeleteAliases(all) => all.get(at).map(|alias| &alias.0),
        }
    }
}

/// New state of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceWrite {
    pub key: ServiceKey,
    /// Complete metadata, including that of other owners.
    pub metadata: Metadata,
    pub ports: BTreeSet<u16>,
    /// Owners: unchanged; empty for a new service.
    pub owners: Text,
}

/// New state of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceWrite {
    pub key: InstanceKey,
    pub instance: Instance,
    /// Isolation; `None` leaves it unchanged.
    pub isolate: Option<bool>,
}

/// An instance that is isolated before it is deleted: clients stop using it before its connections end, and a
/// registry that still shows deleted instances does not send requests to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceRetirement {
    /// Service and place of the instance.
    pub key: InstanceKey,
    /// Complete metadata, including that of other owners.
    pub metadata: Metadata,
}
