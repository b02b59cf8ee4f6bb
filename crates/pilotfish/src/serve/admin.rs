//! Listeners of the admin API, and roles of its clients by files that are reloaded on change.

use super::ca::Ca;
use super::polled_files::{Outcome, POLL_INTERVAL, PolledFiles};
use super::sources::Sources;
use super::subsystem::{StopOrder, Subsystem, with_flag};
use super::tls::{self, Files};
use crate::settings::{AdminSettings, CertificateSource, Settings};
use anyhow::{Context, Result};
use pilotfish_access::NamedTokens;
use pilotfish_admin::{Access, Bound, IntGauge, Metrics, Permissions, RoleRules, RoleTable, Roles};
use pilotfish_control_plane::control::Shared;
use pilotfish_identity::{Authenticator, ServerCertificate};
use pilotfish_runtime::{FileReader, read_regular_text};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Size limit of a file of tokens or rules in bytes.
const FILE_BYTES: u64 = 4 << 20;

/// Bound listeners of the admin API.
pub(super) struct AdminListeners {
    plain: Bound,
    secure: Option<Bound>,
}

impl AdminListeners {
    /// Binds the addresses.
    ///
    /// # Errors
    /// When one is taken.
    pub(super) async fn bind(settings: &AdminSettings) -> Result<Self> {
        let plain = bind(settings.address, "--admin-address").await?;
        let secure = match &settings.secure {
            Some(secure) => Some(bind(secure.address, "--secure-admin-address").await?),
            None => None,
        };
        Ok(Self { plain, secure })
    }

    /// Returns the bound addresses: without and with TLS.
    pub(super) fn addresses(&self) -> (SocketAddr, Option<SocketAddr>) {
        (self.plain.address(), self.secure.as_ref().map(Bound::address))
    }

    /// Returns the subsystems that serve the pages, and the one that reloads certificates.
    ///
    /// # Errors
    /// When the certificates cannot be used.
    pub(super) fn subsystems(
        self,
        settings: &AdminSettings,
        ca: Option<&Arc<Ca>>,
        metrics: &Arc<Metrics>,
        pages: &axum::Router,
    ) -> Result<Vec<Subsystem>> {
        let mut all = vec![server("the admin server", self.plain.with_metrics(metrics.clone()), pages)];
        let Some((bound, own)) = self.secure.zip(settings.secure.as_ref()) else { return Ok(all) };
        let kept = match &own.certificate {
            CertificateSource::Authority => {
                let own = ca.and_then(|ca| ca.serving());
                let own = own.context("--secure-admin-address: no certificate of an authority")?;
                Some(ServerCertificate::resolved_by(own))
            }
            CertificateSource::Files { .. } | CertificateSource::Webhooks => None,
        };
        let files = Files::of(&own.certificate, &own.authorities).with_authority(ca.cloned());
        let refused = metrics.admin_tls_files_refused.clone();
        let (tls, reload) = tls::of_files("the admin API", files, kept, pilotfish_admin::ALPN, refused)?;
        let bound = bound.with_tls(tls).with_metrics(metrics.clone());
        all.push(server("the admin server with TLS", bound, pages));
        all.push(reload.subsystem());
        Ok(all)
    }
}

async fn bind(address: SocketAddr, flag: &str) -> Result<Bound> {
    Bound::bind(address).await.map_err(|error| with_flag(error, flag))
}

fn server(name: &'static str, bound: Bound, pages: &axum::Router) -> Subsystem {
    let pages = pages.clone();
    Subsystem::new(name, StopOrder::First).task(|stop| async {
        bound.run(pages, stop.requested()).await;
        Ok(())
    })
}

/// Returns the permissions of clients, and the subsystem that reloads tokens and rules.
///
/// # Errors
/// When a file cannot be used.
pub(super) fn permissions(
    settings: &Settings,
    sources: &Sources,
    shared: &Arc<Shared>,
    metrics: &Arc<Metrics>,
    jwt: Vec<Arc<dyn Authenticator>>,
) -> Result<(Permissions, Option<Subsystem>)> {
    let own = &settings.admin;
    let access = if own.allow_remote_debug { Access::Everybody } else { Access::ThisMachine };
    let files = RoleFiles { tokens: own.tokens.clone(), rules: own.rules.clone() };
    if files.rules.is_none() {
        return Ok((access.into(), None));
    }
    let texts = files.read()?;
    let roles = Arc::new(Roles::new(files.table(&texts)?));
    let others = jwt.into_iter().chain(accounts(settings, sources, shared)).collect();
    let permissions = Permissions::with_roles(access, roles.clone(), others);
    let reload = Reload {
        files,
        state: PolledFiles::new(texts),
        roles,
        refused: metrics.admin_access_refused.clone(),
    };
    let reload = Subsystem::new("reloading roles of the admin API", StopOrder::Abort).task(|_| async {
        reload.run().await;
        Ok(())
    });
    Ok((permissions, Some(reload)))
}

