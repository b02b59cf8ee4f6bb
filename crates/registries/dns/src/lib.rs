//! The DNS registry: it reaches services outside any service registry, because every client can read DNS.
//!
//! ```text
//! UDP, TCP ─ wire ─▶ Plan (due questions, found records) ─ mapping ─▶ CatalogService
//! ```
//!
//! DNS has no change notifications: each answer is queried again when its TTL expires. A negative answer
//! (NXDOMAIN, no data) is an answer; a server failure is not.
//!
//! Messages are read and written by `simple-dns`, which implements only the wire format. A full resolver
//! library would hide the TTLs and the difference between a negative answer and a failure, which this
//! registry needs.

mod client;
mod entry;
mod mapping;
mod name;
mod plan;
mod product;
mod settings;
mod wire;

use pilotfish_registry::{CATALOG_OPTIONS, Input, LiveSettings, LiveSource, OptionsError, RegistryType};
use pilotfish_session::live;

/// The registry type of DNS.
pub static DNS: RegistryType = RegistryType {
    name: "DNS",
    provider: "DNS",
    about: "SRV, A and AAAA records of name servers",
    address: "HOST[:53]",
    options: &[settings::OPTIONS, CATALOG_OPTIONS],
    input: Input::Live(open),
};

/// Checks the settings; sends no query yet.
fn open(mut settings: LiveSettings) -> Result<Box<dyn LiveSource>, OptionsError> {
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
