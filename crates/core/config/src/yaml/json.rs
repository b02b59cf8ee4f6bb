//! Parser of JSON from an API server into the tree that types are decoded from.

use super::node::{Entry, Node, NodeValue};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Large fields that are never read: field ownership, and the last configuration that `kubectl apply` wrote.
const LEFT_OUT: [&str; 2] = ["managedFields", "kubectl.kubernetes.io/last-applied-configuration"];

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

/// JSON of an API server has no useful line numbers, so the line is 0.
fn node(value: NodeValue) -> Node {
    Node { line: 0, value }
}

fn plain(text: impl Into<Box<str>>) -> Node {
    node(NodeValue::Plain(text.into()))
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(plain(if value { "true" } else { "false" }))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(plain(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(plain(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(plain(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(node(NodeValue::Quoted(value.into())))
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::null(0))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut nodes = Vec::new();
        while let Some(item) = items.next_element()? {
            nodes.push(item);
        }
        Ok(node(NodeValue::Sequence(nodes)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = fields.next_key::<std::borrow::Cow<'de, str>>()? {
            if LEFT_OUT.contains(&&*key) {
                fields.next_value::<serde::de::IgnoredAny>()?;
                continue;
            }
            entries.push(Entry { key: key.into(), line: 0, value: fields.next_value()? });
        }
        Ok(node(NodeValue::Mapping(entries)))
    }
}
