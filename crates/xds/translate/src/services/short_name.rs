//! Short forms of host names, by which clients in a namespace may call a Kubernetes Service.

/// The short forms of a host for a client that completes names in `domain`.
#[must_use]
pub(crate) fn forms(host: &str, domain: &str) -> Vec<String> {
    match domain.find(".svc.") {
        Some(at) => kubernetes_forms(host, domain, at).unwrap_or_default(),
        None => forms_by_shared_suffix(host, domain),
    }
}

/// Returns the host of the Kubernetes Service to which a short name refers, for a client with that domain:
/// `web`, `web.shop`, `web.shop.svc`, or the name of a Pod, `web-0.web.shop`.
#[must_use]
pub(crate) fn full_name(name: &str, domain: &str) -> Option<String> {
    let (own, suffix) = domain.split_at_checked(domain.find(".svc.")?)?;
    if name.ends_with(suffix) {
        return None;
    }
    let short = name.strip_suffix(".svc").unwrap_or(name);
    let Some((above, namespace)) = short.rsplit_once('.') else {
        return (short == name).then(|| format!("{short}.{own}{suffix}"));
    };
    let service = above.rsplit_once('.').map_or(above, |(_, service)| service);
    Some(format!("{service}.{namespace}{suffix}"))
}

/// Of `web.shop.svc.cluster.local`: `web.shop` and `web.shop.svc`, in the own namespace also `web`. Only
/// hosts below the client's own cluster domain have short forms.
fn kubernetes_forms(host: &str, domain: &str, own_end: usize) -> Option<Vec<String>> {
    let (own, suffix) = domain.split_at_checked(own_end)?;
    if !host.ends_with(suffix) {
        return None;
    }
    let end = host.find(".svc.")?;
    let (name, namespace) = host.get(..end)?.split_once('.')?;
    let short = format!("{name}.{namespace}");
    let with_svc = format!("{short}.svc");
    Some(if namespace == own { vec![name.to_owned(), with_svc, short] } else { vec![short, with_svc] })
}

/// Returns the forms without Kubernetes: the part of the host that is not shared with the client's domain,
/// and that part with the first shared label.
fn forms_by_shared_suffix(host: &str, domain: &str) -> Vec<String> {
    let labels: Vec<&str> = host.split('.').collect();
    let shared = labels.iter().rev().zip(domain.split('.').rev()).take_while(|(a, b)| **a == *b).count();
    let (unique, common) = labels.split_at(labels.len() - shared);
    let (Some(first), false) = (common.first(), unique.is_empty()) else { return Vec::new() };
    let short = unique.join(".");
    match unique {
        [_, _] => vec![short.clone(), format!("{short}.{first}")],
        _ => vec![short],
    }
}

#[cfg(test)]
mod tests {
    use super::{forms, full_name};

    #[test]
    fn short_forms_depend_on_the_domain_of_the_client() {
        #[rustfmt::skip]
        let table: &[(&str, &str, &[&str])] = &[
            ("web.shop.svc.cluster.local", "shop.svc.cluster.local", &["web", "web.shop.svc", "web.shop"]),
            ("web.shop.svc.cluster.local", "pay.svc.cluster.local", &["web.shop", "web.shop.svc"]),
            ("web.shop.svc.other.org", "shop.svc.cluster.local", &[]),
            ("www.example.com", "shop.svc.cluster.local", &[]),
            ("web.svc.cluster.local", "shop.svc.cluster.local", &[]),
            ("foo.local.campus.net", "remote.campus.net", &["foo.local", "foo.local.campus"]),
            ("foo.local.campus.net", "local.campus.net", &["foo"]),
            ("foo.local.campus.net", "example.com", &[]),
            ("campus.net", "campus.net", &[]),
        ];
        for (host, domain, want) in table {
            assert_eq!(forms(host, domain), *want, "{host} for {domain}");
        }
    }

    #[test]
    fn a_short_form_leads_back_to_its_host() {
        let (host, other) = ("web.shop.svc.cluster.local", "pay.svc.cluster.local");
        for domain in ["shop.svc.cluster.local", other] {
            for form in forms(host, domain) {
                assert_eq!(full_name(&form, domain).as_deref(), Some(host), "{form} for {domain}");
            }
        }
        assert_eq!(full_name("web", other).as_deref(), Some("web.pay.svc.cluster.local"));
        for pod in ["web-0.web.shop", "web-0.web.shop.svc", "a.b.web.shop"] {
            assert_eq!(full_name(pod, other).as_deref(), Some(host), "{pod}");
        }
        for name in ["web.svc", "web.shop.svc.cluster", "www.example.com", "web.shop.web", host] {
            assert_ne!(full_name(name, other).as_deref(), Some(host), "{name}");
        }
        assert_eq!(full_name("web", "campus.net"), None);
    }
}
