//! Responses of `/api/v1`, the API of the command line.
//!
//! Lists are paginated ([`Page`]); a query without an answer returns a [`Failure`]. Fields are never removed.

mod around;
mod ca;
mod config;
mod failure;
mod history;
mod live;
mod plan;
mod process;
mod proxies;
mod services;
mod status;
mod verdict;
mod wait;
mod why;

pub use around::{
    Caller, Destination, LocalityRow, NamespaceLink, NamespaceMap, NamespaceRow, RouteRow, RoutedService,
    ServiceDetail, ServiceMap, ServiceRoute,
};
pub use ca::{CaCertificate, CaRole, CaRotation, CaRotationRequest, CertificateAuthority};
pub use config::{ConfigResource, NodeRequest, ProxyConfig, Section};
pub use failure::{Failure, FailureKind};
pub use history::{Change, Changed, History, Outcome, Refusals};
pub use live::{ChangeProgress, Latency, Overview, Sample};
pub use plan::{Danger, Impact, Plan, PlanChange, PlanFile, PlanRequest, Severity};
pub use process::{GuardAcceptance, LogFilter, Memory, MemoryKind, Profile, ThreadTime};
pub use proxies::{Proxy, ProxyCertificate, ProxyType, Rejection, State};
pub use services::{EndpointRow, ServicePort, ServiceRow};
pub use status::{Refusal, Status};
pub use verdict::{Cause, CauseKind, PlaneLevel, PlaneVerdict};
pub use wait::{Acknowledgement, NotAcknowledged, WaitedObject};
pub use why::{Dropped, Reached, Step, Verdict, Why, WhyEndpoint, WhyObject, WhyService};

use serde::{Deserialize, Serialize};

/// A page of a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Number of items that match the filters.
    pub total: usize,
    /// `offset` of the next page; `None` on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<usize>,
    /// Replica that responds, if responses differ between replicas; otherwise empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub replica: String,
}

/// Default number of items of a page.
pub const PAGE: usize = 500;
/// Maximum number of items of a page.
pub const LARGEST_PAGE: usize = 5_000;

impl<T> Page<T> {
    /// Page of a list that begins at `offset`, with at most `limit` items.
    #[must_use]
    pub fn of(list: Vec<T>, offset: Option<usize>, limit: Option<usize>) -> Self {
        let (total, offset) = (list.len(), offset.unwrap_or(0));
        let limit = limit.unwrap_or(PAGE).clamp(1, LARGEST_PAGE);
        let next = offset.saturating_add(limit);
        let items = list.into_iter().skip(offset).take(limit).collect();
        let next = (next < total).then_some(next);
        Self { items, total, next, replica: String::new() }
    }
}

/// Readable name of an object of Kubernetes or Istio, or of a registry entry, such as `VirtualService
/// shop/catalog`.
pub type ObjectName = String;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_cut_into_pages() {
        let page = |offset, limit| Page::of((0..5).collect::<Vec<_>>(), offset, limit);
        let expected = |items, next| Page { items, total: 5, next, ..Page::default() };
        assert_eq!(page(None, Some(2)), expected(vec![0, 1], Some(2)));
        assert_eq!(page(Some(4), Some(2)), expected(vec![4], None));
        assert_eq!(page(Some(9), None), expected(vec![], None));
        assert_eq!(page(Some(usize::MAX), Some(0)).items, Vec::<i32>::new());
    }
}
