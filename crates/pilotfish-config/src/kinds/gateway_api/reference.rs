//! References between objects, and ReferenceGrant.

use super::HttpBackendRef;
use crate::kinds::message::{kind, message};
use serde::{Deserialize, Serialize};

/// The Gateway API's own group, the default of parents.
pub const GROUP: &str = "gateway.networking.k8s.io";

kind!(ReferenceGrant = ReferenceGrant;);

/// The Gateway, or the Service, that a route belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ParentReference {
    pub group: String,
    pub kind: String,
    pub namespace: Option<String>,
    pub name: String,
    pub section_name: Option<String>,
    pub port: Option<u16>,
}

impl Default for ParentReference {
    fn default() -> Self {
        Self {
            group: GROUP.to_owned(),
            kind: "Gateway".to_owned(),
            namespace: None,
            name: String::new(),
            section_name: None,
            port: None,
        }
    }
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BackendObjectReference {
    pub group: String,
    pub kind: String,
    pub name: String,
    pub namespace: Option<String>,
    pub port: Option<u16>,
}

impl Default for BackendObjectReference {
    fn default() -> Self {
        Self {
            group: String::new(),
            kind: "Service".to_owned(),
            name: String::new(),
            namespace: None,
            port: None,
        }
    }
}

/// A port of a Service with its share of the requests.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BackendRef {
    pub group: String,
    pub kind: String,
    pub name: String,
    pub namespace: Option<String>,
    pub port: Option<u16>,
    pub weight: u32,
}

impl Default for BackendRef {
    fn default() -> Self {
        Self {
            group: String::new(),
            kind: "Service".to_owned(),
            name: String::new(),
            namespace: None,
            port: None,
            weight: 1,
        }
    }
}

/// What all references to backends have: where one leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend<'a> {
    pub group: &'a str,
    pub kind: &'a str,
    pub name: &'a str,
    pub namespace: Option<&'a str>,
    pub port: Option<u16>,
}

macro_rules! backend_of {
    ($($reference:ty),*) => {$(
        impl<'a> From<&'a $reference> for Backend<'a> {
            fn from(reference: &'a $reference) -> Self {
                Self {
                    group: &reference.group,
                    kind: &reference.kind,
                    name: &reference.name,
                    namespace: reference.namespace.as_deref(),
                    port: reference.port,
                }
            }
        }
    )*};
}

backend_of!(BackendObjectReference, BackendRef, HttpBackendRef);

/// A Secret, usually.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SecretObjectReference {
    pub group: String,
    pub kind: String,
    pub name: String,
    pub namespace: Option<String>,
}

impl Default for SecretObjectReference {
    fn default() -> Self {
        Self { group: String::new(), kind: "Secret".to_owned(), name: String::new(), namespace: None }
    }
}

message! {
/// An object of any kind.
pub struct ObjectReference {
    pub group: String,
    pub kind: String,
    pub name: String,
    pub namespace: Option<String>,
}

/// Allows objects of other namespaces to refer to objects of this one.
pub struct ReferenceGrant {
    pub spec: ReferenceGrantSpec,
}

/// `spec` of a ReferenceGrant.
pub struct ReferenceGrantSpec {
    pub from: Vec<ReferenceGrantFrom>,
    pub to: Vec<ReferenceGrantTo>,
}

/// Who may refer.
pub struct ReferenceGrantFrom {
    pub group: String,
    pub kind: String,
    pub namespace: String,
}

/// To what; without a name to every object of the kind.
pub struct ReferenceGrantTo {
    pub group: String,
    pub kind: String,
    pub name: Option<String>,
}
}
