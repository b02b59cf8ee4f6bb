//! The OpenAPI document, from the descriptor and its comments.

use crate::descriptor::pool;
use crate::document::comment;
use crate::routes::{Binding, Body, Routes};
use prost_reflect::{EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the OpenAPI 3.1 document of these routes; `version` is Pilotfish's.
#[must_use]
pub fn openapi(routes: &Routes, version: &str) -> Value {
    let mut schemas = Schemas::default();
    let mut paths = BTreeMap::<&str, Map<String, Value>>::new();
    let mut calls = BTreeMap::<&str, usize>::new();
    for binding in routes.bindings() {
        let call = calls.entry(binding.method.name()).or_default();
        *call += 1;
        let operation = operation(binding, *call, &mut schemas);
        paths.entry(&binding.path).or_default().insert(binding.http_method.to_lowercase(), operation);
    }
    schemas.reference_name("pilotfish.registration.v1.Error");
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Pilotfish registration",
            "description": "Services that register themselves. The same methods are served by gRPC: \
                            pilotfish.registration.v1.RegistrationService.",
            "version": version,
        },
        "paths": paths,
        "components": {
            "schemas": schemas.write(),
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer" },
                "certificate": { "type": "mutualTLS" },
            },
        },
        "security": [{ "token": [] }, { "certificate": [] }, {}],
    })
}

fn operation(binding: &Binding, call: usize, schemas: &mut Schemas) -> Value {
    let method = &binding.method;
    let description = comment(&method.parent_service().parent_file(), method.path());
    let schema = schemas.reference(&method.output());
    let media = if binding.streams() { "application/x-ndjson" } else { "application/json" };
    let mut content = json!({ media: { "schema": schema } });
    if binding.streams() {
        content["text/event-stream"] = json!({ "schema": { "type": "string" } });
    }
    let id = if call == 1 { method.name().to_owned() } else { format!("{}{call}", method.name()) };
    let error =
        json!({ "type": "object", "properties": { "error": { "$ref": "#/components/schemas/Error" } } });
    let mut operation = json!({
        "operationId": id,
        "description": description,
        "parameters": parameters(binding, schemas),
        "responses": {
            "200": { "description": "Success.", "content": content },
            "default": { "description": "Failure.", "content": { "application/json": { "schema": error } } },
        },
    });
    let body = match &binding.body {
        Body::Empty => None,
        Body::Whole => Some(schemas.reference(&method.input())),
        Body::Field(name) => {
            method.input().get_field_by_name(name).map(|field| schemas.of_kind(&field.kind()))
        }
    };
    if let Some(schema) = body {
        operation["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": schema } } });
    }
    operation
}

fn parameters(binding: &Binding, schemas: &mut Schemas) -> Vec<Value> {
    let in_path: BTreeSet<&str> = binding.template.variables().collect();
    let path = in_path
        .iter()
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }));
    let mut parameters: Vec<Value> = path.collect();
    for field in binding.method.input().fields() {
        let elsewhere = match &binding.body {
            Body::Whole => true,
            Body::Field(body) => body == field.name(),
            Body::Empty => false,
        };
        if !elsewhere && !in_path.contains(field.name()) {
            let description = comment(&field.parent_message().parent_file(), field.path());
            let schema = schemas.of_kind(&field.kind());
            parameters.push(json!({
                "name": field.json_name(), "in": "query", "description": description, "schema": schema,
            }));
        }
    }
    parameters
}

/// Names of the referenced schemas.
#[derive(Default)]
struct Schemas(BTreeSet<String>);

impl Schemas {
    fn reference(&mut self, message: &MessageDescriptor) -> Value {
        json!({ "$ref": format!("#/components/schemas/{}", self.reference_name(message.full_name())) })
    }

    /// Returns the name of a schema without its package, as in `Record.State`.
    fn reference_name(&mut self, full_name: &str) -> String {
        self.0.insert(full_name.to_owned());
        short(full_name).to_owned()
    }

    fn of_kind(&mut self, kind: &Kind) -> Value {
        match kind {
            Kind::Message(message) if message.full_name() == "google.protobuf.Duration" => {
                json!({ "type": "string", "pattern": r"^-?[0-9]+(\.[0-9]{1,9})?s$", "examples": ["10s"] })
            }
            Kind::Message(message) => self.reference(message),
            Kind::Enum(known) => {
                json!({ "$ref": format!("#/components/schemas/{}", self.reference_name(known.full_name())) })
            }
            Kind::Bool => json!({ "type": "boolean" }),
            Kind::Uint32 | Kind::Int32 => json!({ "type": "integer" }),
            Kind::Uint64 | Kind::Int64 => {
                json!({ "type": "string", "format": "uint64", "pattern": "^[0-9]+$" })
            }
            _ => json!({ "type": "string" }),
        }
    }

