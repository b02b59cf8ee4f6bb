//! Listener for operators: health, metrics and debug pages.

use super::check::Check;
use super::{CertificateSource, parse};
use clap::Args;
use pilotfish_control_plane::history::DEFAULT_BYTES;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[command(next_help_heading = "Admin")]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct AdminArgs {
    /// Listen address of health, metrics and debug pages [default: 127.0.0.1:15014]
    #[arg(long, env = "PILOTFISH_ADMIN_ADDRESS", value_name = "HOST:PORT")]
    pub(crate) admin_address: Option<String>,
    /// Shows the debug pages to other machines as well: they hold the configuration of all namespaces. By
    /// default, other machines get health and metrics only
    #[arg(long, env = "PILOTFISH_ALLOW_REMOTE_DEBUG")]
    pub(crate) allow_remote_debug: bool,
    /// Roles on the admin API (viewer, operator, admin) for tokens, SPIFFE IDs and loopback (YAML); reloaded
    /// on change. By default, this machine is an operator, and nobody else has a role
    #[arg(long, env = "PILOTFISH_ADMIN_RULES", value_name = "FILE")]
    pub(crate) admin_rules: Option<PathBuf>,
    /// Tokens of clients (YAML), in the form of --registration-tokens; reloaded on change
    #[arg(long, env = "PILOTFISH_ADMIN_TOKENS", value_name = "FILE")]
    pub(crate) admin_tokens: Option<PathBuf>,
    /// Accepts tokens of service accounts with one of these audiences; needs --kubernetes [default: none]
    #[arg(
        long = "admin-token-audience",
        env = "PILOTFISH_ADMIN_TOKEN_AUDIENCE",
        value_name = "AUDIENCE",
        value_delimiter = ','
    )]
    pub(crate) admin_token_audiences: Vec<String>,
    /// Listen address of the same with TLS, where clients of other machines show a token or a certificate
    #[arg(long, env = "PILOTFISH_SECURE_ADMIN_ADDRESS", value_name = "HOST:PORT")]
    pub(crate) secure_admin_address: Option<String>,
    /// The certificate of that address, a chain in PEM; reloaded on change [default: one that --ca signs]
    #[arg(long, env = "PILOTFISH_SECURE_ADMIN_CERT_FILE", value_name = "FILE")]
    pub(crate) secure_admin_cert_file: Option<PathBuf>,
    /// Its key in PEM; reloaded on change
    #[arg(long, env = "PILOTFISH_SECURE_ADMIN_KEY_FILE", value_name = "FILE")]
    pub(crate) secure_admin_key_file: Option<PathBuf>,
    /// CAs of clients' certificates in PEM, beside --ca; reloaded on change; may repeat
    #[arg(
        long = "secure-admin-ca-cert-file",
        env = "PILOTFISH_SECURE_ADMIN_CA_CERT_FILE",
        value_name = "FILE",
        value_delimiter = ','
    )]
    pub(crate) secure_admin_ca_cert_files: Vec<PathBuf>,
    /// Memory for earlier versions, for `pilotfish history` and `--at`, in bytes [default: 33554432]
    #[arg(long, env = "PILOTFISH_HISTORY_BYTES", value_name = "N")]
    pub(crate) history_bytes: Option<String>,
}

/// Health, metrics and debug pages.
#[derive(Clone, Debug)]
pub(crate) struct AdminSettings {
    pub(crate) address: SocketAddr,
    /// True if other machines may read debug pages, beside health and metrics.
    pub(crate) allow_remote_debug: bool,
    /// File of rules for roles; without it, only the address of a client counts.
    pub(crate) rules: Option<PathBuf>,
    /// File of tokens.
    pub(crate) tokens: Option<PathBuf>,
    /// Audiences of which tokens of service accounts must have one; empty if none are accepted.
    pub(crate) token_audiences: Vec<String>,
    /// Listener with TLS; `None` if it is not enabled.
    pub(crate) secure: Option<SecureAdminSettings>,
    /// Bytes of earlier versions that are kept.
    pub(crate) history_bytes: usize,
}

/// Listener with TLS.
#[derive(Clone, Debug)]
pub(crate) struct SecureAdminSettings {
    pub(crate) address: SocketAddr,
    pub(crate) certificate: CertificateSource,
    /// Files with the CAs of clients' certificates.
    pub(crate) authorities: Vec<PathBuf>,
}

const RULES: &str = "--admin-rules";
const SECURE: &str = "--secure-admin-address";
const CERTIFICATE: &str = "--secure-admin-cert-file";
const KEY: &str = "--secure-admin-key-file";
const AUTHORITIES: &str = "--secure-admin-ca-cert-file";

