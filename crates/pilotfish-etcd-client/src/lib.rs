//! What everything that speaks to etcd (version 3) shares: messages, calls on one server, watches, full reads, addresses and logins.
//!
//! | Part | Does |
//! |---|---|
//! | [`Servers`] | reads an address and its options; a [`Client`] of one server, logged in |
//! | [`Client`] | calls, with a limit on their time and bytes |
//! | [`Client::read_prefix`] | all keys of a prefix at one revision |
//! | [`Watch`] | what the answers of a watch mean, without IO |
//! | [`WatchStream::next`] | the next answer; a server that is silent is asked whether it is there |

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

/// The largest message that is taken. etcd's own limit for what it takes is 1.5 MiB, and its messages of a watch are not larger by much.
const MAX_MESSAGE: usize = 16 << 20;
