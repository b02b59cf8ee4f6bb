//! Short forms of host names: those under which clients in a namespace may call a Kubernetes Service.

/// The short forms of a host for a client that completes names in `domain`.
#[must_use]
pub(crate) fn forms(host: &str, domain: &str) -> Vec<String> {
    match domain.find(".svc.") {
        Some(at) => kubernetes_forms(host, domain, at).unwrap_or_default(),
        None => forms_by_shared_suffix(host, domain),
    }
}

/// Of `web.shop.svc.cluster.local`: `web.shop` and `web.shop.svc`, in the own namespace also `web`. Only hosts below the client's
/// own cluster domain have short forms.
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

/// Without Kubernetes: the part of the host that is not shared with the client's domain, and with the first shared label.
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
    use super::forms;

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
}
