//! Kubeconfigs of remote clusters. The right to write a Secret with a kubeconfig must not imply the right to
//! run programs on this machine or to read its files.

use kube::config::{AuthInfo, Cluster, Kubeconfig};
use std::collections::BTreeSet;

/// Names of the kubeconfig options that can be allowed. They are Istio's names, where Istio restricts the
/// option; it always allows `oidc`, `http` and `proxyURL`.
const OPTIONS: &[&str] = &[
    "exec",
    "clientKey",
    "clientCertificate",
    "tokenFile",
    "certificateAuthority",
    "insecureSkipTLSVerify",
    "gcp",
    "azure",
    "openstack",
    "oidc",
    "http",
    "proxyURL",
];

/// Dangerous options that are allowed in kubeconfigs. None by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InsecureOptions(BTreeSet<String>);

/// Name of an option that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", pilotfish_config::unknown_name("option", .0, OPTIONS, "pilotfish serve --help"))]
pub struct UnknownOption(pub String);

impl InsecureOptions {
    /// Parses names of options.
    ///
    /// # Errors
    /// When there is no option of a name.
    pub fn of<S: AsRef<str>>(names: &[S]) -> Result<Self, UnknownOption> {
        let mut options = BTreeSet::new();
        for name in names.iter().map(|name| name.as_ref().trim()).filter(|name| !name.is_empty()) {
            if !OPTIONS.contains(&name) {
                return Err(UnknownOption(name.to_owned()));
            }
            options.insert(name.to_owned());
        }
        Ok(Self(options))
    }

    fn allow(&self, option: &str) -> bool {
        self.0.contains(option)
    }
}

/// Reason why a kubeconfig is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeconfigError {
    /// The file cannot be read.
    #[error("the kubeconfig cannot be read: {0}")]
    Unreadable(String),
    #[error("the kubeconfig is empty")]
    Empty,
    #[error("the kubeconfig is not text in UTF-8")]
    NotText,
    /// The text is not a kubeconfig.
    #[error("not a kubeconfig: {0}")]
    NotAKubeconfig(String),
    /// An entry is missing to which another one refers.
    #[error("the kubeconfig has no {what} {name:?}")]
    Missing {
        /// Type of the missing entry.
        what: &'static str,
        /// Name of the missing entry.
        name: String,
    },
    /// The kubeconfig uses a dangerous option that is not allowed.
    #[error("{what} is not allowed in the kubeconfig of a remote cluster")]
    Insecure {
        /// Field, and the user or cluster that has it.
        what: String,
        /// Name of the option that allows the field.
        option: String,
    },
}

impl KubeconfigError {
    /// Returns advice for correcting the kubeconfig, if there is any.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Insecure { option, .. } if OPTIONS.contains(&&**option) => Some(format!(
                "--insecure-kubeconfig-options {option} allows it; better is a token or a certificate in the \
                 kubeconfig itself"
            )),
            _ => None,
        }
    }
}

/// Parses a kubeconfig and refuses dangerous options that are not allowed.
///
/// # Errors
/// When the kubeconfig is incomplete, unreadable or not allowed.
pub(super) fn read(bytes: &[u8], allowed: &InsecureOptions) -> Result<Kubeconfig, KubeconfigError> {
    let text = std::str::from_utf8(bytes).map_err(|_| KubeconfigError::NotText)?;
    if text.trim().is_empty() {
        return Err(KubeconfigError::Empty);
    }
    let config =
        Kubeconfig::from_yaml(text).map_err(|error| KubeconfigError::NotAKubeconfig(first_line(&error)))?;
    is_complete(&config)?;
    for named in &config.auth_infos {
        if let Some(user) = &named.auth_info {
            check_user(&named.name, user, allowed)?;
        }
    }
    for named in &config.clusters {
        if let Some(cluster) = &named.cluster {
            check_cluster(&named.name, cluster, allowed)?;
        }
    }
    Ok(config)
}

/// Checks a kubeconfig of a remote cluster without connecting to it.
///
/// # Errors
/// When the kubeconfig is incomplete, unreadable or not allowed.
pub fn check_kubeconfig(bytes: &[u8], allowed: &InsecureOptions) -> Result<(), KubeconfigError> {
    read(bytes, allowed).map(drop)
}

/// Returns the first line of a parser's message. Further lines would show the text around the mistake, which
/// is secret.
fn first_line(error: &kube::config::KubeconfigError) -> String {
    let text = match std::error::Error::source(error) {
        Some(cause) => cause.to_string(),
        None => error.to_string(),
    };
    text.lines().next().unwrap_or_default().to_owned()
}

