//! Interned names of resources, shared by all streams of the process.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use bytes::{Bytes, BytesMut};
use parking_lot::RwLock;

/// A resource name, interned for all streams of the process.
pub(crate) type Name = u32;

#[derive(Default)]
struct Names {
    ids: HashMap<Arc<str>, Name>,
    texts: Vec<Arc<str>>,
}

static NAMES: LazyLock<RwLock<Names>> = LazyLock::new(Default::default);
/// Encoded lists of names by field number, shared by streams with the same subscription.
static ENCODED: LazyLock<RwLock<Encoded>> = LazyLock::new(Default::default);

type Encoded = HashMap<(u32, Vec<Name>), Bytes>;

pub(crate) fn intern(text: &str) -> Name {
    if let Some(id) = NAMES.read().ids.get(text) {
        return *id;
    }
    let mut names = NAMES.write();
    if let Some(id) = names.ids.get(text) {
        return *id;
    }
    let id = Name::try_from(names.texts.len()).unwrap_or(Name::MAX);
    let text: Arc<str> = text.into();
    names.texts.push(Arc::clone(&text));
    names.ids.insert(text, id);
    id
}

pub(crate) fn text(name: Name) -> Option<Arc<str>> {
    NAMES.read().texts.get(name as usize).cloned()
}

/// Encodes `repeated string` fields for a list of names.
pub(crate) fn encoded(tag: u32, names: &BTreeSet<Name>) -> Bytes {
    let key = (tag, names.iter().copied().collect::<Vec<_>>());
    if let Some(bytes) = ENCODED.read().get(&key) {
        return bytes.clone();
    }
    let mut buffer = BytesMut::new();
    for name in names.iter().filter_map(|name| text(*name)) {
        prost::encoding::string::encode(tag, &name.to_string(), &mut buffer);
    }
    let bytes = buffer.freeze();
    ENCODED.write().insert(key, bytes.clone());
    bytes
}
