//! References between objects, and ReferenceGrant.

use super::RouteFilter;
use crate::kinds::message::{kind, message};
use serde::{Deserialize, Serialize};

/// The Gateway API's own group, the default of parents.
pub const GROUP: &str = "gateway.networking.k8s.io";

kind!(ReferenceGrant = ReferenceGrant;);

/// Gateway or Service that a route is attached to.
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

/// Target of a backend reference, in the fields common to all its types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend<'a> {
    pub group: &'a str,
    pub kind: &'a str,
    pub name: &'a str,
    pub namespace: Option<&'a str>,
    pub port: Option<u16>,
}

/// Declares references to backends: the fields of [`Backend`], and for each type its own with their defaults.
macro_rules! backend_references {
    ($($(#[$meta:meta])* pub struct $name:ident { $(pub $field:ident: $type:ty = $default:expr,)* })*) => {$(
        $(#[$meta])*
        #[derive(Deserialize, Serialize)]
        #[serde(default, rename_all = "camelCase")]
        pub struct $name {
            pub group: String,
            pub kind: String,
            pub name: String,
            pub namespace: Option<String>,
            pub port: Option<u16>,
            $(pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    group: String::new(),
                    kind: "Service".to_owned(),
                    name: String::new(),
                    namespace: None,
                    port: None,
                    $($field: $default,)*
                }
            }
        }

        impl<'a> From<&'a $name> for Backend<'a> {
            fn from(reference: &'a $name) -> Self {
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

backend_references! {
/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendObjectReference {}

/// A port of a Service with its share of the requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendRef {
    pub weight: u32 = 1,
}

/// A backend of HTTP or gRPC requests, with filters of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpBackendRef {
    pub weight: u32 = 1,
    pub filters: Vec<RouteFilter> = Vec::new(),
}
}

/// Reference to a Secret (the default kind), or to another kind with certificates.
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

/// Permission for objects of other namespaces to refer to objects of this one.
pub struct ReferenceGrant {
    pub spec: ReferenceGrantSpec,
}

/// `spec` of a ReferenceGrant.
pub struct ReferenceGrantSpec {
    pub from: Vec<ReferenceGrantFrom>,
    pub to: Vec<ReferenceGrantTo>,
}

/// Kind and namespace of the objects that may refer.
pub struct ReferenceGrantFrom {
    pub group: String,
    pub kind: String,
    pub namespace: String,
}

/// Target of the permission; without a name every object of the kind.
pub struct ReferenceGrantTo {
    pub group: String,
    pub kind: String,
    pub name: Option<String>,
}
}
