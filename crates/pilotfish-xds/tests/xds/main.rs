//! The protocol as sequences of requests and publications, properties over random histories, and the server over a socket.
#![allow(missing_docs)]

mod delta;
mod order;
mod properties;
mod server;
mod sotw;
mod support;
