//! Options of `--registry consul=ADDRESS?OPTION=VALUE&...`.

use crate::mapping::{Mapping, PortMapping};
use crate::select::{Globs, Selection, list};
use pilotfish_connect::{Connector, Scheme, SecretOption, Target};
use pilotfish_model::Protocol;
use pilotfish_registry::{CatalogDefaults, CatalogOptions, LiveSettings, OptionSpec, OptionsError};
use pilotfish_session::ProductSettings;
use std::time::Duration;

const ALPN: &[&str] = &["h2", "http/1.1"];
const SCHEMES: &[Scheme] =
    &[Scheme { name: "http", port: 8500, is_tls: false }, Scheme { name: "https", port: 8501, is_tls: true }];

/// Environment variable of the token, as for Consul's own tools.
const TOKEN: &str = "CONSUL_HTTP_TOKEN";

const fn option(name: &'static str, value: &'static str, about: &'static str) -> OptionSpec {
    OptionSpec { name, value, about }
}

/// Options of this registry only.
pub(crate) const OPTIONS: &[OptionSpec] = &[
    option("datacenters", "LIST", "the data centres to read [default: the agent's own]"),
    option("services", "LIST", "the services to read, with * for any text [default: all]"),
    option("exceptServices", "LIST", "services not to read, with * for any text"),
    option("tags", "LIST", "read instances that have all of these tags"),
    option("filter", "EXPRESSION", "read instances that Consul's filter expression holds for"),
    option("nodeMeta", "LIST", "read instances on nodes with all of this metadata, each KEY:VALUE"),
    option(
        "host",
        "TEMPLATE",
        "host names, with {service} and {datacenter} in them [default: {service}.service.consul]",
    ),
    option(
        "address",
        "LIST",
        "tagged addresses, the first that an instance or its node has counts, as wan,lan [default: the \
         address of the service, else of its node]",
    ),
    option("virtualAddresses", "true|false", "use Consul's virtual addresses of services [default: false]"),
    option("tagSeparator", "TEXT", "what parts key and value of a tag that is a label [default: |]"),
    option(
        "plainTags",
        "true|false",
        "make labels of tags without a separator, with the value true [default: false]",
    ),
    option("metaLabels", "true|false", "make labels of an instance's metadata [default: true]"),
    option("protocolMeta", "KEY", "the metadata that names the protocol [default: protocol]"),
    option(
        "externalMeta",
        "KEY",
        "the metadata that says that a service is outside the mesh [default: external]",
    ),
    option("namespaceLabel", "KEY", "the tag or metadata that names the namespace of an instance"),
    option("portName", "NAME", "the name of the port of a service [default: its protocol]"),
    option("defaultPort", "NUMBER", "the port of instances that have none"),
    option("portMeta", "PREFIX", "further ports: metadata PREFIXNAME holds the number of the port NAME"),
    option("portAddresses", "LIST", "further ports: the tagged addresses of these names, each with its port"),
    option(
        "consistency",
        "stale|default|consistent",
        "which of Consul's servers may answer [default: stale]",
    ),
    option("maxStale", "DURATION", "how old a stale answer may be before the leader is asked [default: 10s]"),
    option("wait", "DURATION", "how long a blocking query waits for a change, from 1s to 10m [default: 60s]"),
    option("timeout", "DURATION", "how long an answer may take beyond that [default: 10s]"),
    option("connections", "NUMBER", "connections to Consul at most; an agent allows 200 [default: 64]"),
    option(
        "tokenFile",
        "FILE",
        "the token, read again when it changes [default: the variable CONSUL_HTTP_TOKEN]",
    ),
];

/// Consistency mode of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consistency {
    /// Any server that is not too far behind.
    Stale,
    /// Only the leader, which may have lost its leadership unnoticed.
    Default,
    /// The leader, after it confirmed its leadership with the other servers.
    Consistent,
}

/// Query parameters of all questions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueryOptions {
    pub(crate) consistency: Consistency,
    pub(crate) max_stale: Duration,
    pub(crate) filter: Option<String>,
    pub(crate) node_meta: Vec<String>,
    pub(crate) tags: Vec<String>,
}

/// Validated settings of a Consul registry.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) target: Target,
    pub(crate) connector: Connector,
    pub(crate) token: SecretOption,
    /// `None` for the agent's own data centre.
    pub(crate) datacenters: Vec<Option<String>>,
    pub(crate) selection: Selection,
    pub(crate) query: QueryOptions,
    pub(crate) mapping: Mapping,
    pub(crate) wait: Duration,
    pub(crate) timeout: Duration,
    pub(crate) connections: usize,
}

