//! Patches as the last layer over encoded resources. Resources are decoded only if a patch may apply.

use super::{Patched, Patches, ServicePorts, Subject, added_listeners, is_for, patch_listener, patch_routes};
use crate::engine::{Cx, EncodedResource, ResourceBatch, ResourceBatchKey};
use crate::envoy::TrafficClass;
use crate::proxy::targets::TargetsOf;
use crate::proxy::workload::Identity;
use crate::proxy::{Proxy, ProxyKind};
use pilotfish_config::networking::PatchOperation;
use pilotfish_model::Origin;
use pilotfish_proto::envoy::config::core::v3::TypedExtensionConfig;
use prost::{Message, Name};
use std::sync::Arc;

/// The patches on one type of a proxy's resources.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Layer {
    /// The kind of the proxy, which decides the contexts.
    kind: ProxyKind,
    patches: Patches,
    /// For routes of routers; otherwise empty.
    ports: Arc<ServicePorts>,
}

impl Layer {
    /// The patches over a kind of resources. Clients without a proxy have none.
    #[must_use]
    pub(crate) fn of(cx: &Cx<'_>, proxy: &Proxy, subject: Subject) -> Self {
        let patches = match proxy.kind {
            ProxyKind::Grpc => Patches::default(),
            ProxyKind::Sidecar | ProxyKind::Router => Patches::of(cx, proxy, subject),
        };
        let asks_ports = proxy.kind == ProxyKind::Router && subject == Subject::Route && !patches.is_empty();
        let ports = if asks_ports { Arc::new(service_ports(cx, proxy)) } else { Arc::default() };
        Self { kind: proxy.kind, patches, ports }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.patches.is_empty()
    }

    /// Returns the batch of resources that patches add to a type that is subscribed as a whole.
    pub(crate) fn batch_keys(&self) -> impl Iterator<Item = ResourceBatchKey> + use<> {
        (!self.patches.is_empty()).then_some(ResourceBatchKey::Added).into_iter()
    }

    /// Patches listeners of a batch.
    #[must_use]
    pub(crate) fn listeners(
        &self,
        cx: &Cx<'_>,
        batch_key: &ResourceBatchKey,
        batch: ResourceBatch,
    ) -> ResourceBatch {
        let context = match (self.kind, batch_key) {
            (ProxyKind::Router, _) => TrafficClass::Gateway,
            (_, ResourceBatchKey::Inbound) => TrafficClass::Inbound,
            _ => TrafficClass::Outbound,
        };
        self.over(batch, |listener, patched| patch_listener(cx, &self.patches, context, listener, patched))
    }

    /// The listeners that patches add.
    #[must_use]
    pub(crate) fn added_listeners(&self, cx: &Cx<'_>) -> ResourceBatch {
        let contexts: &[TrafficClass] = match self.kind {
            ProxyKind::Router => &[TrafficClass::Gateway],
            ProxyKind::Sidecar | ProxyKind::Grpc => &[TrafficClass::Outbound, TrafficClass::Inbound],
        };
        let added = contexts.iter().flat_map(|context| added_listeners(cx, &self.patches, *context));
        let encode = |(listener, by): (_, Patched)| {
            let listener: pilotfish_proto::envoy::config::listener::v3::Listener = listener;
            EncodedResource::new(listener.name.clone(), &listener, by.into_objects())
        };
        added.map(encode).collect::<Vec<_>>().into()
    }

    /// Applies patches to a batch of route configurations.
    #[must_use]
    pub(crate) fn routes(&self, cx: &Cx<'_>, batch: ResourceBatch) -> ResourceBatch {
        let context =
            if self.kind == ProxyKind::Router { TrafficClass::Gateway } else { TrafficClass::Outbound };
        self.over(batch, |routes, patched| {
            patch_routes(cx, &self.patches, context, &self.ports, routes, patched)
        })
    }

    /// Adds the extension configuration of that name from a patch, unless there is one.
    #[must_use]
    pub(crate) fn extensions(
        &self,
        cx: &Cx<'_>,
        batch_key: &ResourceBatchKey,
        batch: ResourceBatch,
    ) -> ResourceBatch {
        let ResourceBatchKey::Named(name) = batch_key else { return batch };
        if self.patches.is_empty() || !batch.resources.is_empty() {
            return batch;
        }
        let contexts: &[TrafficClass] = match self.kind {
            ProxyKind::Router => &[TrafficClass::Gateway],
            ProxyKind::Sidecar | ProxyKind::Grpc => &[TrafficClass::Outbound, TrafficClass::Inbound],
        };
        let patches = self.patches.load(cx);
        let meant = patches.iter().filter(|patch| {
            let adds = matches!(patch.operation, PatchOperation::Add);
            adds && contexts.iter().any(|context| is_for(patch.matches.context, *context))
        });
        let configs =
            meant.filter_map(|patch| Some((patch.value_as::<TypedExtensionConfig>()?, &patch.object)));
        let found = configs.into_iter().find(|(config, _)| config.name == **name);
        let encode = |(config, object): (TypedExtensionConfig, &Origin)| {
            EncodedResource::new(name.clone(), &config, vec![object.clone()])
        };
        found.map(encode).into_iter().collect::<Vec<_>>().into()
    }

    fn over<M: Message + Name + Default>(
        &self,
        batch: ResourceBatch,
        patch: impl Fn(M, &mut Patched) -> Option<M>,
    ) -> ResourceBatch {
        if self.patches.is_empty() {
            return batch;
        }
        let resources = batch.resources.into_iter().filter_map(|resource| {
            let Some(message) = decode(&resource) else { return Some(resource) };
            let mut patched = Patched::default();
            let message = patch(message, &mut patched)?;
            if patched.is_empty() {
                return Some(resource);
            }
            let refused = resource.refused.iter().cloned().chain(patched.take_refused());
            let refused = refused.chain(self.patches.refusal()).collect();
            let mut provenance: Vec<Origin> = resource.provenance.to_vec();
            provenance.extend(patched.into_objects());
            Some(EncodedResource::new(resource.name, &message, provenance).without(refused))
        });
        resources.collect::<Vec<_>>().into()
    }
}

fn decode<M: Message + Default>(resource: &EncodedResource) -> Option<M> {
    let packed = pilotfish_proto::Any::decode(resource.body.clone()).ok()?;
    M::decode(&*packed.value).ok()
}

/// Returns the ports of a router's Service by target port, if these differ.
fn service_ports(cx: &Cx<'_>, proxy: &Proxy) -> ServicePorts {
    let mut ports = ServicePorts::new();
    for target in cx.get(&TargetsOf(Identity::of(proxy))).iter() {
        if target.target_port != target.port.number {
            ports.entry(target.target_port).or_default().insert(target.port.number);
        }
    }
    ports
}
