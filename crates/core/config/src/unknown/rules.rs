//! Table of effects of unknown fields and values, for parts where ignoring them would be wrong.

use super::pattern;
use crate::gateway_api::TERMINATE_MODE;
use crate::path::Segment;
use crate::yaml::{Entry, Node, NodeValue, Unknown, UnknownPart};
use pilotfish_model::{Kind, Protocol};

/// A row of the table of unknown parts: a structure, and the effect of something unknown in it. The first
/// matching row applies.
#[derive(Debug)]
pub struct UnknownRule {
    /// The kinds that have the structure.
    pub kinds: &'static [Kind],
    /// Path patterns of the structure and everything below.
    pub at: &'static [&'static str],
    /// The unknown parts that the row applies to.
    pub about: About,
    pub(super) only_if: Condition,
    pub(super) effect: Effect,
    /// The consequence, in one sentence.
    pub says: &'static str,
}

impl UnknownRule {
    /// The actions of policies that the row applies to; empty for all.
    #[must_use]
    pub fn actions(&self) -> &'static [&'static str] {
        match self.only_if {
            Condition::Action(actions) => actions,
            _ => &[],
        }
    }
}

/// Unknown parts that a row applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// Unknown fields and unknown values of enums.
    Anything,
    /// Unknown fields, not values.
    Fields,
    /// Unknown values of enums, not fields.
    Values,
    /// The only field that is set of a oneof.
    Choices,
}

impl About {
    /// Name in the documentation.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Anything => "a field or value",
            Self::Fields => "a field",
            Self::Values => "a value",
            Self::Choices => "the form",
        }
    }
}

/// A condition of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Condition {
    Always,
    /// The function returns true for the structure.
    Structure(fn(&Node) -> bool),
    /// The function returns true for the object and the structure.
    Object(fn(&Node, &Node) -> bool),
    /// One of these actions of a policy.
    Action(&'static [&'static str]),
    /// The field is spelled nearly like one of these, or is a stray one with `tls` below it.
    Near(&'static [&'static str]),
}

/// Effect of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effect {
    /// The field is ignored.
    Ignore,
    /// The closed form of the object is in force.
    Narrow,
    /// The object is invalid.
    Refuse,
    /// The structure is removed.
    Remove,
    /// The item is removed, and with the last one the structure that holds the list.
    RemoveWithLast,
    /// The structure is replaced.
    Replace(fn(&Node, &Unknown) -> Node),
    /// The enclosing structure is replaced.
    ReplaceParent(fn(&Node) -> Node),
}

use About::{Anything, Choices, Fields, Values};
use Effect::{Ignore, Narrow, Refuse, Remove, RemoveWithLast, Replace, ReplaceParent};

/// The fields of a DestinationRule that hold TLS settings.
const HOLDING_TLS: &[&str] = &[
    "trafficPolicy",
    "portLevelSettings",
    "subsets",
    "tls",
    "mode",
    "clientCertificate",
    "privateKey",
    "caCertificates",
    "credentialName",
    "subjectAltNames",
    "sni",
    "caCrl",
];
const RULES: &[&str] = &["spec.rules[*]"];
/// The kinds of routes of the Gateway API that have filters.
const LISTENERS: &[Kind] = &[Kind::KubernetesGateway, Kind::ListenerSet];
const REQUEST_ROUTES: &[Kind] = &[Kind::HttpRoute, Kind::GrpcRoute];

/// Consequence of TLS settings of a mesh's outbound policy that are not all known.
const UNUSABLE_OUTBOUND_TLS: &str = "the mode counts: with ALLOW_ANY_DYNAMIC_DNS, nothing is sent to hosts \
                                     without a service, as it may have been meant to be encrypted";

const fn row(
    kinds: &'static [Kind],
    at: &'static [&'static str],
    about: About,
    effect: Effect,
    says: &'static str,
) -> UnknownRule {
    UnknownRule { kinds, at, about, only_if: Condition::Always, effect, says }
}

/// A row for a part of AuthorizationPolicies with one of these actions.
const fn policy(
    at: &'static [&'static str],
    actions: &'static [&'static str],
    says: &'static str,
) -> UnknownRule {
    let only_if = Condition::Action(actions);
    UnknownRule { kinds: &[Kind::AuthorizationPolicy], at, about: Anything, only_if, effect: Narrow, says }
}

