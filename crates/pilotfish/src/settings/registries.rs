//! Registries that run, with their precedence and settings.

use super::check::Check;
use super::parse;
use clap::Args;
use pilotfish_model::{Provider, ShardKey};
use pilotfish_registry::{
    GuardSettings, Input, LiveSettings, MergePolicy, OptionValues, RegistrySettings, RegistryTable,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[command(next_help_heading = "Registries")]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct RegistriesArgs {
    /// A registry with a source of its own, by its name and address; NAME/INSTANCE for one of several,
    /// options after a '?' as in a URL. May repeat; needs neither PATH nor --kubernetes
    #[arg(
        long = "registry",
        env = "PILOTFISH_REGISTRY",
        value_name = "NAME[/INSTANCE]=ADDRESS",
        value_delimiter = ';'
    )]
    pub(crate) registry: Vec<String>,
    /// Time that readiness waits for the first list of such a registry [default: 30s]
    #[arg(long, env = "PILOTFISH_REGISTRY_TIMEOUT", value_name = "DURATION")]
    pub(crate) registry_timeout: Option<String>,
    /// The order in which registries win a service that several have; unnamed ones follow [default:
    /// Kubernetes,ServiceEntry, then the others]
    #[arg(long, env = "PILOTFISH_REGISTRY_ORDER", value_name = "NAME", value_delimiter = ',')]
    pub(crate) registry_order: Vec<String>,
    /// Handling of a service that several registries have: union (the first describes it, endpoints of
    /// all count), first (only the first counts), refuse (as first, and an error at /ready) [default: union]
    #[arg(long, env = "PILOTFISH_MERGE_SERVICES", value_name = "POLICY")]
    pub(crate) merge_services: Option<String>,
    /// Share of what a source has, in percent, that one read may take away; a read that takes more, and at
    /// least 3 things, waits for a second one. `off` believes every read [default: 50]
    #[arg(long, env = "PILOTFISH_GUARD", value_name = "PERCENT")]
    pub(crate) guard: Option<String>,
    /// Time until that second read, where a registry has no guardWait of its own [default: 10s]
    #[arg(long, env = "PILOTFISH_GUARD_WAIT", value_name = "DURATION")]
    pub(crate) guard_wait: Option<String>,
    /// Registries that read objects, by name [default: Kubernetes,ServiceEntry]
    #[arg(long, env = "PILOTFISH_REGISTRIES", value_name = "NAME", value_delimiter = ',')]
    pub(crate) registries: Vec<String>,
    /// The id of the cluster that the files describe: the CLUSTER_ID of its proxies [default: Kubernetes]
    #[arg(long, env = "PILOTFISH_CLUSTER_ID", value_name = "ID")]
    pub(crate) cluster_id: Option<String>,
    /// The domain of Kubernetes Services' host names [default: cluster.local]
    #[arg(long, env = "PILOTFISH_DOMAIN", value_name = "DOMAIN")]
    pub(crate) domain: Option<String>,
}

/// Registries that run, with their precedence and settings.
#[derive(Clone, Debug)]
pub(crate) struct RegistriesSettings {
    /// All that there are, in the order in which they win.
    pub(crate) table: RegistryTable,
    /// Names of those that read objects.
    pub(crate) names: Vec<String>,
    /// Those with a source of their own.
    pub(crate) live: Vec<LiveRegistry>,
    /// Time that readiness waits for the first list of a live registry.
    pub(crate) timeout: Duration,
    pub(crate) merge: MergePolicy,
    /// Settings that every registry gets.
    pub(crate) settings: RegistrySettings,
}

/// A registry with a source of its own, as one `--registry` declares it.
#[derive(Clone, Debug)]
pub(crate) struct LiveRegistry {
    pub(crate) provider: Provider,
    /// Constructor of the source.
    pub(crate) input: Input,
    /// Empty for the only one of its type.
    pub(crate) instance: Arc<str>,
    pub(crate) address: String,
    pub(crate) options: OptionValues,
}

impl Default for RegistriesSettings {
    fn default() -> Self {
        Self {
            table: RegistryTable::default(),
            names: vec!["Kubernetes".into(), "ServiceEntry".into()],
            live: Vec::new(),
            timeout: Duration::from_secs(30),
            merge: MergePolicy::default(),
            settings: RegistrySettings::default(),
        }
    }
}

