//! Building blocks of registries with their own source: sessions with a product, and settings.
//!
//! A registry implements [`Product`]: one session connects, reads everything and follows changes until
//! something fails. [`live`] makes a [`pilotfish_registry::LiveSource`] of it, which runs sessions for ever.
//!
//! | Part | Does |
//! |---|---|
//! | [`live`] | consecutive sessions, with backoff and jitter; the second answer for the guard |
//! | [`CatalogWriter`] | publishes what a session reads: full answers, changes, errors |
//! | [`ProductSettings`] | the address of `--registry`, with the options for TLS and the catalog |

mod product;
mod settings;
mod writer;

pub use pilotfish_runtime::SessionError;
pub use product::{Product, live};
pub use settings::{ProductSettings, take_login};
pub use writer::CatalogWriter;
