//! What most registries are told: where their product is, how connections are made, and how its content becomes services.

use crate::{Connector, Scheme, SecretOption, Target, TlsOptions};
use pilotfish_registry::{CatalogDefaults, CatalogOptions, LiveSettings};

/// The address with the options of [`crate::TLS_OPTIONS`] and [`pilotfish_registry::CATALOG_OPTIONS`].
#[derive(Debug)]
pub struct ProductSettings {
    /// The servers.
    pub target: Target,
    /// Connects to them.
    pub connector: Connector,
    /// Names, protocols and the guard.
    pub catalog: CatalogOptions,
}

impl ProductSettings {
    /// Takes them out of the settings. Over TLS, connections offer these protocols (ALPN), the preferred one first. `None` when something is
    /// wrong, which is then among the mistakes.
    pub fn take(
        settings: &mut LiveSettings,
        schemes: &[Scheme],
        alpn: &[&str],
        defaults: CatalogDefaults,
        mistakes: &mut Vec<String>,
    ) -> Option<Self> {
        let target = Target::parse(&settings.address, schemes).map_err(|mistake| mistakes.push(mistake)).ok();
        let is_tls = target.as_ref().is_some_and(|target| target.scheme.is_tls);
        let tls = TlsOptions::take(settings, is_tls, mistakes).map(|tls| tls.with_alpn(alpn));
        let catalog = CatalogOptions::take(settings, defaults).map_err(|error| mistakes.extend(error.0)).ok();
        Some(Self { target: target?, connector: Connector::new(tls), catalog: catalog? })
    }
}

/// Takes `username` and `passwordFile` out of the settings, which go together. `None` without a name.
pub fn take_login(settings: &mut LiveSettings, mistakes: &mut Vec<String>) -> Option<(String, SecretOption)> {
    let username = settings.take("username");
    let password = SecretOption::take(settings, "password", None);
    if username.is_some() != password.is_set() {
        mistakes.push("username and passwordFile go together".to_owned());
    }
    username.map(|username| (username, password))
}
