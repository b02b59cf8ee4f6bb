//! Text fields that are enums in effect: newer versions add values.

use super::pattern::{Part, parts};
use crate::path::{FieldPath, Segment};
use crate::problem::nearest;
use crate::validate::{ATTRIBUTES, HTTP_METHODS, is_attribute};
use crate::yaml::{MOST_UNKNOWN, Node, Unknown, UnknownPart, shorten};
use pilotfish_model::{Kind, Protocol};

/// A text field of some kinds, with its known values.
struct KnownTexts {
    kinds: &'static [Kind],
    at: &'static [&'static str],
    is_known: fn(&str) -> bool,
    names: &'static [&'static str],
}

const PROTOCOLS: &[&str] =
    &["HTTP", "HTTPS", "HTTP2", "GRPC", "GRPC-WEB", "TCP", "TLS", "MONGO", "REDIS", "MYSQL", "UDP"];

const TEXTS: &[KnownTexts] = &[
    KnownTexts {
        kinds: &[Kind::AuthorizationPolicy],
        at: &["spec.rules[*].when[*].key"],
        is_known: is_attribute,
        names: &ATTRIBUTES,
    },
    KnownTexts {
        kinds: &[Kind::Gateway, Kind::ServiceEntry, Kind::Sidecar],
        at: &[
            "spec.servers[*].port.protocol",
            "spec.ports[*].protocol",
            "spec.ingress[*].port.protocol",
            "spec.egress[*].port.protocol",
        ],
        is_known: |text| !Protocol::parse(text).is_unsupported(),
        names: PROTOCOLS,
    },
    KnownTexts {
        kinds: &[Kind::HttpRoute],
        at: &["spec.rules[*].matches[*].method"],
        // A method in lower case is an error.
        is_known: |text| HTTP_METHODS.contains(&text) || text.bytes().any(|c| !c.is_ascii_uppercase()),
        names: &HTTP_METHODS,
    },
];

/// Unknown values of such fields in an object.
pub(super) fn unknown(kind: Kind, root: &Node) -> Vec<Unknown> {
    let mut found = Vec::new();
    for texts in TEXTS.iter().filter(|texts| texts.kinds.contains(&kind)) {
        for pattern in texts.at {
            visit(root, &parts(pattern), &mut Vec::new(), &mut |node, path| {
                // An empty text is missing, and no name of a newer version has a space.
                let is_name = |text: &&str| !text.is_empty() && !text.contains(char::is_whitespace);
                let Some(text) = node.text().filter(is_name) else { return };
                if !(texts.is_known)(text) && found.len() <= MOST_UNKNOWN {
                    found.push(Unknown {
                        path: FieldPath::new(path.to_vec()),
                        line: node.line,
                        part: UnknownPart::Value(shorten(text)),
                        near: nearest(text, texts.names.iter().copied()).map(str::to_owned),
                    });
                }
            });
        }
    }
    found
}

/// Visits the nodes that match the steps of a pattern.
fn visit(
    node: &Node,
    steps: &[Part<'_>],
    path: &mut Vec<Segment>,
    found: &mut impl FnMut(&Node, &[Segment]),
) {
    let Some((step, more)) = steps.split_first() else { return found(node, path) };
    match step {
        Part::Field(name) => {
            if let Some(inner) = node.get(name) {
                path.push(Segment::Field((*name).into()));
                visit(inner, more, path, found);
                path.pop();
            }
        }
        Part::Each | Part::Deep => {
            for (index, item) in node.items().iter().enumerate() {
                path.push(Segment::Index(index));
                visit(item, more, path, found);
                path.pop();
            }
        }
    }
}
