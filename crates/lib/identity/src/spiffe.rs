//! SPIFFE ids (SPIFFE-ID, sections 2.1 to 2.4).

use std::fmt;

/// Maximum length of an id in bytes.
const MAX_BYTES: usize = 2048;
/// Maximum length of a trust domain in bytes.
const MAX_TRUST_DOMAIN_BYTES: usize = 255;

/// The SPIFFE id of a Kubernetes workload: `spiffe://TRUST-DOMAIN/ns/NAMESPACE/sa/ACCOUNT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkloadId<'a> {
    /// Trust domain of the workload.
    pub trust_domain: &'a str,
    /// Namespace of the service account.
    pub namespace: &'a str,
    /// Name of the service account.
    pub service_account: &'a str,
}

impl<'a> WorkloadId<'a> {
    /// Parses an id; `None` if it is not a SPIFFE id of this form.
    #[must_use]
    pub fn parse(id: &'a str) -> Option<Self> {
        let (trust_domain, path) = parts(id).ok()?;
        let (namespace, service_account) = path.strip_prefix("ns/")?.split_once("/sa/")?;
        let is_one = |part: &str| !part.contains('/');
        (is_one(namespace) && is_one(service_account)).then_some(Self {
            trust_domain,
            namespace,
            service_account,
        })
    }
}

impl fmt::Display for WorkloadId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trust_domain, namespace, service_account } = self;
        write!(f, "spiffe://{trust_domain}/ns/{namespace}/sa/{service_account}")
    }
}

/// Splits the id of a workload into trust domain and path.
///
/// # Errors
/// With the violated rule.
pub(crate) fn parts(id: &str) -> Result<(&str, &str), &'static str> {
    if id.len() > MAX_BYTES {
        return Err("it has more than 2048 bytes");
    }
    let rest = id.strip_prefix("spiffe://").ok_or("it does not begin with spiffe://")?;
    let (trust_domain, path) = rest.split_once('/').ok_or("it has no path, as the id of a workload has")?;
    let in_domain = |c: u8| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_');
    if trust_domain.is_empty() || !trust_domain.bytes().all(in_domain) {
        return Err("its trust domain is not of small letters, digits, dots, dashes and underscores");
    }
    if trust_domain.len() > MAX_TRUST_DOMAIN_BYTES {
        return Err("its trust domain has more than 255 bytes");
    }
    let in_path = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b'_');
    for segment in path.split('/') {
        if segment.is_empty() || !segment.bytes().all(in_path) {
            return Err("a part of its path is not of letters, digits, dots, dashes and underscores");
        }
        if matches!(segment, "." | "..") {
            return Err("its path has a part that is . or ..");
        }
    }
    Ok((trust_domain, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_workloads_have_a_trust_domain_and_a_path() {
        let long = format!("spiffe://{}/a", "d".repeat(MAX_TRUST_DOMAIN_BYTES));
        let longest = format!("spiffe://td/{}", "a".repeat(MAX_BYTES - "spiffe://td/".len()));
        for good in [
            "spiffe://cluster.local/ns/shop/sa/web",
            "spiffe://td_1-x.example/a",
            "spiffe://td/A/b_c/d-e/.../f.g",
            &long,
            &longest,
        ] {
            assert!(parts(good).is_ok(), "{good}");
        }
        let (long, longest) = (long.replace("//d", "//dd"), format!("{longest}a"));
        for bad in [
            "",
            "cluster.local/ns/shop/sa/web",
            "https://td/a",
            "SPIFFE://td/a",
            "Spiffe://td/a",
            "spiffe:/td/a",
            " spiffe://td/a",
            "spiffe://",
            "spiffe://td",
            "spiffe://td/",
            "spiffe:///ns/a/sa/b",
            "spiffe://td/ns/a/sa/b/",
            "spiffe://td//a",
            "spiffe://td/a//b",
            "spiffe://td/./a",
            "spiffe://td/a/..",
            "spiffe://td/a?x=y",
            "spiffe://td/a?",
            "spiffe://td/a#f",
            "spiffe://td?x=y/a",
            "spiffe://user@td/a",
            "spiffe://user:password@td/a",
            "spiffe://td:8443/a",
            "spiffe://TD/a",
            "spiffe://t%64/a",
            "spiffe://td/%61",
            "spiffe://td/a%2fb",
            "spiffe://[::1]/a",
            "spiffe://t d/a",
            "spiffe://td/a b",
            "spiffe://td/a\nb",
            "spiffe://td/a;b",
            "spiffe://td/\u{e9}",
            "spiffe://\u{e9}/a",
            "spiffe://td/a\0",
            &long,
            &longest,
        ] {
            assert!(parts(bad).is_err(), "{bad:?}");
            assert_eq!(WorkloadId::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn namespace_and_account_are_whole_parts_of_the_path() {
        let web = WorkloadId { trust_domain: "td", namespace: "shop", service_account: "web" };
        assert_eq!(WorkloadId::parse("spiffe://td/ns/shop/sa/web"), Some(web));
        for other in [
            "spiffe://td/ns/shop",
            "spiffe://td/ns/shop/sa",
            "spiffe://td/ns/shop/sa/web/x",
            "spiffe://td/x/ns/shop/sa/web",
            "spiffe://td/ns/a/b/sa/web",
            "spiffe://td/ns/a/sa/b/sa/c",
            "spiffe://td/NS/shop/sa/web",
        ] {
            assert_eq!(WorkloadId::parse(other), None, "{other}");
        }
    }
}
