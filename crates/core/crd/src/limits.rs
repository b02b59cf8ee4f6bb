//! Constraints of single fields in schemas, as far as a schema can express the rules of validation.
//!
//! A path names fields from the object down; `[]` matches the items of a list, `{}` the values of a map, and
//! `**` at the beginning any depth. A schema is never stricter than `validate`: a test checks objects that
//! the reader accepts against it.

use pilotfish_model::Kind;
use serde_json::{Map, Value, json};

/// Constraint on a field.
#[derive(Clone, Copy, Debug)]
enum Limit {
    /// Fields that must be set.
    Required(&'static [&'static str]),
    /// Fields of which at most one may be set.
    AtMostOne(&'static [&'static str]),
    /// Range of a number.
    Range(i64, i64),
    /// Minimum of a number.
    AtLeast(i64),
    /// Minimum and maximum length of a list.
    Items(u32, u32),
    /// A string that must not be empty.
    NotEmpty,
    /// Pattern of a string.
    Pattern(&'static str),
    /// Allowed values of a string.
    OneOf(&'static [&'static str]),
    /// An object with any content, but no other type of value.
    FreeObject,
    /// A string that is kept for other programs, and not used here.
    KeptText(&'static str),
    /// A CEL rule and its message.
    Rule(&'static str, &'static str),
}

type Limits = &'static [(&'static str, Limit)];

use Limit::{
    AtLeast, AtMostOne, FreeObject, Items, KeptText, NotEmpty, OneOf, Pattern, Range, Required, Rule,
};

const MANY: u32 = u32::MAX;
const PORT: Limit = Range(1, 65_535);
const PERCENT: Limit = Range(0, 100);
/// Port number, or 0 for none.
const PORT_OR_NONE: Limit = Range(0, 65_535);

const TARGET: Limit = Required(&["kind", "name"]);

/// Objects without meaning if `spec` is missing.
const SPEC: Limits = &[("", Required(&["spec"]))];

/// Policies with a selector or target references.
const TARGETS: Limits = &[
    ("spec", AtMostOne(&["selector", "targetRef", "targetRefs"])),
    ("**.targetRef", TARGET),
    ("**.targetRefs[]", TARGET),
    ("spec.targetRefs", Items(0, 16)),
];

const DESTINATIONS: Limits = &[
    ("**.destination", Required(&["host"])),
    ("**.destination.host", NotEmpty),
    ("**.destination.port", Required(&["number"])),
    ("**.destination.port.number", PORT),
];

const VIRTUAL_SERVICE: Limits = &[
    ("**.mirror", Required(&["host"])),
    ("**.mirror.host", NotEmpty),
    ("**.mirrors[]", Required(&["destination"])),
    ("**.route[]", Required(&["destination"])),
    ("**.route[].weight", AtLeast(0)),
    ("spec.http[].delegate", Required(&["name"])),
    ("spec.http[].delegate.name", NotEmpty),
    ("spec.http[].redirect", AtMostOne(&["port", "derivePort"])),
    ("spec.http[].redirect.port", PORT),
    ("spec.http[].redirect.scheme", OneOf(&["", "http", "https"])),
    ("spec.http[].directResponse", Required(&["status"])),
    ("spec.http[].directResponse.status", Range(200, 599)),
    ("spec.http[].directResponse.body", AtMostOne(&["string", "bytes"])),
    ("spec.http[].rewrite.uriRegexRewrite", Required(&["match"])),
    ("spec.http[].rewrite.uriRegexRewrite.match", NotEmpty),
    ("spec.http[].retries.attempts", AtLeast(0)),
    ("spec.http[].mirrorPercent", PERCENT),
    ("**.percentage.value", PERCENT),
    ("**.mirrorPercentage.value", PERCENT),
    ("**.fault.*.percent", PERCENT),
    ("spec.http[].fault.abort", AtMostOne(&["httpStatus", "grpcStatus", "http2Error"])),
    ("spec.http[].fault.abort.httpStatus", Range(200, 599)),
];

