//! Identities of the mesh's trust domain stand for those of all its aliases.

use crate::engine::Cx;

/// The trust domain and its aliases.
#[derive(Clone, Debug)]
pub(super) struct TrustDomains(Vec<String>);

/// Name in policies for the trust domain of the mesh, whatever that is.
const LOCAL: &str = "cluster.local";

impl TrustDomains {
    pub(super) fn of(cx: &Cx<'_>) -> Self {
        let mesh = cx.mesh();
        Self(std::iter::once(&mesh.trust_domain).chain(&mesh.trust_domain_aliases).cloned().collect())
    }

    /// No domains: identities stand for themselves alone.
    pub(super) fn as_written() -> Self {
        Self(Vec::new())
    }

    /// The identities that those written stand for, each once for every domain where it names one of them.
    pub(super) fn expand(&self, principals: &[String]) -> Vec<String> {
        principals.iter().flat_map(|principal| self.of_principal(principal)).collect()
    }

    /// The trust domains that those written stand for: each of ours for all of ours.
    pub(super) fn aliases(&self, written: &[String]) -> Vec<String> {
        let mut out: Vec<String> = Vec::new();
        for domain in written {
            let is_ours = self.0.contains(domain);
            let stands_for = if is_ours { self.0.as_slice() } else { std::slice::from_ref(domain) };
            for domain in stands_for {
                if !out.contains(domain) {
                    out.push(domain.clone());
                }
            }
        }
        out
    }

    fn of_principal(&self, principal: &str) -> Vec<String> {
        let parts: Vec<&str> = principal.split('/').collect();
        let [domain, rest @ ..] = parts.as_slice() else { return vec![principal.to_owned()] };
        let is_identity = rest.len() == 4 && *domain != "*";
        let is_ours = *domain == LOCAL || self.0.iter().any(|own| covers(domain, own));
        if self.0.is_empty() || !is_identity || !is_ours {
            return vec![principal.to_owned()];
        }
        let rest = rest.join("/");
        let mut out: Vec<String> = Vec::new();
        for own in &self.0 {
            let ends_alike = domain.strip_prefix('*').is_some_and(|end| own.ends_with(end));
            let new = if ends_alike { principal.to_owned() } else { format!("{own}/{rest}") };
            if !out.contains(&new) {
                out.push(new);
            }
        }
        out
    }
}

/// True if a written domain, which may have a `*` at one end, covers a domain.
fn covers(written: &str, domain: &str) -> bool {
    written == domain
        || written.strip_suffix('*').is_some_and(|start| domain.starts_with(start))
        || written.strip_prefix('*').is_some_and(|end| domain.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::TrustDomains;

    #[test]
    fn our_domains_stand_for_each_other() {
        let domains = TrustDomains(vec!["new-td".into(), "old-td".into()]);
        let aliases = |written: &[&str]| {
            domains.aliases(&written.iter().map(|domain| (*domain).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(aliases(&["foreign", "old-td", "new-td", "*"]), ["foreign", "new-td", "old-td", "*"]);
    }

    #[test]
    fn identities_stand_for_all_domains() {
        let domains = TrustDomains(vec!["new-td".into(), "old-td".into()]);
        let table: &[(&str, &[&str])] = &[
            ("new-td/ns/a/sa/b", &["new-td/ns/a/sa/b", "old-td/ns/a/sa/b"]),
            ("cluster.local/ns/a/sa/b", &["new-td/ns/a/sa/b", "old-td/ns/a/sa/b"]),
            ("foreign/ns/a/sa/b", &["foreign/ns/a/sa/b"]),
            ("*/ns/a/sa/b", &["*/ns/a/sa/b"]),
            ("*-td/ns/a/sa/b", &["*-td/ns/a/sa/b"]),
            ("*", &["*"]),
            ("new-td/ns/a/*", &["new-td/ns/a/*"]),
        ];
        for (principal, want) in table {
            assert_eq!(domains.expand(&[(*principal).to_owned()]), *want, "{principal}");
        }
    }
}
