//! From the world and a proxy's view of it to xDS resources, as pure functions whose results are kept.
//!
//! ```text
//! World + ChangeSet ─▶ Memo ◀─ queries: scopes, rules, targets ... ─▶ Batch of Encoded resources, per (view, unit)
//!                        ▲
//! Node ─▶ Proxy ─▶ views, one per resource type: only the facets that the result may depend on
//! ```
//!
//! [`Translator`] is what the rest of the program talks to. Each resource type has its folder (`cds`, `eds`, `lds`, `rds`,
//! ...) in the same order: the view (which facets count), the units (what is generated together), the generation.
//! Shared questions ("which services does this scope see", "which DestinationRule applies") are queries in files of
//! their own, so that their answers are computed once and an unchanged answer stops the spread of a change.

mod attachment;
mod clients;
mod cx;
mod encoded;
mod memo;
mod proxy;
mod translator;
mod view;

pub mod alias;
pub mod cds;
pub mod cluster_local;
pub mod destination_rule;
pub mod ecds;
pub mod eds;
pub mod envoy_filter;
pub mod gateway;
mod gateway_api;
mod header_case;
mod ingress;
pub mod lds;
pub mod locality;
pub mod metadata;
pub mod nds;
pub mod networks;
pub mod peer_authentication;
pub mod proxy_config;
pub mod rds;
pub mod scope;
pub mod sds;
pub mod security;
pub mod service_address;
pub mod short_name;
mod stat_name;
pub mod status;
pub mod targets;
pub mod telemetry;
#[cfg(test)]
mod testing;
pub mod virtual_service;
pub mod wasm;
pub mod workload;

pub use cx::Cx;
pub use encoded::{Batch, Encoded, reference};
pub use memo::Query;
pub use proxy::{Identity, InterceptionMode, NodeError, Proxy, ProxyKind};
pub use translator::{Change, Changes, Client, ClientId, Snapshot, Translator, ViewId};
pub use view::{Unit, View};
