//! Decoding and checking an object's `metadata`.

use super::timestamp;
use crate::kinds::content::is_namespaced;
use crate::kinds::message::message;
use crate::path::Path;
use crate::problem::{Checker, Problem};
use crate::yaml::{Mode, Node, decode, shorten};
use pilotfish_model::{Kind, LabelMap, ObjectKey, ObjectMeta, REVISION_LABEL};
use std::collections::BTreeMap;
use std::sync::Arc;

message! {
/// The field `metadata` as it is written.
pub(crate) struct Metadata {
    name: String,
    generate_name: String,
    namespace: String,
    labels: LabelMap,
    annotations: BTreeMap<String, String>,
    creation_timestamp: String,
    deletion_timestamp: Option<String>,
    generation: i64,
    uid: String,
    owner_references: Vec<OwnerReference>,
}

/// An entry of `ownerReferences`.
pub(crate) struct OwnerReference {
    kind: String,
    name: String,
    controller: bool,
}
}

/// Result of reading `metadata`.
pub(crate) struct ReadMetadata {
    /// Key of the object; `None` if not even a name can be read.
    pub(crate) key: Option<ObjectKey>,
    /// `None` if there is an error.
    pub(crate) meta: Option<ObjectMeta>,
    /// True if the object is being deleted.
    pub(crate) deleting: bool,
    pub(crate) problems: Vec<Problem>,
}

/// Reads `metadata` of an object of that kind.
pub(crate) fn read_metadata(kind: Kind, root: &Node, origin: Arc<str>) -> ReadMetadata {
    let null = Node::null(root.line);
    let node = root.get("metadata").unwrap_or(&null);
    let decoded = decode::<Metadata>(node, Mode::Partial, &["metadata"]);
    let mut problems = decoded.problems;
    let Some(metadata) = decoded.value else {
        return ReadMetadata { key: key_of_broken(kind, node), meta: None, deleting: false, problems };
    };
    let mut checker = Checker::default();
    let created = metadata.check(&mut checker);
    problems.extend(checker.into_problems().into_iter().map(|problem| {
        let line = root.line_of(&problem.path);
        problem.at_line(line)
    }));
    let key = key(kind, &metadata.namespace, &metadata.name);
    let deleting = metadata.deletion_timestamp.is_some();
    let rejected = problems.iter().any(Problem::is_error);
    let meta = key.clone().filter(|_| !rejected).map(|key| metadata.into_meta(key, created, origin));
    ReadMetadata { key, meta, deleting, problems }
}

fn key(kind: Kind, namespace: &str, name: &str) -> Option<ObjectKey> {
    let namespace = match (is_namespaced(kind), namespace) {
        (false, _) => "",
        (true, "") => "default",
        (true, namespace) => namespace,
    };
    // Names that no object can have stand in messages about it, but identify nothing.
    let wrong = |text: &str| text.len() > 253 || text.contains(char::is_control);
    (!name.is_empty() && !wrong(name) && !wrong(namespace)).then(|| ObjectKey::new(kind, namespace, name))
}

/// The label `istio.io/rev` of an object whose content may be wrong.
pub(crate) fn revision_of(root: &Node) -> Option<Arc<str>> {
    let labels = root.get("metadata")?.get("labels")?;
    labels.get(REVISION_LABEL)?.text().map(Arc::from)
}

/// The key, as far as it can be read, of an object whose metadata is wrong elsewhere.
fn key_of_broken(kind: Kind, metadata: &Node) -> Option<ObjectKey> {
    let text = |name| metadata.get(name).and_then(Node::text).unwrap_or_default();
    key(kind, text("namespace"), text("name"))
}

impl Metadata {
    /// Checks the fields that rules depend on, and returns the creation time.
    fn check(&self, checker: &mut Checker) -> i64 {
        let at = Path::ROOT.field("metadata");
        if self.name.is_empty() {
            let hint = "generateName needs an API server that makes a name of it";
            match self.generate_name.is_empty() {
                true => checker.error(&at.field("name"), "must be set"),
                false => checker.error_with_hint(&at.field("name"), "must be set", hint.to_owned()),
            }
        } else if !is_object_name(&self.name) {
            checker.error(&at.field("name"), format!("{:?} is not a name: {NAME_RULE}", shorten(&self.name)));
        }
        if !self.namespace.is_empty() && !is_label_name(&self.namespace) {
            let message = format!(
                "{:?} is not a namespace: 1 to 63 of a-z, 0-9 and '-', not '-' at the ends",
                shorten(&self.namespace)
            );
            checker.error(&at.field("namespace"), message);
        }
        if self.creation_timestamp.is_empty() {
            return 0;
        }
        timestamp::seconds(&self.creation_timestamp).unwrap_or_else(|| {
            let message =
                format!("{:?} is not a time like 2024-05-01T12:00:00Z", shorten(&self.creation_timestamp));
            checker.error(&at.field("creationTimestamp"), message);
            0
        })
    }

    fn into_meta(self, key: ObjectKey, created: i64, origin: Arc<str>) -> ObjectMeta {
        let mut owners = self.owner_references;
        owners.sort_by_key(|owner| !owner.controller);
        ObjectMeta {
            key,
            labels: Arc::new(self.labels),
            annotations: Arc::new(self.annotations),
            created,
            generation: self.generation,
            uid: self.uid.into(),
            owners: owners.into_iter().map(|owner| (owner.kind, owner.name)).collect(),
            origin,
        }
    }
}

const NAME_RULE: &str = "up to 253 of a-z, 0-9, '-' and '.', a letter or digit at each end";

/// True if the text is a DNS label in lower case, the form of namespace names.
pub(crate) fn is_label_name(text: &str) -> bool {
    let known = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(known)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// True if the text is a DNS name in lower case, the form of object names.
#[must_use]
pub fn is_object_name(text: &str) -> bool {
    let known = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let label = |label: &str| {
        !label.is_empty() && label.bytes().all(known) && !label.starts_with('-') && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(label)
}
