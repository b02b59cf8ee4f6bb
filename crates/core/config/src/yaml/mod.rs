//! YAML and JSON text to typed values, with the position of every problem.
//!
//! ```text
//! text ── load ──▶ documents of Nodes (line numbers, aliases resolved within a budget) ── decode ──▶ types
//! ```
//!
//! The tree stays untyped until a type decodes it: `1.10` in a text field is then an error that can be
//! described, and a quoted number is a number where proto JSON allows it.

mod decode;
mod json;
mod load;
mod node;
mod scalar;

pub(crate) use decode::{AROUND_SPEC, Decoded, MOST_UNKNOWN, Mode, Unknown, UnknownPart, decode, decode_all};
pub(crate) use load::{Loaded, load};
pub(crate) use node::{Entry, Node, NodeValue, shorten};