impl Settings {
    /// Validates the settings, including those of every catalog registry.
    pub(crate) fn take(mut given: LiveSettings) -> Result<(Self, CatalogOptions), OptionsError> {
        let mut mistakes = Vec::new();
        let settings = &mut given;
        let defaults = CatalogDefaults { protocol: Protocol::Tcp, ..Default::default() };
        let product = ProductSettings::take(settings, SCHEMES, ALPN, defaults, &mut mistakes);
        let catalog = product.as_ref().map(|product| &product.catalog);
        let datacenters = datacenters(settings);
        let selection = Selection {
            only: Globs::parse(&settings.options.take("services").unwrap_or_default()),
            except: Globs::parse(&settings.options.take("exceptServices").unwrap_or_default()),
            tags: list(&settings.options.take("tags").unwrap_or_default()),
        };
        let query = query(settings, &selection, &mut mistakes);
        let mapping = mapping(settings, catalog, &mut mistakes);
        let (least, most) = (Duration::from_secs(1), Duration::from_secs(600));
        let wait = settings.parse_duration("wait", &mut mistakes).unwrap_or(Duration::from_secs(60));
        if !(least..=most).contains(&wait) {
            mistakes.push("wait: not from 1s to 10m".to_owned());
        }
        let timeout = settings.parse_duration("timeout", &mut mistakes).unwrap_or(Duration::from_secs(10));
        let connections = connections(settings, datacenters.len(), &mut mistakes);
        let token = SecretOption::take(&mut settings.options, "token", Some(TOKEN));
        if let Err(error) = given.finish(&crate::CONSUL) {
            mistakes.extend(error.0);
        }
        match product {
            Some(ProductSettings { target, connector, catalog }) if mistakes.is_empty() => {
                let settings = Self {
                    target,
                    connector,
                    token,
                    datacenters,
                    selection,
                    query,
                    mapping,
                    wait,
                    timeout,
                    connections,
                };
                Ok((settings, catalog))
            }
            _ => Err(OptionsError(mistakes)),
        }
    }
}

fn datacenters(settings: &mut LiveSettings) -> Vec<Option<String>> {
    let mut names = list(&settings.options.take("datacenters").unwrap_or_default());
    names.sort();
    names.dedup();
    if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() }
}

/// Each data centre has up to three permanently open queries; others need at least one slot more.
fn connections(settings: &mut LiveSettings, datacenters: usize, mistakes: &mut Vec<String>) -> usize {
    let least = 3 * datacenters + 3;
    let given = settings.options.parse("connections", mistakes, |text| match text.parse::<usize>() {
        Ok(number) if (least..=10_000).contains(&number) => Ok(number),
        _ => Err(format!("not a number from {least} (with {datacenters} data centres) to 10000")),
    });
    given.unwrap_or(64.max(least))
}

fn query(settings: &mut LiveSettings, selection: &Selection, mistakes: &mut Vec<String>) -> QueryOptions {
    let consistency = settings.options.parse("consistency", mistakes, |text| match text {
        "stale" => Ok(Consistency::Stale),
        "default" => Ok(Consistency::Default),
        "consistent" => Ok(Consistency::Consistent),
        _ => Err("not one of stale, default, consistent".to_owned()),
    });
    let node_meta = list(&settings.options.take("nodeMeta").unwrap_or_default());
    if let Some(wrong) = node_meta.iter().find(|pair| !pair.contains(':')) {
        mistakes.push(format!("nodeMeta={wrong}: not KEY:VALUE"));
    }
    QueryOptions {
        consistency: consistency.unwrap_or(Consistency::Stale),
        max_stale: settings.parse_duration("maxStale", mistakes).unwrap_or(Duration::from_secs(10)),
        filter: settings.options.take("filter").filter(|text| !text.trim().is_empty()),
        node_meta,
        tags: selection.tags.clone(),
    }
}

