//! VirtualServices, as routes are made from them: which ones a proxy sees, names completed, delegates merged.
//!
//! ```text
//! VirtualService ┐
//! Ingress        ├─▶ RuleIndex: headers ─▶ RulesFor { namespace, gateway } ─▶ MeshRules { scope, listener }: who serves a host
//! HTTPRoute ...  ┘                                                           RuleOf(id): the routes
//! ```
//!
//! Ingresses and the routes of the Gateway API become rules of the same form, so that everything after this module knows
//! one kind of rule only. Headers (hosts, gateways, visibility) are apart from content (routes): a change of some route
//! does not make anybody look again for who serves a host.

mod delegate;
mod destination;
mod index;
mod mesh;
mod names;
mod rule;
mod source;

pub use destination::{cluster_name, destination_cluster};
pub use index::{MESH, RulesFor};
pub use mesh::{MeshRules, MeshRulesOf, StreamRulesFor};
pub use rule::{Header, Rule, RuleId, RuleOf, Semantics};
pub use source::{Source, SourceLabelKeys};

#[cfg(test)]
mod tests;
