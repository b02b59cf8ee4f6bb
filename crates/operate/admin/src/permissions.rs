//! Permissions of clients: the role of each request's client, by its credentials or its address.
//!
//! | Client | Role |
//! |---|---|
//! | with a token or certificate | that of the rules |
//! | this machine, without credentials | operator, or that of rules for `loopback` |
//! | this process, for `istioctl` over xDS | viewer |
//! | others, without credentials | viewer with [`Access::Everybody`], else none |

use crate::Metrics;
use crate::access::{self, Access};
use crate::roles::{LOOPBACK, Role, Roles};
use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use pilotfish_access::{TokenAuthenticator, bearer, digest};
use pilotfish_admission::RefusalLimit;
use pilotfish_api::v1::{Failure, FailureKind};
use pilotfish_identity::{Authentication, Authenticator, Call, Proof};
use pilotfish_listener::ClientCertificate;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// Refused credentials of an address per second, with bursts of ten times that (limit `address-refusals`).
pub(crate) const ADDRESS_REFUSALS: u32 = 5;
/// Timeout of all authenticators together.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Challenges of responses without a role. Browsers ask their users for a password on the second, and send it
/// with all requests of the dashboard.
const CHALLENGES: [HeaderValue; 2] =
    [HeaderValue::from_static("Bearer"), HeaderValue::from_static("Basic realm=\"Pilotfish\"")];

/// Decides on the roles of clients.
pub struct Permissions {
    access: Access,
    /// `None` if no credentials are accepted.
    credentials: Option<Credentials>,
}

struct Credentials {
    roles: Arc<Roles>,
    authentication: Authentication,
    refusals: RefusalLimit,
}

/// Client of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// Its identity, for the audit log.
    pub(crate) who: Arc<str>,
    pub(crate) role: Option<Role>,
    /// `None` for this process.
    pub(crate) address: Option<IpAddr>,
}

/// Reason for not answering a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// It has no rights by its address, and could not gain them by credentials.
    Address(&'static str),
    /// It presents no credentials, or wrong ones.
    Unauthenticated(String),
    /// Too many credentials of its address were refused.
    TooMany(Duration),
    /// Its role is too low.
    Role { who: Arc<str>, needed: Role },
}

/// Permissions by address only.
impl From<Access> for Permissions {
    fn from(access: Access) -> Self {
        Self { access, credentials: None }
    }
}

impl Permissions {
    /// Permissions by address, by tokens and rules, and by identities that these authenticators prove.
    #[must_use]
    pub fn with_roles(access: Access, roles: Arc<Roles>, others: Vec<Arc<dyn Authenticator>>) -> Self {
        let tokens = roles.clone();
        let mut authenticators: Vec<Arc<dyn Authenticator>> =
            vec![Arc::new(TokenAuthenticator(move |digest: &_| tokens.token(digest)))];
        authenticators.extend(others);
        let credentials = Credentials {
            roles,
            authentication: Authentication::new("admin", authenticators, TIMEOUT),
            refusals: RefusalLimit::new(ADDRESS_REFUSALS, 10 * ADDRESS_REFUSALS),
        };
        Self { access, credentials: Some(credentials) }
    }

    /// Returns the client of a request if it has at least the role of a viewer.
    ///
    /// # Errors
    /// The reason for not answering it.
    pub(crate) async fn viewer(&self, asking: &Asking) -> Result<Caller, Denied> {
        let caller = self.caller(asking).await?;
        caller.needs(Role::Viewer)?;
        Ok(caller)
    }

    async fn caller(&self, asking: &Asking) -> Result<Caller, Denied> {
        let Some(credentials) = &self.credentials else { return self.by_address(asking, None) };
        if asking.authorization.is_some() && !asking.is_local && !asking.is_secure {
            return Err(Denied::Address(
                "credentials are accepted from this machine, or with TLS: use --secure-admin-address\n",
            ));
        }
        let proof = match (&asking.authorization, &asking.certificate) {
            (Some(authorization), _) => Some(credentials.authenticate(asking, authorization).await?),
            (None, Ok(proof)) => Some(proof.clone()),
            (None, Err(_)) => None,
        };
        let Some(proof) = proof else { return self.by_address(asking, Some(&credentials.roles)) };
        if proof.until.is_some_and(|until| until <= SystemTime::now()) {
            return Err(Denied::Unauthenticated("the credentials have expired".to_owned()));
        }
        let open = (self.access == Access::Everybody).then_some(Role::Viewer);
        let role = credentials.roles.role(&proof.identities).max(open);
        Ok(Caller { who: proof.identities.join(" ").into(), role, address: asking.peer })
    }

