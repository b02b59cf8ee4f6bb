//! Parsing of `--registration-store etcd=ADDRESS?OPTION=VALUE&...`.

use crate::keys::Keys;
use pilotfish_config::unknown_name;
use pilotfish_connect::TLS_OPTIONS;
use pilotfish_etcd_client::{LOGIN_OPTIONS, Servers};
use pilotfish_runtime::{OptionSpec, OptionValues, OptionsError};

/// Options of the store, for `--help` and its page.
pub const ETCD_STORE_OPTIONS: &[&[OptionSpec]] = &[OPTIONS, LOGIN_OPTIONS, TLS_OPTIONS];

const OPTIONS: &[OptionSpec] = &[OptionSpec {
    name: "prefix",
    value: "KEY",
    about: "the keys of the store begin so; stores with the same prefix share everything [default: \
            /pilotfish/registration]",
}];

const PREFIX: &str = "/pilotfish/registration";
/// Maximum length of a prefix in bytes.
const MAX_PREFIX: usize = 256;

/// Validated address and prefix of the store.
#[derive(Debug)]
pub struct EtcdStoreSettings {
    pub(crate) servers: Servers,
    pub(crate) keys: Keys,
}

impl EtcdStoreSettings {
    /// Parses `http://HOST:2379[,HOST:2379...][?OPTION=VALUE&...]`. Nothing is connected yet, and no file is
    /// read.
    ///
    /// # Errors
    /// With all mistakes, one line each.
    pub fn parse(text: &str) -> Result<Self, OptionsError> {
        let (address, options) = text.split_once('?').unwrap_or((text, ""));
        let mut mistakes = Vec::new();
        let address = without_repeated_schemes(address, &mut mistakes);
        let mut options: OptionValues = form_urlencoded::parse(options.as_bytes()).into_owned().collect();
        let servers = Servers::take(&address, &mut options, &mut mistakes);
        let prefix = options.take("prefix").unwrap_or_else(|| PREFIX.to_owned());
        if let Err(mistake) = check_prefix(&prefix) {
            mistakes.push(format!("prefix={prefix}: {mistake}"));
        }
        let known: Vec<&str> =
            ETCD_STORE_OPTIONS.iter().copied().flatten().map(|option| option.name).collect();
        let unknown = |option| unknown_name("option", option, &known, "pilotfish serve --help");
        mistakes.extend(options.names().map(unknown));
        match servers {
            Some(servers) if mistakes.is_empty() => Ok(Self { servers, keys: Keys::new(&prefix) }),
            _ => Err(OptionsError(mistakes)),
        }
    }
}

/// Normalizes `http://a,http://b`, the form of etcd's own tools, to `http://a,b`.
fn without_repeated_schemes(address: &str, mistakes: &mut Vec<String>) -> String {
    let mut servers = address.split(',');
    let first = servers.next().unwrap_or_default();
    let scheme = first.split_once("://").map_or(String::new(), |(scheme, _)| format!("{scheme}://"));
    let rest = servers.map(|server| match server.split_once("://") {
        Some((other, rest)) => {
            if !scheme.eq_ignore_ascii_case(&format!("{other}://")) {
                mistakes.push(format!("{server}: all servers need the same scheme"));
            }
            rest
        }
        None => server,
    });
    std::iter::once(first).chain(rest).collect::<Vec<_>>().join(",")
}

fn check_prefix(prefix: &str) -> Result<(), String> {
    if prefix.trim_matches('/').is_empty() {
        return Err("it must name something: other keys of etcd are none of ours".to_owned());
    }
    if prefix.len() > MAX_PREFIX {
        return Err(format!("it has more than {MAX_PREFIX} bytes"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        match EtcdStoreSettings::parse(text) {
            Ok(settings) => format!("{} {}", settings.servers.describe(), settings.keys.prefix()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn settings_are_read() {
        for (text, wanted) in [
            ("127.0.0.1", "http://127.0.0.1:2379 /pilotfish/registration/"),
            ("http://a:2379,http://b:2380?prefix=/p", "http://a:2379,b:2380 /p/"),
            (
                "https://a,b?prefix=/p/q/&caFile=/nowhere&user=u&passwordFile=/nowhere",
                "https://a:2379,b:2379 /p/q/",
            ),
        ] {
            assert_eq!(read(text), wanted);
        }
    }

    #[test]
    fn mistakes_are_told_all_at_once() {
        let told = read("ftp://a?prefix=/&caFile=x&user=u&userNmae=v");
        for wanted in [
            "the scheme \"ftp\"",
            "caFile, certFile, keyFile and serverName need TLS",
            "user needs passwordFile",
            "prefix=/: it must name something",
            "there is no option \"userNmae\"; known are prefix, user, passwordFile, caFile",
        ] {
            assert!(told.contains(wanted), "{wanted}: {told}");
        }
        assert!(read("http://a,https://b").contains("https://b: all servers need the same scheme"));
        assert!(read(&format!("a?prefix={}", "x".repeat(300))).contains("more than 256 bytes"));
        assert!(read("http://a/path").contains("the address has a path"));
    }
}