/// Table of unknown fields and values that are not just ignored. Those in no row are ignored.
pub static UNKNOWN_RULES: &[UnknownRule] = &[
    // Structures that restrict access: ignoring a part of them must not widen it.
    row(
        &[Kind::AuthorizationPolicy],
        &["spec.action"],
        Values,
        Refuse,
        "the policy is invalid, and closed without a last good version: it denies every request",
    ),
    policy(RULES, &["ALLOW"], "the rule matches nothing"),
    policy(
        RULES,
        &["DENY"],
        "the rule keeps its known restrictions and denies more, without any left every request",
    ),
    policy(
        RULES,
        &["CUSTOM"],
        "the rule keeps its known restrictions and asks about more, without any left about all",
    ),
    policy(
        RULES,
        &["AUDIT"],
        "the rule keeps its known restrictions and audits more, without any left nothing",
    ),
    policy(&["spec"], &["ALLOW"], "the policy allows nothing, at all workloads that it may be for"),
    policy(
        &["spec"],
        &["DENY", "CUSTOM", "AUDIT"],
        "the policy applies as far as it is known, to all workloads that it may be for",
    ),
    row(
        &[Kind::PeerAuthentication],
        &["spec"],
        Anything,
        Narrow,
        "mutual TLS is required: at the port, or by all workloads that the policy may select",
    ),
    row(
        &[Kind::RequestAuthentication],
        &["spec.jwtRules[*]"],
        Anything,
        Narrow,
        "tokens of its issuer are refused, or all requests if the place of tokens is unknown",
    ),
    row(
        &[Kind::RequestAuthentication],
        &["spec"],
        Anything,
        Narrow,
        "tokens of the policy's issuers are refused where it may apply, and all requests if it has none",
    ),
    row(&[Kind::Gateway], &["spec.servers[*].tls.mode"], Values, Narrow, "the server refuses connections"),
    row(
        &[Kind::Gateway],
        &["spec.servers[*].tls.minProtocolVersion"],
        Values,
        Replace(|_, _| text("TLSV1_3")),
        "TLS 1.3 is required",
    ),
    row(
        &[Kind::Sidecar],
        &["spec.ingress[*].tls.minProtocolVersion"],
        Values,
        Replace(|_, _| text("TLSV1_3")),
        "TLS 1.3 is required",
    ),
    row(
        &[Kind::MeshConfig],
        &["meshMTLS.minProtocolVersion", "tlsDefaults.minProtocolVersion"],
        Values,
        Replace(|_, _| text("TLSV1_3")),
        "TLS 1.3 is required",
    ),
    UnknownRule {
        kinds: &[Kind::Gateway],
        at: &["spec.servers[*].tls"],
        about: Fields,
        only_if: Condition::Structure(checks_clients),
        effect: Narrow,
        says: "a server that checks certificates of clients refuses connections; for others the field is \
               ignored",
    },
    UnknownRule {
        kinds: &[Kind::Gateway],
        at: &["spec.servers[*]"],
        about: Values,
        only_if: Condition::Structure(checks_clients_of_unknown_protocol),
        effect: Narrow,
        says: "of an unknown protocol, a server that checks certificates of clients refuses connections",
    },
    row(
        &[Kind::Sidecar],
        &["spec.ingress[*].tls.mode"],
        Values,
        ReplaceParent(without_clients),
        "the listener refuses connections",
    ),
    UnknownRule {
        kinds: &[Kind::Sidecar],
        at: &["spec.ingress[*].tls"],
        about: Fields,
        only_if: Condition::Structure(checks_clients),
        effect: Replace(|tls, _| without_clients(tls)),
        says: "a listener that checks certificates of clients refuses connections; for others the field is \
               ignored",
    },
    row(
        &[Kind::DestinationRule],
        &["spec.**.tls.mode"],
        Values,
        Narrow,
        "nothing is sent to the host, port or subset that it is for: it may have been meant to be encrypted",
    ),
    UnknownRule {
        kinds: &[Kind::DestinationRule],
        at: &["spec.**.tls"],
        about: Fields,
        only_if: Condition::Structure(|tls| tls.get("mode").is_none_or(Node::is_null)),
        effect: Narrow,
        says: "without a mode beside it, nothing is sent to the host, port or subset that it is for",
    },
    UnknownRule {
        kinds: &[Kind::DestinationRule],
        at: &["spec"],
        about: Fields,
        only_if: Condition::Near(HOLDING_TLS),
        effect: Narrow,
        says: "spelled nearly like a field that holds TLS settings, or written beside `spec` with some: \
               nothing is sent to the host, port or subset that it is for",
    },
    row(
        &[Kind::BackendTlsPolicy],
        &["spec.validation"],
        Anything,
        Narrow,
        "connections to the policy's targets fail",
    ),
    row(
        LISTENERS,
        &["spec.listeners[*].tls.mode"],
        Values,
        ReplaceParent(without_certificate),
        "the listener is not served, and refuses connections to its hosts",
    ),
    row(
        LISTENERS,
        &["spec.listeners[*].tls.frontendValidation"],
        Fields,
        Replace(|validation, _| without_authority(validation)),
        "listeners that check clients by it are not served",
    ),
    row(
        &[Kind::KubernetesGateway],
        &["spec.tls.frontend.**.validation"],
        Fields,
        Replace(|validation, _| without_authority(validation)),
        "listeners that check clients by it are not served",
    ),
    UnknownRule {
        kinds: &[Kind::KubernetesGateway],
        at: &["spec.tls.frontend.default", "spec.tls.frontend.perPort[*].tls"],
        about: Fields,
        only_if: Condition::Structure(validates_clients),
        effect: Replace(|_, _| closed_settings()),
        says: "beside a validation of clients, listeners that it is for are not served",
    },
    row(
        &[Kind::KubernetesGateway],
        &["spec.tls.backend", "spec.tls.frontend.default", "spec.tls.frontend.perPort[*].tls"],
        Fields,
        Ignore,
        "it is ignored: it restricts no client",
    ),
    UnknownRule {
        kinds: &[Kind::KubernetesGateway],
        at: &["spec.tls"],
        about: Fields,
        only_if: Condition::Structure(validates_clients),
        effect: Replace(|tls, _| with(tls, [("frontend", fields([("default", closed_settings())]))])),
        says: "beside a validation of clients, listeners that terminate TLS are not served",
    },
    UnknownRule {
        kinds: LISTENERS,
        at: &["spec.listeners[*].tls"],
        about: Fields,
        only_if: Condition::Object(listener_checks_clients),
        effect: Replace(|tls, _| without_certificate(tls)),
        says: "a listener that checks certificates of clients is not served; for others the field is ignored",
    },
    row(
        LISTENERS,
        &["spec.listeners[*].allowedRoutes"],
        Anything,
        Replace(|_, _| fields([("namespaces", fields([("from", text("None"))]))])),
        "the listener accepts no routes",
    ),
    row(
        &[Kind::KubernetesGateway],
        &["spec.allowedListeners"],
        Anything,
        Replace(|_, _| fields([("namespaces", fields([("from", text("None"))]))])),
        "the Gateway accepts no ListenerSets",
    ),
    row(
        &[Kind::ListenerSet],
        &["spec.parentRef"],
        Fields,
        Replace(|_, _| fields([("kind", text("Unknown")), ("name", text("unknown"))])),
        "the listeners belong to no Gateway",
    ),
    row(&[Kind::ReferenceGrant], &["spec.from[*]", "spec.to[*]"], Fields, Remove, "the item grants nothing"),
    // Parts of requests and backends that routing depends on.
    row(
        REQUEST_ROUTES,
        &["spec.rules[*].filters[*]", "spec.rules[*].backendRefs[*].filters[*]"],
        Values,
        Replace(unknown_filter),
        "requests of the rule, or for the backend, get 500",
    ),
    row(
        REQUEST_ROUTES,
        &["spec.rules[*].matches[*]"],
        Values,
        RemoveWithLast,
        "the match is left out, and with its last match the rule",
    ),
    row(
        &[Kind::VirtualService],
        &["spec.http[*].match[*]"],
        Choices,
        Replace(|_, _| fields([("uri", fields([("exact", text("unknown"))]))])),
        "the match never holds",
    ),
    UnknownRule {
        kinds: &[Kind::VirtualService],
        at: &["spec.http[*].redirect"],
        about: Anything,
        only_if: Condition::Structure(changes_nothing_known),
        effect: ReplaceParent(answering_500),
        says: "a redirect without any known part answers with 500",
    },
    row(
        &[Kind::MeshConfig],
        &["pathNormalization.normalization"],
        Values,
        Replace(|_, _| text("DECODE_AND_MERGE_SLASHES")),
        "the strictest one is in force, DECODE_AND_MERGE_SLASHES: rules of AuthorizationPolicies rely on it",
    ),
    row(
        &[Kind::MeshConfig],
        &["outboundTrafficPolicy.tls"],
        Values,
        ReplaceParent(without_outbound_tls),
        UNUSABLE_OUTBOUND_TLS,
    ),
    UnknownRule {
        kinds: &[Kind::MeshConfig],
        at: &["outboundTrafficPolicy.tls"],
        about: Fields,
        only_if: Condition::Structure(|tls| tls.get("mode").is_none_or(Node::is_null)),
        effect: ReplaceParent(without_outbound_tls),
        says: UNUSABLE_OUTBOUND_TLS,
    },
    UnknownRule {
        kinds: &[Kind::MeshConfig],
        at: &["outboundTrafficPolicy"],
        about: Fields,
        only_if: Condition::Near(&["tls"]),
        effect: Replace(|policy, _| without_outbound_tls(policy)),
        says: UNUSABLE_OUTBOUND_TLS,
    },
    // Values without which their structure has no meaning.
    row(
        &[Kind::MeshConfig],
        &["outboundTrafficPolicy"],
        Values,
        Remove,
        "the mesh's default is in force: ALLOW_ANY",
    ),
    row(
        &[Kind::Sidecar],
        &["spec.outboundTrafficPolicy"],
        Values,
        Remove,
        "the policy of the mesh is in force",
    ),
    row(
        &[Kind::MeshConfig],
        &["discoverySelectors[*].matchExpressions[*]"],
        Values,
        Remove,
        "the expression is left out, so that more namespaces take part",
    ),
    row(&[Kind::MeshConfig], &["serviceScopeConfigs[*]"], Values, Remove, "the item is left out"),
    row(
        &[Kind::ServiceEntry],
        &["spec.resolution"],
        Values,
        ReplaceParent(resolved_by_endpoints),
        "its endpoints decide: STATIC for addresses and selected ones, DNS for names, NONE without any",
    ),
    row(
        &[Kind::Telemetry],
        &["spec.metrics[*].overrides[*]"],
        Values,
        Remove,
        "the override is left out, as it would apply to other metrics",
    ),
    row(&[Kind::EnvoyFilter], &["spec.configPatches[*]"], Values, Remove, "the patch is left out"),
    row(&[Kind::Service], &["spec.ports[*]"], Values, Remove, "the port is left out"),
    row(&[Kind::EndpointSlice], &["ports[*]"], Values, Remove, "the port is left out"),
    row(
        &[Kind::EndpointSlice],
        &["addressType"],
        Values,
        Refuse,
        "the slice is invalid, as Kubernetes demands",
    ),
];

