//! Parsing of `--registry polaris=ADDRESS?OPTION=VALUE`.

use crate::POLARIS;
use crate::directory::Directory;
use crate::mapping::Mapping;
use crate::session::Polaris;
use pilotfish_connect::{Scheme, SecretOption};
use pilotfish_registry::{CatalogDefaults, LiveSettings, LiveSource, OptionsError};
use pilotfish_session::{ProductSettings, live};
use std::time::Duration;

const SCHEMES: &[Scheme] =
    &[Scheme { name: "grpc", port: 8091, is_tls: false }, Scheme { name: "grpcs", port: 8091, is_tls: true }];
/// Default polling interval, the same as of Polaris' own clients.
const INTERVAL: Duration = Duration::from_secs(2);

/// Checks the settings; nothing is connected yet.
pub(crate) fn open(mut settings: LiveSettings) -> Result<Box<dyn LiveSource>, OptionsError> {
    let mut mistakes = Vec::new();
    let defaults = CatalogDefaults::default();
    let product = ProductSettings::take(&mut settings, SCHEMES, &["h2"], defaults, &mut mistakes);
    if product.as_ref().is_some_and(|product| !product.target.path.is_empty()) {
        mistakes.push("the address has a path; the option namespaces says what is read".to_owned());
    }
    let token = SecretOption::take(&mut settings.options, "token", Some("PILOTFISH_POLARIS_TOKEN"));
    let namespaces = settings.options.parse("namespaces", &mut mistakes, namespaces);
    let interval = settings.parse_duration("interval", &mut mistakes);
    let mapping = settings.options.parse("host", &mut mistakes, Mapping::parse);
    let shard = settings.shard.clone();
    if let Err(OptionsError(more)) = settings.finish(&POLARIS) {
        mistakes.extend(more);
    }
    let Some(product) = product.filter(|_| mistakes.is_empty()) else {
        return Err(OptionsError(mistakes));
    };
    let ProductSettings { target, connector, catalog } = product;
    let namespaces = namespaces.unwrap_or_else(|| vec!["default".to_owned()]);
    let directory = Directory::new(&namespaces, mapping.unwrap_or_default());
    let interval = interval.unwrap_or(INTERVAL);
    Ok(live(Polaris::new(target.servers, connector, token, interval, directory), shard, catalog))
}

fn namespaces(text: &str) -> Result<Vec<String>, String> {
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    if names.iter().any(String::is_empty) { Err("a name is empty".to_owned()) } else { Ok(names) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_registry::testing::live_settings;

    fn check(address: &str, options: &[(&str, &str)]) -> String {
        let settings = live_settings("Polaris", address, options);
        open(settings).map_or_else(|error| error.to_string(), |_| "taken".to_owned())
    }

    #[test]
    fn settings_are_taken() {
        assert_eq!(check("127.0.0.1", &[]), "taken");
        let options = [
            ("namespaces", "a, b"),
            ("interval", "500ms"),
            ("tokenFile", "/nowhere"),
            ("caFile", "/nowhere"),
        ];
        assert_eq!(check("grpcs://a:1,b", &options), "taken");
    }

    #[test]
    fn mistakes_are_told_all_at_once() {
        let options = [("namespaces", "a,"), ("interval", "0s"), ("host", "x"), ("tokn", "x")];
        let told = check("http://a", &options);
        for wanted in [
            "the scheme \"http\"",
            "namespaces=a,: a name is empty",
            "interval=0s",
            "host=x",
            "no option \"tokn\"",
        ] {
            assert!(told.contains(wanted), "{wanted}: {told}");
        }
        assert!(check("a/b", &[]).contains("the address has a path"));
    }
}
