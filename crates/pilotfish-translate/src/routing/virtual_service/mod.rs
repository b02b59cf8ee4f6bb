//! VirtualServices, read into the common form: names completed, delegates merged.

mod delegate;
mod names;
mod read;

pub(crate) use read::{header, read};
