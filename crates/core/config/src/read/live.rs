//! Objects from an API server: JSON, one at a time, of a kind that is known from the request.

use super::documents::{ReadObject, Rejected};
use super::metadata::{ReadMetadata, read_metadata, revision_of};
use crate::kinds::content::{is_namespaced, read_object, versions};
use crate::path::FieldPath;
use crate::problem::Problem;
use crate::validate::closed_object;
use crate::yaml::Node;
use pilotfish_model::Kind;
use std::sync::Arc;

/// Reads one object of the kind from its JSON. `origin` is the cluster's name, for messages.
///
/// Only fields that Pilotfish reads are kept; `managedFields` and others are dropped during parsing.
///
/// # Errors
/// All problems of the object.
pub fn read_live(kind: Kind, origin: &Arc<str>, json: &[u8]) -> Result<ReadObject, Rejected> {
    let root: Node = serde_json::from_slice(json).map_err(|error| {
        Rejected::nameless(0, 0, Problem::error(FieldPath::default(), format!("not JSON: {error}")))
    })?;
    let ReadMetadata { key, meta, deleting, mut problems } = read_metadata(kind, &root, origin.clone());
    let rejected = |key, problems: Vec<Problem>| {
        let closed = closed_object(kind, &root, origin, true, &problems);
        let (revision, problems) = (revision_of(&root), without_lines(problems));
        Err(Rejected { key, revision, document: 0, line: 0, problems, closed })
    };
    let Some(meta) = meta else { return rejected(key, problems) };
    let decoded = read_object(kind, &root, meta, deleting);
    problems.extend(decoded.problems);
    match decoded.object {
        Some(object) => Ok(ReadObject { object, document: 0, line: 0, warnings: without_lines(problems) }),
        None => rejected(key, problems),
    }
}

fn without_lines(mut problems: Vec<Problem>) -> Vec<Problem> {
    for problem in &mut problems {
        problem.line = None;
    }
    problems
}

/// API versions and scope of a kind, for requests to an API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// The versions that are read, the preferred one first.
    pub versions: &'static [&'static str],
    /// True if the kind is namespaced.
    pub namespaced: bool,
}

/// Returns API versions and scope of a kind. `None` for MeshConfig and MeshNetworks, which are no objects of
/// a cluster.
#[must_use]
pub fn served(kind: Kind) -> Option<Served> {
    let versions = versions(kind.group());
    (!versions.is_empty()).then(|| Served { versions, namespaced: is_namespaced(kind) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::Service;
    use crate::networking::VirtualService;

    fn origin() -> Arc<str> {
        "cluster Kubernetes".into()
    }

    #[test]
    fn what_nothing_reads_is_dropped() {
        let json = br#"{"metadata": {"name": "a", "namespace": "n", "managedFields": [{"manager": "x"}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "b": "c",
                "networking.istio.io/exportTo": "."}},
            "spec": {"ports": [{"port": 80}]}}"#;
        let object = read_live(Kind::Service, &origin(), json).unwrap().object;
        assert_eq!(object.meta.annotations.len(), 1);
        assert_eq!(object.typed::<Service>().unwrap().spec.ports[0].port, 80);
    }

    #[test]
    fn mistakes_are_told_in_the_order_of_the_object_as_those_of_a_file_are() {
        let json = r#"{"apiVersion": "networking.istio.io/v1", "kind": "Gateway", "metadata": {"name": "a", "namespace": "b"},
            "spec": {"servers": [7, {"hosts": ["x"], "port": {"number": 80, "name": "a", "protocol": "HTTP", "targetPort": "unknown"}}]}}"#;
        let live = read_live(Kind::Gateway, &origin(), json.as_bytes()).unwrap_err();
        let file = crate::read("a.yaml", json.as_bytes(), &crate::Limits::default());
        assert_eq!(file.rejected[0].problems.iter().map(|problem| problem.line).max(), Some(Some(2)));
        let paths = |rejected: &Rejected| {
            rejected.problems.iter().map(|problem| problem.path.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(paths(&live)[..2], ["spec.servers[0]", "spec.servers[1].port.targetPort"]);
        assert_eq!(paths(&live), paths(&file.rejected[0]));
    }

    #[test]
    fn a_refused_object_is_named_without_lines() {
        let json = br#"{"metadata": {"name": "a", "namespace": "n"}, "spec": {"hosts": ["a"], "http": [{"timeout": "soon"}]}}"#;
        let rejected = read_live(Kind::VirtualService, &origin(), json).unwrap_err();
        assert_eq!(rejected.key.unwrap().to_string(), "VirtualService n/a");
        assert_eq!(rejected.problems[0].path.to_string(), "spec.http[0].timeout");
        assert_eq!(rejected.problems[0].line, None);
    }

    #[test]
    fn texts_stay_texts_and_numbers_numbers() {
        let json = br#"{"metadata": {"name": "a", "namespace": "n", "labels": {"version": "1.10"}},
            "spec": {"hosts": ["a"], "http": [{"route": [{"destination": {"host": "b"}, "weight": 7}]}]}}"#;
        let object = read_live(Kind::VirtualService, &origin(), json).unwrap().object;
        assert_eq!(object.meta.labels.get("version"), Some("1.10"));
        assert_eq!(object.typed::<VirtualService>().unwrap().http[0].route[0].weight, 7);
    }

    #[test]
    fn garbage_is_an_error() {
        assert!(read_live(Kind::Pod, &origin(), b"{").is_err());
        assert!(read_live(Kind::Pod, &origin(), b"[]").is_err());
    }

    #[test]
    fn mesh_config_is_no_object_of_a_cluster() {
        assert_eq!(served(Kind::MeshConfig), None);
        assert_eq!(served(Kind::Pod).unwrap().versions, ["v1"]);
        assert!(!served(Kind::Node).unwrap().namespaced);
    }
}
