//! Node of a client's first request: checked and reduced in its encoded form to the parts that are read. It
//! is stored encoded, which takes a fraction of the memory, since only debug pages read it again.

use crate::error::StreamError;
use crate::limits::{Limit, NodeLimits};
use crate::protocol::wire::{Field, Fields, WireError};
use pilotfish_proto::envoy::config::core::v3::node::UserAgentVersionType;
use pilotfish_proto::envoy::config::core::v3::{BuildVersion, Node};
use pilotfish_proto::envoy::r#type::v3::SemanticVersion;
use prost::Message;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// Field numbers that are read.
const ID: u64 = 1;
const CLUSTER: u64 = 2;
const METADATA: u64 = 3;
const LOCALITY: u64 = 4;
const USER_AGENT_NAME: u64 = 6;
const USER_AGENT_VERSION: u64 = 7;
const BUILD_VERSION: u64 = 8;
const EXTENSION: u64 = 9;

/// Maximum number of stored extensions; Envoy lists about a hundred.
const MAX_EXTENSIONS: usize = 16;

/// A client's node, decoded on first use.
#[derive(Clone, Debug)]
pub struct ClientNode {
    encoded: Arc<[u8]>,
    decoded: OnceLock<Node>,
}

impl ClientNode {
    /// `encoded` has been decoded successfully before.
    pub(crate) fn new(encoded: &Arc<[u8]>) -> Self {
        Self { encoded: Arc::clone(encoded), decoded: OnceLock::new() }
    }
}

impl From<&Node> for ClientNode {
    fn from(node: &Node) -> Self {
        Self::new(&node.encode_to_vec().into())
    }
}

impl Deref for ClientNode {
    type Target = Node;

    fn deref(&self) -> &Node {
        // Decoding succeeded when the node was received.
        self.decoded.get_or_init(|| Node::decode(&*self.encoded).unwrap_or_default())
    }
}

/// Reduces a node: keeps the first extension and those for which `is_read` returns true; drops unused fields.
pub(crate) fn cut(
    encoded: &[u8],
    limits: &NodeLimits,
    is_read: impl Fn(&str) -> bool,
) -> Result<Arc<[u8]>, StreamError> {
    Limit::NodeBytes.check(encoded.len(), limits.bytes)?;
    let mut kept = Vec::new();
    let (mut values, mut extensions) = (0, 0);
    let mut fields = Fields { rest: encoded };
    loop {
        let start = encoded.len() - fields.rest.len();
        let Some((number, field)) = fields.next()? else { break };
        let end = encoded.len() - fields.rest.len();
        let Field::Bytes(content) = field else { continue };
        match number {
            ID | CLUSTER | LOCALITY | USER_AGENT_NAME | USER_AGENT_VERSION => {
                Limit::NodeIdBytes.check(content.len(), limits.id_bytes)?;
            }
            BUILD_VERSION => {
                let version = numbers_of(content)?;
                let cut = Node { user_agent_version_type: version, ..Node::default() };
                cut.encode(&mut kept).map_err(|error| StreamError::InvalidArgument(error.to_string()))?;
                continue;
            }
            METADATA => count_struct(content, 1, &mut values, limits)?,
            EXTENSION => {
                let is_kept = extensions == 0 || is_read(extension_name(content)?);
                if !is_kept || extensions == MAX_EXTENSIONS {
                    continue;
                }
                extensions += 1;
            }
            _ => continue,
        }
        kept.extend_from_slice(encoded.get(start..end).unwrap_or_default());
    }
    Ok(kept.into())
}

pub(crate) fn decode(encoded: &[u8]) -> Result<Node, StreamError> {
    Node::decode(encoded).map_err(|error| StreamError::InvalidArgument(format!("malformed node: {error}")))
}

/// Version numbers of a build. Its metadata, which Envoy fills, is not used and not decoded.
fn numbers_of(build: &[u8]) -> Result<Option<UserAgentVersionType>, StreamError> {
    let mut fields = Fields { rest: build };
    while let Some((number, field)) = fields.next()? {
        if let (1, Field::Bytes(numbers)) = (number, field) {
            let version = SemanticVersion::decode(numbers)
                .map_err(|error| StreamError::InvalidArgument(format!("malformed node: {error}")))?;
            let build = BuildVersion { version: Some(version), metadata: None };
            return Ok(Some(UserAgentVersionType::UserAgentBuildVersion(build)));
        }
    }
    Ok(None)
}

fn extension_name(extension: &[u8]) -> Result<&str, WireError> {
    let mut fields = Fields { rest: extension };
    while let Some((number, field)) = fields.next()? {
        if let (1, Field::Bytes(name)) = (number, field) {
            return Ok(std::str::from_utf8(name).unwrap_or_default());
        }
    }
    Ok("")
}

/// Counts the values of a `google.protobuf.Struct` at that depth.
fn count_struct(
    encoded: &[u8],
    depth: usize,
    values: &mut usize,
    limits: &NodeLimits,
) -> Result<(), StreamError> {
    Limit::NodeDepth.check(depth, limits.depth)?;
    let mut entries = Fields { rest: encoded };
    while let Some((number, entry)) = entries.next()? {
        let (1, Field::Bytes(entry)) = (number, entry) else { continue };
        count(values, limits)?;
        let mut fields = Fields { rest: entry };
        while let Some((number, field)) = fields.next()? {
            if let (2, Field::Bytes(value)) = (number, field) {
                count_value(value, depth, values, limits)?;
            }
        }
    }
    Ok(())
}