/// Finds the row for an unknown part, and the length of the path's prefix that is the row's structure. `at`
/// returns the part of the object at a path.
pub(super) fn find<'a>(
    kind: Kind,
    at: impl Fn(&[Segment]) -> Option<&'a Node>,
    unknown: &Unknown,
) -> Option<(&'static UnknownRule, usize)> {
    let fits = |about: About| match about {
        Anything => true,
        Fields => !matches!(unknown.part, UnknownPart::Value(_)),
        Values => matches!(unknown.part, UnknownPart::Value(_)),
        Choices => unknown.part == UnknownPart::Choice,
    };
    let path = unknown.path.segments();
    UNKNOWN_RULES.iter().filter(|rule| rule.kinds.contains(&kind) && fits(rule.about)).find_map(|rule| {
        let length = rule.at.iter().find_map(|pattern| pattern::matched(pattern, path))?;
        let holds = match rule.only_if {
            Condition::Always => true,
            Condition::Structure(holds) => path.get(..length).and_then(&at).is_some_and(holds),
            Condition::Object(holds) => {
                at(&[]).zip(path.get(..length).and_then(&at)).is_some_and(|(root, part)| holds(root, part))
            }
            Condition::Action(actions) => actions.contains(&action(&at)),
            Condition::Near(names) => match unknown.part {
                UnknownPart::Stray { holds_tls } => holds_tls,
                _ => unknown.near.as_deref().is_some_and(|near| names.contains(&near)),
            },
        };
        holds.then_some((rule, length))
    })
}

