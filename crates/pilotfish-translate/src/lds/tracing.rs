//! Tracing of requests: how many, where to, and with which tags.

use super::filters::Side;
use super::view::{Base, Tags};
use crate::Cx;
use pilotfish_config::mesh::ProxyConfig;
use pilotfish_config::telemetry::CustomTag as Written;
use pilotfish_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::Tracing;
use pilotfish_proto::envoy::r#type::metadata::v3::metadata_kind::{Kind, Request};
use pilotfish_proto::envoy::r#type::metadata::v3::metadata_key::{PathSegment, path_segment};
use pilotfish_proto::envoy::r#type::metadata::v3::{MetadataKey, MetadataKind};
use pilotfish_proto::envoy::r#type::tracing::v3::{CustomTag, custom_tag};
use pilotfish_proto::envoy::r#type::v3::Percent;
use std::collections::BTreeMap;

/// The tracing of a connection manager; `None` when nothing is traced.
pub(super) fn of(cx: &Cx<'_>, base: &Base, _side: Side, config: &ProxyConfig) -> Option<Tracing> {
    if !cx.mesh().enable_tracing {
        return None;
    }
    let settings = config.tracing.as_ref();
    let sampling = settings.map_or(0.0, |settings| settings.sampling);
    let length = settings.map_or(0, |settings| settings.max_path_tag_length);
    let mut tags: BTreeMap<String, custom_tag::Type> = dry_run_tags().chain(istio_tags(&base.tags)).collect();
    tags.extend(settings.iter().flat_map(|settings| &settings.custom_tags).filter_map(custom));
    Some(Tracing {
        client_sampling: percent(100.0),
        random_sampling: percent(if sampling > 0.0 { sampling } else { 1.0 }),
        overall_sampling: percent(100.0),
        max_path_tag_length: (length > 0).then_some(length),
        custom_tags: tags.into_iter().map(|(tag, r#type)| CustomTag { tag, r#type: Some(r#type) }).collect(),
        ..Default::default()
    })
}

#[allow(clippy::unnecessary_wraps)]
fn percent(value: f64) -> Option<Percent> {
    Some(Percent { value })
}

/// What authorization policies on trial would have said.
fn dry_run_tags() -> impl Iterator<Item = (String, custom_tag::Type)> {
    let parts = [("name", "effective_policy_id"), ("result", "engine_result")];
    ["allow", "deny"].into_iter().flat_map(move |action| {
        parts.into_iter().map(move |(part, key)| {
            let segment = path_segment::Segment::Key(format!("istio_dry_run_{action}_shadow_{key}"));
            let metadata = custom_tag::Metadata {
                kind: Some(MetadataKind { kind: Some(Kind::Request(Request {})) }),
                metadata_key: Some(MetadataKey {
                    key: "envoy.filters.http.rbac".to_owned(),
                    path: vec![PathSegment { segment: Some(segment) }],
                }),
                ..Default::default()
            };
            let tag = format!("istio.authorization.dry_run.{action}_policy.{part}");
            (tag, custom_tag::Type::Metadata(metadata))
        })
    })
}

/// Who the proxy is.
fn istio_tags(tags: &Tags) -> impl Iterator<Item = (String, custom_tag::Type)> {
    let named = [
        ("canonical_revision", &tags.revision),
        ("canonical_service", &tags.service),
        ("cluster_id", &tags.cluster),
        ("mesh_id", &tags.mesh),
        ("namespace", &tags.namespace),
    ];
    named.map(|(tag, value)| (format!("istio.{tag}"), literal(value))).into_iter()
}

fn literal(value: &str) -> custom_tag::Type {
    custom_tag::Type::Literal(custom_tag::Literal { value: value.to_owned() })
}

/// A tag of the settings; one without a source of its value is left out.
fn custom((tag, written): (&String, &Written)) -> Option<(String, custom_tag::Type)> {
    let value = match written {
        Written::Unset => return None,
        Written::Literal(literal) => {
            custom_tag::Type::Literal(custom_tag::Literal { value: literal.value.clone() })
        }
        Written::Environment(variable) => custom_tag::Type::Environment(custom_tag::Environment {
            name: variable.name.clone(),
            default_value: variable.default_value.clone(),
        }),
        Written::Header(header) => custom_tag::Type::RequestHeader(custom_tag::Header {
            name: header.name.clone(),
            default_value: header.default_value.clone(),
        }),
        Written::Formatter(formatter) => custom_tag::Type::Value(formatter.value.clone()),
    };
    Some((tag.clone(), value))
}
