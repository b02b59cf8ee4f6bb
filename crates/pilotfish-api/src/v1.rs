//! What `/api/v1` answers: the API that the command line is a client of.
//!
//! Lists come in pages ([`Page`]); what cannot be answered is a [`Failure`]. Fields are only ever added.

mod around;
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
pub use config::{ConfigResource, ProxyConfig, Section};
pub use failure::{Failure, FailureKind};
pub use history::{Change, Changed, History, Outcome};
pub use live::{ChangeProgress, Latency, Overview, Sample};
pub use plan::{Danger, Impact, Plan, PlanChange, PlanFile, PlanRequest, Severity};
pub use process::{GuardAcceptance, LogFilter, Memory, MemoryKind, Profile, ThreadTime};
pub use proxies::{Proxy, ProxyType, Rejection, State};
pub use services::{EndpointRow, ServicePort, ServiceRow};
pub use status::{Refusal, Status};
pub use verdict::{Cause, CauseKind, PlaneLevel, PlaneVerdict};
pub use wait::{Acknowledgement, NotAcknowledged, WaitedObject};
pub use why::{Dropped, Reached, Step, Verdict, Why, WhyEndpoint, WhyObject, WhyService};

use serde::{Deserialize, Serialize};

/// A part of a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    /// The part.
    pub items: Vec<T>,
    /// How many there are altogether, behind the filters.
    pub total: usize,
    /// The `offset` of the next part; `None` where this is the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<usize>,
    /// The replica that answers, where others may answer otherwise; empty where all answer the same.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub replica: String,
}

/// Items of a page, where none are asked for.
pub const PAGE: usize = 500;
/// Items of a page at most.
pub const LARGEST_PAGE: usize = 5_000;

impl<T> Page<T> {
    /// The part of a list that begins at `offset`, of at most `limit` items.
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

/// An object of Kubernetes or Istio, or an entry of a registry, as people name it: `VirtualService shop/catalog`.
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
