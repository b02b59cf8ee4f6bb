//! Registration of services: listener, rights and store.

use super::check::Check;
use super::{CertificateSource, parse};
use clap::Args;
use pilotfish_registration::LivenessSettings;
use pilotfish_registration_checks::Networks;
use pilotfish_registration_etcd::EtcdStoreSettings;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[command(next_help_heading = "Registration")]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct RegistrationArgs {
    /// Listen address for registrations, by gRPC and by JSON over HTTP, usually on port 15016; without it
    /// nothing can register. Without TLS only on this machine, unless --registration-plaintext is set
    #[arg(long, env = "PILOTFISH_REGISTRATION_ADDRESS", value_name = "HOST:PORT")]
    pub(crate) registration_address: Option<String>,
    /// Store of registrations: a file below --data-dir, or an etcd that several Pilotfishes share, as
    /// etcd=http://HOST:2379[,HOST:2379...][?OPTION=VALUE&...] [default: file]
    #[arg(long, env = "PILOTFISH_REGISTRATION_STORE", value_name = "file|etcd=URL")]
    pub(crate) registration_store: Option<String>,
    /// The folder of that file, and of the root that --ca self-signed creates; Pilotfish creates it
    /// [default: $STATE_DIRECTORY, else $XDG_STATE_HOME/pilotfish, else ~/.local/state/pilotfish]
    #[arg(long, env = "PILOTFISH_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Client tokens (YAML, reloaded on change). Clients without a listed token or a certificate are refused
    #[arg(long, env = "PILOTFISH_REGISTRATION_TOKENS", value_name = "FILE")]
    pub(crate) registration_tokens: Option<PathBuf>,
    /// Rules in YAML for who may register what, reloaded on change [default: a workload registers in its own
    /// namespace, nobody what a Kubernetes Service or ServiceEntry has, and everybody reads everything]
    #[arg(long, env = "PILOTFISH_REGISTRATION_RULES", value_name = "FILE")]
    pub(crate) registration_rules: Option<PathBuf>,
    /// The certificate of that address, a chain in PEM; reloaded on change
    #[arg(long, env = "PILOTFISH_REGISTRATION_CERT_FILE", value_name = "FILE")]
    pub(crate) registration_cert_file: Option<PathBuf>,
    /// Its key in PEM; reloaded on change
    #[arg(long, env = "PILOTFISH_REGISTRATION_KEY_FILE", value_name = "FILE")]
    pub(crate) registration_key_file: Option<PathBuf>,
    /// CAs of clients' certificates in PEM, reloaded on change; may repeat. The SPIFFE ID in a certificate is
    /// the client's identity
    #[arg(
        long = "registration-ca-cert-file",
        env = "PILOTFISH_REGISTRATION_CA_CERT_FILE",
        value_name = "FILE",
        value_delimiter = ','
    )]
    pub(crate) registration_ca_cert_files: Vec<PathBuf>,
    /// Serves other machines in plaintext, too: every client that can reach the port can take part in the
    /// mesh
    #[arg(long, env = "PILOTFISH_REGISTRATION_PLAINTEXT")]
    pub(crate) registration_plaintext: bool,
    /// Networks that active checks may reach
    /// [default: all but link-local, multicast and metadata services; loopback only if --registration-address
    /// is on loopback]
    #[arg(long, env = "PILOTFISH_REGISTRATION_CHECK_NETWORKS", value_name = "CIDR[,CIDR...]")]
    pub(crate) registration_check_networks: Option<String>,
    /// Time that an instance with a lapsed lease stays, marked unhealthy
    /// [default: twice its TTL, at least 10s]
    #[arg(long, env = "PILOTFISH_REGISTRATION_REMOVE_AFTER", value_name = "DURATION")]
    pub(crate) registration_remove_after: Option<String>,
    /// Maximum duration of self-preservation, when most leases of a service lapse together [default: 15m]
    #[arg(long, env = "PILOTFISH_REGISTRATION_PRESERVATION", value_name = "DURATION|off")]
    pub(crate) registration_preservation: Option<String>,
}

