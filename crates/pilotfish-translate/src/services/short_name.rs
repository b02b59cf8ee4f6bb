//! Short host names in configuration: `catalog` in namespace `shop` stands for `catalog.shop.svc.cluster.local`.

use pilotfish_model::Namespace;
use std::borrow::Cow;
use std::sync::Arc;

/// The domain below which the mesh's Kubernetes Services are. One for the whole mesh, and for as long as a translator lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// For example `svc.cluster.local`.
    services: Arc<str>,
}

impl Default for Domain {
    fn default() -> Self {
        Self::new("cluster.local")
    }
}

impl Domain {
    /// The domain that registries have been told, such as `cluster.local`.
    #[must_use]
    pub fn new(domain: &str) -> Self {
        Self { services: format!("svc.{domain}").into() }
    }

    /// The host name of a Kubernetes Service.
    #[must_use]
    pub fn service(&self, name: &str, namespace: &Namespace) -> String {
        format!("{name}.{namespace}.{}", self.services)
    }

    /// The full host name of what an object of `namespace` names. Only a name without any dot is completed: `catalog.shop`
    /// stays as it is, and so does `*`.
    #[must_use]
    pub fn qualify<'a>(&self, host: &'a str, namespace: &Namespace) -> Cow<'a, str> {
        if host.is_empty() || host.contains('.') || host.starts_with('*') || namespace.is_empty() {
            return Cow::Borrowed(host);
        }
        Cow::Owned(self.service(host, namespace))
    }

    /// The domain in which proxies of a namespace complete names.
    #[must_use]
    pub fn of_namespace(&self, namespace: &Namespace) -> String {
        format!("{namespace}.{}", self.services)
    }

    /// The host below the domain of Services for one that ends in `.svc`, as bootstraps write it; others as they are.
    #[must_use]
    pub fn complete(&self, host: &str) -> String {
        match host.strip_suffix(".svc") {
            Some(short) => format!("{short}.{}", self.services),
            None => host.to_owned(),
        }
    }
}

/// The short forms of a host for a client that completes names in `domain`.
#[must_use]
pub fn forms(host: &str, domain: &str) -> Vec<String> {
    match domain.find(".svc.") {
        Some(at) => kubernetes_forms(host, domain, at).unwrap_or_default(),
        None => forms_by_shared_suffix(host, domain),
    }
}

/// Of `web.shop.svc.cluster.local`: `web.shop` and `web.shop.svc`, in the own namespace also `web`. Only hosts below the client's
/// own cluster domain have short forms.
fn kubernetes_forms(host: &str, domain: &str, own_end: usize) -> Option<Vec<String>> {
    let (own, suffix) = domain.split_at_checked(own_end)?;
    if !host.ends_with(suffix) {
        return None;
    }
    let end = host.find(".svc.")?;
    let (name, namespace) = host.get(..end)?.split_once('.')?;
    let short = format!("{name}.{namespace}");
    let with_svc = format!("{short}.svc");
    Some(if namespace == own { vec![name.to_owned(), with_svc, short] } else { vec![short, with_svc] })
}

/// Without Kubernetes: the part of the host that is not shared with the client's domain, and with the first shared label.
fn forms_by_shared_suffix(host: &str, domain: &str) -> Vec<String> {
    let labels: Vec<&str> = host.split('.').collect();
    let shared = labels.iter().rev().zip(domain.split('.').rev()).take_while(|(a, b)| **a == *b).count();
    let (unique, common) = labels.split_at(labels.len() - shared);
    let (Some(first), false) = (common.first(), unique.is_empty()) else { return Vec::new() };
    let short = unique.join(".");
    match unique {
        [_, _] => vec![short.clone(), format!("{short}.{first}")],
        _ => vec![short],
    }
}

#[cfg(test)]
mod tests {
    use super::{Domain, forms};

    #[test]
    fn only_names_without_a_dot_are_completed() {
        let shop = "shop".into();
        let table = [
            ("cluster.local", "catalog", "catalog.shop.svc.cluster.local"),
            ("example.org", "catalog", "catalog.shop.svc.example.org"),
            ("cluster.local", "catalog.shop", "catalog.shop"),
            ("cluster.local", "*", "*"),
        ];
        for (domain, host, want) in table {
            assert_eq!(Domain::new(domain).qualify(host, &shop), want);
        }
        assert_eq!(Domain::default().qualify("catalog", &"".into()), "catalog");
    }

    #[test]
    fn bootstraps_leave_the_domain_out() {
        let domain = Domain::new("example.org");
        assert_eq!(domain.complete("istiod.istio-system.svc"), "istiod.istio-system.svc.example.org");
        assert_eq!(domain.complete("istiod.example.com"), "istiod.example.com");
    }

    #[test]
    fn short_forms_depend_on_the_domain_of_the_client() {
        #[rustfmt::skip]
        let table: &[(&str, &str, &[&str])] = &[
            ("web.shop.svc.cluster.local", "shop.svc.cluster.local", &["web", "web.shop.svc", "web.shop"]),
            ("web.shop.svc.cluster.local", "pay.svc.cluster.local", &["web.shop", "web.shop.svc"]),
            ("web.shop.svc.other.org", "shop.svc.cluster.local", &[]),
            ("www.example.com", "shop.svc.cluster.local", &[]),
            ("web.svc.cluster.local", "shop.svc.cluster.local", &[]),
            ("foo.local.campus.net", "remote.campus.net", &["foo.local", "foo.local.campus"]),
            ("foo.local.campus.net", "local.campus.net", &["foo"]),
            ("foo.local.campus.net", "example.com", &[]),
            ("campus.net", "campus.net", &[]),
        ];
        for (host, domain, want) in table {
            assert_eq!(forms(host, domain), *want, "{host} for {domain}");
        }
    }
}
