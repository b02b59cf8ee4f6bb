//! Model of access: comparison of what two versions of an object let through.

use pilotfish_config::gateway_api::{
    self, FrontendTlsValidation, FrontendValidationMode, Listener, ListenerTls, TlsMode,
};
use pilotfish_config::networking::{Gateway, Server, ServerTlsMode, ServerTlsSettings, Sidecar, TlsProtocol};
use pilotfish_config::security::{
    AuthorizationAction as Action, AuthorizationPolicy, MutualTls, MutualTlsMode, PeerAuthentication,
    RequestAuthentication, Rule,
};
use pilotfish_config::{PolicyTargetReference, WorkloadSelector, spec_json};
use pilotfish_model::{Kind, KindSpec, Object};
use serde_json::Value;
use std::collections::BTreeSet;

/// Kinds that the model has rules for.
pub(crate) const KINDS: &[Kind] = &[
    Kind::AuthorizationPolicy,
    Kind::PeerAuthentication,
    Kind::RequestAuthentication,
    Kind::Gateway,
    Kind::Sidecar,
    Kind::BackendTlsPolicy,
    Kind::KubernetesGateway,
    Kind::ReferenceGrant,
    Kind::MeshConfig,
];

/// True if `now` lets through at most what `written` does. Without an object nothing is restricted, except
/// for kinds that grant access or listen.
pub(crate) fn opens_nothing(written: &Object, now: Option<&Object>) -> bool {
    match written.key().kind {
        Kind::AuthorizationPolicy => both(written, now, policy),
        Kind::PeerAuthentication => both(written, now, peers),
        Kind::RequestAuthentication => both(written, now, tokens),
        Kind::Gateway => both(written, now, gateway),
        Kind::Sidecar => both(written, now, sidecar),
        Kind::BackendTlsPolicy => both(written, now, backend_tls),
        Kind::KubernetesGateway => now.is_none() || both(written, now, kubernetes_gateway),
        Kind::ReferenceGrant => now.is_none() || both(written, now, grant),
        Kind::MeshConfig => now.is_some_and(|now| mesh(&spec_json(written), &spec_json(now))),
        kind => panic!("{kind} is not in the model"),
    }
}

fn both<T: KindSpec>(written: &Object, now: Option<&Object>, no_more: fn(&T, &T) -> bool) -> bool {
    let now = now.and_then(Object::typed::<T>);
    now.is_some_and(|now| no_more(&written.typed::<T>().unwrap(), &now))
}

/// Workloads that a policy is for.
type Scope<'a> = (Option<&'a WorkloadSelector>, Vec<&'a PolicyTargetReference>);

/// True if `now` is for the workloads of `written`, and maybe more.
fn is_wider(written: &Scope<'_>, now: &Scope<'_>) -> bool {
    let labels =
        |scope: &Scope<'_>| scope.0.map(|selector| selector.match_labels.clone()).unwrap_or_default();
    let known = labels(written);
    let has_labels = labels(now).iter().all(|(name, value)| known.get(name) == Some(value));
    has_labels && (now.1.is_empty() || now.1 == written.1)
}

fn targets<'a>(
    one: Option<&'a PolicyTargetReference>,
    more: &'a [PolicyTargetReference],
) -> Vec<&'a PolicyTargetReference> {
    one.into_iter().chain(more).collect()
}

fn policy(written: &AuthorizationPolicy, now: &AuthorizationPolicy) -> bool {
    let [before, after]: [Scope<'_>; 2] = [written, now].map(|policy| {
        let AuthorizationPolicy { selector, target_ref, target_refs, .. } = policy;
        (selector.as_ref(), targets(target_ref.as_ref(), target_refs))
    });
    let matches_everything = || now.rules.contains(&Rule::default());
    is_wider(&before, &after)
        && match (written.action, now.action) {
            (Action::Audit, Action::Audit) => true,
            (Action::Allow, Action::Allow) => {
                now.rules.is_empty()
                    || before == after && now.rules.iter().all(|rule| written.rules.contains(rule))
            }
            (Action::Deny, Action::Deny) => written.rules.iter().all(|rule| is_covered(rule, &now.rules)),
            (Action::Custom, Action::Custom) => {
                // Without a provider, requests are denied.
                now.provider.as_ref().is_none_or(|provider| Some(provider) == written.provider.as_ref())
                    && written.rules.iter().all(|rule| is_covered(rule, &now.rules))
            }
            (_, Action::Deny) => matches_everything(),
            _ => false,
        }
}

