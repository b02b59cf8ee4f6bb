//! Admission of workloads: decided on the known world, without a request to the API server.

use super::entry::{EntryName, RegistrationRequest};
use super::{PeerIdentity, RegistrationError, RegistrationFeatures, address, annotations};
use pilotfish_config::networking::{WorkloadEntry, WorkloadGroup};
use pilotfish_model::{Namespace, Typed, World};

/// Existing or new entry of a proxy.
pub(super) fn admit(
    features: RegistrationFeatures,
    request: &RegistrationRequest,
    world: &World,
    peer: Option<PeerIdentity<'_>>,
) -> Result<Option<EntryName>, RegistrationError> {
    if !request.group.is_empty() && features.registration {
        let Some(name) = request.made_entry() else {
            tracing::warn!(
                group = request.group,
                "a proxy without address or namespace, or with a network that makes no name, cannot be \
                 registered"
            );
            return Ok(None);
        };
        let group = group_of(request, world).ok_or_else(|| RegistrationError::NoGroup {
            namespace: request.namespace.clone(),
            group: request.group.clone(),
        })?;
        let account = group.template.as_ref().map_or("", |template| &template.service_account);
        let known = entry_of(&name, world);
        let account = known.as_ref().map_or(account, |entry| &entry.service_account);
        prove(&name, account, peer)?;
        let refused = |reason| RegistrationError::Address { address: request.address.clone(), reason };
        address::check(request, features.address, world).map_err(refused)?;
        return Ok(Some(name));
    }
    if request.entry.is_empty() || !features.health_checks {
        return Ok(None);
    }
    let name =
        EntryName { namespace: request.namespace.as_str().into(), name: request.entry.as_str().into() };
    let entry = entry_of(&name, world).ok_or_else(|| RegistrationError::NoEntry(name.clone()))?;
    if !annotations::asks_for_health(|key| entry.meta().annotations.get(key).map(String::as_str)) {
        return Ok(None);
    }
    prove(&name, &entry.service_account, peer)?;
    Ok(Some(name))
}

pub(super) fn group_of(request: &RegistrationRequest, world: &World) -> Option<Typed<WorkloadGroup>> {
    world.typed(&Namespace::from(&*request.namespace), &request.group)
}

pub(super) fn entry_of(name: &EntryName, world: &World) -> Option<Typed<WorkloadEntry>> {
    world.typed(&Namespace::from(&*name.namespace), &name.name)
}

fn prove(entry: &EntryName, account: &str, peer: Option<PeerIdentity<'_>>) -> Result<(), RegistrationError> {
    let refuse = |reason: String| Err(RegistrationError::NotYours { entry: entry.clone(), reason });
    match peer {
        None => refuse("the connection proves no identity".into()),
        Some(peer) if peer.namespace != &*entry.namespace => {
            refuse(format!("the identity is of namespace {:?}", peer.namespace))
        }
        Some(peer) if !account.is_empty() && peer.service_account != account => {
            refuse(format!("the identity is of service account {:?}, not {account:?}", peer.service_account))
        }
        Some(_) => Ok(()),
    }
}
