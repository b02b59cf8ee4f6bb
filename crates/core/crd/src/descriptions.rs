//! Descriptions of fields, for `kubectl explain`.
//!
//! The longest key of the table that is a suffix of a field's path gives its description: `destination.host`
//! matches that field of every destination. Items of lists and maps are described by the path of the list or
//! map.

use serde_json::Value;

/// Descriptions by suffix of the path. A key that begins with a kind applies to that kind only; after two
/// dots, at any depth of it.
const FIELDS: &[(&str, &str)] = &[
    (
        "VirtualService.spec.hosts",
        "The hosts whose traffic is routed; a name without a dot is completed with the object's namespace.",
    ),
    (
        "VirtualService.spec.gateways",
        "The Gateways whose traffic is routed, as NAME or NAMESPACE/NAME; `mesh` stands for all sidecars and \
         is the default.",
    ),
    ("VirtualService.spec.http", "Routes of HTTP requests; the first one whose conditions hold is taken."),
    ("VirtualService.spec.tls", "Routes of TLS connections that are passed through, by their SNI."),
    ("VirtualService.spec.tcp", "Routes of TCP connections; the first one whose conditions hold is taken."),
    (
        "spec.exportTo",
        "The namespaces that see the object: names, `.` for its own, `*` for all, `~` for none.",
    ),
    ("http.name", "A name for logs; the route in Envoy has it."),
    (
        "http.match",
        "Conditions, of which one must hold; all parts of one condition must hold. Without any, every \
         request is taken.",
    ),
    ("http.route", "Where requests go, by weight."),
    ("http.redirect", "Answers with a redirect, in place of a route."),
    ("http.directResponse", "Answers at once, in place of a route."),
    ("http.delegate", "The VirtualService, without hosts, that has the routes below these conditions."),
    ("http.rewrite", "What of path and authority is replaced before the request goes on."),
    (
        "http.timeout",
        "How long a request may take as a whole, with its retries, as in 5s; not limited by default.",
    ),
    ("http.retries", "How often and when a failed request is tried again."),
    ("http.fault", "Faults on purpose, for tests."),
    ("http.mirror", "Where a copy of each request goes; its answer is dropped."),
    ("http.mirrors", "Where copies of requests go; their answers are dropped."),
    ("http.mirrorPercent", "Deprecated: use mirrorPercentage."),
    ("http.mirror_percent", "Deprecated: use mirrorPercentage."),
    ("http.mirrorPercentage", "How many requests of a hundred are copied; all by default."),
    ("http.corsPolicy", "Which other origins may send requests from browsers."),
    ("http.headers", "Headers that are set, added and removed."),
    ("match.name", "A name for logs."),
    ("match.uri", "The path of the request."),
    ("match.scheme", "The scheme of the request."),
    ("match.method", "The method of the request."),
    ("match.authority", "The authority (Host) of the request."),
    (
        "match.headers",
        "Headers by their names in lower case; an empty condition asks for the header with any value.",
    ),
    ("match.withoutHeaders", "Headers of which none may match."),
    ("match.queryParams", "Parameters of the query by their names."),
    ("match.port", "The port that the client asked for."),
    ("match.sourceLabels", "Labels of the workloads that send; of sidecars only."),
    ("match.sourceNamespace", "The namespace of the workloads that send."),
    ("match.sourceSubnet", "Addresses that send, as CIDR."),
    ("match.destinationSubnets", "Addresses that are connected to, as CIDR."),
    ("match.sniHosts", "Names that the client asks for in its TLS handshake; they must be among the hosts."),
    ("match.gateways", "Gateways at which the condition holds; they must be among spec.gateways."),
    ("match.ignoreUriCase", "Compares the path without regard to capitals."),
    ("match.statPrefix", "A name under which Envoy counts these requests."),
    ("VirtualService..exact", "The whole text."),
    ("VirtualService..prefix", "The beginning of the text."),
    ("VirtualService..regex", "The whole text by a regular expression (RE2)."),
    ("route.destination", "A service, perhaps a subset of it and a port."),
    ("mirrors.destination", "A service, perhaps a subset of it and a port."),
    (
        "route.weight",
        "The share of this destination among those of the route; 0 to take none where others have one.",
    ),
    ("route.headers", "Headers that are set, added and removed on the way to this destination."),
    (
        "destination.host",
        "The host of a service; a name without a dot is completed with the object's namespace.",
    ),
    ("mirror.host", "The host of a service; a name without a dot is completed with the object's namespace."),
    ("destination.subset", "A subset that a DestinationRule of the host has."),
    ("mirror.subset", "A subset that a DestinationRule of the host has."),
    ("destination.port", "The port of the service; needed where it has several."),
    ("mirror.port", "The port of the service; needed where it has several."),
    ("port.number", "The number of the port."),
    ("mirrors.percentage", "How many requests of a hundred are copied; all by default."),
    ("percentage", "How many of a hundred requests."),
    ("percentage.value", "From 0.0 to 100.0."),
    ("mirrorPercentage.value", "From 0.0 to 100.0."),
    ("delay.percent", "Deprecated: use percentage."),
    ("abort.percent", "Deprecated: use percentage."),
    ("delegate.name", "Its name."),
    ("delegate.namespace", "Its namespace; that of this object by default."),
    ("directResponse.status", "The HTTP status."),
    ("directResponse.body", "The body, as a text or as bytes."),
    ("body.string", "The body as text."),
    ("body.bytes", "The body as base64."),
    ("fault.delay", "Holds requests back."),
    ("fault.abort", "Answers with an error, in place of passing requests on."),
    ("delay.fixedDelay", "How long, as in 5s."),
    ("delay.exponentialDelay", "Not supported by Envoy; has no effect."),
    ("abort.httpStatus", "The HTTP status."),
    ("abort.grpcStatus", "The gRPC status by its name, as in UNAVAILABLE."),
    ("abort.http2Error", "Not supported by Envoy; has no effect."),
    ("headers.request", "On the request."),
    ("headers.response", "On the response."),
    ("request.set", "Replaces these headers."),
    ("request.add", "Adds these headers to those that are there."),
    ("request.remove", "Removes headers of these names."),
    ("response.set", "Replaces these headers."),
    ("response.add", "Adds these headers to those that are there."),
    ("response.remove", "Removes headers of these names."),
    ("redirect.uri", "The path to go to."),
    ("redirect.prefixRewrite", "What the prefix that matched is replaced by, in place of uri."),
    ("redirect.authority", "The authority to go to."),
    ("redirect.scheme", "The scheme to go to."),
    ("redirect.port", "The port to go to."),
    ("redirect.derivePort", "Takes the port of the request, or the usual one of the scheme."),
    ("redirect.redirectCode", "The HTTP status, 301 by default."),
    ("retries.attempts", "How many retries; 0 for none."),
    ("retries.perTryTimeout", "How long each try may take, as in 2s."),
    ("retries.retryOn", "When to retry: Envoy's conditions and HTTP statuses, with commas between."),
    ("retries.retryRemoteLocalities", "Whether retries may go to other localities."),
    ("retries.retryIgnorePreviousHosts", "Whether retries go to other endpoints than those that failed."),
    ("retries.backoff", "The least pause before a retry."),
    ("rewrite.uri", "Replaces the part of the path that matched."),
    ("rewrite.authority", "Replaces the authority."),
    ("rewrite.uriRegexRewrite", "Replaces what a regular expression finds in the path."),
    ("uriRegexRewrite.match", "The regular expression (RE2)."),
    ("uriRegexRewrite.rewrite", "What takes the place; \\1 stands for the first group."),
    ("corsPolicy.allowOrigin", "Deprecated: use allowOrigins."),
    ("corsPolicy.allowOrigins", "The origins, of which one must match."),
    ("corsPolicy.allowMethods", "The methods that may be used."),
    ("corsPolicy.allowHeaders", "The headers that may be sent."),
    ("corsPolicy.exposeHeaders", "The headers that pages may read."),
    ("corsPolicy.maxAge", "How long browsers keep the answer."),
    ("corsPolicy.allowCredentials", "Whether browsers may send credentials."),
    ("corsPolicy.unmatchedPreflights", "What happens to preflights of other origins: FORWARD or IGNORE."),
    ("tls.match", "Conditions, of which one must hold."),
    ("tls.route", "Where connections go, by weight."),
    ("tcp.match", "Conditions, of which one must hold. Without any, every connection is taken."),
    ("tcp.route", "Where connections go, by weight."),
    (
        "DestinationRule.spec.host",
        "The host whose clients it is for; a name without a dot is completed with the object's namespace, \
         `*.` begins a wildcard.",
    ),
    ("DestinationRule.spec.trafficPolicy", "How clients connect to the host."),
    ("DestinationRule.spec.subsets", "Named parts of the host's endpoints, by labels."),
    ("DestinationRule.spec.workloadSelector", "The clients that it is for, by labels; all by default."),
    ("subsets.name", "Its name, which routes use."),
    ("subsets.labels", "The labels of its endpoints."),
    ("subsets.trafficPolicy", "What differs for the subset."),
    ("trafficPolicy.loadBalancer", "How an endpoint is chosen."),
    ("trafficPolicy.connectionPool", "Limits of connections and requests."),
    ("trafficPolicy.outlierDetection", "When an endpoint that fails is left out for a while."),
    (
        "trafficPolicy.tls",
        "TLS to the host; DISABLE, SIMPLE, MUTUAL, or ISTIO_MUTUAL with the mesh's certificates.",
    ),
    ("trafficPolicy.portLevelSettings", "What replaces all of the policy for a port."),
    ("trafficPolicy.tunnel", "Tunnels over HTTP CONNECT."),
    ("trafficPolicy.proxyProtocol", "The header of the PROXY protocol before each connection."),
    ("trafficPolicy.retryBudget", "How many retries there may be at a time, beside other requests."),
    ("Gateway.spec.servers", "What the workloads listen on."),
    ("Gateway.spec.selector", "The labels of the workloads, in any namespace."),
    ("servers.port", "The port, its protocol and a name."),
    ("servers.hosts", "The hosts, as HOST or NAMESPACE/HOST: whose VirtualServices may serve them."),
    ("servers.tls", "How TLS ends here, or is passed through."),
    ("servers.bind", "The address; all by default."),
    ("servers.name", "A name for logs."),
    ("tls.credentialName", "The Secret with certificate and key, in the namespace of the workloads."),
    ("ServiceEntry.spec.hosts", "The hosts of the service."),
    ("ServiceEntry.spec.addresses", "Virtual addresses, as IP or CIDR."),
    ("ServiceEntry.spec.ports", "The ports of the service."),
    ("ServiceEntry.spec.location", "MESH_EXTERNAL, or MESH_INTERNAL for a part of the mesh."),
    (
        "ServiceEntry.spec.resolution",
        "How endpoints are found: NONE, STATIC, DNS, DNS_ROUND_ROBIN or DYNAMIC_DNS.",
    ),
    ("ServiceEntry.spec.endpoints", "Its endpoints; without any and with DNS, the hosts themselves."),
    ("ServiceEntry.spec.workloadSelector", "The workloads that are its endpoints, by labels."),
    ("ServiceEntry.spec.subjectAltNames", "Names that the certificates of its endpoints may have."),
    (
        "Sidecar.spec.workloadSelector",
        "The workloads that it is for, by labels; all of the namespace by default.",
    ),
    ("Sidecar.spec.ingress", "What the proxies listen on for their workloads."),
    ("Sidecar.spec.egress", "What the proxies see of the mesh."),
    (
        "egress.hosts",
        "What is seen, as NAMESPACE/HOST; `.` stands for the own namespace, `*` for all, `~` for none.",
    ),
    (
        "Sidecar.spec.outboundTrafficPolicy",
        "What happens to traffic for unknown hosts: REGISTRY_ONLY or ALLOW_ANY.",
    ),
    (
        "spec.selector",
        "The workloads that it is for, by labels; all of the namespace by default, of all namespaces in the \
         root namespace.",
    ),
    ("spec.targetRefs", "What it is attached to, in place of a selector."),
    ("spec.targetRef", "What it is attached to, in place of a selector."),
    (
        "AuthorizationPolicy.spec.action",
        "What happens where a rule matches: ALLOW, DENY, AUDIT, or CUSTOM to ask a provider.",
    ),
    (
        "AuthorizationPolicy.spec.rules",
        "The rules, of which one must match. ALLOW without rules allows nothing.",
    ),
    ("AuthorizationPolicy.spec.provider", "The provider of the mesh settings that decides, with CUSTOM."),
    ("rules.from", "Who sends, of which one must match."),
    ("rules.to", "What is asked for, of which one must match."),
    ("rules.when", "Further conditions, which must all hold."),
    (
        "PeerAuthentication.spec.mtls",
        "Whether connections must have mutual TLS: STRICT, PERMISSIVE or DISABLE.",
    ),
    ("PeerAuthentication.spec.portLevelMtls", "The same by ports of the workload."),
    (
        "RequestAuthentication.spec.jwtRules",
        "The issuers whose tokens are accepted; a request without a token passes.",
    ),
    ("Telemetry.spec.tracing", "Traces."),
    ("Telemetry.spec.metrics", "Metrics."),
    ("Telemetry.spec.accessLogging", "Access logs."),
    (
        "EnvoyFilter.spec.workloadSelector",
        "The workloads that it is for, by labels; all of the namespace by default.",
    ),
    ("EnvoyFilter.spec.configPatches", "The patches, in order."),
    ("EnvoyFilter.spec.priority", "Lower ones come first; 0 by default."),
    ("configPatches.applyTo", "What is patched."),
    ("configPatches.match", "Where it is patched."),
    ("configPatches.patch", "How it is patched."),
];

