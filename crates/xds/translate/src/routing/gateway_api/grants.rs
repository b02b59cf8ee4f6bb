//! ReferenceGrants: permissions to refer to objects of another namespace.

use crate::engine::Cx;
use pilotfish_config::gateway_api::{GROUP, ReferenceGrant};
use pilotfish_model::Namespace;

/// Returns true if objects of a Gateway API kind in namespace `from` may refer to an object in namespace
/// `to`: it is the same namespace, or a ReferenceGrant permits it.
pub(crate) fn allows(
    cx: &Cx<'_>,
    (kind, from): (&str, &Namespace),
    (group, target, to, name): (&str, &str, &Namespace, &str),
) -> bool {
    if from == to {
        return true;
    }
    cx.objects_in::<ReferenceGrant>(to).iter().any(|grant| {
        let by = |entry: &pilotfish_config::gateway_api::ReferenceGrantFrom| {
            entry.group == GROUP && entry.kind == kind && *from == *entry.namespace
        };
        let opens = |entry: &pilotfish_config::gateway_api::ReferenceGrantTo| {
            entry.group == group
                && entry.kind == target
                && entry.name.as_deref().is_none_or(|only| only == name)
        };
        grant.spec.from.iter().any(by) && grant.spec.to.iter().any(opens)
    })
}
