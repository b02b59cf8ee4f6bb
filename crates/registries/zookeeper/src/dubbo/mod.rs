//! Formats of Dubbo's registrations: URLs as node names, instances and metadata as JSON. Pure: text in,
//! values out.

mod instance;
mod metadata;
mod overrides;
mod protocol;
mod url;

pub(crate) use instance::{Instance, InstancePort};
pub(crate) use metadata::{Metadata, Provided, mapped_applications};
pub(crate) use overrides::{Override, effective};
pub(crate) use protocol::{default_port, speech};
pub(crate) use url::DubboUrl;
