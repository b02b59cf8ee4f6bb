//! Requests of HTTP as messages, and messages as JSON, by proto3's JSON mapping.
//!
//! A field comes from the path, the query or the body. If it comes from two places, both values must be
//! equal.

use crate::bounds::{BoundExceeded, Refused, check_encoded, check_json};
use crate::routes::{Body, Found};
use percent_encoding::percent_decode_str;
use prost::{Message, Name};
use prost_reflect::{
    Cardinality, DeserializeOptions, DynamicMessage, Kind, MessageDescriptor, ReflectMessage, Value,
};

/// Error of an HTTP request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// A field is invalid, or the body as a whole if `field` is empty.
    #[error("{field}: {message}")]
    Field {
        /// Path of the field, with JSON names.
        field: String,
        /// The mistake and the allowed values.
        message: String,
    },
    /// The request exceeds a limit.
    #[error(transparent)]
    Bound(#[from] BoundExceeded),
}

impl BadRequest {
    fn field(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Field { field: field.into(), message: message.into() }
    }
}

impl Found<'_> {
    /// Converts the request to the message of its method.
    ///
    /// # Errors
    /// When it is none, with the first field that is wrong.
    pub fn request<M: Message + Name + Default>(&self, query: &str, body: &[u8]) -> Result<M, BadRequest> {
        let input = self.binding.method.input();
        debug_assert_eq!(input.full_name(), M::full_name());
        let mut message = read_body(&input, &self.binding.body, body)?;
        for (field, value) in &self.variables {
            set(&mut message, field, value, "the path")?;
        }
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name =
                query_text(name).ok_or_else(|| BadRequest::field("", "a name in the query is not UTF-8"))?;
            let value = query_text(value)
                .ok_or_else(|| BadRequest::field(&*name, "its value in the query is not UTF-8"))?;
            if in_body(&self.binding.body, &name) {
                return Err(BadRequest::field(name, "belongs into the body, and not into the query"));
            }
            set(&mut message, &name, &value, "the query")?;
        }
        // JSON requests have the same limits as gRPC requests.
        let encoded = message.encode_to_vec();
        let malformed = |error: prost::DecodeError| BadRequest::field("", error.to_string());
        check_encoded(&M::full_name(), &encoded).map_err(|refused| match refused {
            Refused::Bound(bound) => bound.into(),
            Refused::Malformed(error) => malformed(error),
        })?;
        M::decode(&encoded[..]).map_err(malformed)
    }
}

/// Encodes a message as JSON. Unset fields are omitted.
///
/// # Errors
/// When a duration of it is none, which no message of a server has.
pub fn to_json<M: Message + Name>(message: &M) -> Result<Vec<u8>, serde_json::Error> {
    let descriptor = crate::pool().get_message_by_name(&M::full_name());
    let descriptor = descriptor.expect("types and descriptors are of one definition");
    let mut dynamic = DynamicMessage::new(descriptor);
    dynamic.transcode_from(message).expect("a message of this type decodes as such");
    serde_json::to_vec(&dynamic)
}

