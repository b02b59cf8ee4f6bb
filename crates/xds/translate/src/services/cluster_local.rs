//! Hosts whose endpoints in other clusters are hidden (`serviceSettings` of the mesh config).

use crate::engine::{Cx, Query};
use pilotfish_config::mesh::ClusterLocal;

/// Query for the hosts that are local to each cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClusterLocalHosts;

impl Query for ClusterLocalHosts {
    type Output = ClusterLocal;

    fn compute(&self, cx: &Cx<'_>) -> ClusterLocal {
        ClusterLocal::of(&cx.mesh(), cx.domain())
    }
}
