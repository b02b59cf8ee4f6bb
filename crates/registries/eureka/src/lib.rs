//! The registry of Netflix's Eureka, as it comes with Spring Cloud.
//!
//! ```text
//! GET /apps, /apps/delta ─ wire ─▶ Follower (Replica, hash) ─ mapping ─▶ CatalogService
//! ```
//!
//! Eureka has no watch: everything is read once, then the deltas of the last minutes every 30 s, as its own
//! clients do. A hash with the number of instances by status verifies the result; if it does not match,
//! everything is read again.

mod follower;
mod mapping;
mod product;
mod replica;
mod settings;
#[cfg(test)]
mod testing;

use pilotfish_connect::TLS_OPTIONS;
use pilotfish_registry::{CATALOG_OPTIONS, Input, LiveSettings, LiveSource, OptionsError, RegistryType};
use pilotfish_session::live;

/// The registry type of Eureka.
pub static EUREKA: RegistryType = RegistryType {
    name: "Eureka",
    provider: "Eureka",
    about: "applications of Eureka servers",
    address: "http://HOST:8761/eureka",
    options: &[settings::OPTIONS, TLS_OPTIONS, CATALOG_OPTIONS],
    input: Input::Live(open),
};

/// Checks the settings; nothing is connected yet.
fn open(mut settings: LiveSettings) -> Result<Box<dyn LiveSource>, OptionsError> {
    let shard = settings.shard.clone();
    let taken = settings::Settings::take(&mut settings);
    let left = settings.finish(&EUREKA);
    match (taken, left) {
        (Ok(taken), Ok(())) => {
            let options = taken.catalog.clone();
            Ok(live(product::Eureka::new(taken), shard, options))
        }
        (Ok(_), Err(error)) | (Err(error), Ok(())) => Err(error),
        (Err(mut error), Err(left)) => {
            error.0.extend(left.0);
            Err(error)
        }
    }
}
