//! Options of every registry with a catalog.

use crate::live::LiveSettings;
use pilotfish_model::{Namespace, Protocol};
use pilotfish_runtime::{GuardSettings, OptionSpec, OptionsError};
use std::time::Duration;

/// Share of the guard against mass loss, see [`LiveSettings::parse_guard`].
pub const GUARD_OPTION: OptionSpec = OptionSpec {
    name: "guard",
    value: GuardSettings::SHARE,
    about: "share of the usable endpoints (MCP: of a kind's resources) that one answer may take away; \
        one that takes more, and at least 3, waits for a second answer [default: --guard]",
};

/// Wait of that guard.
pub const GUARD_WAIT_OPTION: OptionSpec = OptionSpec {
    name: "guardWait",
    value: "DURATION",
    about: "time between the first answer and the second [default: --guard-wait, longer for products \
        that fill slowly]",
};

/// Options that every registry with a catalog has beside its own.
pub const CATALOG_OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "namespace",
        value: "NAME",
        about: "the namespace of services that have none of their own [default: default]",
    },
    OptionSpec {
        name: "port",
        value: "NUMBER",
        about: "the port that clients connect to, whichever the first port of an instance is [default: the \
            instance's own]",
    },
    OptionSpec {
        name: "protocol",
        value: "PROTOCOL",
        about: "the protocol of ports whose protocol is not known, in Istio's words, or auto for sniffing",
    },
    GUARD_OPTION,
    GUARD_WAIT_OPTION,
];

/// Defaults of a registry type for its [`CatalogOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogDefaults {
    /// Protocol of ports without a known protocol.
    pub protocol: Protocol,
    /// Wait of the guard, for products that need longer to fill again after a loss of state than the default
    /// wait allows.
    pub guard_wait: Option<Duration>,
}

impl Default for CatalogDefaults {
    /// Returns defaults that leave the protocol to the proxy's sniffing.
    fn default() -> Self {
        Self { protocol: Protocol::Unsupported, guard_wait: None }
    }
}

/// Parsed values of [`CATALOG_OPTIONS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogOptions {
    /// Namespace of services without one of their own, for the mapping of the registry.
    pub namespace: Namespace,
    /// Port that clients connect to, in place of the first port of each instance.
    pub port: Option<u32>,
    /// Protocol of ports without a known protocol.
    pub protocol: Protocol,
    /// Thresholds of the guard against losses of usable endpoints.
    pub guard: GuardSettings,
}

impl CatalogOptions {
    /// Takes the options from the settings.
    ///
    /// # Errors
    /// With one line for each invalid value.
    pub fn take(settings: &mut LiveSettings, defaults: CatalogDefaults) -> Result<Self, OptionsError> {
        let mut mistakes = Vec::new();
        let namespace = settings.options.parse("namespace", &mut mistakes, |text| {
            let is_name = text.len() <= 63 && !text.contains('.') && !text.contains('_');
            let parsed = pilotfish_model::Hostname::parse(text).ok().filter(|_| is_name);
            parsed.map(|_| Namespace::from(text)).ok_or_else(|| "not the name of a namespace".to_owned())
        });
        let port = settings.options.parse("port", &mut mistakes, |text| {
            text.parse::<u16>()
                .ok()
                .filter(|port| *port > 0)
                .map(u32::from)
                .ok_or("not a port from 1 to 65535".to_owned())
        });
        let protocol =
            settings.options.parse("protocol", &mut mistakes, |text| match Protocol::parse(text) {
                Protocol::Unsupported if text != "auto" => {
                    Err("not a protocol of Istio, as http, grpc and tcp, nor auto".to_owned())
                }
                known => Ok(known),
            });
        let guard = settings.parse_guard(defaults.guard_wait, &mut mistakes);
        if !mistakes.is_empty() {
            return Err(OptionsError(mistakes));
        }
        Ok(Self {
            namespace: namespace.unwrap_or_else(|| "default".into()),
            port,
            protocol: protocol.unwrap_or(defaults.protocol),
            guard,
        })
    }
}

impl Default for CatalogOptions {
    fn default() -> Self {
        Self {
            namespace: "default".into(),
            port: None,
            protocol: CatalogDefaults::default().protocol,
            guard: GuardSettings::default(),
        }
    }
}
