//! The query engine: queries, the memo that stores their results, the context through which they read the
//! world, and encoded resources, in which every chain of queries ends. It is independent of the queries
//! themselves.

mod by_content;
mod cx;
mod encoded;
pub(crate) mod memo;
mod settings;
mod shared;

pub(crate) use by_content::ByContent;
pub(crate) use cx::Cx;
pub use encoded::{EncodedResource, Refusal};
pub(crate) use encoded::{ResourceBatch, ResourceBatchKey, reference};
pub(crate) use memo::Query;
pub use settings::TranslationSettings;
pub(crate) use shared::Shared;
