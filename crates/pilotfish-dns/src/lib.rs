//! The registry of DNS: what clients of every kind can read, and therefore where services are that no product knows.
//!
//! ```text
//! UDP, TCP ─ wire ─▶ Plan (what is due, what was found) ─ mapping ─▶ CatalogService
//! ```
//!
//! DNS tells nobody of a change: each answer says how long it holds, and is asked for again then. That there is nothing is an
//! answer too; that a server could not tell is none.
//!
//! Messages are read and written by `simple-dns`, which is a format and no more. A resolver of its own would hide what this
//! registry is about: times to live, and whether nothing is there or nobody could say.

mod client;
mod entry;
mod mapping;
mod name;
mod plan;
mod product;
mod settings;
mod wire;

use pilotfish_registry::{CATALOG_OPTIONS, Input, LiveSettings, LiveSettingsError, LiveSource, RegistryType};
use pilotfish_registry_client::live;

/// The line in the table of registries.
pub static DNS: RegistryType = RegistryType {
    name: "DNS",
    provider: "DNS",
    about: "SRV, A and AAAA records of name servers",
    address: "HOST[:53]",
    options: &[settings::OPTIONS, CATALOG_OPTIONS],
    input: Input::Live(open),
};

/// Checks the settings; nothing is asked yet.
fn open(mut settings: LiveSettings) -> Result<Box<dyn LiveSource>, LiveSettingsError> {
    let shard = settings.shard.clone();
    let taken = settings::Settings::take(&mut settings);
    let left = settings.finish(&DNS);
    match (taken, left) {
        (Ok(taken), Ok(())) => {
            let options = taken.catalog.clone();
            Ok(live(product::Dns::new(taken), shard, options))
        }
        (Ok(_), Err(error)) | (Err(error), Ok(())) => Err(error),
        (Err(mut error), Err(left)) => {
            error.0.extend(left.0);
            Err(error)
        }
    }
}
