//! Check of a token's claims before its review by an API server, so that a token that cannot be valid costs
//! no request.
//!
//! The claims are unverified and serve only to refuse a token; the API server decides about every other one.

use super::ReviewError;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Tolerated difference between the clocks of this machine and of the API server.
const SKEW: Duration = Duration::from_secs(300);
/// Prefix of the subjects of service accounts.
const SUBJECT: &str = "system:serviceaccount:";

/// Registered claims (RFC 7519) that are checked. A token may omit any of them.
#[derive(Deserialize)]
struct Claims {
    #[serde(default)]
    aud: Option<Audience>,
    #[serde(default)]
    exp: Option<f64>,
    #[serde(default)]
    sub: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Audience {
    fn has(&self, wanted: &[String]) -> bool {
        let named = match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        };
        named.iter().any(|name| wanted.contains(name))
    }
}

/// Refuses a token that no API server could accept: malformed, for another audience, expired, or with another
/// subject than a service account. Returns the token's `exp`.
///
/// # Errors
/// The reason for the refusal.
pub(super) fn check(
    token: &str,
    audiences: &[String],
    now: SystemTime,
) -> Result<Option<SystemTime>, ReviewError> {
    let mut parts = token.split('.');
    let (Some(_), Some(payload), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(ReviewError::NoToken);
    };
    let payload = URL_SAFE_NO_PAD.decode(payload).map_err(|_| ReviewError::NoToken)?;
    let claims: Claims = serde_json::from_slice(&payload).map_err(|_| ReviewError::NoToken)?;
    if claims.sub.is_some_and(|subject| !subject.starts_with(SUBJECT)) {
        return Err(ReviewError::NoServiceAccount);
    }
    if claims.aud.is_some_and(|named| !named.has(audiences)) {
        return Err(ReviewError::Audience(audiences.join(" or ")));
    }
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(SKEW);
    if claims.exp.is_some_and(|expiry| expiry < now.as_secs_f64()) {
        return Err(ReviewError::Refused("it has expired".into()));
    }
    let end = |seconds: f64| UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?);
    Ok(claims.exp.and_then(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(claims: &str) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn what_cannot_be_good_is_refused_and_the_rest_is_asked_about() {
        let audiences = ["istio-ca".to_owned(), "vault".to_owned()];
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        let web = r#""sub":"system:serviceaccount:shop:web""#;
        let ends = |seconds| Ok(Some(UNIX_EPOCH + Duration::from_secs(seconds)));
        let other = Err(ReviewError::Audience("istio-ca or vault".into()));
        let expired = Err(ReviewError::Refused("it has expired".into()));
        for (token, expected) in [
            (token(&format!(r#"{{{web},"aud":["a","vault"],"exp":1000001}}"#)), ends(1_000_001)),
            (token(&format!(r#"{{{web},"aud":"istio-ca","exp":999999}}"#)), ends(999_999)),
            (token("{}"), Ok(None)),
            (token(r#"{"exp":1e300}"#), Ok(None)),
            (token(&format!(r#"{{{web},"aud":["a"]}}"#)), other.clone()),
            (token(&format!(r#"{{{web},"aud":[]}}"#)), other),
            (token(&format!(r#"{{{web},"exp":900000}}"#)), expired),
            (token(r#"{"sub":"admin"}"#), Err(ReviewError::NoServiceAccount)),
            (token(r#"{"exp":"never"}"#), Err(ReviewError::NoToken)),
            (token("7"), Err(ReviewError::NoToken)),
            ("a.b".into(), Err(ReviewError::NoToken)),
            ("a.b.c.d".into(), Err(ReviewError::NoToken)),
            ("..".into(), Err(ReviewError::NoToken)),
            ("a.%%%.c".into(), Err(ReviewError::NoToken)),
        ] {
            assert_eq!(check(&token, &audiences, now), expected, "{token}");
        }
    }
}
