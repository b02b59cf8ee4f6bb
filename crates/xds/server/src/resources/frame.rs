//! Responses as gRPC frames: encoded once, sent in pieces that any number of streams share.

use crate::protocol::wire::hex;
use crate::source::Resource;
use bytes::{BufMut, Bytes, BytesMut};
use pilotfish_grpc_framing::{PREFIX, Prefix};
use std::sync::Arc;

fn varint_len(value: usize) -> usize {
    (usize::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

fn field_len(len: usize) -> usize {
    1 + varint_len(len) + len
}

fn put_varint(out: &mut BytesMut, mut value: usize) {
    while value >= 0x80 {
        out.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

fn put_key(out: &mut BytesMut, number: u8, len: usize) {
    out.put_u8(number << 3 | 2);
    put_varint(out, len);
}

fn put_field(out: &mut BytesMut, number: u8, bytes: &[u8]) {
    put_key(out, number, bytes.len());
    out.put_slice(bytes);
}

/// Length of a nonce field. Field 5 of both responses.
const NONCE_LEN: usize = 18;

/// Encoded resources of a delta response that many streams share. A repeated field may be split into several
/// chunks.
#[derive(Debug)]
pub(crate) struct Chunk {
    pieces: Vec<Bytes>,
    len: usize,
    pub(crate) count: usize,
}

/// Minimum size of a body that is sent without copying it: a copy would be in memory once for each client.
const IN_PLACE: usize = 4 << 10;

/// A field of a response that holds resources.
#[derive(Clone, Copy)]
enum ResourcesField {
    /// `resources` of a `DeltaDiscoveryResponse`: `Resource` messages.
    Delta,
    /// `resources` of a `DiscoveryResponse`: the bodies themselves.
    Sotw,
}

impl ResourcesField {
    fn len(self, resource: &Resource) -> usize {
        match self {
            Self::Delta => field_len(resource_len(resource)),
            Self::Sotw => field_len(resource.body.len()),
        }
    }

    /// Encodes all but the body itself, which comes last.
    fn put_head(self, out: &mut BytesMut, resource: &Resource) {
        if let Self::Delta = self {
            put_key(out, 2, resource_len(resource));
            put_field(out, 1, &hex(resource.version));
            put_field(out, 3, resource.name.as_bytes());
        }
        put_key(out, 2, resource.body.len());
    }

    fn put(self, out: &mut BytesMut, resource: &Resource) {
        self.put_head(out, resource);
        out.put_slice(&resource.body);
    }

    fn length(self, resources: &[Arc<Resource>]) -> usize {
        resources.iter().map(|resource| self.len(resource)).sum()
    }

    /// Encodes the fields, with large bodies as separate pieces.
    fn pieces(self, resources: &[Arc<Resource>]) -> Vec<Bytes> {
        let in_place: usize = resources
            .iter()
            .filter(|resource| is_in_place(resource))
            .map(|resource| resource.body.len())
            .sum();
        let mut out = BytesMut::with_capacity(self.length(resources) - in_place);
        let mut pieces = Vec::new();
        for resource in resources {
            if is_in_place(resource) {
                self.put_head(&mut out, resource);
                pieces.extend([out.split().freeze(), resource.body.clone()]);
            } else {
                self.put(&mut out, resource);
            }
        }
        if !out.is_empty() {
            pieces.push(out.freeze());
        }
        pieces
    }
}

fn is_in_place(resource: &Resource) -> bool {
    resource.body.len() >= IN_PLACE
}

/// Length of an encoded `Resource` message.
fn resource_len(resource: &Resource) -> usize {
    field_len(16) + field_len(resource.body.len()) + field_len(resource.name.len())
}

/// The field `resources` of a `DeltaDiscoveryResponse`.
pub(crate) fn delta_resources<'a>(resources: impl Iterator<Item = &'a Arc<Resource>>) -> Chunk {
    let resources: Vec<_> = resources.cloned().collect();
    let field = ResourcesField::Delta;
    Chunk { pieces: field.pieces(&resources), len: field.length(&resources), count: resources.len() }
}

/// Fields of a response besides its resources.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About<'a> {
    pub(crate) type_url: &'a str,
    /// Version of the resource set.
    pub(crate) version: u64,
    /// `identifier` of the response's `ControlPlane`, if it has one.
    pub(crate) control_plane: Option<&'a str>,
}

impl<'a> About<'a> {
    /// Description of a response without a `control_plane`.
    pub(crate) fn of(type_url: &'a str, version: u64) -> Self {
        Self { type_url, version, control_plane: None }
    }

    fn control_plane_len(&self) -> usize {
        self.control_plane.map_or(0, |identifier| field_len(field_len(identifier.len())))
    }

    /// Encodes `control_plane` under its field number in the response.
    fn put_control_plane(&self, out: &mut BytesMut, number: u8) {
        if let Some(identifier) = self.control_plane {
            put_key(out, number, field_len(identifier.len()));
            put_field(out, 1, identifier.as_bytes());
        }
    }
}

/// Encoded response as one gRPC frame: a head whose last field is the nonce, resources with large bodies, and
/// chunks that are shared with other responses.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    head: Bytes,
    rest: Vec<Bytes>,
    rest_len: usize,
    shared: Vec<Arc<Chunk>>,
}

impl Frame {
    /// Encodes a `DeltaDiscoveryResponse` of these resources and the shared chunks.
    pub(crate) fn delta(
        about: About<'_>,
        upserts: &[Arc<Resource>],
        removed: &[Arc<str>],
        nonce: u64,
        shared: Vec<Arc<Chunk>>,
    ) -> Self {
        let others: usize = removed.iter().map(|name| field_len(name.len())).sum();
        Self::build((ResourcesField::Delta, upserts), about, others, nonce, shared, |out| {
            about.put_control_plane(out, 7);
            for name in removed {
                put_field(out, 6, name.as_bytes());
            }
        })
    }

    /// Encodes a `DeltaDiscoveryResponse` with a body-less resource for each name, which has the name as its
    /// alias.
    pub(crate) fn without_bodies(about: About<'_>, names: &[Arc<str>], nonce: u64) -> Self {
        let resource_len = |name: &Arc<str>| 2 * field_len(name.len());
        let others = names.iter().map(|name| field_len(resource_len(name))).sum();
        Self::build((ResourcesField::Delta, &[]), about, others, nonce, Vec::new(), |out| {
            about.put_control_plane(out, 7);
            for name in names {
                put_key(out, 2, resource_len(name));
                put_field(out, 3, name.as_bytes());
                put_field(out, 4, name.as_bytes());
            }
        })
    }

    pub(crate) fn sotw(about: About<'_>, resources: &[Arc<Resource>], nonce: u64) -> Self {
        Self::build((ResourcesField::Sotw, resources), about, 0, nonce, Vec::new(), |out| {
            about.put_control_plane(out, 6);
        })
    }

    /// Encodes the resources in order: those before the first large one are part of the head, so that a small
    /// response is one piece.
    fn build(
        (field, resources): (ResourcesField, &[Arc<Resource>]),
        about: About<'_>,
        others_len: usize,
        nonce: u64,
        shared: Vec<Arc<Chunk>>,
        put_others: impl FnOnce(&mut BytesMut),
    ) -> Self {
        let small = resources.iter().take_while(|resource| !is_in_place(resource)).count();
        let (small, rest) = resources.split_at(small);
        let rest_len = field.length(rest);
        let about_len = field_len(16) + field_len(about.type_url.len()) + about.control_plane_len();
        let len = about_len + field.length(small) + others_len + NONCE_LEN;
        let mut out = BytesMut::with_capacity(PREFIX + len);
        out.put_slice(&Prefix::uncompressed(len + rest_len + length(&shared)));
        put_field(&mut out, 1, &hex(about.version));
        small.iter().for_each(|resource| field.put(&mut out, resource));
        put_field(&mut out, 4, about.type_url.as_bytes());
        put_others(&mut out);
        put_field(&mut out, 5, &hex(nonce));
        debug_assert_eq!(out.len(), PREFIX + len);
        Self { head: out.freeze(), rest: field.pieces(rest), rest_len, shared }
    }

    /// The whole frame with its own nonce: its head and the rest.
    pub(crate) fn whole(&self) -> (Bytes, Vec<Bytes>) {
        (self.head.clone(), self.tail().collect())
    }

    /// Returns the message with another nonce: a small head of its own, and the shared tail. The order of
    /// protobuf fields is free.
    pub(crate) fn with_nonce(&self, nonce: u64) -> (Bytes, Vec<Bytes>) {
        let own = self.head.slice(PREFIX..self.head.len() - NONCE_LEN);
        let mut head = BytesMut::with_capacity(PREFIX + NONCE_LEN);
        head.put_slice(&Prefix::uncompressed(self.len() - PREFIX));
        put_field(&mut head, 5, &hex(nonce));
        (head.freeze(), [own].into_iter().chain(self.tail()).collect())
    }

    fn tail(&self) -> impl Iterator<Item = Bytes> {
        self.rest.iter().chain(self.shared.iter().flat_map(|chunk| &chunk.pieces)).cloned()
    }

    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.rest_len + length(&self.shared)
    }
}

