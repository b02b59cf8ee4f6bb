//! Conditions on one attribute of a request or connection: about what is done (permissions) or by whom
//! (principals).

use super::identity;
use super::matchers;
use crate::envoy::range;
use crate::policy::security::jwt;
use pilotfish_model::Namespace;
use pilotfish_proto::envoy::config::rbac::v3::permission::{self, Rule};
use pilotfish_proto::envoy::config::rbac::v3::principal::{self, Authenticated, Identifier};
use pilotfish_proto::envoy::config::rbac::v3::{Permission, Principal};
use pilotfish_proto::envoy::r#type::matcher::v3::{StringMatcher, ValueMatcher};

/// Effect of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// More is let through.
    Admits,
    /// Less is let through.
    Excludes,
}

/// An attribute of what is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PermissionAttribute {
    Host,
    Method,
    Path,
    DestinationIp,
    DestinationPort,
    ServerName,
    /// A value in the metadata of an Envoy filter: the filter, and the key.
    FilterMetadata(String, String),
}

/// An attribute of who does it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PrincipalAttribute {
    SourceIp,
    RemoteIp,
    Namespace,
    /// Names without a namespace are of this one.
    ServiceAccount(Namespace),
    Principal,
    TrustDomain,
    RequestPrincipal,
    Audiences,
    Presenter,
    Header(String),
    Claim(Vec<String>),
}

/// Values that an attribute must or must not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition<T> {
    pub(super) attribute: T,
    pub(super) values: Vec<String>,
    pub(super) not_values: Vec<String>,
}

/// A condition that cannot be tested: of HTTP on a stream, or malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Untestable;

/// Handling of values that cannot be tested: the whole rule is dropped, or only these values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Untested {
    /// For what is allowed: the rule must not allow more than was meant.
    DropsRule,
    /// For what is denied or logged: rather too much than too little.
    IsLeftOut,
}

impl Untested {
    fn keep<T>(self, found: Result<T, Untestable>) -> Result<Option<T>, Untestable> {
        match (found, self) {
            (Ok(found), _) => Ok(Some(found)),
            (Err(Untestable), Self::IsLeftOut) => Ok(None),
            (Err(Untestable), Self::DropsRule) => Err(Untestable),
        }
    }

    /// Effect of `values`: one of them must be present.
    fn values(self) -> Match {
        if self == Self::DropsRule { Match::Admits } else { Match::Excludes }
    }

    fn not_values(self) -> Match {
        if self == Self::DropsRule { Match::Excludes } else { Match::Admits }
    }

    /// Returns the tests of alternatives; none if they are no condition. If one exclusion cannot be
    /// tested, all of them are dropped, or the rule is.
    fn each<T>(
        self,
        values: &[String],
        leads_to: Match,
        test: impl Fn(&str) -> Result<T, Untestable>,
    ) -> Result<Vec<T>, Untestable> {
        let found = values.iter().map(|value| test(value));
        match (self, leads_to) {
            (Self::DropsRule, _) => found.collect(),
            (Self::IsLeftOut, Match::Admits) => Ok(found.flatten().collect()),
            (Self::IsLeftOut, Match::Excludes) => {
                Ok(found.collect::<Result<Vec<T>, Untestable>>().unwrap_or_default())
            }
        }
    }
}

impl Condition<PermissionAttribute> {
    /// As permissions that must all hold.
    pub(super) fn permissions(
        &self,
        streams: bool,
        untested: Untested,
    ) -> Result<Vec<Permission>, Untestable> {
        let of = |values: &[String], leads_to: Match| -> Result<Option<Permission>, Untestable> {
            if values.is_empty() {
                return Ok(None);
            }
            if let PermissionAttribute::FilterMetadata(filter, key) = &self.attribute {
                return Ok(Some(of_metadata(filter, key, values)));
            }
            let any = untested.each(values, leads_to, |value| self.attribute.permission(value, streams))?;
            Ok((!any.is_empty()).then(|| rule(Rule::OrRules(permission::Set { rules: any }))))
        };
        let not = of(&self.not_values, untested.not_values())?;
        let not = not.map(|found| rule(Rule::NotRule(Box::new(found))));
        Ok(of(&self.values, untested.values())?.into_iter().chain(not).collect())
    }
}