    /// Returns a field's schema with its comment.
    fn of_field(&mut self, field: &FieldDescriptor) -> Value {
        let mut schema = match field.kind() {
            Kind::Message(entry) if field.is_map() => {
                let value = entry.map_entry_value_field().kind();
                json!({ "type": "object", "additionalProperties": self.of_kind(&value) })
            }
            kind if field.is_list() => json!({ "type": "array", "items": self.of_kind(&kind) }),
            kind => self.of_kind(&kind),
        };
        schema["description"] = Value::String(comment(&field.parent_message().parent_file(), field.path()));
        schema
    }

    fn of_message(&mut self, message: &MessageDescriptor) -> Value {
        let properties: Map<String, Value> =
            message.fields().map(|field| (field.json_name().to_owned(), self.of_field(&field))).collect();
        let description = comment(&message.parent_file(), message.path());
        json!({ "type": "object", "description": description, "properties": properties })
    }

    /// Returns all referenced schemas, including indirect references.
    fn write(mut self) -> Map<String, Value> {
        let mut written = Map::new();
        while let Some(name) = self.0.iter().find(|name| !written.contains_key(short(name))).cloned() {
            let schema = match (pool().get_message_by_name(&name), pool().get_enum_by_name(&name)) {
                (Some(message), _) => self.of_message(&message),
                (None, Some(known)) => of_enum(&known),
                (None, None) => json!({}),
            };
            written.insert(short(&name).to_owned(), schema);
        }
        written
    }
}

fn of_enum(known: &EnumDescriptor) -> Value {
    let names: Vec<String> = known.values().map(|value| value.name().to_owned()).collect();
    let comments = known
        .values()
        .map(|value| format!("{}: {}", value.name(), comment(&known.parent_file(), value.path())));
    let about = comment(&known.parent_file(), known.path());
    let description = std::iter::once(about).chain(comments).collect::<Vec<_>>().join("\n");
    json!({ "type": "string", "enum": names, "description": description })
}

/// Returns a name without its package.
pub(crate) fn short(full_name: &str) -> &str {
    full_name.strip_prefix("pilotfish.registration.v1.").unwrap_or(full_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All `$ref`s of a document.
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_to_a_schema_and_everything_is_described() {
        let document = openapi(&Routes::new(), "1.2.3");
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 20, "{}", found.len());
        for reference in found {
            let pointer = reference.trim_start_matches('#');
            let schema = document.pointer(pointer).unwrap_or_else(|| unreachable!("{reference}"));
            assert_ne!(schema["description"], "", "{reference}");
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                assert!(
                    field["description"].as_str().is_some_and(|text| !text.is_empty()),
                    "{reference}: {name}"
                );
            }
        }
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                assert!(
                    operation["description"].as_str().is_some_and(|text| text.len() > 10),
                    "{method} {path}"
                );
            }
        }
    }

    #[test]
    fn operations_say_where_their_fields_are() {
        let document = openapi(&Routes::new(), "1.2.3");
        let register = &document["paths"]["/v1/namespaces/{instance.namespace}/services/{instance.service}/instances/{instance.id}"]
            ["put"];
        assert_eq!(register["operationId"], "Register");
        assert_eq!(
            register["requestBody"]["content"]["application/json"]["schema"]["$ref"],
            "#/components/schemas/Instance"
        );
        let names: Vec<&str> =
            register["parameters"].as_array().unwrap().iter().filter_map(|p| p["name"].as_str()).collect();
        assert_eq!(names, ["instance.id", "instance.namespace", "instance.service", "expectedRevision"]);
        assert_eq!(document["paths"]["/v1/instances"]["post"]["operationId"], "Register2");
        let ttl = &document["components"]["schemas"]["Instance"]["properties"]["ttl"];
        assert_eq!(ttl["type"], "string");
        let state = &document["components"]["schemas"]["Record.State"];
        assert_eq!(state["enum"], json!(["STATE_UNSPECIFIED", "SERVING", "DRAINING"]));
    }
}