/// Registration, where it is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RegistrationSettings {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<RegistrationTls>,
    pub(crate) tokens: Option<PathBuf>,
    pub(crate) rules: Option<PathBuf>,
    /// True if other machines are served in plaintext.
    pub(crate) plaintext: bool,
    pub(crate) store: StoreSettings,
    pub(crate) liveness: LivenessSettings,
    /// Networks that health checks may connect to.
    pub(crate) check_networks: Networks,
}

/// TLS of that address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RegistrationTls {
    pub(crate) certificate: CertificateSource,
    /// Files with the CAs of clients' certificates.
    pub(crate) authorities: Vec<PathBuf>,
}

/// Store that registrations are kept in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreSettings {
    /// Folder of the embedded store.
    File(PathBuf),
    /// In etcd, which is this text.
    Etcd(String),
}

const ADDRESS: &str = "--registration-address";
const STORE: &str = "--registration-store";
const AUTHORITIES: &str = "--registration-ca-cert-file";

impl RegistrationArgs {
    /// True if registration is served by this process.
    pub(super) fn is_wanted(&self) -> bool {
        self.registration_address.is_some()
    }

    /// The folder of files that Pilotfish keeps; `None` where there is no home folder.
    pub(super) fn data_folder(&self) -> Option<PathBuf> {
        self.data_dir.clone().or_else(|| default_folder(|name| std::env::var_os(name)))
    }

    /// `None` where no address was given, or something is wrong with it. `keeps_other`: something else is
    /// kept in the folder of files.
    pub(super) fn check(self, keeps_other: bool, check: &mut Check) -> Option<RegistrationSettings> {
        let Some(text) = self.registration_address.clone() else {
            self.report_useless(check);
            return None;
        };
        let liveness = self.liveness(check);
        let store = self.store(keeps_other, check);
        let tls = self.tls(check);
        let access = [
            ("--registration-tokens", &self.registration_tokens),
            ("--registration-rules", &self.registration_rules),
        ];
        for (flag, path) in access.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?))) {
            check.exists(flag, path);
        }
        let address = check.parse(ADDRESS, Some(&text), parse::address)?;
        if !address.ip().is_loopback() && tls.is_none() && !self.registration_plaintext {
            let hint = "other machines could register in plaintext: name --registration-cert-file and \
                --registration-key-file, or say --registration-plaintext";
            check.wrong(ADDRESS, &text, hint);
        }
        let plaintext = self.registration_plaintext;
        let check_networks = self.registration_check_networks.as_deref();
        let check_networks = check.parse("--registration-check-networks", check_networks, Networks::parse);
        let by_address =
            || if address.ip().is_loopback() { Networks::with_loopback() } else { Networks::default() };
        let check_networks = check_networks.unwrap_or_else(by_address);
        let (tokens, rules) = (self.registration_tokens, self.registration_rules);
        Some(RegistrationSettings {
            address,
            tls,
            tokens,
            rules,
            plaintext,
            store: store?,
            liveness,
            check_networks,
        })
    }

    /// Reports settings that have no effect because registration is not served.
    fn report_useless(&self, check: &mut Check) {
        let files = [
            ("--registration-tokens", &self.registration_tokens),
            ("--registration-rules", &self.registration_rules),
            ("--registration-cert-file", &self.registration_cert_file),
            ("--registration-key-file", &self.registration_key_file),
        ];
        let files = files.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?)));
        let authorities = self.registration_ca_cert_files.iter().map(|path| (AUTHORITIES, path));
        for (flag, path) in files.chain(authorities) {
            check.wrong(
                flag,
                &path.to_string_lossy(),
                "there is no registration without --registration-address",
            );
        }
        if let Some(store) = &self.registration_store {
            check.wrong(STORE, store, "there is no registration without --registration-address");
        }
    }

    fn liveness(&self, check: &mut Check) -> LivenessSettings {
        let mut liveness = LivenessSettings::default();
        let remove_after = self.registration_remove_after.as_deref();
        liveness.remove_after = check.parse("--registration-remove-after", remove_after, parse::duration);
        let preservation = self.registration_preservation.as_deref();
        let preservation = check.parse("--registration-preservation", preservation, |text| match text {
            "off" => Ok(None),
            _ => parse::duration(text).map(Some),
        });
        match preservation {
            Some(None | Some(Duration::ZERO)) => liveness.preservation = false,
            Some(Some(time)) => liveness.preservation_time = time,
            None => {}
        }
        liveness
    }

    fn store(&self, keeps_other: bool, check: &mut Check) -> Option<StoreSettings> {
        let text = self.registration_store.as_deref().unwrap_or("file");
        if let Some(address) = text.strip_prefix("etcd=") {
            if let Some(folder) = self.data_dir.as_ref().filter(|_| !keeps_other) {
                check.wrong(
                    "--data-dir",
                    &folder.to_string_lossy(),
                    "registrations are kept in etcd, and nothing else is kept",
                );
            }
            let parse = |address: &str| EtcdStoreSettings::parse(address).map_err(|error| error.to_string());
            check.parse(STORE, Some(address), parse)?;
            return Some(StoreSettings::Etcd(address.to_owned()));
        }
        if text != "file" {
            check.wrong(STORE, text, "neither file nor etcd=http://HOST:2379");
            return None;
        }
        let folder = self.data_folder();
        if folder.is_none() {
            check.mistake(
                "--data-dir: name a folder for registrations; there is no home folder to put them in",
            );
        }
        folder.map(StoreSettings::File)
    }

    fn tls(&self, check: &mut Check) -> Option<RegistrationTls> {
        let authorities = &self.registration_ca_cert_files;
        let certificate = ("--registration-cert-file", self.registration_cert_file.as_deref());
        let key = ("--registration-key-file", self.registration_key_file.as_deref());
        let named = [certificate, key].into_iter().filter_map(|(flag, path)| Some((flag, path?)));
        for (flag, path) in named.chain(authorities.iter().map(|path| (AUTHORITIES, path.as_path()))) {
            check.exists(flag, path);
        }
        let Some(certificate) = check.certificate(certificate, key).ok()? else {
            for path in authorities {
                let hint = "there is no TLS without --registration-cert-file and --registration-key-file";
                check.wrong(AUTHORITIES, &path.to_string_lossy(), hint);
            }
            return None;
        };
        Some(RegistrationTls { certificate, authorities: authorities.clone() })
    }
}

