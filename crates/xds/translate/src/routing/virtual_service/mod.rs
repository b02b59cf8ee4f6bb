//! VirtualServices, converted to the common form: names completed, delegates merged.

mod delegate;
mod names;
mod read;

pub(crate) use delegate::MAX_VIRTUAL_SERVICE_BYTES;
pub(crate) use names::gateway_name;
pub use read::RefusedDelegate;
pub(crate) use read::{RefusedDelegates, delegate_key, header, read};