fn count_value(
    encoded: &[u8],
    depth: usize,
    values: &mut usize,
    limits: &NodeLimits,
) -> Result<(), StreamError> {
    let mut fields = Fields { rest: encoded };
    while let Some((number, field)) = fields.next()? {
        match (number, field) {
            (5, Field::Bytes(fields)) => count_struct(fields, depth + 1, values, limits)?,
            (6, Field::Bytes(list)) => {
                Limit::NodeDepth.check(depth + 1, limits.depth)?;
                let mut items = Fields { rest: list };
                while let Some((number, item)) = items.next()? {
                    let (1, Field::Bytes(item)) = (number, item) else { continue };
                    count(values, limits)?;
                    count_value(item, depth + 1, values, limits)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn count(values: &mut usize, limits: &NodeLimits) -> Result<(), StreamError> {
    *values += 1;
    Ok(Limit::NodeValues.check(*values, limits.values)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_proto::envoy::config::core::v3::{Extension, Locality};
    use pilotfish_proto::{Struct, Value, ValueKind};

    const LIMITS: NodeLimits = NodeLimits { bytes: 2_000, id_bytes: 100, values: 5, depth: 3 };

    fn extension(name: &str) -> Extension {
        Extension { name: name.into(), ..Default::default() }
    }

    fn fields(entries: impl IntoIterator<Item = (String, ValueKind)>) -> Struct {
        let value = |kind| Value { kind: Some(kind) };
        Struct { fields: entries.into_iter().map(|(key, kind)| (key, value(kind))).collect() }
    }

    fn texts(count: usize) -> Struct {
        fields((0..count).map(|n| (n.to_string(), ValueKind::StringValue("x".into()))))
    }

    fn nested(depth: usize) -> Struct {
        let inner = |inner| fields([("a".to_owned(), ValueKind::StructValue(inner))]);
        (1..depth).fold(texts(1), |all, _| inner(all))
    }

    fn read(node: &Node, limits: &NodeLimits, is_read: impl Fn(&str) -> bool) -> Result<Node, StreamError> {
        let kept = cut(&node.encode_to_vec(), limits, is_read)?;
        assert_eq!(*ClientNode::new(&kept), decode(&kept)?);
        decode(&kept)
    }

    fn limit_of(node: &Node) -> Option<Limit> {
        match read(node, &LIMITS, |_| false) {
            Ok(_) => None,
            Err(StreamError::ResourceExhausted(error)) => Some(error.limit),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn a_node_is_kept_without_what_nobody_reads() {
        let node = Node {
            id: "a".into(),
            cluster: "b".into(),
            metadata: Some(nested(3)),
            locality: Some(Locality { region: "r".into(), ..Default::default() }),
            user_agent_name: "envoy".into(),
            extensions: ["first", "second", "wanted", "wanted"].map(extension).into(),
            client_features: vec!["x".into(); 10],
            ..Default::default()
        };
        let got = read(&node, &LIMITS, |name| name == "wanted").unwrap();
        let extensions = ["first", "wanted", "wanted"].map(extension).into();
        assert_eq!(got, Node { extensions, client_features: Vec::new(), ..node });
        let many = Node { extensions: vec![extension("wanted"); 100], ..Default::default() };
        let got = read(&many, &NodeLimits::default(), |_| true).unwrap();
        assert_eq!(got.extensions.len(), MAX_EXTENSIONS);
    }

    #[test]
    fn versions_of_clients_are_kept_without_the_metadata_of_their_builds() {
        let numbers = SemanticVersion { major_number: 1, minor_number: 35, patch: 3 };
        let build = |metadata| BuildVersion { version: Some(numbers), metadata };
        let with = |version| Node { user_agent_version_type: Some(version), ..Default::default() };
        let of_build = |metadata| with(UserAgentVersionType::UserAgentBuildVersion(build(metadata)));
        assert_eq!(read(&of_build(Some(texts(5))), &LIMITS, |_| false).unwrap(), of_build(None));
        let text = |length: usize| with(UserAgentVersionType::UserAgentVersion("1".repeat(length)));
        assert_eq!(read(&text(100), &LIMITS, |_| false).unwrap(), text(100));
        assert_eq!(limit_of(&text(101)), Some(Limit::NodeIdBytes));
        let empty = with(UserAgentVersionType::UserAgentBuildVersion(BuildVersion::default()));
        assert_eq!(read(&empty, &LIMITS, |_| false).unwrap(), Node::default());
    }

    #[test]
    fn a_node_that_holds_too_much_is_refused_by_the_name_of_the_limit() {
        let with = |metadata| Node { metadata: Some(metadata), ..Default::default() };
        let id = |id: usize| Node { id: "x".repeat(id), ..Default::default() };
        let listed: Vec<_> = vec![Value { kind: Some(ValueKind::BoolValue(true)) }; 5];
        let list = ValueKind::ListValue(pilotfish_proto::ListValue { values: listed });
        let long = Node { extensions: vec![Extension::default(); 1_001], ..Default::default() };
        for (node, expected) in [
            (id(100), None),
            (id(101), Some(Limit::NodeIdBytes)),
            (Node { cluster: "x".repeat(101), ..Default::default() }, Some(Limit::NodeIdBytes)),
            (with(texts(5)), None),
            (with(texts(6)), Some(Limit::NodeValues)),
            (with(fields([("a".to_owned(), list)])), Some(Limit::NodeValues)),
            (with(nested(3)), None),
            (with(nested(4)), Some(Limit::NodeDepth)),
            (long, Some(Limit::NodeBytes)),
        ] {
            assert_eq!(limit_of(&node), expected, "{:?}", node.encode_to_vec().len());
        }
    }

    proptest::proptest! {
        #[test]
        fn random_bytes_are_read_or_refused(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = cut(&bytes, &NodeLimits::default(), |_| true).and_then(|node| decode(&node));
        }
    }
}
