//! Kinds of Istio and the Gateway API that an API server has but Pilotfish does not read, and the number of
//! their objects.
//!
//! They are not watched. A list with the metadata of one object has the number of the others, so the cost of
//! a count does not grow with the objects.

use crate::request::{RequestError, within};
use futures::{StreamExt, stream};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::discovery::v2::{APIGroupDiscovery, APIGroupDiscoveryList};
use pilotfish_config::{belongs_to_mesh, served};
use pilotfish_model::Kind;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// Timeout of a count.
const ANSWER: Duration = Duration::from_secs(20);
/// Maximum number of kinds that are counted.
const MOST_KINDS: usize = 50;
/// Maximum number of concurrent counts.
const CONCURRENT: usize = 4;

/// A kind of an API server that is not served.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UnservedKind {
    group: String,
    version: String,
    kind: String,
    plural: String,
}

/// Number of objects of each kind, or the error of counting them.
pub(super) type Counts = Vec<(UnservedKind, Result<usize, RequestError>)>;

impl fmt::Display for UnservedKind {
    /// Formats as `gateway.networking.k8s.io/v1alpha2 UDPRoute`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} {}", self.group, self.version, self.kind)
    }
}

/// Kinds of Istio and the Gateway API that an API server has, but in no version that Pilotfish reads.
pub(super) fn unserved_kinds(groups: &APIGroupDiscoveryList) -> Vec<UnservedKind> {
    groups.items.iter().flat_map(unserved_of).take(MOST_KINDS).collect()
}

/// Unserved kinds of one group, each in the version that the API server prefers.
fn unserved_of(of: &APIGroupDiscovery) -> Vec<UnservedKind> {
    let group = of.metadata.as_ref().and_then(|meta| meta.name.as_deref()).unwrap_or_default();
    let (mut unserved, mut read) = (BTreeMap::new(), BTreeSet::new());
    if !belongs_to_mesh(group) {
        return Vec::new();
    }
    for of_version in &of.versions {
        let version = of_version.version.as_deref().unwrap_or_default();
        for resource in of_version.resources.iter().filter(|one| one.verbs.iter().any(|verb| verb == "list"))
        {
            let kind = resource.response_kind.as_ref().and_then(|kind| kind.kind.as_deref());
            let Some((kind, plural)) = kind.zip(resource.resource.as_deref()) else { continue };
            let versions = Kind::find(group, kind).and_then(served).map_or(&[][..], |served| served.versions);
            if versions.contains(&version) {
                read.insert(plural);
            }
            unserved.entry(plural).or_insert_with(|| UnservedKind {
                group: group.to_owned(),
                version: version.to_owned(),
                kind: kind.to_owned(),
                plural: plural.to_owned(),
            });
        }
    }
    unserved.retain(|plural, _| !read.contains(plural));
    unserved.into_values().collect()
}

/// Counts the objects of these kinds.
pub(super) async fn count(client: Client, kinds: Vec<UnservedKind>) -> Counts {
    let counts = kinds.into_iter().map(|kind| async {
        let number = count_one(&client, &kind).await;
        (kind, number)
    });
    stream::iter(counts).buffered(CONCURRENT).collect().await
}

async fn count_one(client: &Client, of: &UnservedKind) -> Result<usize, RequestError> {
    let UnservedKind { group, version, kind, plural } = of.clone();
    let api_version = format!("{group}/{version}");
    let resource = ApiResource { group, version, api_version, kind, plural };
    let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let list = within(ANSWER, objects.list_metadata(&ListParams::default().limit(1))).await?;
    let more = list.metadata.remaining_item_count.unwrap_or_default();
    Ok(list.items.len().saturating_add(usize::try_from(more).unwrap_or_default()))
}
