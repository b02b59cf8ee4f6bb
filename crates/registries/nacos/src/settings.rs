//! The options of the registry.

use crate::credentials::Credentials;
use crate::mapping::{Mapping, Scope, ZoneFrom};
use pilotfish_connect::{Connector, Scheme, Server};
use pilotfish_nacos_wire::{DEFAULT_GROUP, DEFAULT_HOST, DEFAULT_NAMESPACE, HostPattern};
use pilotfish_registry::{CatalogDefaults, CatalogOptions, LiveSettings, OptionSpec, OptionsError};
use pilotfish_session::{ProductSettings, take_login};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// gRPC needs HTTP/2, and the HTTP API may support it.
const ALPN: &[&str] = &["h2", "http/1.1"];
const SCHEMES: &[Scheme] =
    &[Scheme { name: "http", port: 8848, is_tls: false }, Scheme { name: "https", port: 8848, is_tls: true }];
const REFRESH: Duration = Duration::from_secs(10);
/// Default offset of the gRPC port from the HTTP port.
const GRPC_OFFSET: u16 = 1000;
/// Maximum number of groups and of namespaces: each namespace is a connection, each pair is a list to read.
const MAX_NAMES: usize = 64;

/// Options of this registry only.
pub(crate) const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "namespaces",
        value: "ID[,ID...]",
        about: "the ids of Nacos's namespaces [default: public]",
    },
    OptionSpec {
        name: "groups",
        value: "NAME[,NAME...]",
        about: "the groups, in each namespace [default: DEFAULT_GROUP]",
    },
    OptionSpec {
        name: "clusters",
        value: "NAME[,NAME...]",
        about: "instances of these clusters alone [default: all]",
    },
    OptionSpec {
        name: "host",
        value: "PATTERN",
        about: "the host of a service [default: {service}.{group}.{namespace}.nacos]",
    },
    OptionSpec {
        name: "zone",
        value: "metadata|cluster",
        about: "source of an instance's zone: its metadata, or the name of its cluster [default: metadata]",
    },
    OptionSpec {
        name: "empty",
        value: "remove|keep",
        about: "treatment of a listed service without instances: its last ones are kept or removed [default: \
            remove]",
    },
    OptionSpec {
        name: "refresh",
        value: "DURATION",
        about: "interval of lists, which find new services, and by HTTP also new instances [default: 10s]",
    },
    OptionSpec {
        name: "api",
        value: "auto|grpc|http",
        about: "subscribe by gRPC (version 2), poll by HTTP (version 1), or what the server has [default: \
            auto]",
    },
    OptionSpec {
        name: "grpcPort",
        value: "NUMBER",
        about: "the port of gRPC [default: that of the address and 1000]",
    },
    OptionSpec { name: "username", value: "NAME", about: "the name for the login; needs passwordFile" },
    OptionSpec {
        name: "passwordFile",
        value: "FILE",
        about: "a file with the password, read again for each login",
    },
];

/// API of the server to use (setting `api`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ApiChoice {
    /// Detected from the server.
    #[default]
    Auto,
    /// gRPC, of version 2.
    Grpc,
    /// HTTP, of version 1.
    Http,
}

/// The settings of one registry.
pub(crate) struct Settings {
    pub(crate) servers: Vec<Server>,
    /// Path prefix of `/v1`, as in `/nacos`.
    pub(crate) base: String,
    pub(crate) connector: Connector,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) mapping: Mapping,
    pub(crate) keep_empty: bool,
    pub(crate) refresh: Duration,
    pub(crate) api: ApiChoice,
    /// The gRPC port if it is not [`GRPC_OFFSET`] above the HTTP port.
    pub(crate) grpc_port: Option<u16>,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) catalog: CatalogOptions,
}

