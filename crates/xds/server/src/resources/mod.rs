//! Resources of a client: maps that share what is equal, layers of them, and encoded responses.

mod contents;
mod entries;
mod frame;
mod layer;
mod map;
mod response;

pub(crate) use contents::Contents;
pub(crate) use entries::Entries;
pub(crate) use frame::{About, Frame};
pub(crate) use layer::{Changed, Layer, Own, Step};
pub(crate) use map::{Map, NameSet, entry_hash, set_version};
pub(crate) use response::{EncodedResponse, Nonces};
