//! The options of the registry.

use crate::entry::{Entry, Family};
use crate::mapping::{Mapping, Priorities};
use crate::plan::PlanOptions;
use pilotfish_connect::{Scheme, Server, Target};
use pilotfish_registry::{CatalogDefaults, CatalogOptions, LiveSettings, OptionSpec, OptionsError};
use pilotfish_runtime::read_regular_text;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

const SCHEMES: &[Scheme] = &[Scheme { name: "dns", port: 53, is_tls: false }];
const MIN_TTL: Duration = Duration::from_secs(5);
const MAX_TTL: Duration = Duration::from_secs(300);
/// Maximum size of a file of names in bytes.
const MAX_FILE: u64 = 4 << 20;

/// Options of this registry only.
pub(crate) const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "names",
        value: "NAME[,NAME...]",
        about: "names to query: _http._tcp.web.example.com[:PORT], srv:web.example.com[:PORT], \
            web.example.com:PORT",
    },
    OptionSpec {
        name: "namesFile",
        value: "FILE",
        about: "a file with more of them, one a line, read at the start; # begins a comment",
    },
    OptionSpec {
        name: "family",
        value: "ipv4|ipv6|both",
        about: "record types of addresses: A, AAAA or both [default: both]",
    },
    OptionSpec {
        name: "priorities",
        value: "best|all",
        about: "SRV records to use: the best priority with addresses, or all, with the label srv-priority \
            [default: best]",
    },
    OptionSpec {
        name: "minTtl",
        value: "DURATION",
        about: "minimum lifetime of an answer, if its TTL is shorter [default: 5s]",
    },
    OptionSpec {
        name: "maxTtl",
        value: "DURATION",
        about: "maximum lifetime of an answer, if its TTL is longer [default: 5m]",
    },
];

/// The settings of one registry.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) servers: Vec<Server>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) plan: PlanOptions,
    pub(crate) mapping: Mapping,
    pub(crate) catalog: CatalogOptions,
}

impl Settings {
    /// Takes the options out of the settings.
    ///
    /// # Errors
    /// With one line for each mistake.
    pub(crate) fn take(settings: &mut LiveSettings) -> Result<Self, OptionsError> {
        let mut mistakes = Vec::new();
        let target = Target::parse(&settings.address, SCHEMES).map_err(|error| mistakes.push(error)).ok();
        if target.as_ref().is_some_and(|target| !target.path.is_empty()) {
            mistakes.push("an address of name servers has no path".to_owned());
        }
        let catalog = CatalogOptions::take(settings, CatalogDefaults::default());
        let catalog = catalog.map_err(|error| mistakes.extend(error.0)).ok();
        let entries = entries(settings, &mut mistakes);
        let plan = plan(settings, &mut mistakes);
        let priorities = settings.options.parse("priorities", &mut mistakes, |text| match text {
            "best" => Ok(Priorities::Best),
            "all" => Ok(Priorities::All),
            _ => Err("not best or all".to_owned()),
        });
        match (target, catalog) {
            (Some(target), Some(catalog)) if mistakes.is_empty() => Ok(Self {
                servers: target.servers,
                entries,
                plan,
                mapping: Mapping {
                    priorities: priorities.unwrap_or_default(),
                    namespace: catalog.namespace.clone(),
                },
                catalog,
            }),
            _ => Err(OptionsError(mistakes)),
        }
    }
}

fn entries(settings: &mut LiveSettings, mistakes: &mut Vec<String>) -> Vec<Entry> {
    let (names, file) = (settings.options.take("names"), settings.options.take("namesFile"));
    if names.is_none() && file.is_none() {
        mistakes.push("names or namesFile says what to ask for, and is missing".to_owned());
    }
    let of_names = names.map_or_else(|| Ok(Vec::new()), |names| Entry::parse_list(&names));
    let mut entries = of_names.unwrap_or_else(|error| {
        mistakes.push(format!("names: {error}"));
        Vec::new()
    });
    if let Some(file) = file {
        match lines(&file).and_then(|text| Entry::parse_lines(&text)) {
            Ok(more) => entries.extend(more),
            Err(error) => mistakes.push(format!("namesFile={file}: {error}")),
        }
    }
    let mut seen = BTreeSet::new();
    for entry in &entries {
        // By addresses, a name may have several ports; by SRV records, only one.
        if !seen.insert((entry.name.clone(), entry.port)) {
            mistakes.push(format!("names: {entry} stands there twice"));
        }
    }
    entries
}

