//! Identity of the client of a request.

use pilotfish_access::Digest;
use std::net::IpAddr;
use std::sync::Arc;

/// Identity of clients without credentials, where these are allowed.
pub(crate) const ANONYMOUS: &str = "anonymous";

/// The client of a request.
#[derive(Clone, Debug)]
pub(crate) struct Who {
    /// All proved identities. Never empty.
    pub(crate) identities: Arc<[String]>,
    /// The first identity, which owns the client's registrations.
    pub(crate) identity: Arc<str>,
    /// Digest of its token, if a token of the file identified it.
    pub(crate) token: Option<Digest>,
    /// Address of the client.
    pub(crate) address: IpAddr,
    /// True if a proxy forwarded the request: the address is not the client's.
    pub(crate) is_forwarded: bool,
}

impl Who {
    /// A client with these identities; `None` if there are none.
    pub(crate) fn new(identities: Vec<String>, token: Option<Digest>, address: IpAddr) -> Option<Self> {
        let identity = identities.first()?.as_str().into();
        Some(Self { identities: identities.into(), identity, token, address, is_forwarded: false })
    }

    pub(crate) fn anonymous(address: IpAddr) -> Self {
        let identities = [ANONYMOUS.to_owned()].into();
        Self { identities, identity: ANONYMOUS.into(), token: None, address, is_forwarded: false }
    }
}