/// Adds descriptions to the schema of an object.
pub(super) fn describe(kind: &str, schema: &mut Value) {
    walk(schema, kind);
}

fn walk(schema: &mut Value, path: &str) {
    let Some(fields) = schema.as_object_mut() else { return };
    if let Some(text) = description(path).filter(|_| !fields.contains_key("description")) {
        fields.insert("description".to_owned(), text.into());
    }
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        for (name, schema) in properties {
            walk(schema, &format!("{path}.{name}"));
        }
    }
    for inner in ["items", "additionalProperties"] {
        for schema in fields.get_mut(inner).into_iter().filter_map(Value::as_object_mut) {
            if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
                for (name, schema) in properties {
                    walk(schema, &format!("{path}.{name}"));
                }
            }
        }
    }
}

/// Returns the description of the longest matching suffix of the path.
fn description(path: &str) -> Option<&'static str> {
    let ends = path.match_indices('.').filter_map(|(at, _)| path.get(at + 1..));
    let find = |end: &str| FIELDS.iter().find(|(known, _)| *known == end).map(|(_, text)| *text);
    let anywhere = || FIELDS.iter().find(|(known, _)| is_anywhere(known, path)).map(|(_, text)| *text);
    std::iter::once(path).chain(ends).find_map(find).or_else(anywhere)
}

