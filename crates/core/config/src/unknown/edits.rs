//! Changes of an object's tree that keep the original paths.

use crate::path::{FieldPath, Segment};
use crate::yaml::{Entry, Node, NodeValue};
use std::collections::BTreeSet;

/// Parts that are replaced or left out.
pub(super) struct Edits {
    /// The tree with the replaced parts.
    tree: Node,
    left_out: BTreeSet<Vec<Segment>>,
}

impl Edits {
    pub(super) fn of(root: &Node) -> Self {
        Self { tree: root.clone(), left_out: BTreeSet::new() }
    }

    pub(super) fn replace(&mut self, path: &[Segment], with: impl FnOnce(&Node) -> Node) {
        if let Some(node) = self.tree.at(path) {
            let node = with(node);
            self.tree.replace(path, node);
        }
    }

    /// Adds an unknown field to `spec` for one that is written beside it: the closed form depends on `spec`
    /// only.
    pub(super) fn add_unknown_to_spec(&mut self, name: &str) {
        let line = self.tree.line;
        let entry = |key: &str, value| Entry { key: key.into(), line, value };
        let field = entry(&format!("{name} beside spec"), Node { line, value: NodeValue::Quoted("".into()) });
        let spec = Node { line, value: NodeValue::Mapping(vec![field.clone()]) };
        let NodeValue::Mapping(entries) = &mut self.tree.value else { return };
        match entries.iter_mut().find(|entry| &*entry.key == "spec") {
            None => entries.push(entry("spec", spec)),
            Some(Entry { value: Node { value: NodeValue::Mapping(entries), .. }, .. }) => entries.push(field),
            Some(present) if present.value.is_null() => present.value = spec,
            // A spec that is no mapping has nothing usable.
            Some(_) => {}
        }
    }

    pub(super) fn leave_out(&mut self, path: &[Segment]) {
        self.left_out.insert(path.to_vec());
    }

    /// True if nothing is left of the list.
    pub(super) fn is_emptied(&self, list: &[Segment]) -> bool {
        let count = self.tree.at(list).map_or(0, |list| list.items().len());
        count > 0 && self.left_out_of(list).count() == count
    }

    /// Returns the tree with all changes.
    pub(super) fn apply(&self) -> Node {
        let mut tree = self.tree.clone();
        for path in self.left_out.iter().rev() {
            tree.remove(path);
        }
        tree
    }

    /// Maps a path in the changed tree to the path in the original object.
    pub(super) fn original(&self, path: &FieldPath) -> FieldPath {
        let mut original: Vec<Segment> = Vec::new();
        for segment in path.segments() {
            let segment = match segment {
                Segment::Index(index) => {
                    let mut index = *index;
                    // In ascending order: each missing item before the index shifts it by one.
                    for missing in self.left_out_of(&original) {
                        index += usize::from(missing <= index);
                    }
                    Segment::Index(index)
                }
                other => other.clone(),
            };
            original.push(segment);
        }
        FieldPath::new(original)
    }

    /// The items of a list that are left out, in ascending order.
    fn left_out_of<'a>(&'a self, list: &'a [Segment]) -> impl Iterator<Item = usize> + 'a {
        self.left_out.iter().filter_map(move |path| match path.split_last() {
            Some((Segment::Index(index), home)) if home == list => Some(*index),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_the_written_object() {
        let root: Node = serde_json::from_str(r#"{"a": [{"b": 0}, {"b": 1}, {"b": 2}, {"b": 3}]}"#).unwrap();
        let mut edits = Edits::of(&root);
        let place = |text: &str| FieldPath::parse(text);
        for path in ["a[0]", "a[2]"] {
            edits.leave_out(place(path).segments());
        }
        let left = edits.apply();
        assert_eq!(left.get("a").unwrap().items().len(), 2);
        assert_eq!(edits.original(&place("a[0].b")), place("a[1].b"));
        assert_eq!(edits.original(&place("a[1].b")), place("a[3].b"));
        assert!(!edits.is_emptied(place("a").segments()));
        for path in ["a[1]", "a[3]"] {
            edits.leave_out(place(path).segments());
        }
        assert!(edits.is_emptied(place("a").segments()));
    }
}