/// The action of a policy.
fn action<'a>(at: impl Fn(&[Segment]) -> Option<&'a Node>) -> &'a str {
    let written = at(&[Segment::Field("spec".into()), Segment::Field("action".into())]);
    written.filter(|node| !node.is_null()).map_or("ALLOW", |node| node.text().unwrap_or_default())
}

/// True for server TLS settings that request client certificates, or could be meant to because they have no
/// mode.
fn checks_clients(tls: &Node) -> bool {
    match tls.get("mode").and_then(Node::text) {
        None => tls.get("httpsRedirect").is_none_or(Node::is_null),
        Some(mode) => matches!(mode, "MUTUAL" | "OPTIONAL_MUTUAL" | "ISTIO_MUTUAL"),
    }
}

/// True for a server of an unknown protocol that requests client certificates, or could be meant to.
pub(crate) fn checks_clients_of_unknown_protocol(server: &Node) -> bool {
    let protocol = server.get("port").and_then(|port| port.get("protocol")).and_then(Node::text);
    let may_check = |tls: &Node| match tls.get("mode").and_then(Node::text) {
        Some("SIMPLE" | "PASSTHROUGH" | "AUTO_PASSTHROUGH") => false,
        Some(_) => true,
        None => checks_clients(tls),
    };
    protocol.is_some_and(|protocol| Protocol::parse(protocol).is_unsupported())
        && server.get("tls").is_some_and(may_check)
}