/// Returns the authenticator of service accounts, if their tokens are accepted.
fn accounts(settings: &Settings, sources: &Sources, shared: &Arc<Shared>) -> Option<Arc<dyn Authenticator>> {
    let audiences = settings.admin.token_audiences.clone();
    if audiences.is_empty() {
        return None;
    }
    tls::own_accounts(audiences, settings, sources, shared)
}

/// Files of tokens and rules.
#[derive(Clone)]
struct RoleFiles {
    tokens: Option<PathBuf>,
    rules: Option<PathBuf>,
}

/// Contents of the files. Without `Debug`, because they include tokens.
#[derive(PartialEq, Eq)]
struct Texts {
    tokens: Option<String>,
    rules: Option<String>,
}

impl RoleFiles {
    fn read(&self) -> Result<Texts> {
        let read = |path: &Option<PathBuf>| {
            let text =
                |path: &Path| read_regular_text(path, FILE_BYTES).with_context(|| path.display().to_string());
            path.as_deref().map(text).transpose()
        };
        Ok(Texts { tokens: read(&self.tokens)?, rules: read(&self.rules)? })
    }

    fn table(&self, texts: &Texts) -> Result<RoleTable> {
        let tokens = parsed(self.tokens.as_deref(), texts.tokens.as_deref(), NamedTokens::parse)?;
        let rules = parsed(self.rules.as_deref(), texts.rules.as_deref(), RoleRules::parse)?;
        Ok(RoleTable::new(tokens, rules))
    }
}

/// Parses a text, and names its file in the error; the default without a file.
fn parsed<T: Default>(
    path: Option<&Path>,
    text: Option<&str>,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T> {
    let Some((path, text)) = path.zip(text) else { return Ok(T::default()) };
    parse(text).map_err(anyhow::Error::msg).with_context(|| path.display().to_string())
}

/// Reloading of tokens and rules.
struct Reload {
    files: RoleFiles,
    state: PolledFiles<Texts>,
    roles: Arc<Roles>,
    /// 1 while the files cannot be used.
    refused: IntGauge,
}

impl Reload {
    /// Polls the files, and puts valid contents in force. Does not return.
    async fn run(mut self) {
        let reader = FileReader::default();
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let files = self.files.clone();
            let read = reader.run(move || files.read()).await;
            self.step(read.unwrap_or_else(|error| Err(anyhow::anyhow!("reading files: {error}"))));
        }
    }

    fn step(&mut self, read: Result<Texts>) {
        let (files, roles) = (&self.files, &self.roles);
        let outcome = self.state.step(read.map_err(|error| format!("{error:#}")), |texts| {
            roles.replace(files.table(texts)?);
            Ok(())
        });
        match outcome {
            Outcome::Unchanged => {}
            Outcome::Reloaded => tracing::info!("new tokens and rules of the admin API are in force"),
            Outcome::Failed(reason) => tracing::error!(
                reason,
                "tokens and rules of the admin API cannot be used; those before stay in force"
            ),
        }
        self.refused.set(i64::from(self.state.is_failing()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = "rules: [{identities: [token/a], role: viewer}]";
    const TOKENS: &str = "tokens: [{name: a, token: planted-0123456789}]";

    #[test]
    fn files_that_cannot_be_used_are_named_without_their_tokens() {
        let files = RoleFiles { tokens: Some("t.yaml".into()), rules: Some("r.yaml".into()) };
        let table = |tokens: &str, rules: &str| {
            let texts = Texts { tokens: Some(tokens.into()), rules: Some(rules.into()) };
            files.table(&texts).map(drop).map_err(|error| format!("{error:#}"))
        };
        assert_eq!(table(TOKENS, RULES), Ok(()));
        let error = table("tokens: [{name: a, token: planted}]", RULES).unwrap_err();
        assert!(error.starts_with("t.yaml: tokens[0]: ") && !error.contains("planted"), "{error}");
        let error = table(TOKENS, "rules: [{identities: [a], role: viewer}]").unwrap_err();
        assert!(error.starts_with("r.yaml: rules[0]: "), "{error}");
    }

    #[test]
    fn last_good_roles_stay_in_force() {
        let texts = |rules: &str| Texts { tokens: Some(TOKENS.into()), rules: Some(rules.into()) };
        let files = RoleFiles { tokens: Some("t.yaml".into()), rules: Some("r.yaml".into()) };
        let roles = Arc::new(Roles::new(files.table(&texts(RULES)).unwrap()));
        let metrics = Metrics::new("1").unwrap();
        let refused = metrics.admin_access_refused.clone();
        let state = PolledFiles::new(texts(RULES));
        let mut reload = Reload { files, state, roles, refused: refused.clone() };
        for (read, is_refused) in [
            (Ok(texts("rules: []")), 0),
            (Ok(texts("rules: [")), 0),
            // Reported if it lasts until the next poll.
            (Ok(texts("rules: [")), 1),
            (Err(anyhow::anyhow!("gone")), 1),
            (Ok(texts("rules: []")), 0),
        ] {
            reload.step(read);
            assert_eq!(refused.get(), is_refused);
        }
    }
}
