//! The answers of `/api/v1`.

use super::proxies::{acknowledgement, add_objects, find, name, proxy, section};
use super::{AdminState, history, plan};
use crate::cli::logging::{self, LogControl};
use pilotfish_admin::{HistoryQuery, Operations, WaitFor, WhyQuery};
use pilotfish_api::v1::{
    Acknowledgement, Change, ConfigResource, Failure, FailureKind, History, LogFilter, MemoryKind, Plan,
    PlanRequest, Proxy, ProxyConfig, Section, Why, WhyEndpoint,
};
use pilotfish_explain as explain;
use pilotfish_model::{Kind, ObjectKey};
use pilotfish_translate::{EncodedResource, ViewId};
use pilotfish_xds::{Names, TypeStatus};

/// Bytes of resources, as they are on the wire, that one answer shows whole.
const SHOWN_BYTES: usize = 4 << 20;
/// Resources that one answer lists.
const LISTED: usize = 20_000;

impl Operations for AdminState {
    fn proxies(&self) -> Vec<Proxy> {
        let (current, connections) = self.fanout.acknowledgements();
        let mut all: Vec<Proxy> = connections.iter().map(|connection| proxy(connection, current)).collect();
        all.sort_by(|a, b| (&a.name, &a.connection).cmp(&(&b.name, &b.connection)));
        all
    }

    fn proxy(&self, name: &str) -> Result<Proxy, Failure> {
        let (current, connections) = self.fanout.acknowledgements();
        let connection = find(&connections, name)?;
        let mut proxy = proxy(connection, current);
        add_objects(&mut proxy, connection, &self.translator.snapshot());
        Ok(proxy)
    }

    fn acknowledgement(&self, what: &WaitFor) -> Result<Acknowledgement, Failure> {
        let known = self.fanout.acknowledgements();
        let revision = match what {
            WaitFor::Newest => known.0,
            WaitFor::Revision(revision) if *revision <= known.0 => *revision,
            WaitFor::Revision(revision) => {
                let message = format!("revision {revision} is not known; {} is in force", known.0);
                let failure = Failure::new(FailureKind::NotFound, message);
                return Err(failure.hint("revisions count anew when the control plane starts"));
            }
            WaitFor::Object(object) => self.revision_of(object, known.0)?,
        };
        Ok(acknowledgement(&known, revision))
    }

    fn proxy_config(
        &self,
        proxy: &str,
        wanted: Option<Section>,
        part: Option<&str>,
        full: bool,
        at: Option<u64>,
    ) -> Result<ProxyConfig, Failure> {
        let connections = self.fanout.connections();
        let connection = find(&connections, proxy)?;
        let held = at.map(|revision| history::held_at(self, connection, revision)).transpose()?;
        let mut config = ProxyConfig {
            proxy: name(connection).to_owned(),
            revision: at.unwrap_or_else(|| self.fanout.revision()),
            ..ProxyConfig::default()
        };
        let mut bytes = 0_usize;
        for (ty, status) in &connection.types {
            let section = section(*ty);
            if wanted.is_some_and(|wanted| wanted != section) {
                continue;
            }
            let all = match &held {
                Some(held) => held.of.get(ty).map(|of| of.values().cloned().collect()).unwrap_or_default(),
                None => self.sent(status),
            };
            let exact = all.iter().any(|resource| Some(&*resource.name) == part);
            let is_meant =
                |name: &str| part.is_none_or(|part| if exact { name == part } else { name.contains(part) });
            for resource in all.iter().filter(|resource| is_meant(&resource.name)) {
                config.total += 1;
                bytes += resource.body.len();
                if config.resources.len() >= LISTED || (full && bytes > SHOWN_BYTES && config.total > 1) {
                    config.truncated = true;
                    continue;
                }
                config.resources.push(shown(section, resource, full));
            }
        }
        Ok(config)
    }

    fn plan(&self, request: PlanRequest) -> Result<Plan, Failure> {
        plan::of_running(self, &request)
    }

    fn why(&self, query: &WhyQuery) -> Result<Why, Failure> {
        let connections = self.fanout.connections();
        let proxy = history::proxy_of(self, find(&connections, &query.proxy)?)?;
        let request = explain::Request::parse(&query.to, &query.path, &query.method, &query.headers)?;
        match query.at {
            // How registries were then is not known.
            Some(revision) => explain::why(&history::translator_at(self, revision)?, &proxy, &request, &[]),
            None => explain::why(&self.translator, &proxy, &request, &self.shared.registries()),
        }
    }

    fn history(&self, query: &HistoryQuery) -> Result<History, Failure> {
        history::changes(self, query)
    }

    fn change(&self, revision: u64) -> Result<Change, Failure> {
        history::change(self, revision)
    }

    fn memory(&self) -> Vec<MemoryKind> {
        super::memory::kinds(self)
    }

    fn log(&self) -> Result<LogFilter, Failure> {
        let control = log_control()?;
        Ok(LogFilter { filter: control.current(), configured: control.configured().to_owned() })
    }