/// True if `KIND..END` matches the path.
fn is_anywhere(known: &str, path: &str) -> bool {
    let Some((kind, end)) = known.split_once("..") else { return false };
    path.split('.').next() == Some(kind) && path.rsplit('.').next() == Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{defined_kinds, definition};
    use std::collections::BTreeMap;

    /// The paths of a schema, and whether they are described.
    fn paths(schema: &Value, path: &str, out: &mut BTreeMap<String, bool>) {
        out.insert(path.to_owned(), schema["description"].is_string());
        let inner = [schema, &schema["items"], &schema["additionalProperties"]];
        for (name, schema) in inner.iter().filter_map(|schema| schema["properties"].as_object()).flatten() {
            paths(schema, &format!("{path}.{name}"), out);
        }
    }

    fn all() -> BTreeMap<String, bool> {
        let mut out = BTreeMap::new();
        for kind in defined_kinds() {
            let definition = definition(kind).unwrap();
            paths(&definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"], kind.name(), &mut out);
        }
        out
    }

    #[test]
    fn each_field_of_a_virtual_service_is_explained() {
        let all = all();
        assert_eq!(all.get("VirtualService.spec.http.timeout"), Some(&true));
        let missing: Vec<_> = all
            .iter()
            .filter(|(path, described)| path.starts_with("VirtualService.spec.") && !**described)
            .map(|(path, _)| path)
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn each_description_is_of_a_field() {
        let all = all();
        let is_there = |end: &str| {
            let ends =
                |path: &String| path == end || path.ends_with(&format!(".{end}")) || is_anywhere(end, path);
            all.keys().any(ends)
        };
        let unused: Vec<_> = FIELDS.iter().filter(|(end, _)| !is_there(end)).map(|(end, _)| end).collect();
        assert!(unused.is_empty(), "{unused:?}");
        let mut ends: Vec<_> = FIELDS.iter().map(|(end, _)| end).collect();
        ends.sort();
        assert!(ends.windows(2).all(|pair| pair[0] != pair[1]), "each one once");
    }
}