/// Keys of validations of clients in the Gateway API, and of authorities below a mistyped one.
const VALIDATION: &[&str] = &["validation", "frontendValidation", "caCertificateRefs"];

/// True for a structure of a Gateway of the Gateway API with a validation of clients in it.
fn validates_clients(part: &Node) -> bool {
    let holds = |entry: &Entry| {
        !entry.value.is_null() && VALIDATION.contains(&&*entry.key) || validates_clients(&entry.value)
    };
    part.entries().iter().any(holds) || part.items().iter().any(validates_clients)
}

/// True for TLS settings of a Gateway API listener that terminates TLS and requests client certificates: by
/// its own validation, by the Gateway's, or by an option.
fn listener_checks_clients(root: &Node, tls: &Node) -> bool {
    if tls.get("mode").and_then(Node::text) == Some("Passthrough") {
        return false;
    }
    let of_gateway = root.get("spec").and_then(|spec| spec.get("tls"));
    let mode = tls.get("options").and_then(|options| options.get(TERMINATE_MODE)).and_then(Node::text);
    [Some(tls), of_gateway].into_iter().flatten().any(validates_clients)
        || mode.is_some_and(|mode| matches!(mode, "MUTUAL" | "OPTIONAL_MUTUAL" | "ISTIO_MUTUAL"))
}

/// True for a redirect to its own source, as far as the known fields say.
fn changes_nothing_known(redirect: &Node) -> bool {
    let is_set = |field| redirect.get(field).is_some_and(|node| !node.is_null());
    let port = redirect.get("derivePort").and_then(Node::text);
    !["uri", "authority", "scheme", "port"].into_iter().any(is_set)
        && !matches!(port, Some("FROM_PROTOCOL_DEFAULT" | "FROM_REQUEST_PORT"))
}

fn text(text: &str) -> Node {
    Node { line: 0, value: NodeValue::Quoted(text.into()) }
}

fn list(items: impl IntoIterator<Item = Node>) -> Node {
    Node { line: 0, value: NodeValue::Sequence(items.into_iter().collect()) }
}

