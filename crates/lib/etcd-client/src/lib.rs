//! Client of etcd (version 3): messages, calls on one server, watches, full reads, addresses and logins.
//!
//! | Part | Does |
//! |---|---|
//! | [`Servers`] | reads an address and its options; a [`Client`] of one server, logged in |
//! | [`Client`] | calls, with a limit on their time and bytes |
//! | [`Client::read_prefix`] | all keys of a prefix at one revision |
//! | [`Watch`] | evaluates the responses of a watch, without IO |
//! | [`WatchStream::next`] | returns the next response; probes a silent server |

mod address;
mod client;
mod error;
mod pages;
pub mod proto;
mod silence;
mod watch;

pub use address::{LOGIN_OPTIONS, Servers};
pub use client::{Client, KeepAliveStream, WatchStream};
pub use error::{CallError, reason};
pub use pages::{end_of, first_of};
pub use watch::{Step, Watch, WatchError};

/// Maximum size of a response in bytes. etcd's own limit for requests is 1.5 MiB, and watch responses are
/// only slightly larger.
const MAX_MESSAGE: usize = 16 << 20;