/// The folder where a service manager, or the desktop's rules, want state to be.
fn default_folder(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<PathBuf> {
    let path = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // systemd names several folders with colons between them; the first one is ours.
    let of_manager = variable("STATE_DIRECTORY").and_then(|all| {
        let text = all.into_string().ok()?;
        text.split(':').next().filter(|first| !first.is_empty()).map(PathBuf::from)
    });
    let of_user =
        || path("XDG_STATE_HOME").filter(|path| path.is_absolute()).map(|state| state.join("pilotfish"));
    let of_home = || path("HOME").map(|home| home.join(Path::new(".local/state/pilotfish")));
    of_manager.or_else(of_user).or_else(of_home)
}

#[cfg(test)]
mod tests {
    use super::super::ServeArgs;
    use super::*;
    use pilotfish_registry::RegistryTable;

    fn given(address: &str) -> RegistrationArgs {
        RegistrationArgs {
            registration_address: Some(address.into()),
            data_dir: Some("data".into()),
            ..RegistrationArgs::default()
        }
    }

    fn check(registration: RegistrationArgs) -> Result<Option<RegistrationSettings>, String> {
        let args = ServeArgs { registration, ..ServeArgs::default() };
        args.check(RegistryTable::default())
            .map(|all| all.registration)
            .map_err(|mistakes| mistakes.to_string())
    }

    #[test]
    fn an_address_is_all_that_is_needed() {
        let settings = check(given("127.0.0.1:0")).unwrap().unwrap();
        assert_eq!((settings.store, settings.tls), (StoreSettings::File("data".into()), None));
        assert_eq!(settings.liveness, LivenessSettings::default());
    }

    #[test]
    fn other_machines_need_tls_or_a_word() {
        let error = check(given("0.0.0.0:0")).unwrap_err();
        assert!(error.contains("plaintext: name --registration-cert-file"), "{error}");
        assert!(check(RegistrationArgs { registration_plaintext: true, ..given("0.0.0.0:0") }).is_ok());
        let file = || Some(PathBuf::from("Cargo.toml"));
        let secure = RegistrationArgs {
            registration_cert_file: file(),
            registration_key_file: file(),
            registration_ca_cert_files: file().into_iter().collect(),
            ..given("0.0.0.0:0")
        };
        assert_eq!(check(secure).unwrap().unwrap().tls.unwrap().authorities, [PathBuf::from("Cargo.toml")]);
    }

    #[test]
    fn mistakes_are_named() {
        let file = || Some(PathBuf::from("Cargo.toml"));
        let none = RegistrationArgs::default;
        let on = || given("127.0.0.1:0");
        for (args, expected) in [
            (given("nowhere"), "--registration-address"),
            (RegistrationArgs { registration_cert_file: file(), ..on() }, "it needs --registration-key-file"),
            (RegistrationArgs { registration_key_file: file(), ..on() }, "it needs --registration-cert-file"),
            (
                RegistrationArgs { registration_ca_cert_files: file().into_iter().collect(), ..on() },
                "there is no TLS",
            ),
            (
                RegistrationArgs { registration_store: Some("zookeeper".into()), ..on() },
                "neither file nor etcd=",
            ),
            (
                RegistrationArgs { registration_store: Some("etcd=http://a:1".into()), ..on() },
                "--data-dir \"data\"",
            ),
            (
                RegistrationArgs { registration_remove_after: Some("soon".into()), ..on() },
                "--registration-remove-after",
            ),
            (
                RegistrationArgs { registration_preservation: Some("never".into()), ..on() },
                "--registration-preservation",
            ),
            (RegistrationArgs { registration_rules: Some("gone.yaml".into()), ..on() }, "gone.yaml"),
            (RegistrationArgs { registration_rules: file(), ..none() }, "no registration without"),
            (
                RegistrationArgs { registration_store: Some("file".into()), ..none() },
                "no registration without",
            ),
        ] {
            let error = check(args).unwrap_err();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }

    #[test]
    fn leases_have_settings() {
        let liveness = |remove_after: &str, preservation: &str| {
            let args = RegistrationArgs {
                registration_remove_after: Some(remove_after.into()),
                registration_preservation: Some(preservation.into()),
                ..given("127.0.0.1:0")
            };
            check(args).unwrap().unwrap().liveness
        };
        let settings = liveness("1m", "off");
        assert_eq!((settings.remove_after, settings.preservation), (Some(Duration::from_secs(60)), false));
        let settings = liveness("1m", "5m");
        assert_eq!((settings.preservation, settings.preservation_time), (true, Duration::from_secs(300)));
    }

    #[test]
    fn the_folder_is_where_managers_and_desktops_want_it() {
        let folder = |variables: &[(&str, &str)]| {
            default_folder(|name| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| std::ffi::OsString::from(*value))
            })
        };
        let home = ("HOME", "/home/a");
        assert_eq!(folder(&[home]), Some("/home/a/.local/state/pilotfish".into()));
        assert_eq!(folder(&[home, ("XDG_STATE_HOME", "/state")]), Some("/state/pilotfish".into()));
        assert_eq!(
            folder(&[home, ("XDG_STATE_HOME", "relative")]),
            Some("/home/a/.local/state/pilotfish".into())
        );
        assert_eq!(folder(&[home, ("STATE_DIRECTORY", "/var/lib/p:/var/lib/q")]), Some("/var/lib/p".into()));
        assert_eq!(folder(&[("HOME", "")]), None);
    }
}
