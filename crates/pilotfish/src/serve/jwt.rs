//! Issuers of JWTs: their rules, the reading of their keys, and the authenticator of their tokens.

use super::subsystem::{StopOrder, Subsystem};
use crate::settings::Settings;
use anyhow::{Context, Result};
use pilotfish_control_plane::control::Shared;
use pilotfish_control_plane::trust_domain;
use pilotfish_identity::Authenticator;
use pilotfish_jwt::{Issuers, JwtAuthenticator, JwtRules, KeyReader};
use pilotfish_model::SpiffeId;
use pilotfish_runtime::read_regular_text;
use std::sync::Arc;

/// Size limit of the file of rules in bytes.
const FILE_BYTES: u64 = 4 << 20;

/// The authenticator of tokens, if there are issuers, and the subsystem that reads their keys.
type Opened = (Vec<Arc<dyn Authenticator>>, Option<Subsystem>);

/// Returns the authenticator of tokens, and the subsystem that reads keys; neither without issuers.
///
/// # Errors
/// When the file of rules cannot be used.
pub(super) fn open(settings: &Settings, shared: &Arc<Shared>) -> Result<Opened> {
    let Some(path) = &settings.jwt_rules else { return Ok((Vec::new(), None)) };
    let named = || format!("--jwt-rules {}", path.display());
    let text = read_regular_text(path, FILE_BYTES).with_context(named)?;
    let rules = JwtRules::parse(&text).with_context(named)?;
    let issuers = Arc::new(Issuers::new(rules));
    let reader = KeyReader::new(issuers.clone()).map_err(anyhow::Error::msg).with_context(named)?;
    let shared = shared.clone();
    // Tokens name accounts of the mesh, as those of its API servers do.
    let identity = move |namespace: &str, account: &str| {
        SpiffeId::new(&trust_domain(&shared.world()), namespace, account).to_string()
    };
    let reading = Subsystem::new("keys of issuers of tokens", StopOrder::Abort).task(|_| async {
        reader.run().await;
        Ok(())
    });
    Ok((vec![Arc::new(JwtAuthenticator::new(issuers, identity))], Some(reading)))
}