/// Checks that the current context, its cluster and the cluster's server exist.
fn is_complete(config: &Kubeconfig) -> Result<(), KubeconfigError> {
    let missing = |what, name: &str| KubeconfigError::Missing { what, name: name.to_owned() };
    let name = config.current_context.as_deref().unwrap_or_default();
    let context = config.contexts.iter().find(|context| context.name == name);
    let context =
        context.and_then(|named| named.context.as_ref()).ok_or_else(|| missing("current context", name))?;
    let cluster = config.clusters.iter().find(|cluster| cluster.name == context.cluster);
    let cluster = cluster
        .and_then(|named| named.cluster.as_ref())
        .ok_or_else(|| missing("cluster", &context.cluster))?;
    if cluster.server.as_deref().is_none_or(str::is_empty) {
        return Err(missing("server for cluster", &context.cluster));
    }
    Ok(())
}

fn check_user(name: &str, user: &AuthInfo, allowed: &InsecureOptions) -> Result<(), KubeconfigError> {
    let refuse = |is: bool, field: &str, option: &str| match is && !allowed.allow(option) {
        true => Err(KubeconfigError::Insecure {
            what: format!("{field} of user {name:?}"),
            option: option.to_owned(),
        }),
        false => Ok(()),
    };
    let is_set = |file: &Option<String>| file.as_deref().is_some_and(|file| !file.is_empty());
    if let Some(provider) = &user.auth_provider {
        refuse(true, &format!("auth-provider {:?}", provider.name), &provider.name)?;
    }
    refuse(user.exec.is_some(), "exec", "exec")?;
    refuse(is_set(&user.client_key), "client-key (a file)", "clientKey")?;
    refuse(is_set(&user.client_certificate), "client-certificate (a file)", "clientCertificate")?;
    refuse(is_set(&user.token_file), "tokenFile", "tokenFile")
}

fn check_cluster(name: &str, cluster: &Cluster, allowed: &InsecureOptions) -> Result<(), KubeconfigError> {
    let refuse = |is: bool, field: &str, option: &str| match is && !allowed.allow(option) {
        true => Err(KubeconfigError::Insecure {
            what: format!("{field} of cluster {name:?}"),
            option: option.to_owned(),
        }),
        false => Ok(()),
    };
    // Without TLS, the token could be read on the network.
    let scheme = cluster.server.as_deref().and_then(|server| server.split_once("://"));
    let is_https = scheme.is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("https"));
    refuse(!is_https && cluster.server.is_some(), "a server without https", "http")?;
    let proxy = cluster.proxy_url.as_deref().is_some_and(|proxy| !proxy.is_empty());
    refuse(proxy, "proxy-url", "proxyURL")?;
    let authority = cluster.certificate_authority.as_deref().is_some_and(|file| !file.is_empty());
    refuse(authority, "certificate-authority (a file)", "certificateAuthority")?;
    let unverified = cluster.insecure_skip_tls_verify == Some(true);
    refuse(unverified, "insecure-skip-tls-verify", "insecureSkipTLSVerify")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails this way")]
mod tests {
    use super::*;

    fn config(cluster: &str, user: &str) -> String {
        format!(
            "{{current-context: c, contexts: [{{name: c, context: {{cluster: k, user: u}}}}], \
             clusters: [{{name: k, cluster: {{{cluster}}}}}], users: [{{name: u, user: {{{user}}}}}]}}"
        )
    }