fn query_text(encoded: &str) -> Option<String> {
    let spaced = encoded.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

fn in_body(body: &Body, name: &str) -> bool {
    match body {
        Body::Empty => false,
        Body::Whole => true,
        Body::Field(field) => name.split('.').next() == Some(field),
    }
}

fn read_body(input: &MessageDescriptor, rule: &Body, body: &[u8]) -> Result<DynamicMessage, BadRequest> {
    check_json(body)?;
    match rule {
        Body::Empty if matches!(body.trim_ascii(), b"" | b"{}") => Ok(DynamicMessage::new(input.clone())),
        Body::Empty => Err(BadRequest::field("", "this method takes no body")),
        Body::Whole => parse(input, body, ""),
        Body::Field(name) => {
            let mut message = DynamicMessage::new(input.clone());
            let field = input.get_field_by_name(name);
            let inner = field.as_ref().and_then(|field| field.kind().as_message().cloned());
            // Tests of the routes verify this for the definition.
            let (Some(field), Some(inner)) = (field, inner) else {
                return Err(BadRequest::field(name, "cannot be a body"));
            };
            let prefix = format!("{name}.");
            message.set_field(&field, Value::Message(parse(&inner, body, &prefix)?));
            Ok(message)
        }
    }
}

/// Parses a JSON body; `prefix` is prepended to field names in errors.
fn parse(descriptor: &MessageDescriptor, body: &[u8], prefix: &str) -> Result<DynamicMessage, BadRequest> {
    if body.trim_ascii().is_empty() {
        return Err(BadRequest::field(
            prefix.trim_end_matches('.'),
            "the body is empty: it has to be a JSON object",
        ));
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(&mut json, &mut track);
    let parsed =
        DynamicMessage::deserialize_with_options(descriptor.clone(), tracked, &DeserializeOptions::new());
    let message = match parsed {
        Ok(message) => message,
        Err(error) => {
            let path = track.path();
            // `?` stands for a place without a name: the text ends there.
            let field = format!("{prefix}{path}").trim_end_matches(['.', '?']).to_owned();
            let form =
                if is_duration(descriptor, &path) { "; a duration is a text such as \"10s\"" } else { "" };
            return Err(BadRequest::field(field, format!("{error}{form}")));
        }
    };
    json.end().map_err(|error| BadRequest::field("", format!("more than one JSON value: {error}")))?;
    Ok(message)
}

/// True if a path in JSON leads to a duration.
fn is_duration(descriptor: &MessageDescriptor, path: &serde_path_to_error::Path) -> bool {
    let mut message = Some(descriptor.clone());
    for segment in path.iter() {
        if let serde_path_to_error::Segment::Map { key } = segment {
            let field = message.and_then(|message| {
                message.get_field_by_json_name(key).or_else(|| message.get_field_by_name(key))
            });
            message = field.and_then(|field| field.kind().as_message().cloned());
        }
    }
    message.is_some_and(|message| message.full_name() == "google.protobuf.Duration")
}

/// Sets a scalar field of a message or of one inside of it; `source` says where the text comes from.
fn set(message: &mut DynamicMessage, path: &str, text: &str, source: &str) -> Result<(), BadRequest> {
    let unknown = || BadRequest::field(path, format!("{source} has a field that the request does not have"));
    let (head, rest) = path.split_once('.').map_or((path, None), |(head, rest)| (head, Some(rest)));
    let descriptor = message.descriptor();
    let field = descriptor.get_field_by_name(head).or_else(|| descriptor.get_field_by_json_name(head));
    let field = field.ok_or_else(unknown)?;
    if let Some(rest) = rest {
        let inner = message.get_field_mut(&field).as_message_mut().ok_or_else(unknown)?;
        // The nested error lacks the start of the path.
        return set(inner, rest, text, source).map_err(|error| match error {
            BadRequest::Field { message, .. } => BadRequest::field(path, message),
            bound @ BadRequest::Bound(_) => bound,
        });
    }
    if field.cardinality() == Cardinality::Repeated {
        return Err(BadRequest::field(path, format!("a list cannot come from {source}")));
    }
    let value = scalar(&field.kind(), text)
        .map_err(|wanted| BadRequest::field(path, format!("{text:?} in {source} is not {wanted}")))?;
    if message.has_field(&field) && *message.get_field(&field) != value {
        return Err(BadRequest::field(
            path,
            format!("{source} says {text:?}, and another part of the request something else"),
        ));
    }
    message.set_field(&field, value);
    Ok(())
}

/// Parses a scalar; the error is the expected form.
fn scalar(kind: &Kind, text: &str) -> Result<Value, &'static str> {
    match kind {
        Kind::String => Ok(Value::String(text.to_owned())),
        Kind::Bool => text.parse().map(Value::Bool).map_err(|_| "true or false"),
        Kind::Uint32 => text.parse().map(Value::U32).map_err(|_| "a number from 0 to 4294967295"),
        Kind::Uint64 => text.parse().map(Value::U64).map_err(|_| "a number from 0 to 18446744073709551615"),
        // Well-known types with their own JSON form, such as durations, are JSON strings.
        Kind::Message(message) if message.full_name().starts_with("google.protobuf.") => {
            DynamicMessage::deserialize(message.clone(), serde_json::Value::String(text.to_owned()))
                .map(Value::Message)
                .map_err(|_| "a duration in seconds, such as 10s")
        }
        _ => Err("possible: this field belongs into a body"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Routes;
    use crate::v1::{
        BatchRenewRequest, Check, DeregisterRequest, HttpCheck, Instance, ListInstancesRequest, Port,
        RegisterRequest, RenewRequest, WatchRequest, check,
    };
    use prost_types::Duration;

    const PATH: &str = "/v1/namespaces/default/services/web/instances/a";

    fn read<M: Message + Name + Default>(method: &str, target: &str, body: &str) -> Result<M, BadRequest> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Routes::new().find(method, path).unwrap().request(query, body.as_bytes())
    }

    fn wrong<M: Message + Name + Default + std::fmt::Debug>(
        method: &str,
        target: &str,
        body: &str,
    ) -> (String, String) {
        match read::<M>(method, target, body) {
            Err(BadRequest::Field { field, message }) => (field, message),
            other => unreachable!("{method} {target} {body}: {other:?}"),
        }
    }

    #[test]
    fn a_registration_comes_from_path_body_and_query() {
        let body = r#"{"addresses":["10.0.0.1"],"ports":[{"number":80,"servicePort":8080},{"number":81,"service_port":81}],
            "labels":{"app":"web"},"ttl":"1.5s","healthy":false,"checks":[{"http":{"path":"/"},"interval":"2s"}]}"#;
        let request: RegisterRequest = read("PUT", &format!("{PATH}?expectedRevision=7"), body).unwrap();
        let seconds = |seconds, nanos| Some(Duration { seconds, nanos });
        let http = check::Kind::Http(HttpCheck { path: "/".into(), host: String::new() });
        let instance = Instance {
            namespace: "default".into(),
            service: "web".into(),
            id: "a".into(),
            addresses: vec!["10.0.0.1".into()],
            ports: vec![
                Port { number: 80, service_port: 8080, ..Port::default() },
                Port { number: 81, service_port: 81, ..Port::default() },
            ],
            labels: [("app".to_owned(), "web".to_owned())].into(),
            ttl: seconds(1, 500_000_000),
            healthy: Some(false),
            checks: vec![Check { kind: Some(http), interval: seconds(2, 0), ..Check::default() }],
            ..Instance::default()
        };
        assert_eq!(request, RegisterRequest { instance: Some(instance), expected_revision: Some(7) });
    }

    #[test]
    fn what_the_body_repeats_of_the_path_must_agree() {
        let same: RegisterRequest = read("PUT", PATH, r#"{"id":"a","service":"web"}"#).unwrap();
        assert_eq!(same.instance.map(|instance| instance.id), Some("a".to_owned()));
        let (field, message) = wrong::<RegisterRequest>("PUT", PATH, r#"{"id":"b"}"#);
        assert_eq!(field, "instance.id");
        assert!(message.contains("the path says \"a\""), "{message}");
    }

    #[test]
    fn other_requests() {
        let key = ("default".to_owned(), "web".to_owned(), "a".to_owned());
        let renew: RenewRequest = read("POST", &format!("{PATH}:renew"), "").unwrap();
        assert_eq!((renew.namespace, renew.service, renew.id), key.clone());
        let deregister: DeregisterRequest =
            read("DELETE", &format!("{PATH}?expected_revision=0"), "{}").unwrap();
        assert_eq!((deregister.namespace, deregister.service, deregister.id), key);
        assert_eq!(deregister.expected_revision, Some(0), "0 is said, and not the same as nothing");
        let drained: DeregisterRequest = read("DELETE", &format!("{PATH}?drain=1.5s"), "").unwrap();
        assert_eq!(drained.drain, Some(Duration { seconds: 1, nanos: 500_000_000 }));
        let list: ListInstancesRequest =
            read("GET", "/v1/instances?namespace=a%20b&pageSize=5&page_token=x+y", "").unwrap();
        assert_eq!((&*list.namespace, list.page_size, &*list.page_token), ("a b", 5, "x y"));
        let watch: WatchRequest =
            read("GET", "/v1/instances:watch?resumeRevision=12&service=web", "").unwrap();
        assert_eq!((watch.resume_revision, &*watch.service), (Some(12), "web"));
        let batch: BatchRenewRequest =
            read("POST", "/v1/instances:batchRenew", r#"{"requests":[{"id":"a"},{}]}"#).unwrap();
        assert_eq!(batch.requests.len(), 2);
    }

    #[test]
    fn fields_that_are_wrong_are_named() {
        for (body, field, part) in [
            ("", "instance", "empty"),
            ("[]", "instance", "invalid type"),
            ("{", "instance", "EOF"),
            ("{} {}", "", "more than one"),
            (
                r#"{"ports":[{"number":1},{"number":70000000000}]}"#,
                "instance.ports[1].number",
                "out of range",
            ),
            (r#"{"ports":[{"number":"x"}]}"#, "instance.ports[0].number", "invalid"),
            (r#"{"ports":{"number":1}}"#, "instance.ports", "invalid type"),
            (r#"{"ttl":10}"#, "instance.ttl", "a duration is a text such as \"10s\""),
            (r#"{"ttl":"10"}"#, "instance.ttl", "a duration is a text such as \"10s\""),
            (
                r#"{"checks":[{"tcp":{},"interval":"5 min"}]}"#,
                "instance.checks[0].interval",
                "a duration is a text such as \"10s\"",
            ),
            (r#"{"adresses":[]}"#, "instance", "unrecognized field name 'adresses'"),
            (r#"{"labels":{"a":1}}"#, "instance.labels.a", "invalid type"),
            (
                r#"{"checks":[{"tcp":{},"grpc":{}}]}"#,
                "instance.checks[0]",
                "multiple fields provided for oneof 'kind'",
            ),
        ] {
            let (found, message) = wrong::<RegisterRequest>("PUT", PATH, body);
            assert_eq!(found, field, "{body}: {message}");
            assert!(message.contains(part), "{body}: {message}");
        }
    }

    #[test]
    fn queries_that_are_wrong_are_named() {
        for (target, field, part) in [
            ("/v1/instances?pageSize=x", "pageSize", "number from 0 to"),
            ("/v1/instances?pageSize=-1", "pageSize", "number from 0 to"),
            ("/v1/instances?size=1", "size", "does not have"),
            ("/v1/instances?namespace=%ff", "namespace", "UTF-8"),
            ("/v1/instances?namespace=a&namespace=b", "namespace", "something else"),
            ("/v1/instances?namespace.x=1", "namespace.x", "does not have"),
            ("/v1/namespaces/a/instances?namespace=b", "namespace", "something else"),
        ] {
            let (found, message) = wrong::<ListInstancesRequest>("GET", target, "");
            assert_eq!(found, field, "{target}: {message}");
            assert!(message.contains(part), "{target}: {message}");
        }
        let (field, message) = wrong::<DeregisterRequest>("DELETE", &format!("{PATH}?drain=10"), "");
        assert_eq!(field, "drain");
        assert!(message.contains("such as 10s"), "{message}");
        let (field, message) = wrong::<RegisterRequest>("PUT", &format!("{PATH}?instance.weight=1"), "{}");
        assert_eq!(field, "instance.weight");
        assert!(message.contains("body"), "{message}");
        let (_, message) = wrong::<RenewRequest>("POST", &format!("{PATH}:renew"), r#"{"id":"b"}"#);
        assert!(message.contains("no body"), "{message}");
    }

    #[test]
    fn json_has_the_names_and_forms_of_proto3() {
        let response = crate::v1::RegisterResponse {
            revision: 12,
            ttl: Some(Duration { seconds: 10, nanos: 0 }),
            changed: false,
        };
        assert_eq!(
            String::from_utf8(to_json(&response).unwrap()).unwrap(),
            r#"{"revision":"12","ttl":"10s"}"#
        );
        let error = crate::v1::Error { code: 3, current_revision: 4, ..crate::v1::Error::default() };
        assert_eq!(
            String::from_utf8(to_json(&error).unwrap()).unwrap(),
            r#"{"code":"INVALID_ARGUMENT","currentRevision":"4"}"#
        );
    }

    #[test]
    fn deep_and_large_bodies_end_with_an_error() {
        let deep = format!("{{\"labels\":{}", "[".repeat(50_000));
        assert!(read::<RegisterRequest>("PUT", PATH, &deep).is_err());
        let many = format!("{{\"requests\":[{}{{}}]}}", "{},".repeat(1_000));
        let found = read::<BatchRenewRequest>("POST", "/v1/instances:batchRenew", &many);
        assert_eq!(found, Err(BadRequest::Bound(BoundExceeded::Items)));
        let large = format!("{{\"requests\":[{}{{}}]}}", "{},".repeat(400_000));
        let found = read::<BatchRenewRequest>("POST", "/v1/instances:batchRenew", &large);
        assert_eq!(found, Err(BadRequest::Bound(BoundExceeded::Values)));
    }

    proptest::proptest! {
        #[test]
        fn no_request_makes_it_panic(query in ".{0,60}", body in proptest::collection::vec(proptest::num::u8::ANY, 0..120)) {
            let routes = Routes::new();
            let _: Result<RegisterRequest, _> = routes.find("PUT", PATH).unwrap().request(&query, &body);
            let _: Result<ListInstancesRequest, _> = routes.find("GET", "/v1/instances").unwrap().request(&query, b"");
        }
    }
}
