//! Recorded cases that can share a world without touching each other, and what one may see of the other.

mod footprint;
mod seen;

pub(crate) use footprint::Footprint;
pub(crate) use seen::beyond_what_is_seen;

use pilotfish_config::{Limits, read};
use pilotfish_model::Object;
use pilotfish_testkit::cases::Case;
use serde_json::{Value, json};

/// A case as it is written, and what it touches.
pub(crate) struct Party {
    pub(crate) case: Case,
    /// The objects of `config.yaml`.
    documents: Vec<Value>,
    /// What is read of the case, mesh settings included.
    pub(crate) objects: Vec<Object>,
    pub(crate) footprint: Footprint,
}

impl Party {
    pub(crate) fn of(case: Case) -> Self {
        let text = case.file("config.yaml").unwrap().unwrap();
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        let objects = case.objects().unwrap().objects;
        let footprint = Footprint::of(&case, &documents);
        Self { case, documents, objects, footprint }
    }

    /// The objects with every host exported to its own namespace only; without routes of the mesh, for which
    /// that cannot be said.
    pub(crate) fn private(&self) -> Vec<Object> {
        let hidden = self
            .documents
            .iter()
            .filter(|object| !object.is_null() && !is_route_of_mesh(object))
            .cloned()
            .map(|mut object| {
                match object["kind"].as_str().unwrap_or_default() {
                    "Service" => {
                        object["metadata"]["annotations"]["networking.istio.io/exportTo"] = json!(".")
                    }
                    "ServiceEntry" | "VirtualService" | "DestinationRule" => {
                        object["spec"]["exportTo"] = json!(["."])
                    }
                    _ => {}
                }
                object.to_string()
            });
        let text = hidden.collect::<Vec<_>>().join("\n---\n");
        let file = read("private.yaml", text.as_bytes(), &Limits::default());
        file.objects.into_iter().map(|read| read.object).collect()
    }
}

/// Whether it is a route of the Gateway API at a Service or a ServiceEntry, which counts wherever its hosts
/// are called.
fn is_route_of_mesh(object: &Value) -> bool {
    let mut parents = object["spec"]["parentRefs"].as_array().into_iter().flatten();
    parents.any(|parent| parent["kind"] == "Service" || parent["kind"] == "ServiceEntry")
}
