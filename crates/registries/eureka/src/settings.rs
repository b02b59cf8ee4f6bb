//! The options of the registry.

use crate::mapping::{AddressOf, By, Mapping};
use pilotfish_connect::{Connector, Scheme, SecretOption, Server};
use pilotfish_model::Protocol;
use pilotfish_registry::{CatalogDefaults, CatalogOptions, LiveSettings, OptionSpec, OptionsError};
use pilotfish_session::{ProductSettings, take_login};
use std::time::Duration;

const SCHEMES: &[Scheme] =
    &[Scheme { name: "http", port: 8761, is_tls: false }, Scheme { name: "https", port: 8761, is_tls: true }];
/// Default request interval, the same as the heartbeat interval of instances.
const INTERVAL: Duration = Duration::from_secs(30);
const FULL_EVERY: Duration = Duration::from_secs(600);

/// Options of this registry only.
pub(crate) const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "by",
        value: "app|vip",
        about: "grouping into services: by application, or by virtual address, which several may share \
            [default: app]",
    },
    OptionSpec {
        name: "domain",
        value: "NAME",
        about: "domain of the hosts, as in orders.NAME; a virtual address with a dot stays as it is \
            [default: eureka]",
    },
    OptionSpec {
        name: "address",
        value: "ip|hostName",
        about: "preferred address of an instance; if it is empty, the other one is used [default: ip]",
    },
    OptionSpec {
        name: "region",
        value: "NAME",
        about: "the region of instances that name none, for locality [default: none]",
    },
    OptionSpec {
        name: "regions",
        value: "NAME[,NAME...]",
        about: "remote regions of which the server gives instances too [default: none]",
    },
    OptionSpec {
        name: "interval",
        value: "DURATION",
        about: "interval of requests for changes [default: 30s]",
    },
    OptionSpec {
        name: "fullEvery",
        value: "DURATION",
        about: "interval of complete reads, even if the hash of the changes is right [default: 10m]",
    },
    OptionSpec {
        name: "username",
        value: "NAME",
        about: "the name for basic authentication; needs passwordFile",
    },
    OptionSpec {
        name: "passwordFile",
        value: "FILE",
        about: "a file with the password, read again when it changes",
    },
];

/// The settings of one registry.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) servers: Vec<Server>,
    /// Path prefix of `/apps`, as in `/eureka`.
    pub(crate) path: String,
    pub(crate) connector: Connector,
    pub(crate) mapping: Mapping,
    /// Query parameter for remote regions, or empty.
    pub(crate) query: String,
    pub(crate) interval: Duration,
    pub(crate) full_every: Duration,
    pub(crate) credentials: Option<(String, SecretOption)>,
    pub(crate) catalog: CatalogOptions,
}

impl Settings {
    /// Takes the options out of the settings.
    ///
    /// # Errors
    /// With one line for each mistake.
    pub(crate) fn take(settings: &mut LiveSettings) -> Result<Self, OptionsError> {
        let mut mistakes = Vec::new();
        let defaults = CatalogDefaults {
            // Nearly all services in Eureka speak HTTP.
            protocol: Protocol::Http,
            // A server is empty after its restart, and instances return with their next heartbeats.
            guard_wait: Some(INTERVAL * 3),
        };
        let product = ProductSettings::take(settings, SCHEMES, &[], defaults, &mut mistakes);
        let mapping = mapping(settings, product.as_ref().map(|product| &product.catalog), &mut mistakes);
        let query = settings.options.parse("regions", &mut mistakes, regions);
        let interval = settings.parse_duration("interval", &mut mistakes);
        let full_every = settings.parse_duration("fullEvery", &mut mistakes);
        let credentials = credentials(settings, &mut mistakes);
        match product {
            Some(ProductSettings { target, connector, catalog }) if mistakes.is_empty() => Ok(Self {
                servers: target.servers,
                path: target.path,
                connector,
                mapping,
                query: query.unwrap_or_default(),
                interval: interval.unwrap_or(INTERVAL),
                full_every: full_every.unwrap_or(FULL_EVERY),
                credentials,
                catalog,
            }),
            _ => Err(OptionsError(mistakes)),
        }
    }
}