const DESTINATION_RULE: Limits = &[
    ("spec", Required(&["host"])),
    ("spec.host", NotEmpty),
    ("spec.subsets[]", Required(&["name"])),
    ("spec.subsets[].name", NotEmpty),
    ("**.portLevelSettings[]", Required(&["port"])),
    ("**.portLevelSettings[].port", Required(&["number"])),
    ("**.portLevelSettings[].port.number", PORT),
    ("**.loadBalancer", AtMostOne(&["simple", "consistentHash"])),
    (
        "**.consistentHash",
        AtMostOne(&["httpHeaderName", "httpCookie", "useSourceIp", "httpQueryParameterName"]),
    ),
    ("**.httpCookie", Required(&["name"])),
    ("**.httpCookie.name", NotEmpty),
    ("**.httpCookie.attributes[]", Required(&["name"])),
    ("**.warmup", Required(&["duration"])),
    ("**.warmup.minimumPercent", PERCENT),
    ("**.warmup.aggression", AtLeast(0)),
    ("**.retryBudget.percent", PERCENT),
    ("**.maxEjectionPercent", PERCENT),
    ("**.minHealthPercent", PERCENT),
    ("**.failurePercentageThreshold", PERCENT),
    ("**.tcp.maxConnections", AtLeast(0)),
    ("**.http.http1MaxPendingRequests", AtLeast(0)),
    ("**.http.http2MaxRequests", AtLeast(0)),
    ("**.http.maxRequestsPerConnection", AtLeast(0)),
    ("**.http.maxRetries", AtLeast(0)),
    ("**.http.maxConcurrentStreams", AtLeast(0)),
    ("**.tunnel", Required(&["targetHost", "targetPort"])),
    ("**.tunnel.protocol", OneOf(&["", "CONNECT", "POST"])),
    ("**.tunnel.targetPort", PORT),
    ("**.maglev.tableSize", Range(0, 5_000_010)),
];

const GATEWAY: Limits = &[
    ("spec", Required(&["servers"])),
    ("spec.servers", Items(1, MANY)),
    ("spec.servers[]", Required(&["hosts", "port"])),
    ("spec.servers[].hosts", Items(1, MANY)),
    ("spec.servers[].port", Required(&["name", "protocol"])),
    ("spec.servers[].port.name", NotEmpty),
    ("spec.servers[].port.number", PORT_OR_NONE),
    ("spec.servers[].tls.credentialNames", Items(0, 2)),
    ("spec.servers[].tls.tlsCertificates", Items(0, 2)),
];

const SERVICE_ENTRY: Limits = &[
    ("spec", Required(&["hosts"])),
    ("spec.hosts", Items(1, MANY)),
    ("spec.ports[]", Required(&["name", "number"])),
    ("spec.ports[].number", PORT),
    ("spec.ports[].targetPort", PORT_OR_NONE),
    ("spec.endpoints[].ports{}", PORT),
];

const WORKLOAD_GROUP: Limits = &[
    ("spec", Required(&["template"])),
    ("spec.template.ports{}", PORT),
    ("spec.probe", AtMostOne(&["httpGet", "tcpSocket", "exec", "grpc"])),
    ("spec.probe.initialDelaySeconds", AtLeast(0)),
    ("spec.probe.timeoutSeconds", AtLeast(0)),
    ("spec.probe.periodSeconds", AtLeast(0)),
    ("spec.probe.successThreshold", AtLeast(0)),
    ("spec.probe.failureThreshold", AtLeast(0)),
    ("spec.probe.httpGet", Required(&["port"])),
    ("spec.probe.httpGet.port", PORT),
    ("spec.probe.httpGet.scheme", OneOf(&["", "HTTP", "HTTPS"])),
    ("spec.probe.tcpSocket", Required(&["port"])),
    ("spec.probe.tcpSocket.port", PORT),
    ("spec.probe.grpc", Required(&["port"])),
    ("spec.probe.grpc.port", PORT),
    ("spec.probe.exec", Required(&["command"])),
    ("spec.probe.exec.command", Items(1, MANY)),
];

const AUTHORIZATION_POLICY: Limits =
    &[("spec.rules[].from[]", Required(&["source"])), ("spec.rules[].to[]", Required(&["operation"]))];

const PEER_AUTHENTICATION: Limits = &[(
    "spec.portLevelMtls",
    Rule("self.all(port, 0 < int(port) && int(port) <= 65535)", "a key is a port, 1 to 65535"),
)];

const REQUEST_AUTHENTICATION: Limits = &[
    ("spec.jwtRules[]", Required(&["issuer"])),
    ("spec.jwtRules[].issuer", NotEmpty),
    ("spec.jwtRules[].fromHeaders[]", Required(&["name"])),
    ("spec.jwtRules[].fromHeaders[].name", NotEmpty),
    ("spec.jwtRules[].outputClaimToHeaders[]", Required(&["claim", "header"])),
    ("spec.jwtRules[].outputClaimToHeaders[].claim", NotEmpty),
];

