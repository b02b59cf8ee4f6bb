//! Settings that most registries share: servers, connections, and the mapping of their content to services.

use pilotfish_connect::{Connector, Scheme, SecretOption, Target, TlsOptions};
use pilotfish_registry::{CatalogDefaults, CatalogOptions, LiveSettings};

/// The address with the options of [`pilotfish_connect::TLS_OPTIONS`] and
/// [`pilotfish_registry::CATALOG_OPTIONS`].
#[derive(Debug)]
pub struct ProductSettings {
    pub target: Target,
    pub connector: Connector,
    /// Names, protocols and the guard.
    pub catalog: CatalogOptions,
}

impl ProductSettings {
    /// Takes the options out of the settings. Over TLS, connections offer these ALPN protocols, in order of
    /// preference. Returns `None` after adding to `mistakes`.
    pub fn take(
        settings: &mut LiveSettings,
        schemes: &[Scheme],
        alpn: &[&str],
        defaults: CatalogDefaults,
        mistakes: &mut Vec<String>,
    ) -> Option<Self> {
        let target = Target::parse(&settings.address, schemes).map_err(|mistake| mistakes.push(mistake)).ok();
        let is_tls = target.as_ref().is_some_and(|target| target.scheme.is_tls);
        let tls = TlsOptions::take(&mut settings.options, is_tls, mistakes).map(|tls| tls.with_alpn(alpn));
        let catalog = CatalogOptions::take(settings, defaults).map_err(|error| mistakes.extend(error.0)).ok();
        Some(Self { target: target?, connector: Connector::new(tls), catalog: catalog? })
    }
}

/// Takes `username` and `passwordFile`, which require each other, out of the settings. Returns `None` without
/// a name.
pub fn take_login(settings: &mut LiveSettings, mistakes: &mut Vec<String>) -> Option<(String, SecretOption)> {
    let username = settings.options.take("username");
    let password = SecretOption::take(&mut settings.options, "password", None);
    if username.is_some() != password.is_set() {
        mistakes.push("username and passwordFile go together".to_owned());
    }
    username.map(|username| (username, password))
}