impl AdminArgs {
    /// `has_ca`: a certificate authority can sign the certificate of the listener with TLS.
    pub(super) fn check(self, reads_cluster: bool, has_ca: bool, check: &mut Check) -> AdminSettings {
        let address = check.parse("--admin-address", self.admin_address.as_deref(), parse::address);
        let bytes =
            |text: &str| text.parse().map_err(|_| "not a number of bytes; 0 keeps nothing".to_owned());
        let history_bytes = check.parse("--history-bytes", self.history_bytes.as_deref(), bytes);
        self.check_roles(reads_cluster, check);
        let secure = self.secure(has_ca, check);
        AdminSettings {
            address: address.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 15014))),
            allow_remote_debug: self.allow_remote_debug,
            rules: self.admin_rules,
            tokens: self.admin_tokens,
            token_audiences: self.admin_token_audiences,
            secure,
            history_bytes: history_bytes.unwrap_or(DEFAULT_BYTES),
        }
    }

    fn check_roles(&self, reads_cluster: bool, check: &mut Check) {
        let files = [(RULES, &self.admin_rules), ("--admin-tokens", &self.admin_tokens)];
        for (flag, path) in files.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?))) {
            check.exists(flag, path);
        }
        let audiences = self.admin_token_audiences.join(",");
        let named = [
            ("--admin-tokens", self.admin_tokens.as_deref().map(Path::to_string_lossy)),
            ("--admin-token-audience", (!audiences.is_empty()).then_some(audiences.as_str().into())),
        ];
        for (flag, value) in named.into_iter().filter_map(|(flag, value)| Some((flag, value?))) {
            if self.admin_rules.is_none() {
                check.wrong(flag, &value, "nobody has a role without --admin-rules");
            }
        }
        if !audiences.is_empty() && !reads_cluster {
            check.wrong(
                "--admin-token-audience",
                &audiences,
                "it needs --kubernetes, which checks the tokens",
            );
        }
    }

    /// `None` where TLS is not asked for, or something is wrong with it.
    fn secure(&self, has_ca: bool, check: &mut Check) -> Option<SecureAdminSettings> {
        let certificate = (CERTIFICATE, self.secure_admin_cert_file.as_deref());
        let key = (KEY, self.secure_admin_key_file.as_deref());
        let authorities = self.secure_admin_ca_cert_files.iter().map(|path| (AUTHORITIES, path.as_path()));
        let named = [certificate, key].into_iter().filter_map(|(flag, path)| Some((flag, path?)));
        let named: Vec<_> = named.chain(authorities).collect();
        let Some(text) = &self.secure_admin_address else {
            for (flag, path) in named {
                check.wrong(flag, &path.to_string_lossy(), "there is no TLS without --secure-admin-address");
            }
            return None;
        };
        for (flag, path) in named {
            check.exists(flag, path);
        }
        let files = check.certificate(certificate, key).ok()?;
        let certificate = files.or_else(|| has_ca.then_some(CertificateSource::Authority));
        if certificate.is_none() {
            let why = "it needs --secure-admin-cert-file and --secure-admin-key-file, or --ca";
            check.wrong(SECURE, text, why);
        }
        let address = check.parse(SECURE, Some(text), parse::address)?;
        let authorities = self.secure_admin_ca_cert_files.clone();
        Some(SecureAdminSettings { address, certificate: certificate?, authorities })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ServeArgs, SourceArgs};
    use super::*;
    use pilotfish_registry::RegistryTable;

    fn lines(admin: AdminArgs) -> Vec<String> {
        let sources = SourceArgs { paths: vec![".".into()], ..SourceArgs::default() };
        let args = ServeArgs { admin, sources, ..ServeArgs::default() };
        args.check(RegistryTable::default()).map_or_else(|mistakes| mistakes.lines, |_| Vec::new())
    }

    #[test]
    fn roles_and_tls_need_their_parts() {
        let file = || Some(PathBuf::from("Cargo.toml"));
        let none = AdminArgs::default;
        let secure = || AdminArgs {
            secure_admin_address: Some("127.0.0.1:0".into()),
            secure_admin_cert_file: file(),
            secure_admin_key_file: file(),
            ..none()
        };
        for (args, expected) in [
            (AdminArgs { admin_rules: file(), admin_tokens: file(), ..none() }, None),
            (secure(), None),
            (AdminArgs { secure_admin_ca_cert_files: vec!["Cargo.toml".into()], ..secure() }, None),
            (AdminArgs { admin_tokens: file(), ..none() }, Some("nobody has a role without --admin-rules")),
            (AdminArgs { admin_rules: Some("nowhere.yaml".into()), ..none() }, Some("nowhere.yaml")),
            (
                AdminArgs { admin_rules: file(), admin_token_audiences: vec!["a".into()], ..none() },
                Some("it needs --kubernetes"),
            ),
            (AdminArgs { secure_admin_key_file: None, ..secure() }, Some("it needs --secure-admin-key-file")),
            (AdminArgs { secure_admin_cert_file: file(), ..none() }, Some("no TLS without")),
            (AdminArgs { secure_admin_address: Some("127.0.0.1:0".into()), ..none() }, Some("or --ca")),
            (AdminArgs { secure_admin_address: Some("nowhere".into()), ..secure() }, Some("not HOST:PORT")),
        ] {
            let found = lines(args);
            assert_eq!(found.len(), usize::from(expected.is_some()), "{found:?}");
            assert!(found.iter().all(|line| line.contains(expected.unwrap_or_default())), "{found:?}");
        }
    }
}
