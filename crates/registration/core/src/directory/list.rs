//! Paginated lists.

use super::Directory;
use crate::{InstanceKey, InstanceView};
use std::ops::Bound;
use std::sync::Arc;

/// Selection of instances. Empty: all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Namespace of the instances; `None` for all.
    pub namespace: Option<Arc<str>>,
    /// Service name of the instances; `None` for all.
    pub service: Option<Arc<str>>,
}

impl Filter {
    /// True if the filter selects the instance.
    #[must_use]
    pub fn matches(&self, key: &InstanceKey) -> bool {
        let is =
            |wanted: &Option<Arc<str>>, name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
        is(&self.namespace, &key.namespace) && is(&self.service, &key.service)
    }
}

/// A page of a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// Revision up to which the store was read. A watch from the revision of the first page returns every
    /// change that the list lacks.
    pub revision: u64,
    /// Instances of the page, sorted by key.
    pub instances: Vec<InstanceView>,
    /// The last instance of this page, after which the next page begins. `None` on the last page.
    pub next: Option<InstanceKey>,
}

impl Directory {
    /// Returns a page of at most `limit` instances, beginning after `after`.
    #[must_use]
    pub fn list(&self, filter: &Filter, after: Option<&InstanceKey>, limit: usize) -> Listing {
        let mut listing = Listing { revision: self.revision, ..Listing::default() };
        for view in self.after(filter, after) {
            if listing.instances.len() == limit {
                listing.next = listing.instances.last().map(|last| last.record.instance.key.clone());
                break;
            }
            listing.instances.push(view);
        }
        listing
    }

    fn after<'a>(
        &'a self,
        filter: &'a Filter,
        after: Option<&'a InstanceKey>,
    ) -> impl Iterator<Item = InstanceView> + 'a {
        let first = filter.namespace.as_deref().max(after.map(|key| &*key.namespace));
        let namespaces = self.namespaces.range::<str, _>(from(first));
        let namespaces =
            namespaces.take_while(|(namespace, _)| up_to(filter.namespace.as_deref(), namespace));
        namespaces.flat_map(move |(namespace, services)| {
            let after = after.filter(|after| after.namespace == *namespace);
            let first = filter.service.as_deref().max(after.map(|key| &*key.service));
            let services = services.range::<str, _>(from(first));
            let services = services.take_while(|(service, _)| up_to(filter.service.as_deref(), service));
            services.flat_map(move |(service, instances)| {
                let after = after.filter(|after| after.service == *service);
                let first = after.map_or(Bound::Unbounded, |after| Bound::Excluded(&*after.id));
                instances.range::<str, _>((first, Bound::Unbounded)).map(|(_, entry)| entry.view())
            })
        })
    }
}

fn from(first: Option<&str>) -> (Bound<&str>, Bound<&str>) {
    (first.map_or(Bound::Unbounded, Bound::Included), Bound::Unbounded)
}

fn up_to(wanted: Option<&str>, name: &str) -> bool {
    wanted.is_none_or(|wanted| name <= wanted)
}
