//! Hand-written protobuf messages, from their parts, that no honest encoder would write.

fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number > 127 {
        out.push(u8::try_from(number & 127).unwrap_or_default() | 128);
        number >>= 7;
    }
    out.push(u8::try_from(number).unwrap_or_default());
}

/// Encodes a field with bytes, a string or a message.
pub(crate) fn field(number: u64, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    let mut out = Vec::with_capacity(content.len() + 12);
    varint((number << 3) | 2, &mut out);
    varint(content.len() as u64, &mut out);
    out.extend_from_slice(content);
    out
}

/// Encodes a field with a number.
pub(crate) fn number(field: u64, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    varint(field << 3, &mut out);
    varint(value, &mut out);
    out
}

/// Encodes a string as `google.protobuf.Value`.
pub(crate) fn text(value: &str) -> Vec<u8> {
    field(3, value)
}

/// Encodes fields as `google.protobuf.Struct`.
pub(crate) fn structure(fields: impl IntoIterator<Item = (String, Vec<u8>)>) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in fields {
        out.extend_from_slice(&field(1, [field(1, key), field(2, value)].concat()));
    }
    out
}

/// Encodes a `Value` of that many nested objects or lists.
pub(crate) fn nested(depth: usize, lists: bool) -> Vec<u8> {
    (0..depth).fold(text("x"), |inner, _| {
        if lists { field(6, field(1, inner)) } else { field(5, structure([("a".to_owned(), inner)])) }
    })
}

/// Fields of `envoy.config.core.v3.Node` that are set.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) id: String,
    pub(crate) metadata: Vec<(String, Vec<u8>)>,
    pub(crate) more: Vec<u8>,
}

/// Claimed namespace of an attacker with a certificate, as in the certificate.
pub(crate) const NAMESPACE: &str = "bench";
pub(crate) const ACCOUNT: &str = "stranger";

impl Node {
    /// A sidecar of one of many Pods in the attacker's namespace.
    pub(crate) fn numbered(number: usize) -> Self {
        let ip = format!("10.{}.{}.{}", 128 + number / 62_500 % 128, number / 250 % 250, 1 + number % 250);
        let id = format!("sidecar~{ip}~stranger-{number}.{NAMESPACE}~{NAMESPACE}.svc.cluster.local");
        let metadata = [("NAMESPACE", NAMESPACE), ("SERVICE_ACCOUNT", ACCOUNT), ("INSTANCE_IPS", &ip)];
        let metadata = metadata.map(|(key, value)| (key.to_owned(), text(value))).to_vec();
        Self { id, metadata, more: Vec::new() }
    }

    pub(crate) fn in_namespace(self, namespace: &str) -> Self {
        let mut node = self.with("NAMESPACE", text(namespace));
        node.id = format!("sidecar~10.1.2.3~stranger.{namespace}~{namespace}.svc.cluster.local");
        node
    }

    /// Sets a value of the metadata.
    pub(crate) fn with(mut self, key: &str, value: Vec<u8>) -> Self {
        self.metadata.retain(|(known, _)| known != key);
        self.metadata.push((key.to_owned(), value));
        self
    }

    /// Adds a value of the metadata, whose name must be new.
    pub(crate) fn and_metadata(mut self, key: String, value: Vec<u8>) -> Self {
        self.metadata.push((key, value));
        self
    }

    pub(crate) fn and(mut self, more: impl IntoIterator<Item = Vec<u8>>) -> Self {
        self.more.extend(more.into_iter().collect::<Vec<_>>().concat());
        self
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let metadata = field(3, structure(self.metadata.iter().cloned()));
        [field(1, &self.id), metadata, self.more.clone()].concat()
    }
}

/// Encodes a `DeltaDiscoveryRequest` without a nonce.
pub(crate) fn delta(
    node: Option<&Node>,
    type_url: &str,
    subscribe: &[String],
    unsubscribe: &[String],
) -> Vec<u8> {
    let mut out = node.map(|node| field(1, node.encode())).unwrap_or_default();
    out.extend(field(2, type_url));
    out.extend(subscribe.iter().flat_map(|name| field(3, name)));
    out.extend(unsubscribe.iter().flat_map(|name| field(4, name)));
    out
}

/// Encodes a `DiscoveryRequest` without a nonce.
pub(crate) fn sotw(node: Option<&Node>, type_url: &str, names: &[String]) -> Vec<u8> {
    let mut out = node.map(|node| field(2, node.encode())).unwrap_or_default();
    out.extend(names.iter().flat_map(|name| field(3, name)));
    out.extend(field(4, type_url));
    out
}

/// A gRPC frame that announces that many bytes and has fewer.
pub(crate) fn incomplete(said: u32, sent: usize) -> bytes::Bytes {
    let mut out = vec![0; sent + 5];
    if let Some(length) = out.get_mut(1..5) {
        length.copy_from_slice(&said.to_be_bytes());
    }
    out.into()
}

/// True if a message contains these bytes.
pub(crate) fn contains(message: &[u8], needle: &[u8]) -> bool {
    let Some(first) = needle.first() else { return true };
    let mut rest = message;
    while let Some(at) = rest.iter().position(|byte| byte == first) {
        rest = rest.get(at..).unwrap_or_default();
        if rest.starts_with(needle) {
            return true;
        }
        rest = rest.get(1..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
    use prost::Message;

    #[test]
    fn what_is_written_by_hand_is_read_by_a_decoder() {
        let names = ["a".to_owned(), "b".repeat(200)];
        let node = Node::numbered(7).with("DEEP", nested(3, false)).with("LIST", nested(3, true));
        let request =
            DeltaDiscoveryRequest::decode(&*delta(Some(&node), "t", &names, &names[..1])).expect("decodes");
        assert_eq!(
            (request.resource_names_subscribe.len(), request.resource_names_unsubscribe.len()),
            (2, 1)
        );
        let got = request.node.expect("there is one");
        assert_eq!(
            (got.id.as_str(), got.metadata.expect("there is some").fields.len()),
            (node.id.as_str(), 5)
        );
        let request = DiscoveryRequest::decode(&*sotw(Some(&node), "t", &names)).expect("decodes");
        assert_eq!((request.type_url.as_str(), request.resource_names.len()), ("t", 2));
    }

    #[test]
    fn an_incomplete_message_says_more_than_it_brings() {
        assert_eq!(&incomplete(258, 2)[..], [0, 0, 0, 1, 2, 0, 0]);
    }

    #[test]
    fn a_needle_is_found_anywhere() {
        assert!(contains(b"10.10.250", b"10.250") && contains(b"abc", b"abc") && contains(b"aab", b"ab"));
        assert!(!contains(b"abcab", b"abd") && !contains(b"", b"a"));
    }
}