impl LiveRegistry {
    /// Settings for the constructor of the source.
    pub(crate) fn with(&self, registry: &RegistrySettings) -> LiveSettings {
        LiveSettings {
            shard: ShardKey::new(self.provider, registry.cluster.clone())
                .with_instance(self.instance.clone()),
            address: self.address.clone(),
            options: self.options.clone(),
            registry: registry.clone(),
        }
    }

    /// True if the source delivers objects.
    pub(crate) fn has_objects(&self) -> bool {
        matches!(self.input, Input::Source { .. })
    }

    /// Name of the source: `mcp`, or `mcp/west` for one of several.
    pub(crate) fn source_name(&self) -> Arc<str> {
        let name = self.provider.name();
        if self.instance.is_empty() { name.into() } else { format!("{name}/{}", self.instance).into() }
    }

    /// Reads `NAME[/INSTANCE]=ADDRESS[?OPTION=VALUE&...]`, and tries to make the source.
    fn parse(text: &str, table: &RegistryTable, registry: &RegistrySettings) -> Result<Self, String> {
        let (name, rest) =
            text.split_once('=').ok_or("not NAME=ADDRESS, as in consul=http://127.0.0.1:8500")?;
        let (name, instance) = name.split_once('/').unwrap_or((name, ""));
        let (address, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (provider, found) = table.find(name).map_err(|error| error.to_string())?;
        let options = form_urlencoded::parse(options.as_bytes()).into_owned().collect();
        let input = found.input;
        let parsed =
            Self { provider, input, instance: instance.into(), address: address.to_owned(), options };
        let checked = match input {
            Input::Live(new) => new(parsed.with(registry)).map(drop),
            Input::Source { check, .. } => check(parsed.with(registry)),
            Input::Process => {
                let name = found.name;
                return Err(format!(
                    "{name} is part of this process and has no address: see --registration-address"
                ));
            }
            Input::Objects(_) => {
                let name = found.name;
                return Err(format!("{name} reads objects and has no address: see PATH and --kubernetes"));
            }
        };
        checked.map_err(|error| error.to_string())?;
        Ok(parsed)
    }
}

impl RegistriesArgs {
    /// True if some registry has a source of its own.
    pub(super) fn has_live(&self) -> bool {
        !self.registry.is_empty()
    }