fn mapping(
    settings: &mut LiveSettings,
    catalog: Option<&CatalogOptions>,
    mistakes: &mut Vec<String>,
) -> Mapping {
    let by = settings.options.parse("by", mistakes, |text| match text {
        "app" => Ok(By::App),
        "vip" => Ok(By::Vip),
        _ => Err("not app or vip".to_owned()),
    });
    let address = settings.options.parse("address", mistakes, |text| match text {
        "ip" => Ok(AddressOf::Ip),
        "hostName" => Ok(AddressOf::HostName),
        _ => Err("not ip or hostName".to_owned()),
    });
    let domain = settings.options.take("domain").unwrap_or_else(|| "eureka".to_owned());
    Mapping {
        by: by.unwrap_or_default(),
        address: address.unwrap_or_default(),
        domain: domain.trim_matches('.').to_lowercase(),
        region: settings.options.take("region").unwrap_or_default(),
        namespace: catalog.map(|options| options.namespace.clone()).unwrap_or_default(),
    }
}

/// Builds the query for remote regions.
fn regions(text: &str) -> Result<String, String> {
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    if text.split(',').all(is_name) {
        Ok(format!("?regions={text}"))
    } else {
        Err("not names of regions with commas between them".to_owned())
    }
}

fn credentials(settings: &mut LiveSettings, mistakes: &mut Vec<String>) -> Option<(String, SecretOption)> {
    let login = take_login(settings, mistakes);
    if login.as_ref().is_some_and(|(name, _)| name.contains(':')) {
        mistakes.push("username: a name for basic authentication has no colon".to_owned());
    }
    login
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_registry::testing::live_settings;

    fn take(address: &str, options: &[(&str, &str)]) -> Result<Settings, String> {
        let mut settings = live_settings("Eureka", address, options);
        Settings::take(&mut settings).map_err(|error| error.to_string())
    }

    #[test]
    fn without_options_it_is_as_its_clients_are() {
        let taken = take("http://a,b:1/eureka/", &[]).expect("it is right");
        let servers: Vec<_> = taken.servers.iter().map(Server::to_string).collect();
        assert_eq!(
            (servers.join(" "), &*taken.path, &*taken.query),
            ("a:8761 b:1".to_owned(), "/eureka", "")
        );
        assert_eq!((taken.interval.as_secs(), taken.full_every.as_secs()), (30, 600));
        assert_eq!((taken.mapping.by, &*taken.mapping.domain), (By::App, "eureka"));
        assert_eq!((taken.catalog.protocol, taken.catalog.guard.wait.as_secs()), (Protocol::Http, 90));
        assert!(taken.credentials.is_none());
    }

    #[test]
    fn options_say_otherwise() {
        let options = [
            ("by", "vip"),
            ("domain", ".Example.NET"),
            ("address", "hostName"),
            ("region", "r"),
            ("regions", "us-east-1,eu"),
            ("interval", "2s"),
            ("fullEvery", "1m"),
            ("username", "u"),
            ("passwordFile", "/p"),
            ("namespace", "shop"),
            ("guardWait", "5s"),
        ];
        let taken = take("https://a/x", &options).expect("it is right");
        assert_eq!(
            taken.mapping,
            Mapping {
                by: By::Vip,
                address: AddressOf::HostName,
                domain: "example.net".into(),
                region: "r".into(),
                namespace: "shop".into(),
            }
        );
        assert_eq!((&*taken.query, taken.interval.as_secs()), ("?regions=us-east-1,eu", 2));
        assert_eq!((taken.full_every.as_secs(), taken.catalog.guard.wait.as_secs()), (60, 5));
        assert!(taken.credentials.is_some_and(|(name, _)| name == "u"));
    }

    #[test]
    fn every_mistake_is_told() {
        for (address, options, expected) in [
            ("ftp://a", &[][..], "the scheme \"ftp\" is not one of http://, https://"),
            ("http://a", &[("by", "host")], "by=host: not app or vip"),
            ("http://a", &[("address", "v6")], "address=v6: not ip or hostName"),
            (
                "http://a",
                &[("regions", "a,,b")],
                "regions=a,,b: not names of regions with commas between them",
            ),
            ("http://a", &[("regions", "a&b")], "regions=a&b: not names of regions with commas between them"),
            ("http://a", &[("username", "u")], "username and passwordFile go together"),
            ("http://a", &[("passwordFile", "/p")], "username and passwordFile go together"),
            (
                "http://a",
                &[("username", "u:v"), ("passwordFile", "/p")],
                "username: a name for basic authentication has no colon",
            ),
            (
                "http://a",
                &[("interval", "0s"), ("by", "x")],
                "by=x: not app or vip; interval=0s: not above zero",
            ),
        ] {
            assert_eq!(take(address, options).err().as_deref(), Some(expected), "{address} {options:?}");
        }
    }
}