fn lines(file: &str) -> Result<String, String> {
    read_regular_text(Path::new(file), MAX_FILE).map_err(|error| error.to_string())
}

fn plan(settings: &mut LiveSettings, mistakes: &mut Vec<String>) -> PlanOptions {
    let family = settings.options.parse("family", mistakes, |text| match text {
        "ipv4" => Ok(Family::Ipv4),
        "ipv6" => Ok(Family::Ipv6),
        "both" => Ok(Family::Both),
        _ => Err("not ipv4, ipv6 or both".to_owned()),
    });
    let min_ttl = settings.parse_duration("minTtl", mistakes);
    let max_ttl = settings.parse_duration("maxTtl", mistakes);
    let min_ttl = min_ttl.unwrap_or_else(|| MIN_TTL.min(max_ttl.unwrap_or(MIN_TTL)));
    let max_ttl = max_ttl.unwrap_or_else(|| MAX_TTL.max(min_ttl));
    if min_ttl > max_ttl {
        mistakes.push("minTtl is above maxTtl".to_owned());
    }
    PlanOptions { family: family.unwrap_or_default(), min_ttl, max_ttl }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_registry::testing::live_settings;

    fn take(address: &str, options: &[(&str, &str)]) -> Result<Settings, String> {
        let mut settings = live_settings("DNS", address, options);
        Settings::take(&mut settings).map_err(|error| error.to_string())
    }

    #[test]
    fn settings_are_read() {
        let taken = take("10.0.0.53,[::1]:5353", &[("names", "a:1,_http._tcp.b")]).expect("they are right");
        let servers: Vec<_> = taken.servers.iter().map(Server::to_string).collect();
        assert_eq!((servers.join(" "), taken.entries.len()), ("10.0.0.53:53 [::1]:5353".to_owned(), 2));
        let plan = PlanOptions { family: Family::Both, min_ttl: MIN_TTL, max_ttl: MAX_TTL };
        assert_eq!((taken.plan, taken.mapping.priorities), (plan, Priorities::Best));

        let options = [
            ("names", "a:1"),
            ("family", "ipv6"),
            ("priorities", "all"),
            ("maxTtl", "2s"),
            ("namespace", "n"),
        ];
        let taken = take("dns://a", &options).expect("they are right");
        let two = Duration::from_secs(2);
        assert_eq!(taken.plan, PlanOptions { family: Family::Ipv6, min_ttl: two, max_ttl: two });
        assert_eq!(taken.mapping, Mapping { priorities: Priorities::All, namespace: "n".into() });
    }

    #[test]
    fn names_may_stand_in_a_file() {
        let file = tempfile::NamedTempFile::new().expect("a file can be made");
        let path = file.path().display().to_string();
        let options = [("names", "a:1"), ("namesFile", &*path)];
        std::fs::write(&path, "# of the shop\n_http._tcp.web # its pages\n\nb:2\n")
            .expect("it can be written");
        let taken = take("a", &options).expect("they are right");
        let names: Vec<_> = taken.entries.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["a", "_http._tcp.web", "b"]);
        std::fs::write(&path, "b:2\nb\n").expect("it can be written");
        let error = take("a", &options).expect_err("a port is missing");
        assert!(error.starts_with(&format!("namesFile={path}: line 2: \"b\": a name without")), "{error}");
        assert!(take("a", &[("namesFile", "/not/there")]).is_err());
    }

    #[test]
    fn every_mistake_is_told() {
        let names = ("names", "a:1");
        for (address, options, expected) in [
            ("a", &[][..], "names or namesFile says what to ask for, and is missing"),
            (
                "a",
                &[("names", "a")],
                "names: \"a\": a name without _service._proto needs a port, as in web.example.com:80, or srv: in front",
            ),
            ("a", &[("names", "a:1,A.:1")], "names: a stands there twice"),
            ("http://a", &[names], "the scheme \"http\" is not one of dns://"),
            ("a/x", &[names], "an address of name servers has no path"),
            ("a", &[names, ("family", "4")], "family=4: not ipv4, ipv6 or both"),
            ("a", &[names, ("priorities", "1")], "priorities=1: not best or all"),
            ("a", &[names, ("minTtl", "2s"), ("maxTtl", "1s")], "minTtl is above maxTtl"),
            (
                "a",
                &[names, ("guard", "0"), ("minTtl", "0s")],
                "guard=0: not a share in percent from 1 to 99, nor off; minTtl=0s: not above zero",
            ),
        ] {
            assert_eq!(take(address, options).err().as_deref(), Some(expected), "{address} {options:?}");
        }
    }
}
