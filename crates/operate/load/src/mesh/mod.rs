//! A realistic mesh, and its costs: each proxy is a Pod with its own inbound ports, identity, locality and
//! scope, so that hardly two of them receive the same configuration.
//!
//! - [`world`]: Services, Pods and settings, as pure functions of the sizes.
//! - [`objects`]: these as YAML of Kubernetes and Istio objects; [`folder`]: the files, and their changes.
//! - [`fleet`]: proxies that track their resources by content, and reconnect with them.
//! - [`subject`]: the measured server, and the way in which changes reach it; [`measure`]: the phases;
//!   [`results`]: the measurements; [`report`]: tables and JSON.

pub mod fleet;
pub mod folder;
pub mod measure;
pub mod objects;
pub mod report;
pub mod results;
pub mod subject;
pub mod world;
