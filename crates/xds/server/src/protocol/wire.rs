//! Requests in their encoded form.
//!
//! A proxy acknowledges every response, so requests are read in place: an ACK allocates nothing, and an
//! unchanged subscription (state-of-the-world repeats all names in every ACK) costs one pass over its bytes.

use super::Protocol;
use super::nack::CUT;
use crate::error::StreamError;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WireError {
    #[error("the message ends in the middle of a field")]
    Truncated,
    #[error("field {0} has an unexpected wire type")]
    WireType(u64),
    #[error("field {0} is not valid UTF-8")]
    Utf8(u64),
}

/// One field of a message.
pub(crate) enum Field<'a> {
    Bytes(&'a [u8]),
    Number(u64),
}

/// Iterator over the fields of an encoded message.
pub(crate) struct Fields<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first().ok_or(WireError::Truncated)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(WireError::Truncated)
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8], WireError> {
        let len = usize::try_from(len).map_err(|_| WireError::Truncated)?;
        let (head, rest) = self.rest.split_at_checked(len).ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    pub(crate) fn next(&mut self) -> Result<Option<(u64, Field<'a>)>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let field = match key & 7 {
            0 => Field::Number(self.varint()?),
            1 => Field::Bytes(self.take(8)?),
            2 => {
                let len = self.varint()?;
                Field::Bytes(self.take(len)?)
            }
            5 => Field::Bytes(self.take(4)?),
            _ => return Err(WireError::WireType(key >> 3)),
        };
        Ok(Some((key >> 3, field)))
    }
}

fn text(number: u64, bytes: &[u8]) -> Result<&str, WireError> {
    std::str::from_utf8(bytes).map_err(|_| WireError::Utf8(number))
}

/// A repeated string field of a message, decoded lazily.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Strings<'a> {
    /// Bytes from the first to the end of the last occurrence.
    region: &'a [u8],
    number: u64,
    count: usize,
}

impl<'a> Strings<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Hash of the field's content. Unkeyed, so only for comparison with the last request of the same stream.
    pub(crate) fn fingerprint(&self) -> u64 {
        xxhash_rust::xxh3::xxh3_64(self.region)
    }

    pub(crate) fn read(&self) -> Result<Vec<&'a str>, WireError> {
        self.each(text)
    }

    fn each<T>(&self, read: impl Fn(u64, &'a [u8]) -> Result<T, WireError>) -> Result<Vec<T>, WireError> {
        let mut all = Vec::with_capacity(self.count);
        let mut fields = Fields { rest: self.region };
        while let Some((number, field)) = fields.next()? {
            if let (true, Field::Bytes(bytes)) = (number == self.number, field) {
                all.push(read(number, bytes)?);
            }
        }
        Ok(all)
    }
}

/// A map field of strings, decoded lazily.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pairs<'a>(Strings<'a>);

impl<'a> Pairs<'a> {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn read(&self) -> Result<Vec<(&'a str, &'a str)>, WireError> {
        self.0.each(map_entry)
    }
}

/// Used fields of `DiscoveryRequest` and `DeltaDiscoveryRequest`, in place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request<'a> {
    pub(crate) node: Option<&'a [u8]>,
    pub(crate) type_url: &'a str,
    pub(crate) nonce: &'a str,
    /// `resource_names` or, in delta, `resource_names_subscribe`.
    pub(crate) names: Strings<'a>,
    /// Field `resource_names_unsubscribe` (delta only).
    pub(crate) unsubscribe: Strings<'a>,
    /// Field `initial_resource_versions` (delta only).
    pub(crate) initial: Pairs<'a>,
    /// `error_detail`: set if the client refused a response.
    pub(crate) error: Option<&'a [u8]>,
}

/// Field numbers, which differ between the two messages.
struct Numbers {
    node: u64,
    type_url: u64,
    names: u64,
    unsubscribe: u64,
    initial: u64,
    nonce: u64,
    error: u64,
}

const SOTW: Numbers =
    Numbers { node: 2, type_url: 4, names: 3, unsubscribe: 0, initial: 0, nonce: 5, error: 6 };
const DELTA: Numbers =
    Numbers { node: 1, type_url: 2, names: 3, unsubscribe: 4, initial: 5, nonce: 6, error: 7 };

impl<'a> Request<'a> {
    pub(crate) fn sotw(message: &'a [u8]) -> Result<Self, WireError> {
        Self::parse(message, &SOTW)
    }

    pub(crate) fn delta(message: &'a [u8]) -> Result<Self, WireError> {
        Self::parse(message, &DELTA)
    }

