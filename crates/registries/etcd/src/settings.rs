//! Parsing of `--registry etcd=ADDRESS?OPTION=VALUE`.

use crate::ETCD;
use crate::keyspace::Keyspace;
use crate::schema::{
    Defaults, Field, Fields, Format, HostTemplate, KeyPattern, LAYOUTS, Layout, Schema, parse_port,
};
use crate::session::Etcd;
use pilotfish_etcd_client::Servers;
use pilotfish_registry::{CatalogDefaults, CatalogOptions, LiveSettings, LiveSource, OptionsError};
use pilotfish_session::live;

/// Checks the settings; nothing is connected yet.
pub(crate) fn open(mut settings: LiveSettings) -> Result<Box<dyn LiveSource>, OptionsError> {
    let mut mistakes = Vec::new();
    let servers = Servers::take(&settings.address, &mut settings.options, &mut mistakes);
    let options = CatalogOptions::take(&mut settings, CatalogDefaults::default())
        .map_err(|OptionsError(more)| mistakes.extend(more))
        .unwrap_or_default();
    let schema = schema(&mut settings, &options, &mut mistakes);
    let shard = settings.shard.clone();
    if let Err(OptionsError(more)) = settings.finish(&ETCD) {
        mistakes.extend(more);
    }
    match (servers, schema) {
        (Some(servers), Some(schema)) if mistakes.is_empty() => {
            Ok(live(Etcd::new(servers, Keyspace::new(schema)), shard, options))
        }
        _ => Err(OptionsError(mistakes)),
    }
}

/// Returns the schema of the layout, with the overrides of other options.
fn schema(
    settings: &mut LiveSettings,
    options: &CatalogOptions,
    mistakes: &mut Vec<String>,
) -> Option<Schema> {
    let layout = settings.options.parse("layout", mistakes, |name| {
        let found = LAYOUTS.iter().find(|layout| layout.name == name);
        let known = || LAYOUTS.iter().map(|layout| layout.name).collect::<Vec<_>>().join(", ");
        found.ok_or_else(|| format!("known are {}", known()))
    });
    let layout: &Layout = layout.or_else(|| LAYOUTS.first())?;
    let prefix = settings.options.take("prefix");
    if prefix.is_none() && layout.prefix.is_empty() {
        mistakes.push(format!("layout={} needs the option prefix: it has none by convention", layout.name));
    }
    let mut prefix = prefix.unwrap_or_else(|| layout.prefix.to_owned());
    if !prefix.is_empty() && !prefix.ends_with('/') {
        // With the slash, `/services` does not match `/services-old`.
        prefix.push('/');
    }
    let key = settings.options.parse("key", mistakes, KeyPattern::parse);
    let fields = settings.options.parse("fields", mistakes, Fields::parse);
    let host = settings.options.parse("host", mistakes, HostTemplate::parse);
    let port = settings.options.parse("instancePort", mistakes, parse_port);
    let format = match ((layout.format)(), fields) {
        (Format::Json(_), Some(fields)) => Format::Json(fields),
        (format, None) => format,
        (_, Some(_)) => {
            mistakes.push(format!("fields is for layout=json, not for {}", layout.name));
            return None;
        }
    };
    let key = key.map_or_else(|| KeyPattern::parse(layout.key), Ok).ok()?;
    let names_service = key.has(&Field::Service) || key.has(&Field::Domain);
    if !names_service && !matches!(format, Format::Json(_)) {
        mistakes.push(format!(
            "key={key}: it has no {{service}}, and values of layout={} do not say it",
            layout.name
        ));
    }
    Some(Schema {
        prefix,
        key,
        format,
        host: host.map_or_else(|| HostTemplate::parse(layout.host), Ok).ok()?,
        defaults: Defaults { namespace: options.namespace.clone(), protocol: layout.protocol, port },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_registry::testing::live_settings;

    fn check(address: &str, options: &[(&str, &str)]) -> String {
        let settings = live_settings("etcd", address, options);
        open(settings).map_or_else(|error| error.to_string(), |_| "taken".to_owned())
    }

    #[test]
    fn settings_are_taken() {
        for layout in LAYOUTS {
            let options = [("layout", layout.name), ("prefix", "/p")];
            assert_eq!(check("http://a:2379,b:2379,c", &options), "taken", "{}", layout.name);
        }
        assert_eq!(check("127.0.0.1", &[]), "taken");
        let options = [("key", "{namespace}/{service}/{instance}"), ("fields", "port:p"), ("user", "reader")];
        assert_eq!(
            check(
                "https://a",
                &[&options[..], &[("passwordFile", "/nowhere"), ("caFile", "/nowhere")]].concat()
            ),
            "taken",
            "files are read when they are needed"
        );
    }

    #[test]
    fn mistakes_are_told_all_at_once() {
        let options =
            [("key", "{x}"), ("layuot", "json"), ("port", "0"), ("user", "reader"), ("host", "all")];
        let told = check("ftp://a", &options);
        for wanted in [
            "the scheme \"ftp\"",
            "key={x}: there is no {x}",
            "there is no option \"layuot\"",
            "port=0: ",
            "user needs passwordFile",
            "host=all: it has no {service}",
        ] {
            assert!(told.contains(wanted), "{wanted}: {told}");
        }
        assert!(check("a", &[("layout", "grpc")]).contains("needs the option prefix"));
        assert!(
            check("a", &[("layout", "text"), ("fields", "port:p")]).contains("fields is for layout=json")
        );
        assert!(check("a/services", &[]).contains("the address has a path"));
        assert!(check("a", &[("passwordFile", "x")]).contains("passwordFile needs user"));
        assert!(check("a", &[("layout", "text"), ("key", "{instance}")]).contains("it has no {service}"));
        assert_eq!(check("a", &[("key", "{instance}")]), "taken", "JSON may say it");
        assert!(check("a", &[("layout", "x")]).contains("known are json, text, grpc, skydns, dubbo"));
    }
}