/// True if one of the rules matches all requests that the rule matches.
fn is_covered(rule: &Rule, by: &[Rule]) -> bool {
    let json = |rule: &Rule| serde_json::to_value(rule).unwrap();
    let written = json(rule);
    by.iter().map(json).any(|now| {
        ["from", "to"].iter().all(|list| {
            let (written, now) = (items(&written[list]), items(&now[list]));
            now.is_empty()
                || !written.is_empty()
                    && written.iter().all(|written| now.iter().any(|now| has_fewer(now, written)))
        }) && items(&now["when"]).iter().all(|condition| items(&written["when"]).contains(condition))
    })
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// True if each condition of `now`, a source or an operation, is one of `written`.
fn has_fewer(now: &Value, written: &Value) -> bool {
    let is_empty = |value: &Value| {
        value.is_null()
            || value.as_array().is_some_and(Vec::is_empty)
            || value.as_object().is_some_and(serde_json::Map::is_empty)
    };
    match (now, written) {
        (Value::Object(now), Value::Object(_)) => now
            .iter()
            .filter(|(_, value)| !is_empty(value))
            .all(|(name, value)| has_fewer(value, &written[name])),
        _ => is_empty(now) || now == written,
    }
}

fn peers(written: &PeerAuthentication, now: &PeerAuthentication) -> bool {
    // Modes that are not set are inherited.
    let is_set = |mtls: &MutualTls| mtls.mode != MutualTlsMode::Unset;
    let mode = |policy: &PeerAuthentication, port: Option<u32>| {
        let of_port = port.and_then(|port| policy.port_level_mtls.get(&port)).copied();
        of_port.filter(is_set).or(policy.mtls.filter(is_set)).map(|mtls| mtls.mode)
    };
    let ports: BTreeSet<u32> =
        written.port_level_mtls.keys().chain(now.port_level_mtls.keys()).copied().collect();
    let mut places = std::iter::once(None).chain(ports.into_iter().map(Some));
    let is_same = written.selector == now.selector;
    let [before, after]: [Scope<'_>; 2] = [written, now].map(|policy| (policy.selector.as_ref(), Vec::new()));
    now.closed
        || is_wider(&before, &after)
            && places.all(|port| {
                let now = mode(now, port);
                now == Some(MutualTlsMode::Strict) || is_same && now == mode(written, port)
            })
}

fn tokens(written: &RequestAuthentication, now: &RequestAuthentication) -> bool {
    let [before, after]: [Scope<'_>; 2] = [written, now].map(|policy| {
        let RequestAuthentication { selector, target_ref, target_refs, .. } = policy;
        (selector.as_ref(), targets(target_ref.as_ref(), target_refs))
    });
    let is_same = before == after;
    // A closed rule has the issuer and the places of tokens, and accepts none.
    let of_rules = || {
        written.jwt_rules.len() == now.jwt_rules.len()
            && written.jwt_rules.iter().zip(&now.jwt_rules).all(|(written, now)| {
                let is_refusing = now.closed
                    && now.issuer == written.issuer
                    && now.from_headers == written.from_headers
                    && now.from_params == written.from_params
                    && now.from_cookies == written.from_cookies;
                is_refusing || is_same && now == written
            })
    };
    is_wider(&before, &after) && (now.closed || of_rules())
}

/// True if `now` are the settings of `written`, or ones that accept less.
fn server_tls(written: Option<&ServerTlsSettings>, now: Option<&ServerTlsSettings>) -> bool {
    let (Some(written), Some(now)) = (written, now) else { return written.is_none() };
    let accepts_nobody = now.verify_certificate_hash == ["0".repeat(64)] && now.mode == ServerTlsMode::Mutual;
    let mut written = written.clone();
    if now.min_protocol_version == TlsProtocol::TlsV1_3 {
        written.min_protocol_version = TlsProtocol::TlsV1_3;
    }
    accepts_nobody || *now == written
}

fn gateway(written: &Gateway, now: &Gateway) -> bool {
    let checks = |server: &&Server| {
        let mode = server.tls.as_ref().map(|tls| tls.mode);
        mode.is_some_and(|mode| {
            !matches!(
                mode,
                ServerTlsMode::Simple | ServerTlsMode::Passthrough | ServerTlsMode::AutoPassthrough
            )
        })
    };
    written.servers.iter().filter(checks).all(|written| {
        now.servers.iter().any(|now| {
            let number = |server: &Server| server.port.as_ref().map(|port| port.number);
            number(now) == number(written)
                && now.hosts == written.hosts
                && (now.closed || server_tls(written.tls.as_ref(), now.tls.as_ref()))
        })
    })
}

fn sidecar(written: &Sidecar, now: &Sidecar) -> bool {
    written.ingress.iter().filter(|listener| listener.tls.is_some()).all(|written| {
        let now = now.ingress.iter().find(|now| {
            let ports = [*now, written].map(|listener| listener.port.as_ref().map(|port| port.number));
            ports[0] == ports[1]
        });
        now.is_some_and(|now| server_tls(written.tls.as_ref(), now.tls.as_ref()))
    })
}

fn backend_tls(written: &gateway_api::BackendTlsPolicy, now: &gateway_api::BackendTlsPolicy) -> bool {
    let has_targets = written.spec.target_refs.iter().all(|target| now.spec.target_refs.contains(target));
    now.refused.is_some() && has_targets || now.spec == written.spec
}

fn kubernetes_gateway(written: &gateway_api::Gateway, now: &gateway_api::Gateway) -> bool {
    now.spec.listeners.iter().all(|after| {
        let before = written.spec.listeners.iter().find(|before| before.name == after.name).unwrap();
        let (from, allowed) = (after.allowed_routes.namespaces.from, &after.allowed_routes);
        let has_routes_of = from == gateway_api::FromNamespaces::None || *allowed == before.allowed_routes;
        has_routes_of && listener_tls((written, before), (now, after))
    })
}

fn listener_tls(
    (before, written): (&gateway_api::Gateway, &Listener),
    (after, now): (&gateway_api::Gateway, &Listener),
) -> bool {
    let Some(tls) = &written.tls else { return true };
    let validation = validation(before, written, tls);
    if tls.mode == TlsMode::Passthrough || validation.is_none() && tls.options.is_empty() {
        return true;
    }
    // A listener whose certificate or authority is no Secret or ConfigMap is not served.
    now.tls.as_ref().is_some_and(|tls| {
        let checked = self::validation(after, now, tls);
        let is_unserved = tls.mode == TlsMode::Terminate
            && (tls.certificate_refs.iter().any(|secret| secret.kind == "Unknown")
                || checked.is_some_and(|checked| {
                    checked.ca_certificate_refs.iter().any(|at| at.kind == "Unknown")
                }));
        let is_same = |(now, before): (&FrontendTlsValidation, &FrontendTlsValidation)| {
            let strict = FrontendValidationMode::AllowValidOnly;
            now.ca_certificate_refs == before.ca_certificate_refs
                && (now.mode == before.mode || now.mode == strict)
        };
        let settings = |tls: &ListenerTls| (tls.mode, tls.certificate_refs.clone(), tls.options.clone());
        let is_checked = validation.is_none() || checked.zip(validation).is_some_and(is_same);
        is_unserved || is_checked && written.tls.as_ref().map(settings) == Some(settings(tls))
    })
}

/// The validation of a listener's clients: its own, else that of its port, else the default.
fn validation<'a>(
    gateway: &'a gateway_api::Gateway,
    listener: &Listener,
    tls: &'a ListenerTls,
) -> Option<&'a FrontendTlsValidation> {
    let of_gateway = || {
        let frontend = gateway.spec.tls.as_ref()?.frontend.as_ref()?;
        let of_port = frontend.per_port.iter().find(|port| port.port == listener.port);
        of_port.map_or(frontend.default.as_ref(), |port| port.tls.as_ref())?.validation.as_ref()
    };
    tls.frontend_validation.as_ref().or_else(of_gateway)
}

fn grant(written: &gateway_api::ReferenceGrant, now: &gateway_api::ReferenceGrant) -> bool {
    now.spec.from.iter().all(|from| written.spec.from.contains(from))
        && now.spec.to.iter().all(|to| written.spec.to.contains(to))
}

fn mesh(written: &Value, now: &Value) -> bool {
    [
        ("/tlsDefaults/minProtocolVersion", "TLSV1_3"),
        ("/meshMTLS/minProtocolVersion", "TLSV1_3"),
        ("/pathNormalization/normalization", "DECODE_AND_MERGE_SLASHES"),
    ]
    .iter()
    .all(|(field, strictest)| {
        let now = now.pointer(field);
        now == written.pointer(field) || now.is_some_and(|now| now == strictest)
    })
}
