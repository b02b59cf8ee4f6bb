//! ProxyConfig: start-up settings of proxies.

use crate::WorkloadSelector;
use crate::kinds::message::{kind, message};
use std::collections::BTreeMap;

kind!(ProxyConfig = ProxyConfig;);

message! {
/// Start-up settings of the selected proxies.
pub struct ProxyConfig {
    pub selector: Option<WorkloadSelector>,
    pub concurrency: Option<i32>,
    pub environment_variables: BTreeMap<String, String>,
    pub image: Option<ProxyImage>,
}

/// The image of the proxy.
pub struct ProxyImage {
    pub image_type: String,
}
}