const TELEMETRY: Limits = &[
    ("**.providers[]", Required(&["name"])),
    ("**.providers[].name", NotEmpty),
    ("spec.tracing[].randomSamplingPercentage", PERCENT),
    ("spec.metrics[].overrides[].match", AtMostOne(&["metric", "customMetric"])),
];

const WASM_PLUGIN: Limits = &[
    ("spec", Required(&["url"])),
    ("spec.url", NotEmpty),
    ("spec.sha256", Pattern("^([a-f0-9]{64})?$")),
    ("spec.match[].ports[].number", PORT),
    ("spec.vmConfig.env", Items(0, 256)),
    ("spec.vmConfig.env[]", Required(&["name"])),
    ("spec.vmConfig.env[].name", NotEmpty),
];

const TRAFFIC_EXTENSION: Limits = &[
    ("spec.wasm", Required(&["url"])),
    ("spec.wasm.url", NotEmpty),
    ("spec.wasm.sha256", Pattern("^([a-f0-9]{64})?$")),
    ("spec.lua", Required(&["inlineCode"])),
    ("spec.lua.inlineCode", NotEmpty),
    ("spec", AtMostOne(&["wasm", "lua"])),
    ("spec", AtMostOne(&["selector", "targetRefs"])),
    ("spec.targetRefs", Items(0, 16)),
    ("spec.targetRefs[]", TARGET),
    ("spec.match[].ports[].number", PORT),
    ("spec.wasm.vmConfig.env", Items(0, 256)),
    ("spec.wasm.vmConfig.env[]", Required(&["name"])),
    ("spec.wasm.vmConfig.env[].name", NotEmpty),
];

const KUBERNETES_GATEWAY: Limits = &[
    ("spec", Required(&["gatewayClassName", "listeners"])),
    ("spec.gatewayClassName", NotEmpty),
    ("spec.listeners[]", Required(&["name", "port", "protocol"])),
    ("spec.listeners[].port", PORT),
];

const LISTENER_SET: Limits = &[
    ("spec", Required(&["parentRef", "listeners"])),
    ("spec.parentRef", Required(&["name"])),
    ("spec.parentRef.name", NotEmpty),
    ("spec.listeners[]", Required(&["name", "protocol"])),
    ("spec.listeners[].port", PORT_OR_NONE),
];

/// Listeners of a Gateway or ListenerSet.
const LISTENERS: Limits = &[
    ("spec.listeners", Items(1, 64)),
    ("spec.listeners[].name", NotEmpty),
    ("spec.listeners[].protocol", NotEmpty),
    ("spec.listeners[].tls.certificateRefs[]", Required(&["name"])),
    ("spec.listeners[].tls.certificateRefs[].name", NotEmpty),
];

const WORKLOAD_ENTRY: Limits = &[("spec.ports{}", PORT)];

const SIDECAR: Limits = &[
    ("spec.ingress[]", Required(&["port"])),
    ("spec.ingress[].port", Required(&["number"])),
    ("spec.ingress[].port.number", PORT),
];

const ENVOY_FILTER: Limits = &[("**.patch.value", FreeObject), ("spec.targetRefs[]", TARGET)];

const PROXY_CONFIG: Limits = &[("spec.concurrency", AtLeast(0))];

const GATEWAY_CLASS: Limits = &[("spec", Required(&["controllerName"])), ("spec", KeptText("description"))];

const SERVICE_IMPORT: Limits = &[
    ("spec.ports[]", Required(&["port"])),
    ("spec.ports[].port", PORT),
    ("spec", KeptText("sessionAffinity")),
];

const ROUTES: Limits = &[
    ("spec.parentRefs", Items(0, 32)),
    ("spec.parentRefs[]", Required(&["name"])),
    ("spec.parentRefs[].name", NotEmpty),
    ("spec.parentRefs[].port", PORT),
    ("**.backendRefs[]", Required(&["name"])),
    ("**.backendRefs[].port", PORT),
    ("**.backendRefs[].weight", Range(0, 1_000_000)),
];
const FILTERS: Limits = &[
    ("**.filters[]", Required(&["type"])),
    ("**.filters[].externalAuth", FreeObject),
    ("**.requestMirror", AtMostOne(&["percent", "fraction"])),
    ("**.requestMirror.percent", PERCENT),
    ("**.requestMirror.backendRef", Required(&["name"])),
    ("**.requestRedirect.scheme", OneOf(&["http", "https"])),
    ("**.requestRedirect.port", PORT),
    ("**.sessionPersistence", FreeObject),
    ("**.fraction.denominator", AtLeast(1)),
];