    fn set_log(&self, filter: &str) -> Result<LogFilter, Failure> {
        let control = log_control()?;
        let filter = if filter.is_empty() { control.configured() } else { filter };
        control.set(filter).map_err(|error| {
            let failure = Failure::new(FailureKind::Invalid, format!("{error:#}"));
            failure.hint("debug is a filter, and so is info,pilotfish_xds=debug")
        })?;
        self.log()
    }

    fn why_endpoint(&self, address: &str) -> Result<WhyEndpoint, Failure> {
        explain::why_endpoint(&self.shared.world(), address)
    }
}

fn log_control() -> Result<&'static LogControl, Failure> {
    let none = || Failure::new(FailureKind::Unavailable, "this process writes no log");
    logging::control().ok_or_else(none)
}

impl AdminState {
    /// What a client has of a type, in the order of names. A snapshot is given back between them where the next world waits for it.
    fn sent(&self, status: &TypeStatus) -> Vec<EncodedResource> {
        let view = ViewId(status.view.0);
        let mut snapshot = self.translator.snapshot();
        let names = match &status.names {
            Names::Named(names) => names.as_slice().into(),
            Names::Wildcard => {
                while !snapshot.prepare(view) {
                    drop(snapshot);
                    snapshot = self.translator.snapshot();
                }
                snapshot.names(view)
            }
        };
        let mut found = Vec::new();
        for name in names.iter() {
            found.extend(snapshot.get(view, name));
            if snapshot.is_waited_for() {
                drop(snapshot);
                snapshot = self.translator.snapshot();
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }

    /// The revision since which an object is in force.
    fn revision_of(&self, object: &str, current: u64) -> Result<u64, Failure> {
        let key = object_key(object)?;
        let world = self.shared.world();
        if world.object(&key).is_some() || self.shared.changed_lately(&key) {
            return Ok(self.shared.revision_of(&key));
        }
        // Kinds that only registries read are not in the world: what was read is in force, or will be with the next revision.
        if is_of_registries(key.kind) {
            return Ok(current);
        }
        let known: Vec<String> = world.objects(key.kind).map(|object| slashed(object.key())).collect();
        Err(Failure::unknown("object", object, known.iter().map(String::as_str)))
    }
}

/// Kinds of which registries make services, endpoints and workloads.
fn is_of_registries(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Service | Kind::EndpointSlice | Kind::Pod | Kind::Node | Kind::Namespace | Kind::WorkloadEntry
    )
}

/// `VirtualService/shop/catalog`.
fn slashed(key: &ObjectKey) -> String {
    if key.namespace.is_empty() {
        format!("{}/{}", key.kind, key.name)
    } else {
        format!("{}/{}/{}", key.kind, key.namespace, key.name)
    }
}

/// Reads `VirtualService/shop/catalog`. Where kinds of two API groups share a name (`Gateway`), Istio's is meant unless the group is written
/// behind it: `Gateway.gateway.networking.k8s.io/shop/edge`.
pub(crate) fn object_key(text: &str) -> Result<ObjectKey, Failure> {
    let parts: Vec<&str> = text.split('/').collect();
    let (kind, namespace, name) = match parts.as_slice() {
        [kind, namespace, name] => (*kind, *namespace, *name),
        [kind, name] => (*kind, "", *name),
        _ => {
            let failure = Failure::new(FailureKind::Invalid, format!("{text:?} is no object"));
            return Err(
                failure.hint("objects are written as KIND/NAMESPACE/NAME, as in VirtualService/shop/catalog")
            );
        }
    };
    let (word, group) = kind.split_once('.').map_or((kind, None), |(word, group)| (word, Some(group)));
    let is_meant = |kind: &Kind| {
        (kind.name().eq_ignore_ascii_case(word) || kind.plural().eq_ignore_ascii_case(word))
            && group.is_none_or(|group| kind.group() == group)
    };
    let found = Kind::ALL.iter().copied().find(is_meant);
    let unknown = || Failure::unknown("kind", kind, Kind::ALL.iter().map(|kind| kind.name()));
    Ok(ObjectKey::new(found.ok_or_else(unknown)?, namespace, name))
}

fn shown(section: Section, resource: &EncodedResource, full: bool) -> ConfigResource {
    ConfigResource {
        section,
        name: resource.name.to_string(),
        version: format!("{:016x}", resource.version),
        made_by: resource.provenance.iter().map(ToString::to_string).collect(),
        left_out: resource
            .refused
            .iter()
            .map(|refusal| format!("{} {}: {}", refusal.object, refusal.field, refusal.fault))
            .collect(),
        resource: if full { explain::json(&resource.body) } else { serde_json::Value::Null },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_by_kind_namespace_and_name() {
        for (text, kind) in [
            ("VirtualService/shop/a", Kind::VirtualService),
            ("virtualservices/shop/a", Kind::VirtualService),
            ("gateway/shop/a", Kind::Gateway),
        ] {
            assert_eq!(object_key(text), Ok(ObjectKey::new(kind, "shop", "a")), "{text}");
        }
        assert_eq!(object_key("VirtualServce/shop/a").unwrap_err().names, ["VirtualService"]);
        assert_eq!(object_key("a").unwrap_err().kind, FailureKind::Invalid);
    }
}
