//! Make-before-break: order in which the types of one change reach a proxy.
//!
//! ```text
//! CDS (new, changed) ──▶ EDS of these ──▶ (answered) ──▶ LDS, RDS ──▶ (answered) ──▶ CDS (removals)
//! ```
//!
//! Envoy helps: it acknowledges clusters only when all of them are warm. A lone change of endpoints is never
//! held.
//!
//! A delta client that resumes has listeners and routes before it requests them on the new stream. Until it
//! has requested clusters, listeners and routes, or a deadline has passed, it is assumed to have those types:
//! removed clusters wait for listeners and routes that are not requested yet, and changes of listeners and
//! routes wait for clusters. A state-of-the-world client does not list its resources.

use super::watch::InFlight;
use pilotfish_proto::ResourceType;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Make-before-break state of a stream: conditions that hold back responses.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// New clusters that listeners and routes wait for.
    pub(super) warming: Option<Warming>,
    /// Clusters to be removed once listeners and routes are acknowledged or refused.
    pub(super) breaking: Option<Breaking>,
    /// A resumed client that may have a cluster waiting for endpoints.
    pub(super) probe: Option<Probe>,
    /// True if the client's first request for clusters listed known ones.
    pub(super) resumed: bool,
    /// Time until which a resuming delta client may still request clusters, listeners or routes.
    pub(super) resuming: Option<Instant>,
    /// True once the client has begun to resume, also after it is done.
    pub(super) resumes: bool,
    /// True once the probe was started: only the first response after a resume is one.
    pub(super) probed: bool,
    /// Clusters (by their endpoints' names) that were sent again before the client subscribed to endpoints.
    pub(super) reannounced: BTreeSet<Arc<str>>,
}

#[derive(Debug)]
pub(super) struct Warming {
    /// Nonce of the response that announced the newest of them.
    pub(super) nonce: u64,
    pub(super) answered: bool,
    /// Endpoints that the client has not subscribed to or not acknowledged.
    pub(super) endpoints: BTreeSet<Arc<str>>,
    pub(super) until: Instant,
}

#[derive(Debug)]
pub(super) struct Breaking {
    pub(super) since: Instant,
    pub(super) until: Instant,
    /// True if the deadline has passed, so that removals are no longer held.
    pub(super) over: bool,
    /// The removed clusters that are held.
    pub(super) clusters: BTreeSet<Arc<str>>,
}

#[derive(Debug)]
pub(super) struct Probe {
    pub(super) nonce: u64,
    pub(super) until: Instant,
}

impl Order {
    /// Updates the order for acknowledged or refused responses.
    pub(super) fn answered<'a>(&mut self, ty: ResourceType, responses: impl Iterator<Item = &'a InFlight>) {
        match ty {
            ResourceType::Cluster => {
                for response in responses {
                    if let Some(warming) = &mut self.warming {
                        warming.answered |= warming.nonce == response.nonce;
                    }
                    if self.probe.as_ref().is_some_and(|probe| probe.nonce == response.nonce) {
                        self.probe = None;
                    }
                }
            }
            ResourceType::Endpoint => {
                let Some(warming) = &mut self.warming else { return };
                if warming.endpoints.is_empty() {
                    return;
                }
                for contents in responses.map(|response| &response.contents) {
                    let names = contents.upserts.iter().map(|resource| &resource.name);
                    for name in names.chain(&contents.removed) {
                        warming.endpoints.remove(name);
                    }
                }
            }
            _ => return,
        }
        if self.warming.as_ref().is_some_and(|warming| warming.answered && warming.endpoints.is_empty()) {
            self.warming = None;
        }
    }

    /// Drops conditions whose deadline has passed. Returns true if a resumed client's endpoints have to be
    /// sent once more.
    ///
    /// The deadline of removals starts when the responses that they wait for were sent: listeners and routes
    /// get `draining` from then on.
    pub(super) fn expire(&mut self, now: Instant, draining: Duration) -> bool {
        if self.warming.as_ref().is_some_and(|warming| now >= warming.until) {
            self.warming = None;
            if let Some(breaking) = &mut self.breaking {
                breaking.until = now + draining;
            }
        }
        if let Some(breaking) = &mut self.breaking {
            breaking.over |= now >= breaking.until;
        }
        self.resuming = self.resuming.filter(|until| now < *until);
        let probe = self.probe.as_ref().is_some_and(|probe| now >= probe.until);
        if probe {
            self.probe = None;
        }
        probe
    }

    pub(super) fn is_idle(&self) -> bool {
        self.warming.is_none() && self.breaking.is_none()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let warming = self.warming.as_ref().map(|warming| warming.until);
        let breaking =
            self.breaking.as_ref().filter(|breaking| !breaking.over).map(|breaking| breaking.until);
        let probe = self.probe.as_ref().map(|probe| probe.until);
        [warming, breaking, probe, self.resuming].into_iter().flatten().min()
    }
}