const HTTP_ROUTE: Limits = &[
    (
        "**.matches[].method",
        OneOf(&["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"]),
    ),
    ("**.matches[].headers[]", Required(&["name"])),
    ("**.matches[].queryParams[]", Required(&["name"])),
    ("**.retry.attempts", AtLeast(0)),
    ("**.retry.codes[]", Range(400, 599)),
];

const GRPC_ROUTE: Limits = &[("**.matches[].headers[]", Required(&["name"]))];

const REFERENCE_GRANT: Limits = &[
    ("spec", Required(&["from", "to"])),
    ("spec.from", Items(1, MANY)),
    ("spec.to", Items(1, MANY)),
    ("spec.from[]", Required(&["kind", "namespace"])),
    ("spec.from[].kind", NotEmpty),
    ("spec.to[]", Required(&["kind"])),
    ("spec.to[].kind", NotEmpty),
];

const BACKEND_TLS_POLICY: Limits = &[
    ("spec", Required(&["targetRefs", "validation"])),
    ("spec.targetRefs", Items(1, 16)),
    ("spec.targetRefs[]", TARGET),
    ("spec.targetRefs[].kind", NotEmpty),
    ("spec.targetRefs[].name", NotEmpty),
    ("spec.validation", Required(&["hostname"])),
    ("spec.validation.hostname", NotEmpty),
    ("spec.validation.caCertificateRefs", Items(0, 8)),
    ("spec.validation.caCertificateRefs[]", TARGET),
    ("spec.validation.caCertificateRefs[].kind", NotEmpty),
    ("spec.validation.caCertificateRefs[].name", NotEmpty),
    ("spec.validation.subjectAltNames", Items(0, 5)),
    ("spec.validation.subjectAltNames[]", Required(&["type"])),
    ("spec.validation.subjectAltNames[].type", OneOf(&["Hostname", "URI"])),
];

/// Constraints of a kind by path: those shared with other kinds, and its own.
fn limits_of(kind: Kind) -> &'static [Limits] {
    match kind {
        Kind::VirtualService => &[DESTINATIONS, VIRTUAL_SERVICE],
        Kind::DestinationRule => &[SPEC, DESTINATION_RULE],
        Kind::Gateway => &[SPEC, GATEWAY],
        Kind::ServiceEntry => &[SPEC, SERVICE_ENTRY],
        Kind::WorkloadEntry => &[SPEC, WORKLOAD_ENTRY],
        Kind::WorkloadGroup => &[SPEC, WORKLOAD_GROUP],
        Kind::Sidecar => &[SIDECAR],
        Kind::EnvoyFilter => &[ENVOY_FILTER],
        Kind::ProxyConfig => &[PROXY_CONFIG],
        Kind::AuthorizationPolicy => &[TARGETS, AUTHORIZATION_POLICY],
        Kind::PeerAuthentication => &[PEER_AUTHENTICATION],
        Kind::RequestAuthentication => &[TARGETS, REQUEST_AUTHENTICATION],
        Kind::Telemetry => &[TARGETS, TELEMETRY],
        Kind::WasmPlugin => &[SPEC, TARGETS, WASM_PLUGIN],
        Kind::TrafficExtension => &[SPEC, TRAFFIC_EXTENSION],
        Kind::GatewayClass => &[SPEC, GATEWAY_CLASS],
        Kind::KubernetesGateway => &[SPEC, LISTENERS, KUBERNETES_GATEWAY],
        Kind::ListenerSet => &[SPEC, LISTENERS, LISTENER_SET],
        Kind::HttpRoute => &[ROUTES, FILTERS, HTTP_ROUTE],
        Kind::GrpcRoute => &[ROUTES, FILTERS, GRPC_ROUTE],
        Kind::TcpRoute | Kind::TlsRoute => &[ROUTES],
        Kind::ReferenceGrant => &[SPEC, REFERENCE_GRANT],
        Kind::BackendTlsPolicy => &[SPEC, BACKEND_TLS_POLICY],
        Kind::ServiceImport => &[SERVICE_IMPORT],
        _ => &[],
    }
}

