//! [grpc] `request.proto`, `response.proto`, `service.proto`, `model.proto`: messages with the used fields.
#![allow(missing_docs, reason = "the fields have the names of Polaris' specification")]

use super::codes::info;
use super::element::{Element, number, text};
use serde_json::Value;
use std::collections::HashMap;

pub const INSTANCE: i32 = 1;
pub const SERVICES: i32 = 6;

#[derive(Clone, PartialEq, prost::Message)]
pub struct DiscoverRequest {
    #[prost(int32, tag = "1")]
    pub r#type: i32,
    #[prost(message, optional, tag = "2")]
    pub service: Option<Service>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct DiscoverResponse {
    #[prost(message, optional, tag = "1")]
    pub code: Option<u32>,
    #[prost(message, optional, tag = "2")]
    pub info: Option<String>,
    #[prost(int32, tag = "3")]
    pub r#type: i32,
    #[prost(message, optional, tag = "4")]
    pub service: Option<Service>,
    #[prost(message, repeated, tag = "5")]
    pub instances: Vec<Instance>,
    #[prost(message, repeated, tag = "9")]
    pub services: Vec<Service>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Service {
    #[prost(message, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(message, optional, tag = "2")]
    pub namespace: Option<String>,
    #[prost(map = "string, string", tag = "3")]
    pub metadata: HashMap<String, String>,
    #[prost(message, optional, tag = "11")]
    pub owners: Option<String>,
    #[prost(message, optional, tag = "15")]
    pub revision: Option<String>,
    #[prost(message, optional, tag = "21")]
    pub id: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Instance {
    #[prost(message, optional, tag = "1")]
    pub id: Option<String>,
    #[prost(message, optional, tag = "2")]
    pub service: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub namespace: Option<String>,
    #[prost(message, optional, tag = "4")]
    pub host: Option<String>,
    #[prost(message, optional, tag = "5")]
    pub port: Option<u32>,
    #[prost(message, optional, tag = "6")]
    pub protocol: Option<String>,
    #[prost(message, optional, tag = "7")]
    pub version: Option<String>,
    #[prost(message, optional, tag = "9")]
    pub weight: Option<u32>,
    #[prost(message, optional, tag = "11")]
    pub healthy: Option<bool>,
    #[prost(message, optional, tag = "12")]
    pub isolate: Option<bool>,
    #[prost(message, optional, tag = "13")]
    pub location: Option<Location>,
    #[prost(map = "string, string", tag = "14")]
    pub metadata: HashMap<String, String>,
    #[prost(message, optional, tag = "18")]
    pub revision: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Location {
    #[prost(message, optional, tag = "1")]
    pub region: Option<String>,
    #[prost(message, optional, tag = "2")]
    pub zone: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub campus: Option<String>,
}

pub(super) fn answer(code: u32, kind: i32, service: Service) -> DiscoverResponse {
    DiscoverResponse {
        code: Some(code),
        info: Some(info(code).to_owned()),
        r#type: kind,
        service: Some(service),
        ..DiscoverResponse::default()
    }
}

fn owned(element: &Element, name: &str) -> Option<String> {
    text(element, name).map(str::to_owned)
}

fn small(element: &Element, name: &str) -> Option<u32> {
    number(element, name).and_then(|number| u32::try_from(number).ok())
}

fn metadata(element: &Element) -> HashMap<String, String> {
    let given = element.get("metadata").and_then(Value::as_object).into_iter().flatten();
    given.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
}

pub(super) fn service(given: &Element) -> Service {
    let of = |name| owned(given, name);
    Service {
        name: of("name"),
        namespace: of("namespace"),
        metadata: metadata(given),
        owners: Some(of("owners").unwrap_or_default()),
        revision: of("revision"),
        id: of("id"),
    }
}

/// [rec grpc-discover] The metadata of an instance includes its location, version and protocol.
pub(super) fn instance(given: &Element) -> Instance {
    let of = |name| owned(given, name);
    let location = given.get("location").and_then(Value::as_object);
    let mut all = metadata(given);
    for name in ["version", "protocol"] {
        all.extend(of(name).map(|value| (name.to_owned(), value)));
    }
    for name in ["region", "zone", "campus"] {
        all.extend(location.map(|place| (name.to_owned(), owned(place, name).unwrap_or_default())));
    }
    Instance {
        id: of("id"),
        service: of("service"),
        namespace: of("namespace"),
        host: of("host"),
        port: small(given, "port"),
        protocol: of("protocol"),
        version: of("version"),
        weight: small(given, "weight"),
        healthy: given.get("healthy").and_then(Value::as_bool),
        isolate: given.get("isolate").and_then(Value::as_bool),
        location: location.map(|place| Location {
            region: owned(place, "region"),
            zone: owned(place, "zone"),
            campus: owned(place, "campus"),
        }),
        metadata: all,
        revision: of("revision"),
    }
}