fn fields<'a>(entries: impl IntoIterator<Item = (&'a str, Node)>) -> Node {
    let entry = |(key, value): (&str, Node)| Entry { key: key.into(), line: 0, value };
    Node { line: 0, value: NodeValue::Mapping(entries.into_iter().map(entry).collect()) }
}

/// Returns the node with these fields replaced or added.
fn with<'a>(node: &Node, changed: impl IntoIterator<Item = (&'a str, Node)>) -> Node {
    let mut entries: Vec<Entry> = node.entries().to_vec();
    for (key, value) in changed {
        entries.retain(|entry| *entry.key != *key);
        entries.push(Entry { key: key.into(), line: node.line, value });
    }
    Node { line: node.line, value: NodeValue::Mapping(entries) }
}

/// TLS settings by which no certificate of a client is accepted: none has this hash. The mode needs
/// authorities, of which any do.
fn without_clients(tls: &Node) -> Node {
    let is_set = |field: &str| tls.get(field).filter(|node| !node.is_null());
    let authorities = is_set("caCertificates").or_else(|| is_set("serverCertificate"));
    let authorities = authorities.map(|files| ("caCertificates", files.clone()));
    let closed = [("mode", text("MUTUAL")), ("verifyCertificateHash", list([text(&"0".repeat(64))]))];
    with(tls, closed.into_iter().chain(authorities))
}

/// TLS of a listener of the Gateway API whose certificate cannot be found.
fn without_certificate(tls: &Node) -> Node {
    let nothing = fields([("group", text("unknown")), ("kind", text("Unknown")), ("name", text("unknown"))]);
    with(tls, [("mode", text("Terminate")), ("certificateRefs", list([nothing])), ("options", fields([]))])
}

/// A check of certificates of clients whose authority cannot be found.
fn without_authority(validation: &Node) -> Node {
    let nothing = fields([("group", text("unknown")), ("kind", text("Unknown")), ("name", text("unknown"))]);
    with(validation, [("caCertificateRefs", list([nothing])), ("mode", text("AllowValidOnly"))])
}

/// Settings of a Gateway's frontend by which no certificate of a client is accepted.
fn closed_settings() -> Node {
    fields([("validation", without_authority(&fields([])))])
}

/// An outbound policy of the mesh without its TLS settings: traffic that they are for is not sent.
fn without_outbound_tls(policy: &Node) -> Node {
    const ENCRYPTING: &str = "ALLOW_ANY_DYNAMIC_DNS";
    let mode = policy.get("mode").filter(|mode| mode.text() != Some(ENCRYPTING) && !mode.is_null());
    fields([("mode", mode.cloned().unwrap_or_else(|| text("REGISTRY_ONLY")))])
}

/// A filter of a type that is not served.
fn unknown_filter(_: &Node, unknown: &Unknown) -> Node {
    let UnknownPart::Value(value) = &unknown.part else { return fields([]) };
    let extension = fields([("group", text("unknown")), ("kind", text(value)), ("name", text(value))]);
    fields([("type", text("ExtensionRef")), ("extensionRef", extension)])
}

/// A route of a VirtualService for the same requests, answered with an error.
pub(super) fn answering_500(route: &Node) -> Node {
    let kept = ["name", "match"].into_iter().filter_map(|field| Some((field, route.get(field)?.clone())));
    let answer = fields([("status", Node { line: 0, value: NodeValue::Plain("500".into()) })]);
    fields(kept.chain([("directResponse", answer)]))
}

/// The spec of a ServiceEntry with the resolution that its endpoints need.
fn resolved_by_endpoints(spec: &Node) -> Node {
    let endpoints = spec.get("endpoints").map_or(&[][..], Node::items);
    let is_ip = |endpoint: &Node| {
        let address = endpoint.get("address").and_then(Node::text).unwrap_or_default();
        address.parse::<std::net::IpAddr>().is_ok() || address.starts_with("unix://")
    };
    let selects = spec.get("workloadSelector").is_some_and(|selector| !selector.is_null());
    let resolution = match (endpoints, selects) {
        ([], false) => "NONE",
        ([], true) => "STATIC",
        (endpoints, _) if endpoints.iter().all(is_ip) => "STATIC",
        _ => "DNS",
    };
    with(spec, [("resolution", text(resolution))])
}