    pub(super) fn check(self, table: RegistryTable, check: &mut Check) -> RegistriesSettings {
        let defaults = RegistriesSettings::default();
        let domain = check.parse("--domain", self.domain.as_deref(), |text| {
            let parsed = pilotfish_model::Hostname::parse(text);
            parsed.map(|_| Arc::from(text)).map_err(|error| error.to_string())
        });
        let share = check.parse("--guard", self.guard.as_deref(), GuardSettings::parse_share);
        let wait = check.parse("--guard-wait", self.guard_wait.as_deref(), guard_wait);
        let guard = defaults.settings.guard;
        let settings = RegistrySettings {
            guard: GuardSettings {
                share: share.unwrap_or(guard.share),
                wait: wait.unwrap_or(guard.wait),
                ..guard
            },
            cluster: self.cluster_id.map_or(defaults.settings.cluster, Into::into),
            domain: domain.unwrap_or_else(|| "cluster.local".into()),
            ..defaults.settings
        };
        let table = table.clone().ordered(&self.registry_order).unwrap_or_else(|error| {
            check.mistake(format!("--registry-order: {error}"));
            table
        });
        let merge = check.parse("--merge-services", self.merge_services.as_deref(), |text| {
            MergePolicy::parse(text).ok_or_else(|| "not one of union, first and refuse".to_owned())
        });
        let timeout = check.parse("--registry-timeout", self.registry_timeout.as_deref(), parse::duration);
        let live = live(&self.registry, &table, &settings, check);
        RegistriesSettings {
            names: names(self.registries, defaults.names, &table, check),
            live,
            timeout: timeout.unwrap_or(defaults.timeout),
            merge: merge.unwrap_or_default(),
            table,
            settings,
        }
    }
}

/// A time above zero: a second read at once would read what the first did.
fn guard_wait(text: &str) -> Result<Duration, String> {
    pilotfish_duration::parse_above_zero(text).map_err(|error| error.to_string())
}

fn live(
    texts: &[String],
    table: &RegistryTable,
    settings: &RegistrySettings,
    check: &mut Check,
) -> Vec<LiveRegistry> {
    let mut all: Vec<LiveRegistry> = Vec::new();
    for text in texts {
        let parsed = check.parse("--registry", Some(text), |text| LiveRegistry::parse(text, table, settings));
        let Some(parsed) = parsed else {
            if let Some(meant) = corrected(text, table) {
                check.hint(format!("--registry '{meant}'"));
            }
            continue;
        };
        if all.iter().any(|known| (known.provider, &known.instance) == (parsed.provider, &parsed.instance)) {
            let name = parsed.provider.name();
            check.mistake(format!(
                "--registry {text:?}: there is one of that name already; tell them apart, as in {name}/first \
                 and {name}/second"
            ));
        } else {
            all.push(parsed);
        }
    }
    all
}

/// The text with its registry and options as they were probably meant. `None` where nothing is near, or they
/// are right.
fn corrected(text: &str, table: &RegistryTable) -> Option<String> {
    let (named, rest) = text.split_once('=')?;
    let (name, instance) = match named.split_once('/') {
        Some((name, instance)) => (name, format!("/{instance}")),
        None => (named, String::new()),
    };
    let found = table.find(name).ok().map(|(_, entry)| entry);
    let entry = found.or_else(|| {
        let near = pilotfish_config::nearest(name, table.iter().map(|(_, entry)| entry.name))?;
        table.find(near).ok().map(|(_, entry)| entry)
    })?;
    let (address, options) = rest.split_once('?').unwrap_or((rest, ""));
    let option = |text: &str| {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        let known: Vec<&str> = entry.all_options().map(|option| option.name).collect();
        if known.contains(&key) {
            return Some(text.to_owned());
        }
        Some(format!("{}={value}", pilotfish_config::nearest(key, known.into_iter())?))
    };
    let mut meant = match found {
        Some(_) => format!("{name}{instance}={address}"),
        None => format!("{}{instance}={address}", entry.name.to_ascii_lowercase()),
    };
    if !options.is_empty() {
        let options: Option<Vec<String>> = options.split('&').map(option).collect();
        meant = format!("{meant}?{}", options?.join("&"));
    }
    (meant != text).then_some(meant)
}

fn names(given: Vec<String>, default: Vec<String>, table: &RegistryTable, check: &mut Check) -> Vec<String> {
    let names = if given.is_empty() { default } else { given };
    match table.select(&names) {
        Err(error) => check.mistake(format!("--registries: {error}")),
        Ok(found) => {
            for (_, registry) in found {
                let name = registry.name;
                let way = match registry.input {
                    Input::Objects(_) => continue,
                    Input::Process => {
                        "it is part of this process: --registration-address HOST:PORT".to_owned()
                    }
                    Input::Live(_) | Input::Source { .. } => {
                        format!("it has a source of its own: --registry {name}=ADDRESS")
                    }
                };
                check.mistake(format!("--registries {name:?}: {way}"));
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_the_flags_as_they_were_meant() {
        let table = crate::registries::table_with(&[]);
        for (text, meant) in [
            ("cnsul=http://a:8500", Some("consul=http://a:8500")),
            ("Consull/west=http://a?services=x", Some("consul/west=http://a?services=x")),
            ("consul=http://a?servces=x&guard=1", Some("consul=http://a?services=x&guard=1")),
            ("consul=http://a?services=x", None),
            ("consul=http://a?zzzzzzzz=x", None),
            ("zzzzzzzz=http://a", None),
            ("consul", None),
        ] {
            assert_eq!(corrected(text, &table).as_deref(), meant, "{text}");
        }
        let args =
            RegistriesArgs { registry: vec!["cnsul=http://a:8500".into()], ..RegistriesArgs::default() };
        let mut check = Check::default();
        args.check(table, &mut check);
        let text = check.finish(()).unwrap_err().to_string();
        assert!(text.contains("there is no registry \"cnsul\" (did you mean \"Consul\"?)"), "{text}");
        assert!(text.ends_with("\nhint: --registry 'consul=http://a:8500'"), "{text}");
    }
}
