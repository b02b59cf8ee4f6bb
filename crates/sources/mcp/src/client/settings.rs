//! Settings of `--registry mcp=...`.

use super::MCP;
use super::stream::Protocol;
use crate::kinds::{KINDS, McpKind};
use pilotfish_connect::{Connector, Scheme, Target, TlsOptions};
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::{Struct, Value, ValueKind};
use pilotfish_registry::{
    GUARD_OPTION, GUARD_WAIT_OPTION, GuardSettings, LiveSettings, OptionSpec, OptionsError,
};

/// Schemes of an address: Istio's port for configuration, without and with TLS.
const SCHEMES: &[Scheme] = &[
    Scheme { name: "xds", port: 15010, is_tls: false },
    Scheme { name: "xds+tls", port: 15012, is_tls: true },
];

/// Options other than those of TLS.
pub(crate) const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "kinds",
        value: "KIND,...",
        about: "the kinds that are asked for [default: all of Istio's, and MeshConfig]",
    },
    OptionSpec {
        name: "protocol",
        value: "auto|delta|sotw",
        about: "differences or whole lists; auto is delta where the server has it with versions [default: \
                auto]",
    },
    OptionSpec {
        name: "spelling",
        value: "new|old",
        about: "how kinds are asked for: new is that of Istio 1.24 and later (v1), old the one before \
                (v1alpha3) [default: new]",
    },
    OptionSpec {
        name: "revision",
        value: "NAME",
        about: "leave out objects whose label istio.io/rev names another revision [default: take all]",
    },
    OptionSpec {
        name: "node",
        value: "ID",
        about: "the node id that the server sees [default: \
                waypoint~127.0.0.1~pilotfish.NS~NS.svc.cluster.local, NS the root namespace]",
    },
    GUARD_OPTION,
    GUARD_WAIT_OPTION,
];

/// Settings of a source.
#[derive(Clone, Debug)]
pub(crate) struct McpSettings {
    /// Addresses of the server; each session takes the next one.
    pub(crate) target: Target,
    pub(crate) connector: Connector,
    pub(crate) node: Node,
    pub(crate) kinds: Vec<&'static McpKind>,
    /// `None`: delta, or lists if the server does not support delta.
    pub(crate) protocol: Option<Protocol>,
    pub(crate) old_spelling: bool,
    pub(crate) revision: Option<String>,
    pub(crate) guard: GuardSettings,
}

impl McpSettings {
    /// Parses the address and the options.
    ///
    /// # Errors
    /// All errors together.
    pub(crate) fn parse(mut settings: LiveSettings) -> Result<Self, OptionsError> {
        let mut mistakes = Vec::new();
        let mut choose = |name: &str, text: Option<String>, choices: &[&str]| -> usize {
            let Some(text) = text else { return 0 };
            choices.iter().position(|choice| *choice == text).unwrap_or_else(|| {
                mistakes.push(format!("{name} {text:?}: not one of {}", choices.join(", ")));
                0
            })
        };
        let protocol = match choose("protocol", settings.options.take("protocol"), &["auto", "delta", "sotw"])
        {
            0 => None,
            1 => Some(Protocol::Delta),
            _ => Some(Protocol::Sotw),
        };
        let old_spelling = choose("spelling", settings.options.take("spelling"), &["new", "old"]) == 1;
        let guard = settings.parse_guard(None, &mut mistakes);
        let kinds = kinds(settings.options.take("kinds"), &mut mistakes);
        let revision = settings.options.take("revision").filter(|revision| !revision.is_empty());
        let node = settings.options.take("node");
        let target = Target::parse(&settings.address, SCHEMES).and_then(|target| match &*target.path {
            "" => Ok(target),
            path => Err(format!("the address has a path, {path:?}, which means nothing here")),
        });
        let is_tls = target.as_ref().is_ok_and(|target| target.scheme.is_tls);
        let tls =
            TlsOptions::take(&mut settings.options, is_tls, &mut mistakes).map(|tls| tls.with_alpn(&["h2"]));
        let namespace = settings.registry.system_namespace.to_string();
        let node = node_of(node, &namespace, revision.as_deref());
        if let Err(error) = settings.finish(&MCP) {
            mistakes.extend(error.0);
        }
        match target {
            Err(mistake) => Err(OptionsError([vec![mistake], mistakes].concat())),
            Ok(_) if !mistakes.is_empty() => Err(OptionsError(mistakes)),
            Ok(target) => {
                let connector = Connector::new(tls);
                Ok(Self { target, connector, node, kinds, protocol, old_spelling, revision, guard })
            }
        }
    }
}

fn kinds(text: Option<String>, mistakes: &mut Vec<String>) -> Vec<&'static McpKind> {
    let Some(text) = text else { return KINDS.iter().collect() };
    let mut chosen: Vec<&'static McpKind> = Vec::new();
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        match KINDS.iter().find(|entry| entry.kind.name().eq_ignore_ascii_case(name)) {
            Some(entry) if chosen.contains(&entry) => {}
            Some(entry) => chosen.push(entry),
            None => mistakes.push(format!("kinds: there is no kind {name:?}")),
        }
    }
    if chosen.is_empty() && mistakes.is_empty() {
        mistakes.push("kinds: name at least one".to_owned());
    }
    chosen
}

/// Node of the requests, which states that they are for configuration.
///
/// Istiod pushes a change to the nodes that it affects: one of a Gateway not to sidecars, one of a Sidecar
/// not to routers, and to a sidecar nothing that is not exported to its namespace. A waypoint of the root
/// namespace is affected by all kinds except for those that are [relisted](super::stream::RELISTED).
fn node_of(id: Option<String>, namespace: &str, revision: Option<&str>) -> Node {
    let id = id
        .unwrap_or_else(|| format!("waypoint~127.0.0.1~pilotfish.{namespace}~{namespace}.svc.cluster.local"));
    let text = |text: &str| Value { kind: Some(ValueKind::StringValue(text.to_owned())) };
    let mut fields = std::collections::BTreeMap::new();
    fields.insert("GENERATOR".to_owned(), text("api"));
    fields.insert("NAMESPACE".to_owned(), text(namespace));
    if let Some(revision) = revision {
        fields.insert("ISTIO_REVISION".to_owned(), text(revision));
    }
    let metadata = Some(Struct { fields });
    Node { id, metadata, user_agent_name: "pilotfish".to_owned(), ..Node::default() }
}
