//! The registry of Nacos.
//!
//! ```text
//! gRPC: list, subscribe, push ─┐
//!                              ├─ api (wire) ─▶ Follower ─ mapping ─▶ CatalogService
//! HTTP: list, instances ───────┘
//! ```
//!
//! A server of version 2 pushes the instances of subscribed services; the list of services is polled, in
//! pages. A server of version 1 has HTTP only, and instances are polled, too. [`follower::Follower`]
//! evaluates answers and pushes, without IO.

mod api;
mod credentials;
mod follower;
mod grpc;
mod http_api;
mod mapping;
mod product;
mod settings;
mod wire;

use pilotfish_connect::TLS_OPTIONS;
use pilotfish_registry::{CATALOG_OPTIONS, Input, LiveSettings, LiveSource, OptionsError, RegistryType};
use pilotfish_session::live;

/// The registry type of Nacos.
pub static NACOS: RegistryType = RegistryType {
    name: "Nacos",
    provider: "Nacos",
    about: "services of Nacos servers",
    address: "http://HOST:8848[,HOST:8848...]",
    options: &[settings::OPTIONS, TLS_OPTIONS, CATALOG_OPTIONS],
    input: Input::Live(open),
};

/// Checks the settings; nothing is connected yet.
fn open(mut settings: LiveSettings) -> Result<Box<dyn LiveSource>, OptionsError> {
    let shard = settings.shard.clone();
    let taken = settings::Settings::take(&mut settings);
    let left = settings.finish(&NACOS);
    match (taken, left) {
        (Ok(taken), Ok(())) => {
            let options = taken.catalog.clone();
            Ok(live(product::Nacos::new(taken), shard, options))
        }
        (Ok(_), Err(error)) | (Err(error), Ok(())) => Err(error),
        (Err(mut error), Err(left)) => {
            error.0.extend(left.0);
            Err(error)
        }
    }
}