impl PermissionAttribute {
    fn permission(&self, value: &str, streams: bool) -> Result<Permission, Untestable> {
        let http_only = || if streams { Err(Untestable) } else { Ok(()) };
        Ok(rule(match self {
            Self::Host => {
                http_only()?;
                Rule::Header(matchers::header(":authority", value, true))
            }
            Self::Method => {
                http_only()?;
                Rule::Header(matchers::header(":method", value, false))
            }
            Self::Path => {
                http_only()?;
                match matchers::path_template(value) {
                    Some(template) => Rule::UriTemplate(template),
                    None => Rule::UrlPath(matchers::path(value)),
                }
            }
            Self::DestinationIp => Rule::DestinationIp(range(value).ok_or(Untestable)?),
            Self::DestinationPort => {
                Rule::DestinationPort(value.parse::<u16>().map_err(|_| Untestable)?.into())
            }
            Self::ServerName => Rule::RequestedServerName(matchers::text(value)),
            Self::FilterMetadata(..) => return Err(Untestable),
        }))
    }
}

/// Values in brackets are elements of a list.
fn of_metadata(filter: &str, key: &str, values: &[String]) -> Permission {
    let value = |written: &String| {
        let inner = written.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        match inner {
            Some(inner) => matchers::list_with(matchers::value(matchers::text(inner))),
            None => matchers::value(matchers::text(written)),
        }
    };
    let any = matchers::any_value(values.iter().map(value).collect());
    #[allow(deprecated, reason = "istiod writes the older field, and proxies of any version understand it")]
    rule(Rule::Metadata(matchers::metadata(filter, [key], any)))
}

pub(super) fn rule(rule: Rule) -> Permission {
    Permission { rule: Some(rule) }
}

pub(super) fn identifier(identifier: Identifier) -> Principal {
    Principal { identifier: Some(identifier) }
}

impl Condition<PrincipalAttribute> {
    /// As principals that must all hold.
    pub(super) fn principals(&self, streams: bool, untested: Untested) -> Result<Vec<Principal>, Untestable> {
        let of = |values: &[String], leads_to: Match| -> Result<Option<Principal>, Untestable> {
            match values {
                [] => Ok(None),
                _ if self.attribute.is_of_token() => {
                    if streams {
                        untested.keep(Err(Untestable))
                    } else {
                        Ok(Some(self.attribute.of_token(values)))
                    }
                }
                _ => {
                    let test = |value: &str| self.attribute.principal(value, streams);
                    let any = untested.each(values, leads_to, test)?;
                    Ok((!any.is_empty()).then(|| identifier(Identifier::OrIds(principal::Set { ids: any }))))
                }
            }
        };
        let not = of(&self.not_values, untested.not_values())?;
        let not = not.map(|found| identifier(Identifier::NotId(Box::new(found))));
        Ok(of(&self.values, untested.values())?.into_iter().chain(not).collect())
    }
}

impl PrincipalAttribute {
    fn principal(&self, value: &str, streams: bool) -> Result<Principal, Untestable> {
        Ok(match self {
            Self::SourceIp => identifier(Identifier::DirectRemoteIp(range(value).ok_or(Untestable)?)),
            Self::RemoteIp => identifier(Identifier::RemoteIp(range(value).ok_or(Untestable)?)),
            Self::Namespace => authenticated(identity::namespace(value)),
            Self::ServiceAccount(own) => {
                let (namespace, name) = value.split_once('/').unwrap_or((own.as_str(), value));
                authenticated(identity::service_account(namespace, name))
            }
            Self::Principal => authenticated(identity::principal(value)),
            Self::TrustDomain => authenticated(identity::trust_domain(value)),
            Self::Header(_) if streams => return Err(Untestable),
            Self::Header(name) if name.is_empty() => return Err(Untestable),
            Self::Header(name) => identifier(Identifier::Header(matchers::header(name, value, false))),
            Self::RequestPrincipal | Self::Audiences | Self::Presenter | Self::Claim(_) => {
                return Err(Untestable);
            }
        })
    }

