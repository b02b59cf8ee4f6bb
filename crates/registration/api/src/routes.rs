//! The HTTP routes of the API, from the annotations of its methods.

use crate::descriptor::{SERVICE, pool};
use crate::template::Template;
use prost_reflect::{DynamicMessage, MethodDescriptor, Value};

#[derive(Debug)]
pub struct Routes(Vec<Binding>);

/// One HTTP binding of a method.
#[derive(Debug)]
pub struct Binding {
    pub(crate) http_method: &'static str,
    pub(crate) path: String,
    pub(crate) template: Template,
    pub(crate) body: Body,
    pub(crate) method: MethodDescriptor,
}

/// Mapping of a request body to the message of the method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Empty,
    /// The message, without the fields in the path.
    Whole,
    /// This field of the message.
    Field(String),
}

/// The route that matches a request.
#[derive(Debug)]
pub struct Found<'a> {
    pub(crate) binding: &'a Binding,
    /// The variables of the path: field and value.
    pub(crate) variables: Vec<(&'a str, String)>,
}

/// Reason that a request has no route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoRoute {
    /// The path does not exist.
    Path,
    /// The path supports only these methods.
    Method(Vec<&'static str>),
}

impl Binding {
    /// Returns the method's name, as in `Register`.
    #[must_use]
    pub fn rpc(&self) -> &str {
        self.method.name()
    }

    /// True for a server-streaming method.
    #[must_use]
    pub fn streams(&self) -> bool {
        self.method.is_server_streaming()
    }
}

impl Found<'_> {
    #[must_use]
    pub fn binding(&self) -> &Binding {
        self.binding
    }
}

impl Default for Routes {
    fn default() -> Self {
        Self::new()
    }
}

impl Routes {
    /// Builds the routes of the service's methods.
    #[must_use]
    pub fn new() -> Self {
        let service = pool().get_service_by_name(SERVICE).expect("the definition has it: tested");
        let http =
            pool().get_extension_by_name("google.api.http").expect("the definition imports it: tested");
        let mut bindings = Vec::new();
        for method in service.methods() {
            let options = method.options();
            if let (true, Some(rule)) =
                (options.has_extension(&http), options.get_extension(&http).as_message())
            {
                bindings.push(binding(&method, rule));
                let more = rule.get_field_by_name("additional_bindings");
                let more = more.as_deref().and_then(Value::as_list).unwrap_or_default();
                bindings.extend(more.iter().filter_map(Value::as_message).map(|rule| binding(&method, rule)));
            }
        }
        Self(bindings)
    }

    /// Returns the route of a request. `path` has no query.
    ///
    /// # Errors
    /// When there is none.
    pub fn find(&self, http_method: &str, path: &str) -> Result<Found<'_>, NoRoute> {
        let mut others = Vec::new();
        for binding in &self.0 {
            if let Some(variables) = binding.template.matches(path) {
                if binding.http_method == http_method {
                    return Ok(Found { binding, variables });
                }
                others.push(binding.http_method);
            }
        }
        Err(if others.is_empty() { NoRoute::Path } else { NoRoute::Method(others) })
    }

    /// All routes, in the order of the definition.
    pub(crate) fn bindings(&self) -> &[Binding] {
        &self.0
    }
}

/// Returns the binding of an HTTP rule. Rules that it cannot express fail the tests, not a request.
fn binding(method: &MethodDescriptor, rule: &DynamicMessage) -> Binding {
    let text = |field: &str| {
        let value = rule.get_field_by_name(field);
        value.as_deref().and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let methods =
        [("get", "GET"), ("put", "PUT"), ("post", "POST"), ("delete", "DELETE"), ("patch", "PATCH")];
    let pattern = methods.into_iter().find(|(field, _)| rule.has_field_by_name(field));
    let (field, http_method) = pattern.expect("a rule has a pattern: tested");
    let path = text(field);
    let template = Template::parse(&path).expect("paths of the definition parse: tested");
    let body = match text("body").as_str() {
        "" => Body::Empty,
        "*" => Body::Whole,
        field => Body::Field(field.to_owned()),
    };
    Binding { http_method, path, template, body, method: method.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_find_their_methods() {
        let routes = Routes::new();
        let instance = "/v1/namespaces/default/services/web/instances/a";
        for (method, path, expected) in [
            ("PUT", instance, Ok("Register")),
            ("POST", "/v1/instances", Ok("Register")),
            ("GET", instance, Ok("GetInstance")),
            ("DELETE", instance, Ok("Deregister")),
            ("POST", &format!("{instance}:renew"), Ok("Renew")),
            ("POST", "/v1/instances:batchRegister", Ok("BatchRegister")),
            ("POST", "/v1/instances:batchRenew", Ok("BatchRenew")),
            ("POST", "/v1/instances:batchDeregister", Ok("BatchDeregister")),
            ("GET", "/v1/instances", Ok("ListInstances")),
            ("GET", "/v1/namespaces/default/instances", Ok("ListInstances")),
            ("GET", "/v1/namespaces/default/services/web/instances", Ok("ListInstances")),
            ("GET", "/v1/instances:watch", Ok("Watch")),
            ("PATCH", "/v1/instances", Err(NoRoute::Method(vec!["POST", "GET"]))),
            ("GET", "/v2/instances", Err(NoRoute::Path)),
            ("GET", "/v1/namespaces//instances", Err(NoRoute::Path)),
        ] {
            let found = routes.find(method, path).map(|found| found.binding.rpc().to_owned());
            assert_eq!(found, expected.map(str::to_owned), "{method} {path}");
        }
    }

    #[test]
    fn variables_and_bodies_are_fields_of_the_request() {
        for Binding { template, body, method, path, .. } in Routes::new().bindings() {
            for field in template.variables() {
                let mut message = method.input();
                let mut parts = field.split('.').peekable();
                while let Some(part) = parts.next() {
                    let known =
                        message.get_field_by_name(part).unwrap_or_else(|| unreachable!("{path}: {field}"));
                    if parts.peek().is_some() {
                        message = known.kind().as_message().cloned().unwrap();
                    }
                }
            }
            if let Body::Field(field) = body {
                assert!(method.input().get_field_by_name(field).is_some(), "{path}: {field}");
            }
        }
    }
}
