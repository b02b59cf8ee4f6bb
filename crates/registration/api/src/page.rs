//! The API documentation as one HTML page without scripts.

use crate::descriptor::{SERVICE, pool};
use crate::document::comment;
use crate::openapi::short;
use crate::routes::Routes;
use prost_reflect::{EnumDescriptor, Kind, MessageDescriptor, MethodDescriptor};
use std::collections::BTreeSet;
use std::fmt::Write;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
code,pre{font:14px ui-monospace,monospace;background:#8882;padding:.1em .3em}pre{padding:1em;overflow:auto}\
table{border-collapse:collapse;width:100%}\
td{border-top:1px solid #8884;padding:.3em .6em .3em 0;vertical-align:top}\
:root{color-scheme:light dark}";

const EXAMPLE: &str = "curl -X PUT $ADDRESS/v1/namespaces/default/services/web/instances/a \\\n  \
-d '{\"addresses\":[\"10.0.0.1\"],\"ports\":[{\"number\":8080}],\"ttl\":\"30s\"}'\n\
curl -X POST $ADDRESS/v1/namespaces/default/services/web/instances/a:renew\n\
curl -X DELETE $ADDRESS/v1/namespaces/default/services/web/instances/a";

/// Returns the HTML page of these routes.
#[must_use]
pub fn page(routes: &Routes) -> String {
    let mut html = String::new();
    // Writing to a String does not fail.
    let _ = write!(
        html,
        "<!doctype html><html lang=en><meta charset=utf-8><title>Pilotfish registration</title>\
         <style>{STYLE}</style>\
         <h1>Registration</h1>\
         <p>Services register themselves here, by HTTP or by gRPC (<code>{SERVICE}</code>). \
         <a href=/openapi.json>OpenAPI document</a></p><pre>{}</pre><h2>Methods</h2>",
        escape(EXAMPLE)
    );
    let mut types = BTreeSet::new();
    for method in
        pool().get_service_by_name(SERVICE).iter().flat_map(|service| service.methods().collect::<Vec<_>>())
    {
        write_method(&mut html, routes, &method);
        collect(&method.input(), &mut types);
        collect(&method.output(), &mut types);
    }
    html.push_str("<h2>Types</h2>");
    types.insert("pilotfish.registration.v1.Error".to_owned());
    types.insert("pilotfish.registration.v1.Error.Code".to_owned());
    for name in &types {
        match (pool().get_message_by_name(name), pool().get_enum_by_name(name)) {
            (Some(message), _) => write_message(&mut html, &message),
            (None, Some(known)) => write_enum(&mut html, &known),
            (None, None) => {}
        }
    }
    html
}

fn write_method(html: &mut String, routes: &Routes, method: &MethodDescriptor) {
    let about = comment(&method.parent_service().parent_file(), method.path());
    let _ = write!(html, "<h3>{}</h3><p>{}</p>", method.name(), escape(&about));
    for binding in routes.bindings().iter().filter(|binding| binding.method == *method) {
        let _ = write!(html, "<p><code>{} {}</code></p>", binding.http_method, escape(&binding.path));
    }
    let _ =
        write!(html, "<p>{} → {}</p>", link(method.input().full_name()), link(method.output().full_name()));
}

fn write_message(html: &mut String, message: &MessageDescriptor) {
    let file = message.parent_file();
    heading(html, message.full_name(), &comment(&file, message.path()));
    html.push_str("<table>");
    for field in message.fields() {
        let kind = match field.kind() {
            Kind::Message(entry) if field.is_map() => {
                format!("map of {}", kind(&entry.map_entry_value_field().kind()))
            }
            of if field.is_list() => format!("list of {}", kind(&of)),
            of => kind(&of),
        };
        let about = escape(&comment(&file, field.path()));
        let _ = write!(html, "<tr><td><code>{}</code><td>{kind}<td>{about}", field.json_name());
    }
    html.push_str("</table>");
}

fn write_enum(html: &mut String, known: &EnumDescriptor) {
    let file = known.parent_file();
    heading(html, known.full_name(), &comment(&file, known.path()));
    html.push_str("<table>");
    for value in known.values() {
        let _ = write!(
            html,
            "<tr><td><code>{}</code><td>{}",
            value.name(),
            escape(&comment(&file, value.path()))
        );
    }
    html.push_str("</table>");
}

fn heading(html: &mut String, full_name: &str, about: &str) {
    let name = short(full_name);
    let _ = write!(html, "<h3 id={name}>{name}</h3><p>{}</p>", escape(about));
}

fn kind(kind: &Kind) -> String {
    match kind {
        Kind::Message(message) if message.full_name() == "google.protobuf.Duration" => {
            "duration (<code>10s</code>)".to_owned()
        }
        Kind::Message(message) => link(message.full_name()),
        Kind::Enum(known) => link(known.full_name()),
        Kind::Bool => "bool".to_owned(),
        Kind::Uint32 => "number".to_owned(),
        Kind::Uint64 => "number, as text".to_owned(),
        _ => "text".to_owned(),
    }
}

fn link(full_name: &str) -> String {
    let name = short(full_name);
    format!("<a href=\"#{name}\">{name}</a>")
}

/// Collects the types of a message and of nested ones, by full name.
fn collect(message: &MessageDescriptor, types: &mut BTreeSet<String>) {
    if message.parent_file().package_name() == "google.protobuf" || message.is_map_entry() {
        return;
    }
    if types.insert(message.full_name().to_owned()) {
        for field in message.fields() {
            match field.kind() {
                Kind::Message(inner) => collect(&inner, types),
                Kind::Enum(known) => {
                    types.insert(known.full_name().to_owned());
                }
                _ => {}
            }
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_leads_to_a_type() {
        let html = page(&Routes::new());
        let targets: Vec<&str> =
            html.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(targets.len() > 30, "{}", targets.len());
        for target in targets {
            assert!(html.contains(&format!("<h3 id={target}>")), "{target}");
        }
        assert!(html.contains("PUT /v1/namespaces/{instance.namespace}"));
        assert!(!html.contains("<script"));
    }
}
