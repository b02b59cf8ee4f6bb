//! What the other side does with a connection: whether its sidecar takes what this proxy speaks.

use super::cluster::ClientTls;
use super::{Next, Walk, Way, list, number, object, step, text};
use crate::resource::json;
use crate::subject::sidecar;
use pilotfish_api::v1::{Verdict, Why};
use pilotfish_config::security::PeerAuthentication;
use pilotfish_model::{Kind, Object, TlsMode, Workload, label_subset};
use pilotfish_proto::ResourceType;
use serde_json::Value;
use std::sync::Arc;

/// What an inbound listener takes on a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Takes {
    plaintext: bool,
    tls: bool,
}

impl Walk<'_> {
    /// Looks at the inbound listener of the first endpoint that has a sidecar.
    pub(super) fn inbound(
        &self,
        _: &Way,
        cluster: &str,
        tls: ClientTls,
        endpoints: &[(String, u64, bool)],
        answer: &mut Why,
    ) -> Next<()> {
        for (address, port, mtls) in endpoints {
            let Some(workload) = self.workload(address) else { continue };
            if workload.tls_mode != TlsMode::Istio {
                continue;
            }
            let Some(takes) = self.takes(&workload, *port) else { continue };
            let sends_tls = match tls {
                ClientTls::Never => false,
                ClientTls::WhereItIs => *mtls,
                ClientTls::Always => true,
            };
            if takes.plaintext && takes.tls || (if sends_tls { takes.tls } else { takes.plaintext }) {
                return Next::On(());
            }
            let name = format!("{}.{}", workload.key.name, workload.key.namespace);
            let (needs, sends) = if sends_tls { ("plaintext", "TLS") } else { ("mutual TLS", "plaintext") };
            let text = format!(
                "the sidecar of {name} takes {needs} only on port {port}, and this proxy sends {sends}"
            );
            let mut at = step("other side", Verdict::Ends, format!("{address}:{port}"), text);
            at.decided_by = self.policies(&workload);
            at.decided_by.extend(self.named(ResourceType::Cluster, cluster).into_iter().flat_map(
                |cluster| cluster.made_by.into_iter().filter(|by| by.starts_with("DestinationRule")),
            ));
            answer.steps.push(at);
            return Next::End(format!("503: {name} refuses the connection, which is in {sends}"));
        }
        Next::On(())
    }

    fn workload(&self, address: &str) -> Option<Arc<Workload>> {
        let key = self.world().workloads_at(address).next()?;
        self.world().workload(key).cloned()
    }

    /// What the sidecar of a workload takes on a port: by its own inbound listener.
    fn takes(&self, workload: &Workload, port: u64) -> Option<Takes> {
        let client = self.translator.connect(sidecar(workload)?);
        let resource = {
            let snapshot = self.snapshot();
            snapshot.get(snapshot.view(&client, ResourceType::Listener)?, "virtualInbound")?
        };
        let listener = json(&resource.body);
        let of = |wanted: u64| {
            let mut takes = Takes::default();
            for chain in list(&listener, "/filter_chains") {
                if number(chain, "/filter_chain_match/destination_port") == wanted {
                    let is_tls = text(chain, "/transport_socket/name").contains("tls");
                    takes.tls |= is_tls;
                    takes.plaintext |= !is_tls && !is_for_tls(chain);
                }
            }
            takes
        };
        let own = of(port);
        Some(if own == Takes::default() { of(0) } else { own })
    }

    /// The PeerAuthentications that concern a workload.
    fn policies(&self, workload: &Workload) -> Vec<String> {
        let all =
            self.world().objects(Kind::PeerAuthentication).filter_map(Object::typed::<PeerAuthentication>);
        let concerns = |policy: &pilotfish_model::Typed<PeerAuthentication>| {
            let selects = policy
                .selector
                .as_ref()
                .is_none_or(|selector| label_subset(&selector.match_labels, &workload.labels));
            let is_near = *policy.namespace() == workload.key.namespace;
            (is_near || policy.selector.is_none() && policy.namespace().as_str() == "istio-system") && selects
        };
        all.filter(concerns).map(|policy| object(policy.key())).collect()
    }
}

/// Whether a chain without TLS of its own is for connections that are TLS all the same.
fn is_for_tls(chain: &Value) -> bool {
    text(chain, "/filter_chain_match/transport_protocol") == "tls"
}
