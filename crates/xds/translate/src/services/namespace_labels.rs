//! Labels of namespaces.

use crate::engine::Cx;
use pilotfish_config::kubernetes::Namespace as NamespaceObject;
use pilotfish_model::{LabelMap, Namespace};

/// Returns the labels of a namespace, with the one that every namespace has with its name.
pub(crate) fn labels_of_namespace(cx: &Cx<'_>, name: &Namespace) -> LabelMap {
    let object = cx.object::<NamespaceObject>(&Namespace::default(), name.as_str());
    let written = object.map(|object| LabelMap::clone(&object.meta().labels)).unwrap_or_default();
    written.with([(NAME_LABEL.into(), name.as_str().into())])
}

/// The label that every namespace has with its name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
