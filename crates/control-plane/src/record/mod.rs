//! Records of a control plane's content at a revision and of the changes since, as lines of JSON, and their
//! replay in a fresh control plane.
//!
//! ```text
//! History ─ worlds one after the other ─▶ begin, proxies, publications, end with hashes ─▶ a file
//! a file ─▶ WorldWriter ─▶ Translator ─▶ what the same proxies get ─▶ the same hashes?
//! ```
//!
//! Records are attached to bug reports. Secrets are left out: hashes are computed without them, and their
//! resource type is omitted on both sides.

mod lines;
mod replay;
#[cfg(test)]
mod tests;
mod write;

pub use replay::{Difference, Replayed, replay};
#[cfg(test)]
pub(crate) use write::LARGEST;
pub use write::{Recordable, write};

use pilotfish_explain::Held;
use pilotfish_proto::ResourceType;
use std::collections::BTreeMap;

/// Hashes of what proxies get: by name of the proxy and type.
pub type Hashes = BTreeMap<String, BTreeMap<String, String>>;

/// The hashes of what a proxy gets, by type: names and versions of all its resources, but for Secrets.
fn hashes(held: &Held) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for (ty, resources) in held.of.iter().filter(|(ty, _)| **ty != ResourceType::Secret) {
        let mut hash = Fnv::default();
        for (name, resource) in resources.iter() {
            hash.add(name.as_bytes());
            hash.add(&resource.version.to_le_bytes());
        }
        all.insert(ty.short().to_owned(), format!("{:016x}", hash.0));
    }
    all
}

/// FNV-1a, 64 bits: the same in every version of this program.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().chain(&[0]) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
