//! Page of the resources of a proxy.

use pilotfish_admin::ConfigAsked;
use pilotfish_api::v1::{ConfigResource, ProxyConfig, Section};
use pilotfish_explain as explain;
use pilotfish_translate::EncodedResource;

/// Size limit of the resources that an answer shows in full, in bytes as on the wire.
const SHOWN_BYTES: usize = 4 << 20;
/// Limit on the resources that an answer lists.
const LISTED: usize = 20_000;

/// Resources that match a query, up to the limits of an answer.
pub(super) struct ConfigPage<'a> {
    asked: &'a ConfigAsked,
    config: ProxyConfig,
    bytes: usize,
}

impl<'a> ConfigPage<'a> {
    pub(super) fn new(proxy: String, revision: u64, asked: &'a ConfigAsked) -> Self {
        Self { asked, config: ProxyConfig { proxy, revision, ..ProxyConfig::default() }, bytes: 0 }
    }

    /// Adds the resources of a section, all of which are counted.
    pub(super) fn add<'r>(
        &mut self,
        section: Section,
        all: impl Iterator<Item = &'r EncodedResource> + Clone,
    ) {
        let asked = self.asked;
        if asked.section.is_some_and(|wanted| wanted != section) {
            return;
        }
        let end = asked.offset.saturating_add(asked.limit.min(LISTED));
        let part = asked.name.as_deref();
        let exact = all.clone().any(|resource| Some(&*resource.name) == part);
        let is_meant =
            |name: &str| part.is_none_or(|part| if exact { name == part } else { name.contains(part) });
        for resource in all.filter(|resource| is_meant(&resource.name)) {
            let at = self.config.total;
            self.config.total += 1;
            if at < asked.offset {
                continue;
            }
            self.bytes += resource.body.len();
            let is_large = asked.full && self.bytes > SHOWN_BYTES && !self.config.resources.is_empty();
            if at >= end || is_large {
                self.config.truncated = true;
                continue;
            }
            self.config.resources.push(shown(section, resource, asked.full));
        }
    }

    pub(super) fn finish(self) -> ProxyConfig {
        self.config
    }
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
