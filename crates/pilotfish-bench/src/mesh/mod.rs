//! A mesh as people run it, and what it costs: each proxy is a Pod with inbound ports, an identity, a locality and a
//! scope of its own, so that hardly two of them get the same configuration.
//!
//! - [`world`]: which services, Pods and settings there are, as pure functions of the sizes.
//! - [`objects`]: them as YAML in Kubernetes' and Istio's own words; [`folder`]: the files, and changes of them.
//! - [`session`], [`fleet`]: proxies that know by content what they hold, and reconnect with it.
//! - [`measure`]: the phases of the bench; [`report`]: tables and JSON.

pub mod fleet;
pub mod floor;
pub mod folder;
pub mod measure;
pub mod objects;
pub mod report;
pub mod session;
pub mod world;
