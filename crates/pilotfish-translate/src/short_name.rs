//! Short host names in configuration: `catalog` in namespace `shop` stands for `catalog.shop.svc.cluster.local`.

use pilotfish_model::Namespace;
use std::borrow::Cow;

/// The domain below which Kubernetes Services are.
pub const DOMAIN: &str = "svc.cluster.local";

/// The full host name of what an object of `namespace` names. Only a name without any dot is completed: `catalog.shop`
/// stays as it is, and so does `*`.
#[must_use]
pub fn qualify<'a>(host: &'a str, namespace: &Namespace) -> Cow<'a, str> {
    if host.is_empty() || host.contains('.') || host.starts_with('*') || namespace.is_empty() {
        return Cow::Borrowed(host);
    }
    Cow::Owned(format!("{host}.{namespace}.{DOMAIN}"))
}

#[cfg(test)]
mod tests {
    use super::qualify;

    #[test]
    fn only_names_without_a_dot_are_completed() {
        let shop = "shop".into();
        assert_eq!(qualify("catalog", &shop), "catalog.shop.svc.cluster.local");
        assert_eq!(qualify("catalog.shop", &shop), "catalog.shop");
        assert_eq!(qualify("*", &shop), "*");
        assert_eq!(qualify("catalog", &"".into()), "catalog");
    }
}