    fn parse(message: &'a [u8], numbers: &Numbers) -> Result<Self, WireError> {
        let mut request = Self::default();
        let mut names = Region::default();
        let mut unsubscribe = Region::default();
        let mut initial = Region::default();
        let mut fields = Fields { rest: message };
        loop {
            let start = message.len() - fields.rest.len();
            let Some((number, field)) = fields.next()? else { break };
            let end = message.len() - fields.rest.len();
            // Unknown fields and numbers are skipped: newer clients may send more.
            let Field::Bytes(bytes) = field else { continue };
            match number {
                n if n == numbers.names => names.add(start, end),
                n if n == numbers.type_url => request.type_url = text(n, bytes)?,
                n if n == numbers.nonce => request.nonce = text(n, bytes)?,
                n if n == numbers.node => request.node = Some(bytes),
                n if n == numbers.error => request.error = Some(bytes),
                n if n == numbers.unsubscribe => unsubscribe.add(start, end),
                n if n == numbers.initial => initial.add(start, end),
                _ => {}
            }
        }
        request.names = names.strings(message, numbers.names);
        request.unsubscribe = unsubscribe.strings(message, numbers.unsubscribe);
        request.initial = Pairs(initial.strings(message, numbers.initial));
        Ok(request)
    }
}

/// Node in the beginning of a request, if it is complete.
pub(crate) fn node_in(beginning: &[u8], protocol: Protocol) -> Option<&[u8]> {
    let numbers = match protocol {
        Protocol::Delta => &DELTA,
        Protocol::Sotw => &SOTW,
    };
    sub_message(beginning, numbers.node)
}

/// Extent of a repeated field.
#[derive(Default)]
struct Region {
    start: usize,
    end: usize,
    count: usize,
}

impl Region {
    fn add(&mut self, start: usize, end: usize) {
        if self.count == 0 {
            self.start = start;
        }
        self.end = end;
        self.count += 1;
    }

    fn strings<'a>(&self, message: &'a [u8], number: u64) -> Strings<'a> {
        let region = message.get(self.start..self.end).unwrap_or_default();
        Strings { region, number, count: self.count }
    }
}

fn map_entry(number: u64, bytes: &[u8]) -> Result<(&str, &str), WireError> {
    let (mut key, mut value) = ("", "");
    let mut fields = Fields { rest: bytes };
    while let Some((n, field)) = fields.next()? {
        match (n, field) {
            (1, Field::Bytes(bytes)) => key = text(number, bytes)?,
            (2, Field::Bytes(bytes)) => value = text(number, bytes)?,
            _ => {}
        }
    }
    Ok((key, value))
}

/// `message` of a `google.rpc.Status`, at most 4 KiB.
pub(crate) fn error_text(status: &[u8]) -> String {
    const LIMIT: usize = 4096;
    /// Envoy's text may begin with the refused message and end with the reason.
    const HEAD: usize = 1024;
    let mut fields = Fields { rest: status };
    while let Ok(Some((number, field))) = fields.next() {
        if let (2, Field::Bytes(bytes)) = (number, field) {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            let parts = (bytes.get(..HEAD), bytes.get(bytes.len().saturating_sub(LIMIT - HEAD)..));
            return match parts {
                (Some(head), Some(tail)) if bytes.len() > LIMIT => text(head) + CUT + &text(tail),
                _ => text(bytes),
            };
        }
    }
    String::new()
}

/// Name by which a cluster's endpoints are subscribed to, from an encoded `Any` of a `Cluster`; `None` if
/// they do not come from EDS.
pub(crate) fn eds_name(any: &[u8]) -> Option<&str> {
    const EDS: u64 = 3;
    let (mut name, mut service_name, mut kind) = ("", "", 0);
    let mut cluster = Fields { rest: sub_message(any, 2)? };
    while let Ok(Some((number, field))) = cluster.next() {
        match (number, field) {
            (1, Field::Bytes(bytes)) => name = text(1, bytes).ok()?,
            (2, Field::Number(value)) => kind = value,
            (3, Field::Bytes(bytes)) => {
                service_name = sub_message(bytes, 2).and_then(|b| text(2, b).ok()).unwrap_or("");
            }
            _ => {}
        }
    }
    (kind == EDS).then_some(if service_name.is_empty() { name } else { service_name })
}

fn sub_message(message: &[u8], wanted: u64) -> Option<&[u8]> {
    let mut fields = Fields { rest: message };
    while let Ok(Some((number, field))) = fields.next() {
        if let (true, Field::Bytes(bytes)) = (number == wanted, field) {
            return Some(bytes);
        }
    }
    None
}