    /// Returns the client without credentials.
    fn by_address(&self, asking: &Asking, roles: Option<&Roles>) -> Result<Caller, Denied> {
        let caller = |who: &str, role| Caller { who: who.into(), role, address: asking.peer };
        if asking.peer.is_none() {
            return Ok(caller("this process", Some(Role::Viewer)));
        }
        let open = (self.access == Access::Everybody).then_some(Role::Viewer);
        if asking.is_local {
            let own = roles.map_or(Some(Role::Operator), Roles::loopback);
            return Ok(caller(LOOPBACK, own.max(open)));
        }
        match (open, asking.is_secure) {
            (Some(_), _) => Ok(caller("anonymous", open)),
            (None, true) => {
                let reason = asking.certificate.as_ref().err().map_or("", String::as_str);
                Err(Denied::Unauthenticated(format!(
                    "the client proves no identity: send `authorization: Bearer TOKEN` (certificate: \
                     {reason})"
                )))
            }
            (None, false) => Err(Denied::Address(access::THIS_MACHINE)),
        }
    }
}

impl Credentials {
    /// Identities that a token proves.
    async fn authenticate(&self, asking: &Asking, authorization: &str) -> Result<Proof, Denied> {
        let Some(token) = token_of(authorization) else {
            return Err(Denied::Unauthenticated("the header authorization holds no token".to_owned()));
        };
        let address = asking.peer.unwrap_or(Ipv4Addr::LOCALHOST.into());
        let attempt = self.refusals.begin(address, digest(&token), Instant::now());
        let attempt = attempt.map_err(Denied::TooMany)?;
        let metadata = vec![("authorization".to_owned(), format!("Bearer {token}"))];
        let call = Call::new(SocketAddr::new(address, 0), metadata);
        let none = asking.certificate.as_ref().err().map_or("not used beside a token", String::as_str);
        match self.authentication.run(none, &call).await {
            Ok((_, proof)) => {
                attempt.accepted(Instant::now());
                Ok(proof)
            }
            Err(error) => {
                if error.is_verdict {
                    attempt.refused(Instant::now());
                } else {
                    attempt.undecided();
                }
                self.authentication.log_refusal(call.address, &error);
                Err(Denied::Unauthenticated(error.to_string()))
            }
        }
    }
}

impl Caller {
    /// Checks the role.
    ///
    /// # Errors
    /// If it is lower.
    pub(crate) fn needs(&self, needed: Role) -> Result<(), Denied> {
        if self.role >= Some(needed) {
            return Ok(());
        }
        Err(Denied::Role { who: self.who.clone(), needed })
    }
}

/// Part of a request that decides on its client.
pub(crate) struct Asking {
    peer: Option<IpAddr>,
    is_local: bool,
    /// True if the connection has TLS.
    is_secure: bool,
    /// Identity of its certificate, or the reason that there is none.
    certificate: Result<Proof, String>,
    authorization: Option<String>,
}

impl Asking {
    pub(crate) fn of(request: &Request) -> Self {
        let certificate = request.extensions().get::<ClientCertificate>();
        let plain = || Err("the connection has no TLS".to_owned());
        let authorization = request.headers().get(header::AUTHORIZATION);
        Self {
            peer: access::peer(request),
            is_local: access::is_local(access::peer(request), request.headers()),
            is_secure: certificate.is_some(),
            certificate: certificate.map_or_else(plain, |certificate| certificate.0.clone()),
            // Bytes that are no text are no token either, which is an error and no absence.
            authorization: authorization.map(|value| value.to_str().unwrap_or_default().to_owned()),
        }
    }
}

/// Token of an `authorization` header: that of `Bearer`, or the password of `Basic`.
fn token_of(authorization: &str) -> Option<String> {
    if let Some(token) = bearer(authorization) {
        return Some(token.to_owned()).filter(|token| !token.is_empty());
    }
    let (scheme, text) = authorization.split_once(' ')?;
    let bytes = base64::engine::general_purpose::STANDARD.decode(text.trim()).ok()?;
    let text = String::from_utf8(bytes).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    text.split_once(':').map(|(_, password)| password.to_owned()).filter(|token| !token.is_empty())
}