    fn is_of_token(&self) -> bool {
        matches!(self, Self::RequestPrincipal | Self::Audiences | Self::Presenter | Self::Claim(_))
    }

    /// Conditions on the claims of a token, for all values together.
    fn of_token(&self, values: &[String]) -> Principal {
        match self {
            Self::Claim(path) => claim(path.iter().map(String::as_str), list_or_text(values)),
            Self::Audiences => claim(["aud"], list_or_text(values)),
            Self::Presenter => claim(["azp"], list_or_text(values)),
            _ => {
                let mut any: Vec<Principal> = values.iter().map(|value| issuer_and_subject(value)).collect();
                match any.len() {
                    1 => any.swap_remove(0),
                    _ => identifier(Identifier::OrIds(principal::Set { ids: any })),
                }
            }
        }
    }
}

fn authenticated(name: StringMatcher) -> Principal {
    identifier(Identifier::Authenticated(Authenticated { principal_name: Some(name) }))
}

fn claim<'a>(path: impl IntoIterator<Item = &'a str>, value: ValueMatcher) -> Principal {
    let path = std::iter::once(jwt::PAYLOAD).chain(path);
    #[allow(deprecated, reason = "istiod writes the older field, and proxies of any version understand it")]
    identifier(Identifier::Metadata(matchers::metadata(jwt::FILTER, path, value)))
}

/// A claim may be a list or a single text.
fn list_or_text(values: &[String]) -> ValueMatcher {
    let any = || matchers::any_value(values.iter().map(|v| matchers::value(matchers::text(v))).collect());
    matchers::any_value(vec![matchers::list_with(any()), any()])
}

/// A principal of a token is its issuer and subject, with a slash between; the issuer may have slashes too.
fn issuer_and_subject(written: &str) -> Principal {
    let whole = |text: &str| if text == "*" { matchers::any_text() } else { matchers::exact(text) };
    let (issuer, subject) = match (written, written.rsplit_once('/')) {
        ("*", _) => (matchers::any_text(), matchers::any_text()),
        (_, Some(("*", subject))) => (matchers::any_text(), matchers::exact(subject)),
        (_, Some((issuer, subject))) => match (issuer.strip_prefix('*'), subject.strip_suffix('*')) {
            (Some(end), _) => (matchers::suffix(end), matchers::exact(subject)),
            (None, Some("")) => (matchers::exact(issuer), matchers::any_text()),
            (None, Some(start)) => (matchers::exact(issuer), matchers::prefix(start)),
            (None, None) => (matchers::exact(issuer), matchers::exact(subject)),
        },
        (_, None) => match (written.strip_prefix('*'), written.strip_suffix('*')) {
            (Some(end), _) => (matchers::any_text(), matchers::suffix(end)),
            (None, Some(start)) => (matchers::prefix(start), matchers::any_text()),
            (None, None) => (whole(written), matchers::exact("")),
        },
    };
    let both = vec![claim(["iss"], matchers::value(issuer)), claim(["sub"], matchers::value(subject))];
    identifier(Identifier::AndIds(principal::Set { ids: both }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(values: &[&str], not_values: &[&str], untested: Untested) -> Result<usize, Untestable> {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        let attribute = PrincipalAttribute::SourceIp;
        let condition = Condition { attribute, values: texts(values), not_values: texts(not_values) };
        condition.principals(false, untested).map(|all| all.len())
    }

    #[test]
    fn what_cannot_be_tested_never_admits_more() {
        let (allows, denies) = (Untested::DropsRule, Untested::IsLeftOut);
        assert_eq!(addresses(&["a(", "10.0.0.1"], &[], allows), Err(Untestable));
        assert_eq!(addresses(&["10.0.0.1"], &["a("], allows), Err(Untestable));
        // Without one of the alternatives less would be denied.
        assert_eq!(addresses(&["a(", "10.0.0.1"], &[], denies), Ok(0));
        assert_eq!(addresses(&["10.0.0.1"], &["a(", "10.0.0.2"], denies), Ok(2));
    }
}