/// A nonce or version as 16 hexadecimal digits.
pub(crate) fn hex(value: u64) -> [u8; 16] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    std::array::from_fn(|i| DIGITS[((value >> (60 - 4 * i)) & 0xf) as usize])
}

/// Parses the output of [`hex`]; `None` for other texts.
pub(crate) fn unhex(text: &str) -> Option<u64> {
    let own = text.len() == 16 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    own.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

impl From<WireError> for StreamError {
    fn from(error: WireError) -> Self {
        Self::InvalidArgument(format!("malformed request: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_proto::envoy::config::cluster::v3 as cluster;
    use pilotfish_proto::envoy::service::discovery::v3 as discovery;
    use prost::Message;

    #[test]
    fn requests_are_read_in_place() {
        let request = discovery::DeltaDiscoveryRequest {
            type_url: "url".into(),
            resource_names_subscribe: vec!["a".into(), "b".into()],
            resource_names_unsubscribe: vec!["c".into()],
            initial_resource_versions: [("a".to_owned(), "1".to_owned())].into(),
            response_nonce: "n".into(),
            error_detail: Some(pilotfish_proto::google::rpc::Status {
                message: "no".into(),
                ..Default::default()
            }),
            ..Default::default()
        }
        .encode_to_vec();
        let read = Request::delta(&request).unwrap();
        assert_eq!(read.names.read().unwrap(), ["a", "b"]);
        assert_eq!(read.unsubscribe.read().unwrap(), ["c"]);
        assert_eq!(read.initial.read().unwrap(), [("a", "1")]);
        assert_eq!((read.type_url, read.nonce), ("url", "n"));
        assert_eq!(error_text(read.error.unwrap()), "no");
    }

    #[test]
    fn the_node_is_found_in_the_beginning_of_a_request() {
        let node =
            Some(pilotfish_proto::envoy::config::core::v3::Node { id: "x".into(), ..Default::default() });
        let names: Vec<_> = (0..100).map(|n| n.to_string()).collect();
        let request = discovery::DiscoveryRequest { node, resource_names: names, ..Default::default() };
        let message = request.encode_to_vec();
        assert_eq!(node_in(&message[..4], Protocol::Sotw), None, "it is cut off");
        let node = node_in(&message[..message.len() - 1], Protocol::Sotw);
        assert_eq!(node, Some(&request.node.unwrap().encode_to_vec()[..]));
    }

    #[test]
    fn a_long_error_keeps_its_begin_and_its_end() {
        let status = |message: String| {
            let status = pilotfish_proto::google::rpc::Status { message, ..Default::default() };
            status.encode_to_vec()
        };
        let text = error_text(&status(format!("begin{}end", "x".repeat(9_000))));
        assert!(text.starts_with("begin") && text.ends_with("end") && text.len() < 4_200, "{}", text.len());
        assert_eq!(error_text(&status("y".repeat(4_096))), "y".repeat(4_096));
    }

    #[test]
    fn the_eds_name_is_the_service_name_or_the_cluster_name() {
        let packed = |cluster: &cluster::Cluster| pilotfish_proto::any(cluster).encode_to_vec();
        let eds = Some(cluster::cluster::ClusterDiscoveryType::Type(3));
        let mut one =
            cluster::Cluster { name: "c".into(), cluster_discovery_type: eds, ..Default::default() };
        assert_eq!(eds_name(&packed(&one)), Some("c"));
        one.eds_cluster_config =
            Some(cluster::cluster::EdsClusterConfig { service_name: "s".into(), ..Default::default() });
        assert_eq!(eds_name(&packed(&one)), Some("s"));
        one.cluster_discovery_type = None;
        assert_eq!(eds_name(&packed(&one)), None);
    }

    #[test]
    fn hexadecimal_texts_lead_back_to_their_number() {
        for value in [0, 1, u64::MAX, 0x0123_4567_89ab_cdef] {
            assert_eq!(unhex(std::str::from_utf8(&hex(value)).unwrap()), Some(value));
        }
        for foreign in ["", "1", "00000000000000AB", "+000000000000001", "00000000000000000"] {
            assert_eq!(unhex(foreign), None);
        }
    }

    proptest::proptest! {
        #[test]
        fn random_bytes_are_read_or_refused(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            for request in [Request::delta(&bytes), Request::sotw(&bytes)].into_iter().flatten() {
                let _ = (request.names.read(), request.unsubscribe.read(), request.initial.read());
                let _ = error_text(request.error.unwrap_or_default());
            }
            let _ = eds_name(&bytes);
        }
    }
}
