//! Identity of the client of a request.

use pilotfish_access::Digest;
use pilotfish_identity::Proof;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

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
    /// Expiry of its credentials, if known.
    pub(crate) until: Option<SystemTime>,
    /// Address of the client.
    pub(crate) address: IpAddr,
    /// True if a proxy forwarded the request: the address is not the client's.
    pub(crate) is_forwarded: bool,
}

impl Who {
    /// A client with the identities of a proof; `None` if there are none.
    pub(crate) fn new(proof: Proof, token: Option<Digest>, address: IpAddr) -> Option<Self> {
        let Proof { identities, until, .. } = proof;
        let identity = identities.first()?.as_str().into();
        Some(Self { identities: identities.into(), identity, token, until, address, is_forwarded: false })
    }

    pub(crate) fn anonymous(address: IpAddr) -> Self {
        let identities = [ANONYMOUS.to_owned()].into();
        let identity = ANONYMOUS.into();
        Self { identities, identity, token: None, until: None, address, is_forwarded: false }
    }

    /// True if its credentials have expired.
    pub(crate) fn is_expired(&self, now: SystemTime) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}