    #[test]
    fn what_is_dangerous_is_refused_unless_allowed() {
        let server = "server: 'https://c'";
        let cases = [
            ("server: 'http://c'", "token: t", "http", "a server without https of cluster \"k\""),
            ("server: 'HTTP://c'", "token: t", "http", "a server without https of cluster \"k\""),
            ("server: 'c:6443'", "token: t", "http", "a server without https of cluster \"k\""),
            (
                "server: 'https://c', proxy-url: 'http://p'",
                "token: t",
                "proxyURL",
                "proxy-url of cluster \"k\"",
            ),
            (server, "auth-provider: {name: oidc}", "oidc", "auth-provider \"oidc\" of user \"u\""),
            (server, "auth-provider: {name: azure}", "azure", "auth-provider \"azure\" of user \"u\""),
            (server, "exec: {command: aws}", "exec", "exec of user \"u\""),
            (server, "client-key: /k", "clientKey", "client-key (a file) of user \"u\""),
            (
                server,
                "client-certificate: /c",
                "clientCertificate",
                "client-certificate (a file) of user \"u\"",
            ),
            (server, "tokenFile: /t", "tokenFile", "tokenFile of user \"u\""),
            (server, "auth-provider: {name: gcp}", "gcp", "auth-provider \"gcp\" of user \"u\""),
            (
                "server: 'https://c', certificate-authority: /a",
                "token: t",
                "certificateAuthority",
                "certificate-authority (a file) of cluster \"k\"",
            ),
            (
                "server: 'https://c', insecure-skip-tls-verify: true",
                "token: t",
                "insecureSkipTLSVerify",
                "insecure-skip-tls-verify of cluster \"k\"",
            ),
        ];
        for (cluster, user, option, what) in cases {
            let text = config(cluster, user);
            let refused = read(text.as_bytes(), &InsecureOptions::default()).unwrap_err();
            assert_eq!(
                refused.to_string(),
                format!("{what} is not allowed in the kubeconfig of a remote cluster")
            );
            assert!(refused.hint().unwrap().contains(&format!("--insecure-kubeconfig-options {option} ")));
            let others: Vec<&str> = OPTIONS.iter().copied().filter(|other| *other != option).collect();
            assert!(read(text.as_bytes(), &InsecureOptions::of(&others).unwrap()).is_err(), "{option}");
            assert!(read(text.as_bytes(), &InsecureOptions::of(&[option]).unwrap()).is_ok(), "{option}");
        }
    }

    #[test]
    fn what_is_unused_is_refused_as_well_and_unknown_providers_cannot_be_allowed() {
        let all = InsecureOptions::of(OPTIONS).unwrap();
        let text = config("server: 'https://c'", "auth-provider: {name: mine}");
        let refused = read(text.as_bytes(), &all).unwrap_err();
        assert!(refused.hint().is_none() && refused.to_string().starts_with("auth-provider \"mine\""));
        let other = text.replace(
            "clusters: [",
            "clusters: [{name: other, cluster: {server: 'http://169.254.169.254'}}, ",
        );
        let refused = read(other.as_bytes(), &InsecureOptions::default()).unwrap_err();
        assert!(refused.to_string().starts_with("auth-provider"), "{refused}");
        let other = other.replace("auth-provider: {name: mine}", "token: t");
        let refused = read(other.as_bytes(), &InsecureOptions::default()).unwrap_err();
        assert!(refused.to_string().starts_with("a server without https of cluster \"other\""), "{refused}");
    }

    #[test]
    fn tokens_and_certificates_in_the_text_are_fine() {
        for user in [
            "token: t",
            "client-certificate-data: YQ==, client-key-data: YQ==",
            "username: a, password: b",
            "",
        ] {
            let text = config("server: 'https://c', certificate-authority-data: YQ==", user);
            assert!(read(text.as_bytes(), &InsecureOptions::default()).is_ok(), "{user}");
        }
    }

    #[test]
    fn errors_of_a_broken_kubeconfig() {
        let error = |bytes: &[u8]| read(bytes, &InsecureOptions::default()).unwrap_err().to_string();
        assert_eq!(error(b" \n"), "the kubeconfig is empty");
        assert_eq!(error(&[0xff]), "the kubeconfig is not text in UTF-8");
        assert!(error(b"clusters: 7").starts_with("not a kubeconfig: "));
        assert_eq!(error(b"{}"), "the kubeconfig has no current context \"\"");
        assert_eq!(
            error(b"{current-context: c, contexts: [{name: c, context: {cluster: k}}]}"),
            "the kubeconfig has no cluster \"k\""
        );
        assert_eq!(
            error(config("", "token: t").as_bytes()),
            "the kubeconfig has no server for cluster \"k\""
        );
        assert_eq!(
            InsecureOptions::of(&["exec", "exce"]).unwrap_err().to_string(),
            "there is no option \"exce\" (did you mean \"exec\"?)"
        );
    }

    #[test]
    fn a_mistake_in_the_text_shows_nothing_of_it() {
        let error = |text: &str| read(text.as_bytes(), &InsecureOptions::default()).unwrap_err().to_string();
        for text in [
            "verysecret",
            "users: verysecret",
            "users: [verysecret]",
            "users: [{name: u, user: {token: [verysecret]}}]",
            "users: [{name: u, user: {token: verysecret, token: b}}]",
            "clusters: [{name: k, cluster: {insecure-skip-tls-verify: verysecret}}]",
            "a: b: verysecret",
            "token: *verysecret",
        ] {
            assert!(!error(text).contains("verysecret"), "{}", error(text));
        }
    }
}
