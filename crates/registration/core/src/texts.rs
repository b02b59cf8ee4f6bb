//! Interned texts that many instances share: names of services, labels, zones.

use crate::Instance;
use std::collections::HashSet;
use std::sync::Arc;

/// Interned texts, in use now or recently.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    known: HashSet<Arc<str>>,
    /// Number of texts at which unused ones are removed.
    full: usize,
}

/// Minimum number of texts before unused ones are removed.
const LEAST: usize = 1_024;

impl Texts {
    /// Returns the interned text equal to this one, or interns it.
    pub(crate) fn share(&mut self, text: &Arc<str>) -> Arc<str> {
        if text.is_empty() {
            return Arc::default();
        }
        if let Some(known) = self.known.get(text) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.full {
            self.known.retain(|text| Arc::strong_count(text) > 1);
            self.full = (self.known.len() * 2).max(LEAST);
        }
        self.known.insert(Arc::clone(text));
        Arc::clone(text)
    }

    /// Interns the texts of an instance, except its id and the values of its metadata, which are unique.
    pub(crate) fn share_all(&mut self, mut instance: Instance) -> Instance {
        let share = |text: &mut Arc<str>, texts: &mut Self| *text = texts.share(text);
        share(&mut instance.key.namespace, self);
        share(&mut instance.key.service, self);
        for port in &mut instance.ports {
            share(&mut port.name, self);
            share(&mut port.protocol, self);
        }
        for (key, value) in instance.labels.iter_mut() {
            share(key, self);
            share(value, self);
        }
        for (key, _) in instance.metadata.iter_mut() {
            share(key, self);
        }
        share(&mut instance.locality.region, self);
        share(&mut instance.locality.zone, self);
        share(&mut instance.locality.sub_zone, self);
        share(&mut instance.network, self);
        share(&mut instance.service_account, self);
        instance
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::instance;

    #[test]
    fn equal_texts_are_kept_once() {
        let mut texts = Texts::default();
        let (one, two) = (texts.share_all(instance("a")), texts.share_all(instance("b")));
        assert_eq!((&one, &two), (&instance("a"), &instance("b")), "sharing changes nothing");
        assert!(Arc::ptr_eq(&one.key.service, &two.key.service));
        assert!(Arc::ptr_eq(&one.ports[0].name, &two.ports[0].name));
        assert!(!texts.known.contains("a"), "ids are of one instance");
    }

    #[test]
    fn what_nobody_uses_is_forgotten() {
        let mut texts = Texts::default();
        let kept: Vec<Arc<str>> = (0..100).map(|n| texts.share(&format!("kept-{n}").into())).collect();
        for n in 0..100_000 {
            texts.share(&format!("gone-{n}").into());
            assert!(texts.known.len() <= LEAST);
        }
        assert!(kept.iter().all(|text| texts.known.contains(text)));
    }
}
