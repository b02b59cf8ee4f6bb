//! An encoded response and its nonce.

use super::contents::Contents;
use super::frame::{About, Chunk, Frame};
use pilotfish_proto::ResourceType;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counter for nonces. Streams share responses, so a nonce is unique among all streams of a fan-out.
#[derive(Debug)]
pub(crate) struct Nonces(AtomicU64);

impl Nonces {
    pub(crate) fn new(first: u64) -> Self {
        Self(AtomicU64::new(first))
    }

    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// An encoded response that any number of streams can send.
#[derive(Debug)]
pub(crate) struct EncodedResponse {
    pub(crate) contents: Arc<Contents>,
    /// The nonce inside the frame.
    pub(crate) nonce: u64,
    pub(crate) frame: Frame,
    /// True if some of its resources are [stand-ins](Resource::stands_in).
    pub(crate) stands_in: bool,
}

impl EncodedResponse {
    pub(crate) fn delta(ty: ResourceType, version: u64, contents: Contents, nonce: u64) -> Self {
        Self::delta_over(ty, version, contents, nonce, Vec::new())
    }

    /// Creates a delta response whose last upserts are encoded already, in `shared`.
    pub(crate) fn delta_over(
        ty: ResourceType,
        version: u64,
        contents: Contents,
        nonce: u64,
        shared: Vec<Arc<Chunk>>,
    ) -> Self {
        let rest = contents.upserts.len() - shared.iter().map(|chunk| chunk.count).sum::<usize>();
        let own = contents.upserts.get(..rest).unwrap_or_default();
        let frame = Frame::delta(About::of(ty.type_url(), version), own, &contents.removed, nonce, shared);
        Self::new(contents, nonce, frame)
    }

    fn new(contents: Contents, nonce: u64, frame: Frame) -> Self {
        let stands_in = contents.upserts.iter().any(|resource| resource.stands_in);
        Self { contents: Arc::new(contents), nonce, frame, stands_in }
    }

    pub(crate) fn sotw(ty: ResourceType, version: u64, contents: Contents, nonce: u64) -> Self {
        let frame = Frame::sotw(About::of(ty.type_url(), version), &contents.upserts, nonce);
        Self::new(contents, nonce, frame)
    }
}
