//! Parts of access control that listeners share: tokens of clients in a file, and patterns of rules.

mod named_tokens;
mod pattern;

pub use named_tokens::{Digest, NamedTokens, TOKEN, TokenAuthenticator, bearer, digest};
pub use pattern::Pattern;
