//! Logins: exchange a name and a password for a token, and renew it before it expires.

use crate::api::ApiError;
use crate::http_api::HttpApi;
use pilotfish_connect::SecretOption;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Minimum assumed lifetime of a token: shorter ones would cause a login loop.
const SHORTEST: Duration = Duration::from_secs(2);
/// Maximum assumed lifetime of a token.
const LONGEST: Duration = Duration::from_secs(86_400);

/// Username and password of Pilotfish at a server.
#[derive(Clone)]
pub(crate) struct Credentials {
    pub(crate) username: String,
    pub(crate) password: SecretOption,
}

/// Access token, as returned by a login.
#[derive(Clone)]
pub(crate) struct Token {
    pub(crate) text: Arc<str>,
    /// Time of the next renewal.
    pub(crate) renew_at: Instant,
}

impl Credentials {
    /// Logs in.
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

/// Returns the time until renewal: a tenth of the lifetime is left for retries.
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
