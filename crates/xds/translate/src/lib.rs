//! From the world and a proxy's view of it to xDS resources, as pure functions whose results are kept.
//!
//! ```text
//! World + ChangeSet ─▶ Memo ◀─ queries: scopes, rules, targets ... ─▶ ResourceBatch per (view, batch key):
//!                        ▲                                            EncodedResources
//! Node ─▶ Proxy ─▶ views, one per resource type: only the facets that the result may depend on
//! ```
//!
//! [`Translator`] is what the rest of the program talks to. The rooms, each of which may use those above it
//! and none below:
//!
//! ```text
//! engine        the memo, queries and how they read the world, encoded resources
//! proxy         the node of a client, its workload, its place, the services that it is an endpoint of
//! credentials   what Secrets and ConfigMaps hold for TLS, and whether it can be used
//! services      shared queries about services: addresses, short names, aliases, networks
//! envoy         pieces of Envoy's configuration that several rooms need: filters, metadata, names, durations
//! routing       VirtualService, Gateway, Ingress and the Gateway API, read into one form
//! scope         which services and VirtualServices a proxy imports (Sidecar)
//! policy        DestinationRule, PeerAuthentication, security, Telemetry, WasmPlugin,
//!               TrafficExtension
//! envoy_filter  the patches of EnvoyFilters
//! xds           one folder for each resource type: the view (facets that count), batches, generation
//! translator    clients, their views, and which resources change for which views
//! analysis      what points at nothing or has no effect, by the queries of all other rooms
//! status        the status of the objects that have one, from the same queries as their routes
//! infrastructure   the Gateways whose Deployment and Service are made for them
//! ```
//!
//! Questions that several resources share ("which services does this scope see", "which DestinationRule
//! applies") are queries, so that their answers are computed once and an unchanged answer stops the spread of
//! a change.

mod analysis;
mod credentials;
mod engine;
mod envoy;
mod envoy_filter;
mod infrastructure;
mod limits;
mod policy;
mod proxy;
mod routing;
mod scope;
mod services;
mod status;
#[cfg(test)]
mod testing;
mod translator;
mod xds;

pub use analysis::{Analyzer, Code, Completeness, Finding, Known, Level};
pub use credentials::CertificateSource;
pub use engine::{EncodedResource, Refusal, TranslationSettings};
pub use envoy_filter::check_object;
pub use infrastructure::GatewayTranslator;
pub use limits::LIMITS;
pub use proxy::{
    CERTIFICATES_KEY, CERTIFICATES_OVER_ADS, Identity, InterceptionMode, MAX_ADDRESSES, MAX_LABELS, Metadata,
    NodeError, NotItsIdentity, PodPort, Proxy, ProxyKind, SecretAccess, WasmSupport,
};
pub use routing::RefusedDelegate;
pub use status::{StatusTranslator, kinds};
pub use translator::{
    Change, Changes, Client, ClientId, GatewayConsidered, GatewaySelection, GatewaysConsidered, HostRoutes,
    HostSeen, Snapshot, SubsetLabels, Translator, Unranked, Unseen, ViewId,
};
pub use xds::eds::Unsent;
