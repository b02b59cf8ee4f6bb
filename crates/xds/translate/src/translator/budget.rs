//! Limits on the resources of one type for a proxy that subscribes to the whole type. Checked batch by batch,
//! so that batches beyond a limit are not computed.

use crate::engine::{Refusal, ResourceBatch, ResourceBatchKey};

/// The most resources of one type (limit `proxy-resources`).
pub(crate) const MAX_PROXY_RESOURCES: usize = 200_000;
/// The most bytes of them (limit `proxy-bytes`).
pub(crate) const MAX_PROXY_BYTES: usize = 256 << 20;

/// Resources and bytes that remain for a view.
pub(super) struct ViewBudget {
    resources: usize,
    bytes: usize,
}

impl Default for ViewBudget {
    fn default() -> Self {
        Self { resources: MAX_PROXY_RESOURCES, bytes: MAX_PROXY_BYTES }
    }
}

impl ViewBudget {
    /// Subtracts a batch. Returns false if it exceeds the budget; then it and all later ones are left out.
    pub(super) fn take(&mut self, batch: &ResourceBatch) -> bool {
        let bytes = batch.resources.iter().map(|resource| resource.body.len()).sum();
        let left = self.resources.checked_sub(batch.resources.len()).zip(self.bytes.checked_sub(bytes));
        if let Some((resources, bytes)) = left {
            (self.resources, self.bytes) = (resources, bytes);
        }
        left.is_some()
    }

    /// Returns the refusal for the first batch that is left out.
    pub(super) fn refusal(&self, batch: &ResourceBatch, left_out: usize) -> Option<Refusal> {
        let first = batch.resources.first()?;
        let limit = if self.resources < batch.resources.len() {
            format!("{MAX_PROXY_RESOURCES} (limit proxy-resources)")
        } else {
            format!("{MAX_PROXY_BYTES} bytes (limit proxy-bytes)")
        };
        let fault = format!(
            "with {:?}, a proxy would have more than {limit} of its type: those of this object are left out, \
             and of {} that come later",
            first.name,
            left_out.saturating_sub(1)
        );
        Some(Refusal { object: first.provenance.first()?.clone(), field: String::new(), fault })
    }
}

/// Returns the batches in order of importance: the proxy's own resources, then services, oldest first, and
/// then resources that patches add.
pub(super) fn by_weight(keys: &[ResourceBatchKey]) -> impl Iterator<Item = &ResourceBatchKey> {
    let weight = |key: &ResourceBatchKey| match key {
        ResourceBatchKey::Static | ResourceBatchKey::Inbound | ResourceBatchKey::Named(_) => 0,
        ResourceBatchKey::Service(_) | ResourceBatchKey::Port(_) => 1,
        ResourceBatchKey::Added => 2,
    };
    (0..3).flat_map(move |wanted| keys.iter().filter(move |key| weight(key) == wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EncodedResource;
    use pilotfish_proto::envoy::config::cluster::v3::Cluster;

    fn batch(count: usize, bytes: usize) -> ResourceBatch {
        let cluster = Cluster { name: "x".repeat(bytes), ..Cluster::default() };
        let resource = EncodedResource::new("a", &cluster, Vec::new());
        vec![resource; count].into()
    }

    #[test]
    fn what_is_beyond_a_number_or_a_size_does_not_fit() {
        let mut budget = ViewBudget::default();
        assert!(budget.take(&batch(MAX_PROXY_RESOURCES - 1, 1)));
        assert!(!budget.take(&batch(2, 1)));
        assert!(budget.take(&batch(1, 1)));
        let mut budget = ViewBudget::default();
        assert!(budget.take(&batch(3, MAX_PROXY_BYTES / 4)));
        assert!(!budget.take(&batch(1, MAX_PROXY_BYTES / 4)), "with what is around them");
    }

    #[test]
    fn what_a_proxy_has_of_its_own_counts_first() {
        use ResourceBatchKey::{Added, Inbound, Port, Static};
        let keys = [Port(80), Added, Static, Port(90), Inbound];
        let order: Vec<_> = by_weight(&keys).cloned().collect();
        assert_eq!(order, [Static, Inbound, Port(80), Port(90), Added]);
    }
}
