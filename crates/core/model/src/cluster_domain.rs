//! Domain of Kubernetes Services, by which short host names in configuration are completed: `catalog` in
//! namespace `shop` means `catalog.shop.svc.cluster.local`.

use crate::Namespace;
use std::borrow::Cow;
use std::sync::Arc;

/// Domain of hosts that represent Services of all clusters.
pub const CLUSTER_SET: &str = "clusterset.local";

/// Domain of the mesh's Kubernetes Services. One for the whole mesh, fixed for the life of the process.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ClusterDomain {
    /// Domain of Services, such as `svc.cluster.local`.
    services: Arc<str>,
    /// Domain of ServiceImports: that of Services, or `svc.clusterset.local`.
    imports: Arc<str>,
}

impl Default for ClusterDomain {
    fn default() -> Self {
        Self::new("cluster.local")
    }
}

impl ClusterDomain {
    /// Creates the domain from that of the cluster, such as `cluster.local`.
    #[must_use]
    pub fn new(domain: &str) -> Self {
        let services: Arc<str> = format!("svc.{domain}").into();
        Self { imports: services.clone(), services }
    }

    /// Gives ServiceImports hosts of their own below [`CLUSTER_SET`] (`ENABLE_MCS_HOST`).
    #[must_use]
    pub fn with_cluster_set(self) -> Self {
        Self { imports: format!("svc.{CLUSTER_SET}").into(), ..self }
    }

    /// Host name of a ServiceImport: the one for Services of all clusters if that is enabled, or else that of
    /// the Service with its name.
    #[must_use]
    pub fn import(&self, name: &str, namespace: &Namespace) -> String {
        format!("{name}.{namespace}.{}", self.imports)
    }

    /// Host name of a Kubernetes Service.
    #[must_use]
    pub fn service(&self, name: &str, namespace: &Namespace) -> String {
        format!("{name}.{namespace}.{}", self.services)
    }

    /// Full host name for a name in an object of `namespace`. Only a name without any dot is completed:
    /// `catalog.shop` and `*` stay as they are.
    #[must_use]
    pub fn qualify<'a>(&self, host: &'a str, namespace: &Namespace) -> Cow<'a, str> {
        if host.is_empty() || host.contains('.') || host.starts_with('*') || namespace.is_empty() {
            return Cow::Borrowed(host);
        }
        Cow::Owned(self.service(host, namespace))
    }

    /// Domain by which proxies of a namespace complete names.
    #[must_use]
    pub fn of_namespace(&self, namespace: &Namespace) -> String {
        format!("{namespace}.{}", self.services)
    }

    /// Completes a host that ends in `.svc`, as in bootstraps; returns others unchanged.
    #[must_use]
    pub fn complete(&self, host: &str) -> String {
        match host.strip_suffix(".svc") {
            Some(short) => format!("{short}.{}", self.services),
            None => host.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ClusterDomain;

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
            assert_eq!(ClusterDomain::new(domain).qualify(host, &shop), want);
        }
        assert_eq!(ClusterDomain::default().qualify("catalog", &"".into()), "catalog");
    }

    #[test]
    fn an_import_is_the_service_unless_the_cluster_set_has_hosts() {
        let domain = ClusterDomain::new("example.org");
        let import = |domain: &ClusterDomain| domain.import("catalog", &"shop".into());
        assert_eq!(import(&domain), "catalog.shop.svc.example.org");
        assert_eq!(import(&domain.clone().with_cluster_set()), "catalog.shop.svc.clusterset.local");
        assert_eq!(
            domain.with_cluster_set().service("catalog", &"shop".into()),
            "catalog.shop.svc.example.org"
        );
    }

    #[test]
    fn bootstraps_leave_the_domain_out() {
        let domain = ClusterDomain::new("example.org");
        assert_eq!(domain.complete("istiod.istio-system.svc"), "istiod.istio-system.svc.example.org");
        assert_eq!(domain.complete("istiod.example.com"), "istiod.example.com");
    }
}
