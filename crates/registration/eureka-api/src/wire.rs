//! Bodies of requests: JSON or XML, by their content type.

use crate::xml;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName};
use pilotfish_eureka_wire::InstanceInfo;
use pilotfish_registration_server::Failure;
use serde::Deserialize;

/// Maximum number of bytes of one instance: far more than the document of one that is kept.
const MAX_INSTANCE_BYTES: usize = 256 << 10;

/// Form of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Xml,
}

impl Form {
    /// Returns the form that a client accepts: XML unless it names JSON, as Netflix's server does.
    pub(crate) fn accepted(headers: &HeaderMap) -> Self {
        if header(headers, &ACCEPT).contains("json") { Self::Json } else { Self::Xml }
    }

    /// Returns the form of a request's body: JSON unless its content type is XML.
    fn of_request(headers: &HeaderMap) -> Result<Self, Failure> {
        let media = header(headers, &CONTENT_TYPE);
        match media {
            _ if media.contains("xml") => Ok(Self::Xml),
            _ if media.is_empty() || media.contains("json") => Ok(Self::Json),
            _ => Err(Failure::invalid(format!("content-type: {media:?} is neither JSON nor XML"))),
        }
    }

    pub(crate) fn media(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Xml => "application/xml",
        }
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Refuses an instance that is too long, before it is decoded.
pub(crate) fn check_length(bytes: usize) -> Result<(), Failure> {
    match bytes > MAX_INSTANCE_BYTES {
        true => {
            Err(Failure::invalid(format!("the instance has {bytes} bytes, more than {MAX_INSTANCE_BYTES}")))
        }
        false => Ok(()),
    }
}

/// Reads the instance of a registration.
pub(crate) fn instance(headers: &HeaderMap, body: &[u8]) -> Result<InstanceInfo, Failure> {
    #[derive(Deserialize)]
    struct Envelope {
        instance: InstanceInfo,
    }
    check_length(body.len())?;
    match Form::of_request(headers)? {
        Form::Json => {
            let envelope: Result<Envelope, _> = serde_json::from_slice(body);
            let wrong = |error| Failure::invalid(format!("the body is no instance in JSON: {error}"));
            Ok(envelope.map_err(wrong)?.instance)
        }
        Form::Xml => {
            let wrong = |error: &dyn std::fmt::Display| {
                Failure::invalid(format!("the body is no instance in XML: {error}"))
            };
            let text = std::str::from_utf8(body).map_err(|error| wrong(&error))?;
            let value = xml::read(text).map_err(|error| wrong(&error))?;
            serde_json::from_value(value).map_err(|error| wrong(&error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn the_form_is_that_of_the_headers() {
        for (accept, expected) in [
            ("application/json", Form::Json),
            ("application/json, application/*+json", Form::Json),
            ("application/xml", Form::Xml),
            ("*/*", Form::Xml),
        ] {
            assert_eq!(Form::accepted(&headers(ACCEPT, accept)), expected, "{accept}");
        }
        assert_eq!(Form::accepted(&HeaderMap::new()), Form::Xml);
    }

    #[test]
    fn bodies_that_are_no_instance_are_refused_with_the_place() {
        for (media, body, part) in [
            ("application/json", "{", "no instance in JSON: EOF"),
            ("application/json", "{}", "missing field `instance`"),
            ("application/json", r#"{"instance":{"port":{"$":"x"}}}"#, "a port is no number"),
            ("application/xml", "{}", "no instance in XML"),
            ("text/plain", "{}", "content-type: \"text/plain\" is neither"),
        ] {
            let failure = instance(&headers(CONTENT_TYPE, media), body.as_bytes()).unwrap_err();
            assert!(failure.message().contains(part), "{body}: {failure:?}");
            assert_eq!(failure.http_status(), 400);
        }
        let long = vec![b' '; MAX_INSTANCE_BYTES + 1];
        assert!(instance(&HeaderMap::new(), &long).unwrap_err().message().contains("more than 262144"));
    }
}