fn mapping(
    settings: &mut LiveSettings,
    catalog: Option<&CatalogOptions>,
    mistakes: &mut Vec<String>,
) -> Mapping {
    let host = settings.options.take("host").unwrap_or_else(|| "{service}.service.consul".to_owned());
    if !host.contains("{service}") {
        mistakes.push(format!("host={host}: {{service}} is not in it"));
    }
    let rest = host.replace("{service}", "").replace("{datacenter}", "");
    if rest.contains(['{', '}']) {
        mistakes.push(format!("host={host}: only {{service}} and {{datacenter}} are replaced"));
    }
    let default_port = settings.options.parse("defaultPort", mistakes, |text| {
        text.parse::<u16>()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(|| "not a port from 1 to 65535".to_owned())
    });
    let separator = settings.options.take("tagSeparator").unwrap_or_else(|| "|".to_owned());
    if separator.is_empty() {
        mistakes.push("tagSeparator: it is empty".to_owned());
    }
    let default_protocol =
        catalog.map(|options| options.protocol).filter(|known| *known != Protocol::Unsupported);
    Mapping {
        host,
        namespace: catalog.map(|options| options.namespace.clone()).unwrap_or_default(),
        namespace_label: settings.options.take("namespaceLabel"),
        addresses: list(&settings.options.take("address").unwrap_or_default()),
        virtual_addresses: boolean(settings, "virtualAddresses", false, mistakes),
        separator,
        plain_tags: boolean(settings, "plainTags", false, mistakes),
        meta_labels: boolean(settings, "metaLabels", true, mistakes),
        external_meta: settings.options.take("externalMeta").unwrap_or_else(|| "external".to_owned()),
        ports: PortMapping {
            protocol_meta: settings.options.take("protocolMeta").unwrap_or_else(|| "protocol".to_owned()),
            default_protocol,
            name: settings.options.take("portName"),
            default_port,
            meta_prefix: settings.options.take("portMeta").filter(|prefix| !prefix.is_empty()),
            addresses: list(&settings.options.take("portAddresses").unwrap_or_default()),
        },
    }
}

fn boolean(settings: &mut LiveSettings, name: &str, default: bool, mistakes: &mut Vec<String>) -> bool {
    let given = settings.options.parse(name, mistakes, |text| match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("neither true nor false".to_owned()),
    });
    given.unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_registry::testing::live_settings;

    fn take(address: &str, options: &[(&str, &str)]) -> Result<Settings, String> {
        let given = live_settings("Consul", address, options);
        Settings::take(given).map(|(settings, _)| settings).map_err(|error| error.to_string())
    }

    #[test]
    fn the_defaults_are_those_of_the_table() {
        let settings = take("http://consul", &[]).unwrap();
        assert_eq!(settings.target.servers[0].port, 8500);
        assert_eq!((settings.connections, settings.wait.as_secs(), settings.timeout.as_secs()), (64, 60, 10));
        assert_eq!(
            (settings.query.consistency, settings.query.max_stale.as_secs()),
            (Consistency::Stale, 10)
        );
        assert_eq!(settings.datacenters, [None]);
        assert_eq!(settings.mapping.host, "{service}.service.consul");
        assert!(settings.mapping.meta_labels && !settings.mapping.plain_tags);
        assert_eq!(take("https://consul", &[]).unwrap().target.servers[0].port, 8501);
    }

    #[test]
    fn every_mistake_is_told() {
        for (options, want) in [
            (&[("wait", "1h")][..], "wait: not from 1s to 10m"),
            (&[("connections", "5")], "connections=5: not a number from 6 (with 1 data centres) to 10000"),
            (
                &[("connections", "8"), ("datacenters", "a,b")],
                "connections=8: not a number from 9 (with 2 data centres) to 10000",
            ),
            (&[("consistency", "strong")], "consistency=strong: not one of stale, default, consistent"),
            (&[("host", "x")], "host=x: {service} is not in it"),
            (
                &[("host", "{service}.{dc}")],
                "host={service}.{dc}: only {service} and {datacenter} are replaced",
            ),
            (&[("nodeMeta", "a:b,c")], "nodeMeta=c: not KEY:VALUE"),
            (&[("plainTags", "yes")], "plainTags=yes: neither true nor false"),
            (&[("defaultPort", "0")], "defaultPort=0: not a port from 1 to 65535"),
            (&[("tagSeparator", "")], "tagSeparator: it is empty"),
            (
                &[("caFile", "x")],
                "caFile, certFile, keyFile and serverName need TLS: begin the address with https://, or with this registry's scheme for TLS",
            ),
        ] {
            assert_eq!(take("http://consul", options).unwrap_err(), want);
        }
        let unknown = take("http://consul", &[("datacentre", "x")]).unwrap_err();
        assert!(
            unknown.starts_with("there is no option \"datacentre\" (did you mean \"datacenters\"?)"),
            "{unknown}"
        );
    }
}
