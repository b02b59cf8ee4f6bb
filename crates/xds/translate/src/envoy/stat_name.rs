//! Statistics names by a pattern in the mesh settings (`inboundClusterStatName`, `outboundClusterStatName`).

use pilotfish_model::Namespace;

/// Values of the placeholders in a statistics name pattern.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names<'a> {
    /// The host of the service; empty for none.
    pub(crate) host: &'a str,
    /// The service's name and namespace, and true if clients may use these two as its name.
    pub(crate) service: Option<(&'a str, &'a Namespace, bool)>,
    pub(crate) subset: &'a str,
    pub(crate) port: u32,
    pub(crate) port_name: &'a str,
    /// The port of the workload.
    pub(crate) target_port: u32,
}

/// The name by a pattern; `default` where there is no pattern.
pub(crate) fn of(pattern: &str, default: &str, names: &Names<'_>) -> String {
    if pattern.is_empty() {
        return default.to_owned();
    }
    let service = match names.service {
        // Services with a short name are named without the domain.
        Some((name, namespace, true)) => format!("{name}.{namespace}"),
        _ => names.host.to_owned(),
    };
    pattern
        .replace("%SERVICE_PORT_NAME%", names.port_name)
        .replace("%SERVICE_PORT%", &names.port.to_string())
        .replace("%SERVICE_FQDN%", names.host)
        .replace("%SERVICE_NAME%", names.service.map_or("", |(name, _, _)| name))
        .replace("%SERVICE%", &service)
        .replace("%SUBSET_NAME%", names.subset)
        .replace("%TARGET_PORT%", &names.target_port.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_in() {
        let namespace = "shop".into();
        let names = Names {
            host: "web.shop.svc.cluster.local",
            service: Some(("web", &namespace, true)),
            subset: "v1",
            port: 80,
            port_name: "http",
            target_port: 8080,
        };
        assert_eq!(of("", "default", &names), "default");
        assert_eq!(
            of("%SERVICE%_%SERVICE_PORT%_%SERVICE_PORT_NAME%_%SUBSET_NAME%_%TARGET_PORT%", "", &names),
            "web.shop_80_http_v1_8080"
        );
        assert_eq!(of("%SERVICE_FQDN%/%SERVICE_NAME%", "", &names), "web.shop.svc.cluster.local/web");
        assert_eq!(of("fixed", "", &names), "fixed");
        let external = Names { service: Some(("web", &namespace, false)), ..names };
        assert_eq!(of("%SERVICE%", "", &external), "web.shop.svc.cluster.local");
    }
}