impl Denied {
    /// Responds with the reason. A limit is counted.
    pub(crate) fn answer(self, metrics: &Metrics) -> Response {
        match self {
            Self::Address(reason) => access::refuse(reason),
            Self::Unauthenticated(reason) => {
                let failure = Failure::new(FailureKind::Other, reason);
                let failure = failure.hint("pilotfish reads a token with --admin-token-file");
                let mut response = (StatusCode::UNAUTHORIZED, Json(failure)).into_response();
                for challenge in CHALLENGES {
                    response.headers_mut().append(header::WWW_AUTHENTICATE, challenge);
                }
                response
            }
            Self::TooMany(wait) => {
                metrics.limit_reached("admin", "address-refusals");
                let reason = "too many credentials of this address were refused (limit address-refusals)";
                let failure = Failure::new(FailureKind::Unavailable, reason).hint("wait, and try again");
                let seconds = HeaderValue::from(wait.as_secs().max(1));
                let headers = HeaderMap::from_iter([(header::RETRY_AFTER, seconds)]);
                (StatusCode::TOO_MANY_REQUESTS, headers, Json(failure)).into_response()
            }
            Self::Role { who, needed } => {
                let failure = Failure::new(FailureKind::Other, format!("{who} has not the role {needed}"));
                let failure = failure.hint(hint(needed));
                (StatusCode::FORBIDDEN, Json(failure)).into_response()
            }
        }
    }
}

