//! Paths of the API.

use crate::checks::Status;
use http::Method;
use percent_encoding::percent_decode_str;

/// A call, by its path and method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Register,
    Deregister(String),
    /// Reports the status of a check by its path.
    Report(Status, String),
    /// Reports the status of a check by its body.
    Update(String),
    Maintenance(String),
    AgentServices,
    AgentService(String),
    AgentChecks,
    AgentSelf,
    Leader,
    Peers,
    Datacenters,
    Nodes,
    Services,
    /// Instances of a service.
    Instances(String),
    /// Instances of a service with their checks.
    Health(String),
    /// Checks of a service.
    Checks(String),
    /// Checks of all services in a state; `None` for any.
    State(Option<Status>),
}

/// A request that is no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoCall {
    Path,
    Method,
}

impl Call {
    pub(crate) fn parse(method: &Method, path: &str) -> Result<Self, NoCall> {
        let rest = path.strip_prefix("/v1/").ok_or(NoCall::Path)?;
        let (area, rest) = rest.split_once('/').ok_or(NoCall::Path)?;
        // Ids of checks may contain slashes: everything behind the call belongs to the id.
        let parts: Vec<&str> = rest.trim_end_matches('/').splitn(3, '/').collect();
        let decode = |part: &str| match percent_decode_str(part).decode_utf8() {
            Ok(text) if !text.is_empty() => Ok(text.into_owned()),
            _ => Err(NoCall::Path),
        };
        let (wanted, call) = match (area, parts.as_slice()) {
            ("agent", ["service", "register"]) => ("PUT", Self::Register),
            ("agent", ["service", "deregister", id]) => ("PUT", Self::Deregister(decode(id)?)),
            ("agent", ["service", "maintenance", id]) => ("PUT", Self::Maintenance(decode(id)?)),
            ("agent", ["check", "update", id]) => ("PUT", Self::Update(decode(id)?)),
            ("agent", ["check", word @ ("pass" | "warn" | "fail"), id]) => {
                ("PUT", Self::Report(Status::parse(word).ok_or(NoCall::Path)?, decode(id)?))
            }
            ("agent", ["services"]) => ("GET", Self::AgentServices),
            ("agent", ["service", id]) => ("GET", Self::AgentService(decode(id)?)),
            ("agent", ["checks"]) => ("GET", Self::AgentChecks),
            ("agent", ["self"]) => ("GET", Self::AgentSelf),
            ("status", ["leader"]) => ("GET", Self::Leader),
            ("status", ["peers"]) => ("GET", Self::Peers),
            ("catalog", ["datacenters"]) => ("GET", Self::Datacenters),
            ("catalog", ["nodes"]) => ("GET", Self::Nodes),
            ("catalog", ["services"]) => ("GET", Self::Services),
            ("catalog", ["service", name]) => ("GET", Self::Instances(decode(name)?)),
            ("health", ["service", name]) => ("GET", Self::Health(decode(name)?)),
            ("health", ["checks", name]) => ("GET", Self::Checks(decode(name)?)),
            ("health", ["state", "any"]) => ("GET", Self::State(None)),
            ("health", ["state", state @ ("passing" | "warning" | "critical")]) => {
                ("GET", Self::State(Status::parse(state)))
            }
            _ => return Err(NoCall::Path),
        };
        if method.as_str() == wanted { Ok(call) } else { Err(NoCall::Method) }
    }

    /// True for a call that may wait for a change.
    pub(crate) fn may_wait(&self) -> bool {
        matches!(
            self,
            Self::Nodes
                | Self::Services
                | Self::Instances(_)
                | Self::Health(_)
                | Self::Checks(_)
                | Self::State(_)
        )
    }

    /// Returns the metric label.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Register | Self::Maintenance(_) => "Register",
            Self::Deregister(_) => "Deregister",
            Self::Report(..) | Self::Update(_) => "Renew",
            Self::AgentService(_) => "GetInstance",
            Self::AgentSelf | Self::Leader | Self::Peers | Self::Datacenters => "other",
            _ => "ListInstances",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_calls() {
        let id = || "service:web-1".to_owned();
        for (method, path, expected) in [
            ("PUT", "/v1/agent/service/register", Ok(Call::Register)),
            ("PUT", "/v1/agent/service/deregister/web%2F1", Ok(Call::Deregister("web/1".into()))),
            ("PUT", "/v1/agent/service/deregister/web/1", Ok(Call::Deregister("web/1".into()))),
            ("PUT", "/v1/agent/service/maintenance/web-1", Ok(Call::Maintenance("web-1".into()))),
            ("PUT", "/v1/agent/check/pass/service:web-1", Ok(Call::Report(Status::Passing, id()))),
            ("PUT", "/v1/agent/check/warn/service:web-1", Ok(Call::Report(Status::Warning, id()))),
            ("PUT", "/v1/agent/check/fail/service%3Aweb-1", Ok(Call::Report(Status::Critical, id()))),
            ("PUT", "/v1/agent/check/update/service:web-1", Ok(Call::Update(id()))),
            ("GET", "/v1/agent/services", Ok(Call::AgentServices)),
            ("GET", "/v1/agent/service/web-1", Ok(Call::AgentService("web-1".into()))),
            ("GET", "/v1/agent/checks", Ok(Call::AgentChecks)),
            ("GET", "/v1/agent/self", Ok(Call::AgentSelf)),
            ("GET", "/v1/status/leader", Ok(Call::Leader)),
            ("GET", "/v1/status/peers", Ok(Call::Peers)),
            ("GET", "/v1/catalog/datacenters", Ok(Call::Datacenters)),
            ("GET", "/v1/catalog/nodes", Ok(Call::Nodes)),
            ("GET", "/v1/catalog/services/", Ok(Call::Services)),
            ("GET", "/v1/catalog/service/web", Ok(Call::Instances("web".into()))),
            ("GET", "/v1/health/service/web", Ok(Call::Health("web".into()))),
            ("GET", "/v1/health/checks/web", Ok(Call::Checks("web".into()))),
            ("GET", "/v1/health/state/any", Ok(Call::State(None))),
            ("GET", "/v1/health/state/critical", Ok(Call::State(Some(Status::Critical)))),
            ("GET", "/v1/health/state/bad", Err(NoCall::Path)),
            ("POST", "/v1/agent/service/register", Err(NoCall::Method)),
            ("GET", "/v1/agent/check/pass/x", Err(NoCall::Method)),
            ("GET", "/v1/kv/x", Err(NoCall::Path)),
            ("GET", "/v1/catalog/service/%ff", Err(NoCall::Path)),
            ("GET", "/catalog/services", Err(NoCall::Path)),
        ] {
            assert_eq!(Call::parse(&method.parse().unwrap(), path), expected, "{method} {path}");
        }
    }
}
