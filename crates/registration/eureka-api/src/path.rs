//! Paths of the API.

use http::Method;
use percent_encoding::percent_decode_str;

/// A call, by its path and method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// All applications.
    Apps,
    /// The changes of the last minutes.
    Delta,
    /// One application.
    App(String),
    Register(String),
    Instance(Target),
    /// An instance by its id alone.
    AnyInstance(String),
    Heartbeat(Target),
    Cancel(Target),
    SetStatus(Target),
    RemoveStatus(Target),
    SetMetadata(Target),
    Vip(String),
    SecureVip(String),
    Replicate,
}

/// Application and id of an instance, as in a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) app: String,
    pub(crate) id: String,
}

/// A request that is no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoCall {
    Path,
    Method,
}

impl Call {
    pub(crate) fn parse(method: &Method, path: &str) -> Result<Self, NoCall> {
        let rest = path.strip_prefix("/eureka/").ok_or(NoCall::Path)?;
        let rest = rest.strip_prefix("v2/").unwrap_or(rest);
        let decode = |part: &str| percent_decode_str(part).decode_utf8().map(|part| part.into_owned());
        let parts: Result<Vec<String>, _> = rest.trim_end_matches('/').split('/').map(decode).collect();
        let parts = parts.map_err(|_| NoCall::Path)?;
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let target = |app: &str, id: &str| Target { app: app.to_owned(), id: id.to_owned() };
        match (parts.as_slice(), method.as_str()) {
            (["apps"], "GET") => Ok(Self::Apps),
            (["apps", "delta"], "GET") => Ok(Self::Delta),
            (["apps", app], "GET") => Ok(Self::App((*app).to_owned())),
            (["apps", app], "POST") => Ok(Self::Register((*app).to_owned())),
            (["apps", app, id], "GET") => Ok(Self::Instance(target(app, id))),
            (["apps", app, id], "PUT") => Ok(Self::Heartbeat(target(app, id))),
            (["apps", app, id], "DELETE") => Ok(Self::Cancel(target(app, id))),
            (["apps", app, id, "status"], "PUT") => Ok(Self::SetStatus(target(app, id))),
            (["apps", app, id, "status"], "DELETE") => Ok(Self::RemoveStatus(target(app, id))),
            (["apps", app, id, "metadata"], "PUT") => Ok(Self::SetMetadata(target(app, id))),
            (["instances", id], "GET") => Ok(Self::AnyInstance((*id).to_owned())),
            (["vips", name], "GET") => Ok(Self::Vip((*name).to_owned())),
            (["svips", name], "GET") => Ok(Self::SecureVip((*name).to_owned())),
            (["peerreplication", "batch"], "POST") => Ok(Self::Replicate),
            (["apps"] | ["peerreplication", "batch"], _)
            | (["apps" | "instances" | "vips" | "svips", _], _)
            | (["apps", _, _], _)
            | (["apps", _, _, "status" | "metadata"], _) => Err(NoCall::Method),
            _ => Err(NoCall::Path),
        }
    }

    /// Returns the metric label.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Apps | Self::App(_) | Self::Delta | Self::Vip(_) | Self::SecureVip(_) => "ListInstances",
            Self::Instance(_) | Self::AnyInstance(_) => "GetInstance",
            Self::Register(_) | Self::SetStatus(_) | Self::RemoveStatus(_) | Self::SetMetadata(_) => {
                "Register"
            }
            Self::Heartbeat(_) => "Renew",
            Self::Cancel(_) => "Deregister",
            Self::Replicate => "BatchRegister",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_calls() {
        let target = || Target { app: "A".into(), id: "host:a:80".into() };
        for (method, path, expected) in [
            ("GET", "/eureka/apps", Ok(Call::Apps)),
            ("GET", "/eureka/apps/", Ok(Call::Apps)),
            ("GET", "/eureka/v2/apps/delta", Ok(Call::Delta)),
            ("GET", "/eureka/apps/A", Ok(Call::App("A".into()))),
            ("POST", "/eureka/v2/apps/A", Ok(Call::Register("A".into()))),
            ("PUT", "/eureka/apps/A/host:a:80", Ok(Call::Heartbeat(target()))),
            ("DELETE", "/eureka/apps/A/host%3Aa%3A80", Ok(Call::Cancel(target()))),
            ("GET", "/eureka/apps/A/host:a:80", Ok(Call::Instance(target()))),
            ("PUT", "/eureka/apps/A/host:a:80/status", Ok(Call::SetStatus(target()))),
            ("DELETE", "/eureka/apps/A/host:a:80/status", Ok(Call::RemoveStatus(target()))),
            ("PUT", "/eureka/apps/A/host:a:80/metadata", Ok(Call::SetMetadata(target()))),
            ("GET", "/eureka/instances/x%2Fy", Ok(Call::AnyInstance("x/y".into()))),
            ("GET", "/eureka/vips/a", Ok(Call::Vip("a".into()))),
            ("GET", "/eureka/svips/a", Ok(Call::SecureVip("a".into()))),
            ("POST", "/eureka/peerreplication/batch/", Ok(Call::Replicate)),
            ("PATCH", "/eureka/apps/A/1", Err(NoCall::Method)),
            ("POST", "/eureka/apps", Err(NoCall::Method)),
            ("GET", "/eureka/", Err(NoCall::Path)),
            ("GET", "/apps", Err(NoCall::Path)),
            ("GET", "/eureka/apps/%ff", Err(NoCall::Path)),
        ] {
            assert_eq!(Call::parse(&method.parse().unwrap(), path), expected, "{method} {path}");
        }
    }
}