fn hint(needed: Role) -> &'static str {
    match needed {
        Role::Admin => {
            "pilotfish ca rotate takes the authority's own files or Secret (--data-dir, --kubernetes), or a \
             token with that role (--admin-token-file; roles are in the --admin-rules of the control plane)"
        }
        Role::Viewer | Role::Operator => {
            "--admin-token-file names a token; roles are in the --admin-rules of the control plane; on the \
             machine of the control plane, or by kubectl port-forward, no token is needed"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roles::{RoleRules, RoleTable};
    use pilotfish_access::NamedTokens;

    const TOKENS: &str = "tokens:
- {name: view, token: viewer-0123456789}
- {name: op, token: operator-0123456789}
- {name: root, token: admin-0123456789abc}
- {name: lost, token: norole-0123456789}
";
    const RULES: &str = "rules:
- {identities: [token/view, 'spiffe://td/ns/ops/sa/view'], role: viewer}
- {identities: [token/op, 'spiffe://td/ns/ops/sa/op'], role: operator}
- {identities: [token/root, 'spiffe://td/ns/ops/sa/root'], role: admin}
";

    fn roles(more: &str) -> Arc<Roles> {
        let rules = RoleRules::parse(&format!("{RULES}{more}")).unwrap();
        Arc::new(Roles::new(RoleTable::new(NamedTokens::parse(TOKENS).unwrap(), rules)))
    }

    /// A client at an address, with a certificate of an account if there is TLS, and with a token.
    fn asking(peer: &str, tls: Option<Option<&str>>, authorization: Option<&str>) -> Asking {
        let peer: IpAddr = peer.parse().unwrap();
        let certificate = tls.flatten().map(|name| vec![format!("spiffe://td/ns/ops/sa/{name}")].into());
        Asking {
            peer: Some(peer),
            is_local: pilotfish_identity::is_this_machine(peer),
            is_secure: tls.is_some(),
            certificate: certificate.ok_or_else(|| "none was presented".to_owned()),
            authorization: authorization.map(str::to_owned),
        }
    }

    /// Role of a client, or the status of the refusal.
    async fn role(permissions: &Permissions, asking: Asking) -> Result<Option<Role>, u16> {
        let denied = |denied: Denied| denied.answer(&Metrics::new("1").unwrap()).status().as_u16();
        permissions.caller(&asking).await.map(|caller| caller.role).map_err(denied)
    }

    #[tokio::test(start_paused = true)]
    async fn credentials_and_addresses_have_roles() {
        use Role::{Admin, Operator, Viewer};
        let basic = |token: &str| {
            format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(format!("x:{token}")))
        };
        let (here, there) = ("127.0.0.1", "10.0.0.1");
        let (no_tls, tls, root) = (None, Some(None), Some(Some("root")));
        let by_basic = basic("operator-0123456789");
        let closed = Permissions::with_roles(Access::ThisMachine, roles(""), Vec::new());
        let open = Permissions::with_roles(Access::Everybody, roles(""), Vec::new());
        for (peer, tls, token, of_closed, of_open) in [
            // Without credentials, the address counts.
            (here, no_tls, None, Ok(Some(Operator)), Ok(Some(Operator))),
            (here, tls, None, Ok(Some(Operator)), Ok(Some(Operator))),
            ("::1", no_tls, None, Ok(Some(Operator)), Ok(Some(Operator))),
            ("127.0.0.6", no_tls, None, Err(403), Ok(Some(Viewer))),
            (there, no_tls, None, Err(403), Ok(Some(Viewer))),
            (there, tls, None, Err(401), Ok(Some(Viewer))),
            // Tokens, from this machine or with TLS.
            (here, no_tls, Some("Bearer viewer-0123456789"), Ok(Some(Viewer)), Ok(Some(Viewer))),
            (here, no_tls, Some("Bearer operator-0123456789"), Ok(Some(Operator)), Ok(Some(Operator))),
            (here, no_tls, Some("Bearer admin-0123456789abc"), Ok(Some(Admin)), Ok(Some(Admin))),
            (here, no_tls, Some("Bearer norole-0123456789"), Ok(None), Ok(Some(Viewer))),
            (there, tls, Some("bearer admin-0123456789abc"), Ok(Some(Admin)), Ok(Some(Admin))),
            (there, tls, Some(&by_basic), Ok(Some(Operator)), Ok(Some(Operator))),
            (there, no_tls, Some("Bearer admin-0123456789abc"), Err(403), Err(403)),
            // Wrong ones are refused everywhere.
            (here, no_tls, Some("Bearer wrong"), Err(401), Err(401)),
            (here, no_tls, Some("Bearer "), Err(401), Err(401)),
            (here, no_tls, Some("Basic !"), Err(401), Err(401)),
            (here, no_tls, Some("Digest abc"), Err(401), Err(401)),
            (there, tls, Some("Bearer token/root"), Err(401), Err(401)),
            // Certificates; a token counts before one.
            (there, root, None, Ok(Some(Admin)), Ok(Some(Admin))),
            (there, Some(Some("other")), None, Ok(None), Ok(Some(Viewer))),
            (here, Some(Some("view")), None, Ok(Some(Viewer)), Ok(Some(Viewer))),
            (there, root, Some("Bearer viewer-0123456789"), Ok(Some(Viewer)), Ok(Some(Viewer))),
            (there, root, Some("Bearer wrong"), Err(401), Err(401)),
        ] {
            for (permissions, expected) in [(&closed, of_closed), (&open, of_open)] {
                let found = role(permissions, asking(peer, tls, token)).await;
                assert_eq!(found, expected, "{:?} {peer} {tls:?} {token:?}", permissions.access);
            }
        }
    }

    #[tokio::test]
    async fn without_rules_the_address_counts_alone() {
        let permissions = Permissions::from(Access::ThisMachine);
        for (peer, expected) in [("127.0.0.1", Ok(Some(Role::Operator))), ("10.0.0.1", Err(403))] {
            assert_eq!(role(&permissions, asking(peer, None, Some("Bearer x"))).await, expected, "{peer}");
        }
    }

    #[tokio::test]
    async fn rules_take_rights_of_this_machine() {
        for (given, expected) in
            [("none", None), ("viewer", Some(Role::Viewer)), ("admin", Some(Role::Admin))]
        {
            let more = format!("- {{identities: [loopback], role: {given}}}\n");
            let permissions = Permissions::with_roles(Access::ThisMachine, roles(&more), Vec::new());
            assert_eq!(role(&permissions, asking("127.0.0.1", None, None)).await, Ok(expected), "{given}");
            let within = Asking { peer: None, ..asking("127.0.0.1", None, None) };
            assert_eq!(role(&permissions, within).await, Ok(Some(Role::Viewer)), "{given}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_tokens_of_an_address_are_limited_and_good_ones_go_on() {
        let permissions = Permissions::with_roles(Access::ThisMachine, roles(""), Vec::new());
        let good = || asking("10.0.0.1", Some(None), Some("Bearer viewer-0123456789"));
        assert_eq!(role(&permissions, good()).await, Ok(Some(Role::Viewer)));
        let mut refused = Vec::new();
        for n in 0..=10 * ADDRESS_REFUSALS {
            let wrong = format!("Bearer wrong-{n}");
            refused.push(role(&permissions, asking("10.0.0.1", Some(None), Some(&wrong))).await);
        }
        assert_eq!(refused.iter().filter(|status| **status == Err(401)).count(), 50);
        assert_eq!(refused.last(), Some(&Err(429)));
        assert_eq!(role(&permissions, good()).await, Ok(Some(Role::Viewer)), "known");
        let other = asking("10.0.0.2", Some(None), Some("Bearer wrong"));
        assert_eq!(role(&permissions, other).await, Err(401), "another address");
    }

    #[tokio::test]
    async fn expired_certificates_and_replaced_tokens_count_no_longer() {
        let known = roles("");
        let permissions = Permissions::with_roles(Access::ThisMachine, known.clone(), Vec::new());
        let mut expired = asking("10.0.0.1", Some(Some("root")), None);
        expired.certificate.as_mut().unwrap().until = Some(SystemTime::UNIX_EPOCH);
        assert_eq!(role(&permissions, expired).await, Err(401));
        let token = || asking("127.0.0.1", None, Some("Bearer admin-0123456789abc"));
        assert_eq!(role(&permissions, token()).await, Ok(Some(Role::Admin)));
        known.replace(RoleTable::default());
        assert_eq!(role(&permissions, token()).await, Err(401));
    }
}