impl Settings {
    /// Takes the options out of the settings.
    ///
    /// # Errors
    /// With one line for each mistake.
    pub(crate) fn take(settings: &mut LiveSettings) -> Result<Self, OptionsError> {
        let mut mistakes = Vec::new();
        let defaults = CatalogDefaults::default();
        let product = ProductSettings::take(settings, SCHEMES, ALPN, defaults, &mut mistakes);
        let scopes = scopes(settings, &mut mistakes);
        let mapping = mapping(settings, product.as_ref().map(|product| &product.catalog), &mut mistakes);
        let keep_empty = settings.options.parse("empty", &mut mistakes, |text| match text {
            "remove" => Ok(false),
            "keep" => Ok(true),
            _ => Err("not remove or keep".to_owned()),
        });
        let refresh = settings.parse_duration("refresh", &mut mistakes);
        let api = settings.options.parse("api", &mut mistakes, |text| match text {
            "auto" => Ok(ApiChoice::Auto),
            "grpc" => Ok(ApiChoice::Grpc),
            "http" => Ok(ApiChoice::Http),
            _ => Err("not auto, grpc or http".to_owned()),
        });
        let grpc_port = settings.options.parse("grpcPort", &mut mistakes, |text| {
            text.parse().ok().filter(|port| *port > 0).ok_or("not a port from 1 to 65535".to_owned())
        });
        let credentials = credentials(settings, &mut mistakes);
        match (product, mapping) {
            (Some(ProductSettings { target, connector, catalog }), Some(mapping)) if mistakes.is_empty() => {
                Ok(Self {
                    base: if target.path.is_empty() { "/nacos".to_owned() } else { target.path },
                    servers: target.servers,
                    connector,
                    scopes,
                    mapping,
                    keep_empty: keep_empty.unwrap_or_default(),
                    refresh: refresh.unwrap_or(REFRESH),
                    api: api.unwrap_or_default(),
                    grpc_port,
                    credentials,
                    catalog,
                })
            }
            _ => Err(OptionsError(mistakes)),
        }
    }

    /// Returns the gRPC address of a server.
    pub(crate) fn grpc_server(&self, server: &Server) -> Server {
        let port = self.grpc_port.unwrap_or_else(|| server.port.saturating_add(GRPC_OFFSET));
        Server { host: server.host.clone(), port }
    }

    /// Returns the namespaces without duplicates.
    pub(crate) fn namespaces(&self) -> BTreeSet<Arc<str>> {
        self.scopes.iter().map(|scope| scope.namespace.clone()).collect()
    }
}

/// Returns each combination of namespace and group.
fn scopes(settings: &mut LiveSettings, mistakes: &mut Vec<String>) -> Vec<Scope> {
    let mut names = |option: &str, default: &str| {
        let names = settings.options.parse(option, mistakes, names);
        names.unwrap_or_else(|| [default.to_owned()].into())
    };
    let (namespaces, groups) = (names("namespaces", DEFAULT_NAMESPACE), names("groups", DEFAULT_GROUP));
    let scope = |namespace: &String, group: &String| Scope {
        namespace: namespace.as_str().into(),
        group: group.as_str().into(),
    };
    namespaces.iter().flat_map(|namespace| groups.iter().map(move |group| scope(namespace, group))).collect()
}

fn names(text: &str) -> Result<BTreeSet<String>, String> {
    let names: Vec<&str> = text.split(',').map(str::trim).collect();
    let is_name = |name: &&str| !name.is_empty() && name.len() <= 256 && !name.contains("@@");
    if !names.iter().all(is_name) {
        Err("not names with commas between them".to_owned())
    } else if names.len() > MAX_NAMES {
        Err(format!("more than {MAX_NAMES} names"))
    } else {
        Ok(names.into_iter().map(str::to_owned).collect())
    }
}

fn mapping(
    settings: &mut LiveSettings,
    catalog: Option<&CatalogOptions>,
    mistakes: &mut Vec<String>,
) -> Option<Mapping> {
    let host = settings.options.take("host").unwrap_or_else(|| DEFAULT_HOST.to_owned());
    let host = HostPattern::parse(&host).map_err(|error| mistakes.push(format!("host={host}: {error}"))).ok();
    let zone = settings.options.parse("zone", mistakes, |text| match text {
        "metadata" => Ok(ZoneFrom::Metadata),
        "cluster" => Ok(ZoneFrom::Cluster),
        _ => Err("not metadata or cluster".to_owned()),
    });
    let clusters = settings.options.parse("clusters", mistakes, names);
    Some(Mapping {
        host: host?,
        zone: zone.unwrap_or_default(),
        clusters: clusters.unwrap_or_default(),
        namespace: catalog.map(|options| options.namespace.clone()).unwrap_or_default(),
    })
}

