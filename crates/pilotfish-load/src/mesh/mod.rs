//! A mesh as people run it, and what it costs: each proxy is a Pod with inbound ports, an identity, a locality and a
//! scope of its own, so that hardly two of them get the same configuration.
//!
//! - [`world`]: which services, Pods and settings there are, as pure functions of the sizes.
//! - [`objects`]: them as YAML in Kubernetes' and Istio's own words; [`folder`]: the files, and changes of them.
//! - [`fleet`]: proxies that know by content what they hold, and reconnect with it.
//! - [`subject`]: the server that is measured, and how changes reach it; [`measure`]: the phases;
//!   [`results`]: what came of them; [`report`]: tables and JSON.

pub mod fleet;
pub mod folder;
pub mod measure;
pub mod objects;
pub mod report;
pub mod results;
pub mod subject;
pub mod world;
