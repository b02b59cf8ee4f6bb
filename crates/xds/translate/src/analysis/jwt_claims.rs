//! Routes by JWT claims, which require validated tokens.

use super::Code;
use super::finding::Report;
use super::workloads::{LabelsIn, Selected};
use crate::engine::{Cx, Query};
use crate::policy::attachment::concerns;
use crate::routing::gateway_name;
use pilotfish_config::networking::{Gateway, VirtualService};
use pilotfish_config::security::RequestAuthentication;
use pilotfish_model::{Namespace, Typed, label_subset};
use std::collections::BTreeMap;

/// Prefix of header names that refer to claims of the JWT.
const CLAIMS: &str = "@request.auth.claims";

/// Reports Gateways of a VirtualService that routes by JWT claims, if no RequestAuthentication selects their
/// workloads.
pub(super) fn check(report: &mut Report<'_, '_>, object: &Typed<VirtualService>) {
    let Some((path, header)) = claim(object) else { return };
    for written in &object.gateways {
        let name = gateway_name(written, object.namespace());
        let Some((namespace, gateway)) = name.split_once('/') else { continue };
        let Some(gateway) = report.cx.object::<Gateway>(&namespace.into(), gateway) else { continue };
        let query = TokensAreChecked { selector: gateway.selector.clone() };
        if *report.cx.get(&query) == Some(false) {
            let message = format!(
                "no RequestAuthentication is for the workloads of Gateway {name}, so that {header:?} never \
                 matches"
            );
            report.add(Code::JwtClaimBasedRoutingWithoutRequestAuthN, &path, message);
        }
    }
}

/// The first condition on a claim.
fn claim(object: &VirtualService) -> Option<(String, &String)> {
    let routes = object.http.iter().enumerate();
    let mut conditions = routes.flat_map(|(route, written)| {
        written.r#match.iter().enumerate().map(move |(which, condition)| (route, which, condition))
    });
    conditions.find_map(|(route, which, condition)| {
        let header = condition
            .headers
            .keys()
            .chain(condition.without_headers.keys())
            .find(|name| name.starts_with(CLAIMS))?;
        Some((format!("spec.http[{route}].match[{which}].headers"), header))
    })
}

/// True if a RequestAuthentication selects a workload that has these labels; `None` if no such workload is
/// known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct TokensAreChecked {
    selector: BTreeMap<String, String>,
}

impl Query for TokensAreChecked {
    type Output = Option<bool>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let selected = cx.get(&Selected::new(None, &self.selector));
        let homes = Option::as_ref(&selected).filter(|homes| !homes.is_empty())?;
        let root: Namespace = cx.mesh().root_namespace.as_str().into();
        let of_root = cx.objects_in::<RequestAuthentication>(&root);
        Some(homes.iter().any(|home| {
            let own = cx.objects_in::<RequestAuthentication>(home);
            let labels = cx.get(&LabelsIn(home.clone()));
            let mut workloads = labels.iter().filter(|labels| label_subset(&self.selector, labels));
            workloads.any(|labels| own.iter().chain(&of_root).any(|policy| concerns(policy, home, labels)))
        }))
    }
}
