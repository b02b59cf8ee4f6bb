//! Messages in the status of objects: first problems of the object itself, then those of its references.

use pilotfish_config::status::Message;
use pilotfish_model::ObjectKey;
use std::collections::BTreeMap;

/// Messages of objects, from both sources.
#[derive(Default)]
pub(super) struct Messages {
    /// Problems of stored objects themselves.
    own: BTreeMap<ObjectKey, Vec<Message>>,
    /// Problems of objects with others, where there are any.
    found: BTreeMap<ObjectKey, Vec<Message>>,
}

impl Messages {
    /// Sets the object's own problems when it is stored. Returns all of its messages.
    pub(super) fn stored(&mut self, key: &ObjectKey, own: Vec<Message>) -> Vec<Message> {
        self.own.insert(key.clone(), own);
        self.of(key)
    }

    /// Sets an object's problems with others. Returns all of its messages; `None` while it is not stored, as
    /// for objects from files. Objects that are stored later have them then.
    pub(super) fn found(&mut self, key: &ObjectKey, found: Vec<Message>) -> Option<Vec<Message>> {
        if found.is_empty() {
            self.found.remove(key);
        } else {
            self.found.insert(key.clone(), found);
        }
        self.own.contains_key(key).then(|| self.of(key))
    }

    /// Removes an object that is no longer stored.
    pub(super) fn gone(&mut self, key: &ObjectKey) {
        self.own.remove(key);
    }

    fn of(&self, key: &ObjectKey) -> Vec<Message> {
        let lists = [self.own.get(key), self.found.get(key)];
        lists.into_iter().flatten().flatten().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_model::Kind;

    fn message(text: &str) -> Vec<Message> {
        vec![Message { error: false, text: text.to_owned() }]
    }

    fn texts(messages: Vec<Message>) -> Vec<String> {
        messages.into_iter().map(|message| message.text).collect()
    }

    #[test]
    fn both_are_said_whichever_comes_first() {
        let key = ObjectKey::new(Kind::VirtualService, "shop", "a");
        let mut messages = Messages::default();
        assert_eq!(messages.found(&key, message("nowhere")), None, "it is not stored yet");
        assert_eq!(texts(messages.stored(&key, message("odd"))), ["odd", "nowhere"]);
        assert_eq!(messages.found(&key, Vec::new()).map(texts), Some(vec!["odd".to_owned()]));
        assert_eq!(messages.found(&key, message("again")).map(texts).unwrap_or_default(), ["odd", "again"]);
        messages.gone(&key);
        assert_eq!(messages.found(&key, message("again")), None);
    }
}
