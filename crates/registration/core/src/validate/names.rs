//! Validation of namespaces, services and ids. Names that are invalid in DNS are refused with a suggestion
//! instead of converted, so that two services never become one.

use super::texts::short;
use crate::limits::MAX_ID_BYTES;
use crate::{InstanceKey, ServiceKey, Violations};
use pilotfish_model::{CLUSTER_SET, Hostname};
use std::sync::Arc;

/// Returns the validated key of an instance; an empty namespace is `default`. A host name below `svc.DOMAIN`
/// becomes the equivalent short name.
///
/// # Errors
/// Fields `namespace`, `service` and `id`.
pub fn instance_key(
    namespace: &str,
    service: &str,
    id: &str,
    domain: &str,
) -> Result<InstanceKey, Violations> {
    let mut wrong = Violations::default();
    let service = service_key(namespace, service, domain).unwrap_or_else(|part| {
        wrong.extend(part);
        ServiceKey::new("", "")
    });
    if let Err(message) = check_id(id) {
        wrong.add("id", message);
    }
    let ServiceKey { namespace, service } = service;
    if wrong.is_empty() { Ok(InstanceKey { namespace, service, id: id.into() }) } else { Err(wrong) }
}

/// Returns the validated key of a service; an empty namespace is `default`.
///
/// # Errors
/// Fields `namespace` and `service`.
pub fn service_key(namespace: &str, service: &str, domain: &str) -> Result<ServiceKey, Violations> {
    let mut wrong = Violations::default();
    let namespace = if namespace.is_empty() { "default" } else { namespace };
    if let Err(message) = check_label(namespace) {
        wrong.add("namespace", message);
    }
    let service = match service_name(namespace, service, domain) {
        Ok(service) => service,
        Err(message) => {
            wrong.add("service", message);
            Arc::default()
        }
    };
    if wrong.is_empty() { Ok(ServiceKey { namespace: namespace.into(), service }) } else { Err(wrong) }
}

fn service_name(namespace: &str, service: &str, domain: &str) -> Result<Arc<str>, String> {
    if !service.contains('.') {
        check_label(service)?;
        return Ok(service.into());
    }
    let host = Hostname::parse(service)
        .map_err(|error| format!("{} is no host name: {error}{}", short(service), instead(service)))?;
    if host.is_wildcard() {
        return Err(format!("{host} stands for many hosts and not for one service"));
    }
    if host.as_str() != service {
        return Err(format!("{} is not as DNS writes it: use {:?}", short(service), host.as_str()));
    }
    let suffix = format!(".svc.{domain}");
    let Some(short) = service.strip_suffix(suffix.as_str()) else { return Ok(service.into()) };
    match short.split_once('.') {
        Some((name, of)) if of == namespace => service_name(namespace, name, domain),
        Some((name, of)) if !of.contains('.') => {
            Err(format!("{service} is the service {name:?} of namespace {of:?}, and not of {namespace:?}"))
        }
        _ => Err(format!("{service} is no service of {domain}: NAME.NAMESPACE{suffix} is")),
    }
}

/// Refuses names with dots that clients interpret differently: addresses, and forms of the names of
/// Kubernetes Services, which belong to the namespace in them. Proxies and resolvers complete such names
/// (`pay.payments` to `pay.payments.svc.cluster.local`), so that a second name of a host would take the
/// traffic of the first.
///
/// # Errors
/// With the name to use instead.
pub fn check_host(key: &ServiceKey, domain: &str) -> Result<(), String> {
    let ServiceKey { namespace, service } = key;
    let labels: Vec<&str> = service.split('.').collect();
    let (Some((name, rest)), Some(last)) = (labels.split_first(), labels.last()) else { return Ok(()) };
    let Some(of) = rest.first() else { return Ok(()) };
    let is_number = |label: &str| label.starts_with("0x") || label.bytes().all(|c| c.is_ascii_digit());
    if is_number(last) {
        return Err(format!("{service} is read as an IP address: name the service"));
    }
    let canonical =
        || format!("use the service {name:?} of namespace {of:?}, which is {name}.{of}.svc.{domain}");
    if labels.contains(&"svc") {
        return Err(format!("{service} is a form of the name of a Kubernetes Service: {}", canonical()));
    }
    for owned in [domain, CLUSTER_SET] {
        let is_below =
            service.strip_suffix(owned).is_some_and(|above| above.is_empty() || above.ends_with('.'));
        if is_below {
            return Err(format!(
                "{service} is below {owned}, whose hosts are Kubernetes Services: use a service and a \
                 namespace"
            ));
        }
    }
    if **last == **namespace { Err(short_of(&labels, domain)) } else { Ok(()) }
}

/// Error for `NAME.NAMESPACE` as the name of a service, or the name of a Pod before it.
fn short_of(labels: &[&str], domain: &str) -> String {
    let [.., name, namespace] = labels else { return String::new() };
    let written = labels.join(".");
    format!(
        "{written} is short for {written}.svc.{domain}: use the service {name:?} of namespace {namespace:?}"
    )
}

/// Refuses a name that is short for a known Service of another namespace.
///
/// # Errors
/// With the name to use instead.
pub fn check_short_host(
    key: &ServiceKey,
    domain: &str,
    has_namespace: impl FnOnce(&str) -> bool,
) -> Result<(), String> {
    let labels: Vec<&str> = key.service.split('.').collect();
    match labels.as_slice() {
        [_, .., namespace] if has_namespace(namespace) => Err(short_of(&labels, domain)),
        _ => Ok(()),
    }
}

/// Checks that a text is a DNS label in lower case, as Kubernetes requires for Services and namespaces.
pub(super) fn check_label(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("is missing".to_owned());
    }
    if text.len() > 63 {
        return Err(format!("{} has {} bytes: a DNS label has 63 at most", short(text), text.len()));
    }
    let known = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    if text.bytes().all(known) && !text.starts_with('-') && !text.ends_with('-') {
        return Ok(());
    }
    Err(format!(
        "{} is no DNS label of small letters, digits and dashes{}",
        short(text),
        instead(&text.replace('.', "-"))
    ))
}

/// Suggests a valid name, if there is one.
fn instead(text: &str) -> String {
    let known = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c.to_ascii_lowercase() } else { '-' };
    let replaced: String = text.chars().take(253).map(known).collect();
    let labels = replaced.split('.').map(|label| label.trim_matches('-')).filter(|label| !label.is_empty());
    let name = labels.collect::<Vec<_>>().join(".");
    match Hostname::parse(&name) {
        Ok(name) => format!(": use {:?}", name.as_str()),
        Err(_) => String::new(),
    }
}

fn check_id(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("is missing".to_owned());
    }
    if text.len() > MAX_ID_BYTES {
        return Err(format!("{} has {} bytes, more than {MAX_ID_BYTES}", short(text), text.len()));
    }
    let known = |c: u8| c.is_ascii_alphanumeric() || b"-._:@+~".contains(&c);
    if text.bytes().all(known) && text != "." && text != ".." {
        return Ok(());
    }
    Err(format!("{} is no id: letters, digits and -._:@+~ are allowed", short(text)))
}
