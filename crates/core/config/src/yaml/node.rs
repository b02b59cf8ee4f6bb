//! The tree of one YAML document.

use super::scalar::{Scalar, resolve};
use crate::path::{FieldPath, Segment};

/// A value and the line that it begins on.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Line, counted from 1; 0 in JSON, where lines are not tracked.
    pub(crate) line: u32,
    pub(crate) value: NodeValue,
}

/// Value of a node.
#[derive(Clone, Debug)]
pub(crate) enum NodeValue {
    /// A scalar without quotes: its type depends on its text.
    Plain(Box<str>),
    /// A scalar in quotes or a block: text.
    Quoted(Box<str>),
    Sequence(Vec<Node>),
    Mapping(Vec<Entry>),
}

/// A key and its value.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Box<str>,
    pub(crate) line: u32,
    pub(crate) value: Node,
}

impl Node {
    /// A null node on that line.
    pub(crate) fn null(line: u32) -> Self {
        Self { line, value: NodeValue::Plain("".into()) }
    }

    /// The value of a key; `None` if the node is no mapping or lacks it.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|entry| &*entry.key == key).map(|entry| &entry.value)
    }

    /// The entries of a mapping; empty for other nodes.
    pub(crate) fn entries(&self) -> &[Entry] {
        match &self.value {
            NodeValue::Mapping(entries) => entries,
            _ => &[],
        }
    }

    /// The entries of a mapping by value.
    pub(crate) fn into_entries(self) -> Option<Vec<Entry>> {
        match self.value {
            NodeValue::Mapping(entries) => Some(entries),
            _ => None,
        }
    }

    /// The items of a sequence; empty for other nodes.
    pub(crate) fn items(&self) -> &[Node] {
        match &self.value {
            NodeValue::Sequence(items) => items,
            _ => &[],
        }
    }

    pub(crate) fn is_mapping(&self) -> bool {
        matches!(self.value, NodeValue::Mapping(_))
    }

    pub(crate) fn is_list(&self) -> bool {
        matches!(self.value, NodeValue::Sequence(_))
    }

    /// The text of a scalar: in quotes, or plain and of no other type.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            NodeValue::Quoted(text) => Some(text),
            NodeValue::Plain(text) if matches!(resolve(text), Scalar::Text) => Some(text),
            _ => None,
        }
    }

    /// True if the node is `null`, `~` or empty.
    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.value, NodeValue::Plain(text) if matches!(resolve(text), Scalar::Null))
    }

    /// Description of the node for messages: `the number 7`, `a list`.
    pub(crate) fn describe(&self) -> String {
        match &self.value {
            NodeValue::Sequence(_) => "a list".to_owned(),
            NodeValue::Mapping(_) => "an object with fields".to_owned(),
            NodeValue::Quoted(text) => format!("the text {:?}", shorten(text)),
            NodeValue::Plain(text) => match resolve(text) {
                Scalar::Null => "nothing".to_owned(),
                Scalar::Bool(_) => format!("the truth value {text}"),
                Scalar::Int(_) | Scalar::Uint(_) | Scalar::Float(_) => {
                    format!("the number {}", shorten(text))
                }
                Scalar::Text => format!("the text {:?}", shorten(text)),
            },
        }
    }

    /// Replaces the node at a path by null. Returns true if the path exists.
    pub(crate) fn forget(&mut self, path: &[Segment]) -> bool {
        let found = self.at_mut(path);
        let is_there = found.is_some();
        if let Some(node) = found {
            node.value = NodeValue::Plain("".into());
        }
        is_there
    }

    /// The node at a path.
    pub(crate) fn at(&self, path: &[Segment]) -> Option<&Node> {
        path.iter().try_fold(self, |node, segment| match segment {
            Segment::Field(name) | Segment::Key(name) => node.get(name),
            Segment::Index(index) => node.items().get(*index),
        })
    }

    /// Removes the field, key or item at a path.
    pub(crate) fn remove(&mut self, path: &[Segment]) {
        let Some((last, home)) = path.split_last() else { return };
        match (last, self.at_mut(home).map(|node| &mut node.value)) {
            (Segment::Field(name) | Segment::Key(name), Some(NodeValue::Mapping(entries))) => {
                entries.retain(|entry| entry.key != *name);
            }
            (Segment::Index(index), Some(NodeValue::Sequence(items))) if *index < items.len() => {
                items.remove(*index);
            }
            _ => {}
        }
    }

    /// Replaces the node at a path.
    pub(crate) fn replace(&mut self, path: &[Segment], with: Node) {
        if let Some(node) = self.at_mut(path) {
            *node = with;
        }
    }

    fn at_mut(&mut self, path: &[Segment]) -> Option<&mut Node> {
        path.iter().try_fold(self, |node, segment| match (segment, &mut node.value) {
            (Segment::Field(name) | Segment::Key(name), NodeValue::Mapping(entries)) => {
                entries.iter_mut().find(|entry| entry.key == *name).map(|entry| &mut entry.value)
            }
            (Segment::Index(index), NodeValue::Sequence(items)) => items.get_mut(*index),
            _ => None,
        })
    }

    /// Replaces the lines of all nodes by their numbers in document order. Returns the lines by number.
    pub(crate) fn number_lines(&mut self) -> Vec<u32> {
        let mut lines = Vec::new();
        self.number_lines_after(&mut lines);
        lines
    }

    fn number_lines_after(&mut self, lines: &mut Vec<u32>) {
        number(&mut self.line, lines);
        match &mut self.value {
            NodeValue::Plain(_) | NodeValue::Quoted(_) => {}
            NodeValue::Sequence(items) => items.iter_mut().for_each(|item| item.number_lines_after(lines)),
            NodeValue::Mapping(entries) => {
                for entry in entries {
                    number(&mut entry.line, lines);
                    entry.value.number_lines_after(lines);
                }
            }
        }
    }

    /// Line of the node at a path, or of the longest existing part of the path.
    pub(crate) fn line_of(&self, path: &FieldPath) -> u32 {
        let mut node = self;
        let mut line = self.line;
        for segment in path.segments() {
            match segment {
                Segment::Field(name) | Segment::Key(name) => {
                    let Some(entry) = node.entries().iter().find(|entry| *entry.key == **name) else { break };
                    line = entry.line;
                    node = &entry.value;
                }
                Segment::Index(index) => {
                    let Some(item) = node.items().get(*index) else { break };
                    line = item.line;
                    node = item;
                }
            }
        }
        line
    }
}

fn number(line: &mut u32, lines: &mut Vec<u32>) {
    let place = u32::try_from(lines.len()).unwrap_or(u32::MAX);
    lines.push(std::mem::replace(line, place));
}

/// Shortens a text to one line, for messages.
pub(crate) fn shorten(text: &str) -> String {
    const LONGEST: usize = 60;
    let line = text.lines().next().unwrap_or_default();
    if line.len() == text.len() && line.chars().count() <= LONGEST {
        return line.to_owned();
    }
    line.chars().take(LONGEST).chain("...".chars()).collect()
}
