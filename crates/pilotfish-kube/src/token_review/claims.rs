//! What a token says of itself, before an API server is asked about it: one that cannot be good costs no request.
//!
//! Nothing of it is believed. What cannot be read here, an API server decides.

use super::ReviewError;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How far the clocks of this machine and of the API server may be apart.
const SKEW: Duration = Duration::from_secs(300);
/// The subjects of service accounts.
const SUBJECT: &str = "system:serviceaccount:";

/// The registered claims (RFC 7519) that decide. A token may leave any of them out.
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

/// Refuses a token that no API server could accept: it has not the form of one, is for others, has expired, or is no service account's.
///
/// # Errors
/// Says which of these.
pub(super) fn check(token: &str, audiences: &[String], now: SystemTime) -> Result<(), ReviewError> {
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
    Ok(())
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
        let other = Err(ReviewError::Audience("istio-ca or vault".into()));
        let expired = Err(ReviewError::Refused("it has expired".into()));
        for (token, expected) in [
            (token(&format!(r#"{{{web},"aud":["a","vault"],"exp":1000001}}"#)), Ok(())),
            (token(&format!(r#"{{{web},"aud":"istio-ca","exp":999999}}"#)), Ok(())),
            (token("{}"), Ok(())),
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