fn length(chunks: &[Arc<Chunk>]) -> usize {
    chunks.iter().map(|chunk| chunk.len).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_proto::Any;
    use pilotfish_proto::envoy::service::discovery::v3 as discovery;
    use prost::Message;

    fn resource(name: &str, version: u64, value: &[u8]) -> Arc<Resource> {
        let any = Any { type_url: "t".into(), value: value.to_vec() };
        Arc::new(Resource {
            name: name.into(),
            version,
            body: any.encode_to_vec().into(),
            changed_at: 0,
            stands_in: false,
        })
    }

    fn joined((head, tail): (Bytes, Vec<Bytes>)) -> Vec<u8> {
        let frame = [&[head][..], &tail].concat().concat();
        assert_eq!(u32::from_be_bytes(frame[1..5].try_into().unwrap()) as usize, frame.len() - 5);
        frame[5..].to_vec()
    }

    #[test]
    fn a_delta_frame_decodes_to_what_went_in() {
        let large = |name: &str| resource(name, 3, &[8; IN_PLACE]);
        let small = resource("long".repeat(100).as_str(), 2, &[7; 300]);
        let resources = [resource("a", 1, b"x"), small, large("b"), resource("c", 4, b"y"), large("d")];
        // In the head, shared, or both; with large ones in each.
        for own in 0..=resources.len() {
            let (own, shared) = resources.split_at(own);
            let shared = vec![Arc::new(delta_resources(shared.iter()))];
            let frame = Frame::delta(About::of("url", 9), own, &["gone".into()], 0xab, shared);
            let bytes = joined(frame.whole());
            assert_eq!(frame.len(), bytes.len() + 5);
            let message = discovery::DeltaDiscoveryResponse::decode(&bytes[..]).unwrap();
            assert_eq!(message.nonce, "00000000000000ab");
            assert_eq!(message.removed_resources, ["gone"]);
            let read: Vec<_> = message.resources.iter().map(|r| (&*r.name, &*r.version)).collect();
            let written: Vec<_> = resources.iter().map(|r| (r.name.to_string(), hex(r.version))).collect();
            let written: Vec<_> =
                written.iter().map(|(name, hex)| (&**name, str::from_utf8(hex).unwrap())).collect();
            assert_eq!(read, written, "in their order");
            let length = |at: usize| message.resources[at].resource.as_ref().unwrap().value.len();
            assert_eq!((length(1), length(2), length(3)), (300, IN_PLACE, 1));

            let bytes = joined(frame.with_nonce(5));
            let again = discovery::DeltaDiscoveryResponse::decode(&bytes[..]).unwrap();
            assert_eq!(again.nonce, "0000000000000005");
            assert_eq!(discovery::DeltaDiscoveryResponse { nonce: message.nonce.clone(), ..again }, message);
        }
    }

    #[test]
    fn a_sotw_frame_decodes_to_what_went_in() {
        let large = resource("b", 1, &[1; IN_PLACE]);
        let resources = [resource("a", 1, b"x"), Arc::clone(&large), resource("c", 1, b"y")];
        let (head, tail) = Frame::sotw(About::of("url", 3), &resources, 4).whole();
        assert!(tail.iter().any(|piece| piece.as_ptr() == large.body.as_ptr()), "it is not copied");
        let bytes = joined((head, tail));
        let message = discovery::DiscoveryResponse::decode(&bytes[..]).unwrap();
        assert_eq!((message.version_info.as_str(), message.type_url.as_str()), ("0000000000000003", "url"));
        let values: Vec<_> = message.resources.iter().map(|any| &any.value[..]).collect();
        assert_eq!(values, [&b"x"[..], &[1; IN_PLACE], b"y"]);
        assert_eq!(message.control_plane, None);
    }

    #[test]
    fn a_frame_may_say_who_answers() {
        // Longer than one byte of a length can say.
        let identifier = "pilotfish-0".repeat(20);
        let resources = [resource("a", 1, b"x"), resource("b", 1, &[1; IN_PLACE])];
        let about = About { control_plane: Some(&identifier), ..About::of("url", 3) };
        let sotw = joined(Frame::sotw(about, &resources, 4).whole());
        let sotw = discovery::DiscoveryResponse::decode(&sotw[..]).unwrap();
        let delta = joined(Frame::delta(about, &resources, &["gone".into()], 4, Vec::new()).whole());
        let delta = discovery::DeltaDiscoveryResponse::decode(&delta[..]).unwrap();
        assert_eq!((sotw.resources.len(), delta.resources.len(), delta.removed_resources.len()), (2, 2, 1));
        for control_plane in [sotw.control_plane, delta.control_plane] {
            assert_eq!(control_plane.unwrap().identifier, identifier);
        }
    }
}