/// Writes the constraints of a kind into its schema.
///
/// # Errors
/// The path of a constraint that matches no field.
pub(super) fn apply(kind: Kind, schema: &mut Value) -> Result<(), &'static str> {
    for (path, limit) in limits_of(kind).iter().copied().flatten() {
        if !limit.apply(path, schema) {
            return Err(path);
        }
    }
    Ok(())
}

impl Limit {
    /// Writes the constraint to every field at `path`. Returns true if there is one.
    fn apply(self, path: &str, schema: &mut Value) -> bool {
        let steps = steps(path);
        match steps.split_first() {
            Some((&"**", rest)) => self.anywhere(rest, schema),
            _ => self.at(&steps, schema),
        }
    }

    fn at(self, steps: &[&str], schema: &mut Value) -> bool {
        match steps.split_first() {
            None => {
                self.write(schema);
                true
            }
            Some((&"[]", rest)) => schema.get_mut("items").is_some_and(|items| self.at(rest, items)),
            Some((&"{}", rest)) => {
                schema.get_mut("additionalProperties").is_some_and(|values| self.at(rest, values))
            }
            Some((&"*", rest)) => {
                let fields = schema.get_mut("properties").and_then(Value::as_object_mut);
                // Not `any`: every field is visited.
                fields.is_some_and(|fields| {
                    fields.values_mut().filter_map(|field| self.at(rest, field).then_some(())).count() > 0
                })
            }
            Some((name, rest)) => {
                let field = schema.get_mut("properties").and_then(|fields| fields.get_mut(*name));
                field.is_some_and(|field| self.at(rest, field))
            }
        }
    }

    fn anywhere(self, steps: &[&str], schema: &mut Value) -> bool {
        let mut found = self.at(steps, schema);
        if let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            for field in fields.values_mut() {
                found |= self.anywhere(steps, field);
            }
        }
        for inner in ["items", "additionalProperties"] {
            if let Some(inner) = schema.get_mut(inner) {
                found |= self.anywhere(steps, inner);
            }
        }
        found
    }

    fn write(self, schema: &mut Value) {
        match self {
            Required(fields) => schema["required"] = json!(fields),
            AtMostOne(fields) => {
                let pairs = fields.iter().enumerate().flat_map(|(index, first)| {
                    let others = fields.iter().skip(index + 1);
                    others.map(move |second| [*first, *second])
                });
                let pairs: Vec<_> = pairs.map(|pair| both(pair, schema)).collect();
                schema["not"] = json!({"anyOf": pairs});
            }
            Range(least, most) => {
                schema["minimum"] = least.into();
                schema["maximum"] = most.into();
            }
            AtLeast(least) => schema["minimum"] = least.into(),
            Items(least, most) => {
                if least > 0 {
                    schema["minItems"] = least.into();
                }
                if most != MANY {
                    schema["maxItems"] = most.into();
                }
            }
            NotEmpty => schema["minLength"] = 1.into(),
            Pattern(pattern) => schema["pattern"] = pattern.into(),
            OneOf(names) => schema["enum"] = json!(names),
            FreeObject => schema["type"] = "object".into(),
            KeptText(field) => schema["properties"][field] = json!({"type": "string"}),
            Rule(rule, message) => {
                schema["x-kubernetes-validations"] = json!([{"rule": rule, "message": message}]);
            }
        }
    }
}

/// Schema of objects with both fields set; an empty list is not set.
fn both(pair: [&str; 2], schema: &Value) -> Value {
    let lists = pair.into_iter().filter(|field| schema["properties"][field]["type"] == "array");
    let lists: Map<_, _> = lists.map(|field| (field.to_owned(), json!({"minItems": 1}))).collect();
    match lists.is_empty() {
        true => json!({"required": pair}),
        false => json!({"required": pair, "properties": lists}),
    }
}

/// `a.b[].c{}` as `a`, `b`, `[]`, `c`, `{}`.
fn steps(path: &str) -> Vec<&str> {
    let mut steps = Vec::new();
    for part in path.split('.').filter(|part| !part.is_empty()) {
        let end = part.find(['[', '{']).unwrap_or(part.len());
        let (name, marks) = part.split_at(end);
        steps.push(name);
        let mut marks = marks;
        while let Some((mark, rest)) = marks.split_at_checked(2) {
            steps.push(mark);
            marks = rest;
        }
    }
    steps
}
