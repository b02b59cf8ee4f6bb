//! Fields without effect in this version. Setting one causes a warning.

use crate::path::{FieldPath, Segment};
use crate::problem::{MOST_PROBLEMS, Problem};
use crate::unknown::pattern::{Part, parts};
use crate::yaml::Node;
use pilotfish_model::Kind;

/// A field without effect.
pub(crate) struct Inert {
    kinds: &'static [Kind],
    /// The field, as in `spec.rules[*].sessionPersistence`.
    pattern: &'static str,
    /// The value that has no effect; `None` for each.
    value: Option<&'static str>,
    /// Warning: the consequence, and the alternative.
    message: &'static str,
}

impl Inert {
    const fn new(kinds: &'static [Kind], pattern: &'static str, message: &'static str) -> Self {
        Self { kinds, pattern, value: None, message }
    }
}

const ROUTES: &[Kind] = &[Kind::HttpRoute, Kind::GrpcRoute];

/// The fields without effect, of all kinds.
pub(crate) const INERT_FIELDS: &[Inert] = &[
    Inert::new(
        ROUTES,
        "spec.rules[*].sessionPersistence",
        "has no effect: requests of a session go to any endpoint; consistentHash of a DestinationRule keeps \
         them together",
    ),
    Inert::new(
        &[Kind::KubernetesGateway],
        "spec.tls.backend",
        "has no effect: backends see no certificate of this Gateway; tls of a DestinationRule names one",
    ),
    Inert::new(
        &[Kind::KubernetesGateway],
        "spec.backendTLS",
        "has no effect: backends see no certificate of this Gateway; tls of a DestinationRule names one",
    ),
    Inert::new(
        &[Kind::KubernetesGateway],
        "spec.defaultScope",
        "has no effect: routes are attached to this Gateway by their parentRefs alone",
    ),
    Inert::new(
        &[Kind::HttpRoute, Kind::GrpcRoute, Kind::TcpRoute, Kind::TlsRoute],
        "spec.useDefaultGateways",
        "has no effect: the route is attached by its parentRefs alone",
    ),
    Inert::new(
        &[Kind::GatewayClass],
        "spec.parametersRef",
        "has no effect: ConfigMaps with the label gateway.istio.io/defaults-for-class have the defaults of \
         a class",
    ),
    Inert {
        kinds: &[Kind::EndpointSlice],
        pattern: "addressType",
        value: Some("FQDN"),
        message: "FQDN has no effect: the endpoints of this slice are not used; a ServiceEntry with \
                  resolution DNS can have names",
    },
];

/// Warnings for the fields that an object sets.
pub(crate) fn warnings(kind: Kind, root: &Node) -> Vec<Problem> {
    let mut problems = Vec::new();
    for inert in INERT_FIELDS.iter().filter(|inert| inert.kinds.contains(&kind)) {
        each(root, &parts(inert.pattern), &mut Vec::new(), &mut |path, node| {
            let counts = inert.value.is_none_or(|value| node.text() == Some(value));
            if counts && !node.is_null() && problems.len() < MOST_PROBLEMS {
                problems.push(Problem::warning(FieldPath::new(path.to_vec()), inert.message));
            }
        });
    }
    problems
}

fn each(node: &Node, parts: &[Part<'_>], path: &mut Vec<Segment>, f: &mut impl FnMut(&[Segment], &Node)) {
    let Some((part, more)) = parts.split_first() else { return f(path, node) };
    let mut step = |segment: Segment, node: &Node| {
        path.push(segment);
        each(node, more, path, f);
        path.pop();
    };
    match part {
        Part::Field(name) => {
            if let Some(node) = node.get(name) {
                step(Segment::Field((*name).into()), node);
            }
        }
        Part::Each => {
            node.items().iter().enumerate().for_each(|(index, node)| step(Segment::Index(index), node));
        }
        Part::Deep => {}
    }
}
