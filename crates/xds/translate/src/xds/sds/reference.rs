//! Names of secrets, and the objects that they refer to.

use crate::credentials::CA_SUFFIX;
use pilotfish_model::Namespace;

/// Object that the name of a secret refers to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SecretRef {
    /// A Secret of the proxy's namespace, unless another is written.
    Secret {
        namespace: Namespace,
        /// Its name, with the suffix of a CA.
        name: String,
        /// True if only the CA certificate is requested.
        is_ca: bool,
    },
    /// A Secret that a Gateway refers to.
    GatewaySecret {
        namespace: Namespace,
        /// Its name, with the suffix of a CA.
        name: String,
        /// True if only the CA certificate is requested.
        is_ca: bool,
    },
    /// A ConfigMap with a CA's certificate.
    ConfigMap {
        namespace: Namespace,
        /// Its name, without the suffix of a CA.
        name: String,
    },
}

impl SecretRef {
    /// Parses the name of a secret. `own` is the default namespace. Returns `None` for names of the agent's
    /// secrets and for invalid names.
    #[must_use]
    pub(crate) fn parse(name: &str, own: &Namespace) -> Option<Self> {
        let (scheme, path) = name.split_once("://")?;
        let (namespace, name) = match path.split_once('/') {
            Some((namespace, name)) => (namespace.into(), name),
            None if scheme == "kubernetes" => (own.clone(), path),
            None => return None,
        };
        if name.is_empty() || name.contains('/') {
            return None;
        }
        let is_ca = name.ends_with(CA_SUFFIX);
        match scheme {
            "kubernetes" => Some(Self::Secret { namespace, name: name.to_owned(), is_ca }),
            "kubernetes-gateway" => Some(Self::GatewaySecret { namespace, name: name.to_owned(), is_ca }),
            "configmap" => Some(Self::ConfigMap { namespace, name: without_ca_suffix(name).to_owned() }),
            _ => None,
        }
    }
}

/// The name of the object that also holds the key of a CA's certificate.
pub(super) fn without_ca_suffix(name: &str) -> &str {
    name.strip_suffix(CA_SUFFIX).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_objects() {
        let own = Namespace::from("edge");
        let secret = |namespace: &str, name: &str, is_ca| {
            Some(SecretRef::Secret { namespace: namespace.into(), name: name.to_owned(), is_ca })
        };
        assert_eq!(SecretRef::parse("kubernetes://web", &own), secret("edge", "web", false));
        assert_eq!(
            SecretRef::parse("kubernetes://shop/web-cacert", &own),
            secret("shop", "web-cacert", true)
        );
        let gateway =
            SecretRef::GatewaySecret { namespace: "shop".into(), name: "web".to_owned(), is_ca: false };
        assert_eq!(SecretRef::parse("kubernetes-gateway://shop/web", &own), Some(gateway));
        let map = SecretRef::ConfigMap { namespace: "shop".into(), name: "roots".to_owned() };
        assert_eq!(SecretRef::parse("configmap://shop/roots-cacert", &own), Some(map));
        for wrong in [
            "default",
            "ROOTCA",
            "kubernetes://",
            "kubernetes://a/",
            "configmap://a",
            "file://a/b",
            "kubernetes://a/b/c",
        ] {
            assert_eq!(SecretRef::parse(wrong, &own), None, "{wrong}");
        }
    }
}
