//! Who asks.

use crate::access::Digest;
use std::net::IpAddr;
use std::sync::Arc;

/// The identity of clients that prove none, where they may.
pub(crate) const ANONYMOUS: &str = "anonymous";

/// The client of a request.
#[derive(Clone, Debug)]
pub(crate) struct Who {
    /// What it proved, all of it. Never empty.
    pub(crate) identities: Arc<[String]>,
    /// The first of them, which owns what the client registers.
    pub(crate) identity: Arc<str>,
    /// Its token of the file, if that is how it is known.
    pub(crate) token: Option<Digest>,
    /// Where it is.
    pub(crate) address: IpAddr,
    /// True if a proxy passed the request on: its client may be anywhere.
    pub(crate) is_forwarded: bool,
}

impl Who {
    /// A client with these identities; `None` when there are none.
    pub(crate) fn new(identities: Vec<String>, token: Option<Digest>, address: IpAddr) -> Option<Self> {
        let identity = identities.first()?.as_str().into();
        Some(Self { identities: identities.into(), identity, token, address, is_forwarded: false })
    }

    pub(crate) fn anonymous(address: IpAddr) -> Self {
        let identities = [ANONYMOUS.to_owned()].into();
        Self { identities, identity: ANONYMOUS.into(), token: None, address, is_forwarded: false }
    }
}