fn credentials(settings: &mut LiveSettings, mistakes: &mut Vec<String>) -> Option<Credentials> {
    take_login(settings, mistakes).map(|(username, password)| Credentials { username, password })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_registry::testing::live_settings;

    fn take(address: &str, options: &[(&str, &str)]) -> Result<Settings, String> {
        let mut settings = live_settings("Nacos", address, options);
        Settings::take(&mut settings).map_err(|error| error.to_string())
    }

    fn shown(scopes: &[Scope]) -> Vec<String> {
        scopes.iter().map(|scope| format!("{}/{}", scope.namespace, scope.group)).collect()
    }

    #[test]
    fn without_options_it_is_as_nacos_has_it() {
        let taken = take("http://a,b:1", &[]).unwrap_or_else(|error| panic!("{error}"));
        let servers: Vec<_> = taken.servers.iter().map(Server::to_string).collect();
        assert_eq!((servers.join(" "), &*taken.base), ("a:8848 b:1".to_owned(), "/nacos"));
        assert_eq!(shown(&taken.scopes), ["public/DEFAULT_GROUP"]);
        assert_eq!(taken.grpc_server(&taken.servers[0]).to_string(), "a:9848");
        assert_eq!((taken.refresh, taken.api, taken.keep_empty), (REFRESH, ApiChoice::Auto, false));
        assert!(taken.credentials.is_none() && taken.mapping.clusters.is_empty());
    }

    #[test]
    fn options_say_otherwise() {
        let options = [
            ("namespaces", "public,dev"),
            ("groups", "B, A"),
            ("clusters", "hz"),
            ("host", "{service}.x"),
            ("zone", "cluster"),
            ("empty", "keep"),
            ("refresh", "1s"),
            ("api", "http"),
            ("grpcPort", "7"),
            ("username", "u"),
            ("passwordFile", "/p"),
            ("namespace", "shop"),
        ];
        let taken = take("https://a/x", &options).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(shown(&taken.scopes), ["dev/A", "dev/B", "public/A", "public/B"]);
        assert_eq!(taken.namespaces().len(), 2);
        assert_eq!(taken.mapping.zone, ZoneFrom::Cluster);
        assert_eq!(taken.mapping.namespace, "shop");
        assert_eq!(taken.mapping.clusters, ["hz".to_owned()].into());
        assert_eq!((&*taken.base, taken.api, taken.keep_empty), ("/x", ApiChoice::Http, true));
        assert_eq!(taken.grpc_server(&taken.servers[0]).to_string(), "a:7");
        assert!(taken.connector.is_tls() && taken.credentials.is_some_and(|known| known.username == "u"));
    }

    #[test]
    fn every_mistake_is_told() {
        let many = vec!["g"; 65].join(",");
        for (options, expected) in [
            (&[("groups", "a,,b")][..], "groups=a,,b: not names with commas between them"),
            (&[("groups", "G@@a")], "groups=G@@a: not names with commas between them"),
            (&[("namespaces", "")], "namespaces=: not names with commas between them"),
            (&[("groups", many.as_str())], &format!("groups={many}: more than 64 names")),
            (&[("host", "{group}")], "host={group}: {service} is not in it"),
            (&[("zone", "x")], "zone=x: not metadata or cluster"),
            (&[("empty", "x")], "empty=x: not remove or keep"),
            (&[("api", "x")], "api=x: not auto, grpc or http"),
            (&[("grpcPort", "0")], "grpcPort=0: not a port from 1 to 65535"),
            (&[("username", "u")], "username and passwordFile go together"),
            (&[("passwordFile", "/p")], "username and passwordFile go together"),
            (&[("refresh", "0s"), ("api", "x")], "refresh=0s: not above zero; api=x: not auto, grpc or http"),
        ] {
            assert_eq!(take("http://a", options).err().as_deref(), Some(expected), "{options:?}");
        }
    }
}
