//! Metadata of objects of any kind that were read, also of those from which registries derive services,
//! endpoints and workloads, and which are not in the world themselves.

use super::AggregateController;
use pilotfish_model::{Namespace, ObjectKey, ObjectMeta};
use std::sync::Arc;

/// Maximum number of keys that are offered in place of an unknown one.
const OFFERED: usize = 2_000;

/// Result of looking up an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadObject {
    /// Metadata of the version in force, as last read.
    Known(Arc<ObjectMeta>),
    /// No feed has it. Holds other keys of its kind: those of its namespace, or if there are none, of any; at
    /// most 2,000.
    Unknown(Vec<ObjectKey>),
}

impl AggregateController {
    /// Looks up an object that was read. The configuration feed comes first, then other clusters in the order
    /// of their feeds.
    #[must_use]
    pub fn read_object(&self, key: &ObjectKey) -> ReadObject {
        let own = self.feeds.get(&self.settings.config_feed);
        let feeds = || own.into_iter().chain(self.feeds.values());
        if let Some(object) = feeds().find_map(|feed| feed.object(key)) {
            return ReadObject::Known(object.meta.clone());
        }
        let names = |namespace: Option<&Namespace>| -> Vec<ObjectKey> {
            feeds().flat_map(|feed| feed.keys(key.kind, namespace)).take(OFFERED).cloned().collect()
        };
        let mut near = names(Some(&key.namespace));
        if near.is_empty() {
            near = names(None);
        }
        near.sort();
        near.dedup();
        ReadObject::Unknown(near)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails this way")]
mod tests {
    use super::*;
    use crate::AggregateSettings;
    use crate::testing::objects;
    use pilotfish_config::SourceEvent;
    use pilotfish_model::Kind;

    fn service(name: &str, generation: i64) -> SourceEvent {
        let text = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop, generation: {generation}}}\nspec: \
             {{ports: [{{port: 80}}]}}\n"
        );
        SourceEvent::Apply(objects(&text).unwrap().remove(0))
    }

    #[test]
    fn what_was_read_last_is_known_and_others_are_offered_for_what_is_not() {
        let mut controller = AggregateController::new(AggregateSettings::default());
        for feed in ["Kubernetes", "east"] {
            controller.add_source(feed, "files");
        }
        let key = |name: &str, namespace: &str| ObjectKey::new(Kind::Service, namespace, name);
        let generation = |controller: &AggregateController| match controller.read_object(&key("web", "shop"))
        {
            ReadObject::Known(meta) => Some(meta.generation),
            ReadObject::Unknown(_) => None,
        };
        controller.source_event("east", "files", service("web", 9)).unwrap();
        assert_eq!(generation(&controller), Some(9), "of another cluster");
        controller.source_event("Kubernetes", "files", service("web", 1)).unwrap();
        assert_eq!(generation(&controller), Some(1), "its own counts");
        // Nothing of it differs but the generation.
        controller.source_event("Kubernetes", "files", service("web", 2)).unwrap();
        assert_eq!(generation(&controller), Some(2));
        let unknown = ReadObject::Unknown(vec![key("web", "shop")]);
        assert_eq!(controller.read_object(&key("wbe", "shop")), unknown);
        assert_eq!(controller.read_object(&key("web", "bank")), unknown, "where its namespace has none");
        let none = ObjectKey::new(Kind::Pod, "shop", "web");
        assert_eq!(controller.read_object(&none), ReadObject::Unknown(Vec::new()));
    }
}
