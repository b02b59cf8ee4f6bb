//! What is said about objects in their own status: what is wrong with each by itself, then what it points at.

use pilotfish_config::status::Message;
use pilotfish_model::ObjectKey;
use std::collections::BTreeMap;

/// The messages of objects, from both who tell of them.
#[derive(Default)]
pub(super) struct Messages {
    /// What is wrong with stored objects by themselves.
    own: BTreeMap<ObjectKey, Vec<Message>>,
    /// What is doubtful about objects because of others, where something is.
    found: BTreeMap<ObjectKey, Vec<Message>>,
}

impl Messages {
    /// An object is stored, and this is wrong with it. Returns all that is said about it.
    pub(super) fn stored(&mut self, key: &ObjectKey, own: Vec<Message>) -> Vec<Message> {
        self.own.insert(key.clone(), own);
        self.of(key)
    }

    /// This is doubtful about an object. Returns all that is said about it; `None` while it is not stored: of objects that come later, it is
    /// said when they do, and of those of files nowhere.
    pub(super) fn found(&mut self, key: &ObjectKey, found: Vec<Message>) -> Option<Vec<Message>> {
        if found.is_empty() {
            self.found.remove(key);
        } else {
            self.found.insert(key.clone(), found);
        }
        self.own.contains_key(key).then(|| self.of(key))
    }

    /// The object is no longer stored.
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
