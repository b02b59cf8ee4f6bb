//! The address and options of `--registry zookeeper=`.

use crate::ZOOKEEPER;
use crate::mirror::{Layout, Watches};
use pilotfish_connect::{Connector, Scheme, SecretOption, Target, TlsOptions};
use pilotfish_registry::{CatalogDefaults, CatalogOptions, LiveSettings, OptionSpec, OptionsError};
use std::time::Duration;

const SCHEMES: &[Scheme] =
    &[Scheme { name: "zk", port: 2181, is_tls: false }, Scheme { name: "zks", port: 2281, is_tls: true }];

/// Options of this registry only.
pub(crate) const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "dubboPath",
        value: "PATH|off",
        about: "root node of Dubbo: its group as a path [default: /dubbo]",
    },
    OptionSpec {
        name: "servicesPath",
        value: "PATH|off",
        about: "root node of applications (Dubbo 3, Spring Cloud) [default: /services]",
    },
    OptionSpec {
        name: "domain",
        value: "NAME",
        about: "suffix of the hosts of applications, such as default.svc.cluster.local [default: none]",
    },
    OptionSpec {
        name: "digestFile",
        value: "FILE",
        about: "the file with USER:PASSWORD for ZooKeeper's digest scheme [default: the environment's \
            ZOOKEEPER_DIGEST]",
    },
    OptionSpec {
        name: "sessionTimeout",
        value: "DURATION",
        about: "session timeout; a connection without data for two thirds of it is closed; servers limit the \
            value [default: 15s]",
    },
    OptionSpec {
        name: "watches",
        value: "below|single",
        about: "one watch for a whole tree, or one for each node, which costs a request for each change \
            [default: below, and single for servers before 3.6]",
    },
];

/// Validated settings of a ZooKeeper registry.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) target: Target,
    pub(crate) connector: Connector,
    pub(crate) digest: SecretOption,
    pub(crate) layout: Layout,
    pub(crate) watches: Watches,
    pub(crate) session_timeout: Duration,
    pub(crate) domain: String,
    pub(crate) catalog: CatalogOptions,
}

impl Options {
    /// Validates the settings; reports all mistakes at once.
    pub(crate) fn take(mut settings: LiveSettings) -> Result<Self, OptionsError> {
        let mut mistakes = Vec::new();
        let target = Target::parse(&settings.address, SCHEMES).map_err(|mistake| mistakes.push(mistake)).ok();
        let chroot = target.as_ref().map(|target| target.path.clone()).unwrap_or_default();
        if !chroot.is_empty() && !is_path(&chroot) {
            mistakes.push(format!("{chroot:?} is no path of a node"));
        }
        let is_tls = target.as_ref().is_some_and(|target| target.scheme.is_tls);
        let tls = TlsOptions::take(&mut settings.options, is_tls, &mut mistakes);
        let digest = SecretOption::take(&mut settings.options, "digest", Some("ZOOKEEPER_DIGEST"));
        let mut root = |name, default: &str| match settings.options.parse(name, &mut mistakes, parse_root) {
            Some(given) => given.map(|path| format!("{chroot}{path}")),
            None => Some(format!("{chroot}{default}")),
        };
        let layout =
            Layout { dubbo: root("dubboPath", "/dubbo"), services: root("servicesPath", "/services") };
        if layout.dubbo.is_none() && layout.services.is_none() {
            mistakes.push("dubboPath and servicesPath are both off: nothing is left to read".to_owned());
        }
        let overlap = |one: &str, other: &str| one == other || one.starts_with(&format!("{other}/"));
        if let (Some(dubbo), Some(services)) = (&layout.dubbo, &layout.services)
            && (overlap(dubbo, services) || overlap(services, dubbo))
        {
            mistakes.push(format!("dubboPath {dubbo} and servicesPath {services} are one in the other"));
        }
        let domain = settings.options.parse("domain", &mut mistakes, |text| {
            let parsed = pilotfish_model::Hostname::parse(text.trim_matches('.'));
            parsed.map(|name| name.as_str().to_owned()).map_err(|_| "not a domain".to_owned())
        });
        let session_timeout = settings.parse_duration("sessionTimeout", &mut mistakes);
        let watches = settings.options.parse("watches", &mut mistakes, |text| match text {
            "below" => Ok(Watches::Below),
            "single" => Ok(Watches::Single),
            _ => Err("neither below nor single".to_owned()),
        });
        let catalog = CatalogOptions::take(&mut settings, CatalogDefaults::default());
        let finished = settings.finish(&ZOOKEEPER);
        for more in [catalog.as_ref().err(), finished.as_ref().err()].into_iter().flatten() {
            mistakes.extend(more.0.iter().cloned());
        }
        match (target, catalog) {
            (Some(target), Ok(catalog)) if mistakes.is_empty() => Ok(Self {
                target,
                connector: Connector::new(tls),
                digest,
                layout,
                watches: watches.unwrap_or(Watches::Below),
                session_timeout: session_timeout.unwrap_or(Duration::from_secs(15)),
                domain: domain.unwrap_or_default(),
                catalog,
            }),
            _ => Err(OptionsError(mistakes)),
        }
    }
}

/// Parses a root path without trailing slash; `off` is `None`.
fn parse_root(text: &str) -> Result<Option<String>, String> {
    match text {
        "off" => Ok(None),
        path if is_path(path.trim_end_matches('/')) => Ok(Some(path.trim_end_matches('/').to_owned())),
        _ => Err("neither a path, as /dubbo, nor off".to_owned()),
    }
}

fn is_path(text: &str) -> bool {
    let mut names = text.split('/');
    let is_name =
        |name: &str| !name.is_empty() && name != "." && name != ".." && !name.contains(char::is_control);
    names.next() == Some("") && text.len() > 1 && names.all(is_name)
}
