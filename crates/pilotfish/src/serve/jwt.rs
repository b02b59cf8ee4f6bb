//! Issuers of JWTs: their rules, the reading of rules and keys, and the authenticator of their tokens.

use super::polled_files::{Outcome, POLL_INTERVAL, PolledFiles};
use super::subsystem::{StopOrder, Subsystem};
use crate::settings::Settings;
use anyhow::{Context, Result};
use pilotfish_admin::{IntGauge, Metrics};
use pilotfish_control_plane::control::Shared;
use pilotfish_control_plane::trust_domain;
use pilotfish_identity::Authenticator;
use pilotfish_jwt::{Issuers, JwtAuthenticator, JwtRules, KeyReader};
use pilotfish_model::SpiffeId;
use pilotfish_runtime::{FileReader, read_regular_text};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Size limit of the file of rules in bytes.
const FILE_BYTES: u64 = 4 << 20;

/// The authenticator of tokens, if there are issuers, and the subsystem that reads rules and keys.
type Opened = (Vec<Arc<dyn Authenticator>>, Option<Subsystem>);

/// Returns the authenticator of tokens, and the subsystem that reads rules and keys; neither without a file.
///
/// # Errors
/// When the file of rules cannot be used.
pub(super) fn open(settings: &Settings, shared: &Arc<Shared>, metrics: &Metrics) -> Result<Opened> {
    let Some(path) = &settings.jwt_rules else { return Ok((Vec::new(), None)) };
    let text = read(path)?;
    let issuers = Arc::new(Issuers::new(parse(path, &text)?));
    let reader = KeyReader::new(issuers.clone()).map_err(anyhow::Error::msg).with_context(|| named(path))?;
    let shared = shared.clone();
    // Tokens name accounts of the mesh, as those of its API servers do.
    let identity = move |namespace: &str, account: &str| {
        SpiffeId::new(&trust_domain(&shared.world()), namespace, account).to_string()
    };
    let refused = metrics.jwt_rules_refused.clone();
    let reload =
        Reload { path: path.clone(), state: PolledFiles::new(text), issuers: issuers.clone(), refused };
    let reading = Subsystem::new("issuers of tokens", StopOrder::Abort)
        .task(|_| async {
            reader.run().await;
            Ok(())
        })
        .task(|_| async {
            reload.run().await;
            Ok(())
        });
    Ok((vec![Arc::new(JwtAuthenticator::new(issuers, identity))], Some(reading)))
}

fn named(path: &Path) -> String {
    format!("--jwt-rules {}", path.display())
}

fn read(path: &Path) -> Result<String> {
    read_regular_text(path, FILE_BYTES).with_context(|| named(path))
}

fn parse(path: &Path, text: &str) -> Result<JwtRules> {
    JwtRules::parse(text).with_context(|| named(path))
}

/// Reloading of the file of rules.
struct Reload {
    path: PathBuf,
    state: PolledFiles<String>,
    issuers: Arc<Issuers>,
    /// 1 while the file cannot be used.
    refused: IntGauge,
}

impl Reload {
    /// Polls the file, and puts valid rules in force. Does not return.
    async fn run(mut self) {
        let reader = FileReader::default();
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let path = self.path.clone();
            let read = reader.run(move || read(&path)).await;
            self.step(read.unwrap_or_else(|error| Err(anyhow::anyhow!("reading files: {error}"))));
        }
    }

    fn step(&mut self, read: Result<String>) {
        let (path, issuers) = (&self.path, &self.issuers);
        let outcome = self.state.step(read.map_err(|error| format!("{error:#}")), |text| {
            let rules = parse(path, text)?;
            issuers.replace(rules).map_err(anyhow::Error::msg).with_context(|| named(path))
        });
        match outcome {
            Outcome::Unchanged => {}
            Outcome::Reloaded => tracing::info!("new rules for issuers of tokens are in force"),
            Outcome::Failed(reason) => tracing::error!(
                reason,
                "the rules for issuers of tokens cannot be used; those before stay in force"
            ),
        }
        self.refused.set(i64::from(self.state.is_failing()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_jwt::Refused;
    use std::time::SystemTime;

    #[test]
    fn last_good_rules_stay_in_force() {
        let rules =
            |issuer: &str| format!("jwtRules: [{{issuer: {issuer}, audiences: [a], jwksFile: k.json}}]");
        let path = PathBuf::from("issuers.yaml");
        let issuers = Arc::new(Issuers::new(parse(&path, &rules("a")).unwrap()));
        let metrics = Metrics::new("1").unwrap();
        let (state, refused) = (PolledFiles::new(rules("a")), metrics.jwt_rules_refused.clone());
        let mut reload = Reload { path, state, issuers: issuers.clone(), refused };
        // {"alg":"EdDSA","kid":"a"}, and {"iss":"a","exp":1} or {"iss":"b","exp":1}.
        let tokens = ["eyJpc3MiOiJhIiwiZXhwIjoxfQ", "eyJpc3MiOiJiIiwiZXhwIjoxfQ"]
            .map(|claims| format!("eyJhbGciOiJFZERTQSIsImtpZCI6ImEifQ.{claims}.AAAA"));
        let known = || {
            let known =
                |token: &String| !matches!(issuers.verify(token, SystemTime::now()), Err(Refused::Issuer(_)));
            [known(&tokens[0]), known(&tokens[1])]
        };
        for (read, is_failing, expected) in [
            (Ok(rules("a")), 0, [true, false]),
            (Err("gone"), 0, [true, false]),
            (Err("gone"), 1, [true, false]),
            (Ok("jwtRules: [{issuer: b}]".to_owned()), 1, [true, false]),
            (Ok(rules("b").replace("jwksFile: k.json", "jwksUri: ftp://a")), 1, [true, false]),
            (Ok(rules("b")), 0, [false, true]),
        ] {
            reload.step(read.clone().map_err(anyhow::Error::msg));
            assert_eq!((reload.refused.get(), known()), (is_failing, expected), "{read:?}");
        }
    }
}
