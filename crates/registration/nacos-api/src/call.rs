//! Paths of the HTTP API.

use http::Method;

/// Version of the API, which decides on the form of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// Plain texts and objects.
    One,
    /// Objects with code, message and data.
    Two,
}

/// A call, by its path and method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Register,
    Deregister,
    Update,
    GetInstance,
    Beat,
    ListInstances,
    ListServices,
    /// Health of the server, which clients ask for.
    Metrics,
    /// Version of the server.
    State,
    Login,
}

/// Reason for a request that is no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoCall {
    /// There is nothing at this path.
    Path,
    /// The path has other methods.
    Method,
    /// The call manages configuration, which is not served.
    Configuration,
}

/// Paths without a version, with the methods and calls of each.
const PATHS: &[(&str, &[(Method, Call)])] = &[
    (
        "ns/instance",
        &[
            (Method::POST, Call::Register),
            (Method::DELETE, Call::Deregister),
            (Method::PUT, Call::Update),
            (Method::PATCH, Call::Update),
            (Method::GET, Call::GetInstance),
        ],
    ),
    ("ns/instance/beat", &[(Method::PUT, Call::Beat)]),
    ("ns/instance/list", &[(Method::GET, Call::ListInstances)]),
    ("ns/service/list", &[(Method::GET, Call::ListServices)]),
    ("ns/operator/metrics", &[(Method::GET, Call::Metrics)]),
    ("console/server/state", &[(Method::GET, Call::State)]),
    ("auth/login", &[(Method::POST, Call::Login)]),
    ("auth/users/login", &[(Method::POST, Call::Login)]),
    ("auth/user/login", &[(Method::POST, Call::Login)]),
];

impl Call {
    /// Returns the call of a request.
    pub(crate) fn parse(method: &Method, path: &str) -> Result<(Version, Self), NoCall> {
        let versioned = path.strip_prefix("/nacos/").ok_or(NoCall::Path)?;
        let (version, rest) = versioned.split_once('/').ok_or(NoCall::Path)?;
        let rest = rest.trim_end_matches('/');
        if rest == "cs" || rest.starts_with("cs/") {
            return Err(NoCall::Configuration);
        }
        let (_, calls) = PATHS.iter().find(|(known, _)| *known == rest).ok_or(NoCall::Path)?;
        let (_, call) = calls.iter().find(|(known, _)| known == method).ok_or(NoCall::Method)?;
        match (version, call) {
            // Version 3 has one form of the login, and no other call for clients.
            ("v1", _) | ("v3", Self::Login) => Ok((Version::One, *call)),
            ("v2", Self::Login | Self::State) => Err(NoCall::Path),
            ("v2", _) => Ok((Version::Two, *call)),
            _ => Err(NoCall::Path),
        }
    }

    /// Returns the version of a path, for the form of errors.
    pub(crate) fn version(path: &str) -> Version {
        if path.starts_with("/nacos/v2/") { Version::Two } else { Version::One }
    }

    /// True for a call without identity: its answer depends on nothing that is registered.
    pub(crate) fn is_open(self) -> bool {
        matches!(self, Self::Metrics | Self::State)
    }

    /// Returns the label of metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Register => "Register",
            Self::Deregister => "Deregister",
            Self::Update => "Update",
            Self::GetInstance => "GetInstance",
            Self::Beat => "Beat",
            Self::ListInstances => "ListInstances",
            Self::ListServices => "ListServices",
            Self::Metrics => "Metrics",
            Self::State => "State",
            Self::Login => "Login",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_methods_are_calls() {
        for (method, path, expected) in [
            (Method::POST, "/nacos/v1/ns/instance", Ok((Version::One, Call::Register))),
            (Method::PATCH, "/nacos/v2/ns/instance", Ok((Version::Two, Call::Update))),
            (Method::PUT, "/nacos/v1/ns/instance/beat/", Ok((Version::One, Call::Beat))),
            (Method::GET, "/nacos/v2/ns/service/list", Ok((Version::Two, Call::ListServices))),
            (Method::POST, "/nacos/v1/auth/users/login", Ok((Version::One, Call::Login))),
            (Method::POST, "/nacos/v3/auth/user/login", Ok((Version::One, Call::Login))),
            (Method::GET, "/nacos/v3/ns/instance", Err(NoCall::Path)),
            (Method::GET, "/nacos/v2/console/server/state", Err(NoCall::Path)),
            (Method::GET, "/nacos/v1/ns/instance/beat", Err(NoCall::Method)),
            (Method::GET, "/nacos/v1/cs/configs", Err(NoCall::Configuration)),
            (Method::POST, "/nacos/v2/cs/config", Err(NoCall::Configuration)),
            (Method::GET, "/v1/ns/instance", Err(NoCall::Path)),
            (Method::GET, "/nacos/", Err(NoCall::Path)),
        ] {
            assert_eq!(Call::parse(&method, path), expected, "{method} {path}");
        }
    }
}
