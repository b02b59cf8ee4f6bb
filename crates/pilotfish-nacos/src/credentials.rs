//! Logins: a name and a password become a token, which is renewed before it expires.

use crate::api::ApiError;
use crate::http_api::HttpApi;
use pilotfish_registry_client::SecretOption;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The shortest life that a token is taken to have: a server that says less is not asked in a loop.
const SHORTEST: Duration = Duration::from_secs(2);
/// The longest one.
const LONGEST: Duration = Duration::from_secs(86_400);

/// Who Pilotfish is to a server.
#[derive(Clone)]
pub(crate) struct Credentials {
    pub(crate) username: String,
    pub(crate) password: SecretOption,
}

/// What requests show.
#[derive(Clone)]
pub(crate) struct Token {
    pub(crate) text: Arc<str>,
    /// When to get a new one.
    pub(crate) renew_at: Instant,
}

impl Credentials {
    /// Gets a token.
    ///
    /// # Errors
    /// When the password cannot be read, or the server gives no token for it.
    pub(crate) async fn login(&self, http: &HttpApi) -> Result<Token, ApiError> {
        let password = self.password.read().await?.unwrap_or_default();
        let login = http.login(&self.username, &password).await?;
        let life = Duration::from_secs(login.token_ttl);
        Ok(Token { text: login.access_token.into(), renew_at: Instant::now() + until_renewal(life) })
    }
}

/// A tenth of its life is left for attempts that fail.
fn until_renewal(life: Duration) -> Duration {
    life.clamp(SHORTEST, LONGEST) / 10 * 9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_renewed_before_they_expire() {
        for (life, want) in
            [(18_000, 16_200_000), (10, 9_000), (1, 1_800), (0, 1_800), (u64::MAX, 77_760_000)]
        {
            assert_eq!(until_renewal(Duration::from_secs(life)).as_millis(), want, "{life}");
        }
    }
}
