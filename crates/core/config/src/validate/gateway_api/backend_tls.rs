//! BackendTLSPolicy.

use super::gateway::{hostname, section_name};
use crate::gateway_api::{
    BackendTlsPolicy, BackendTlsValidation, PolicyTargetReference, SYSTEM_AUTHORITIES, SubjectAltName,
};
use crate::path::Path;
use crate::problem::Checker;
use crate::validate::fields::names::{each, quoted, unique};
use crate::validate::fields::values::url_scheme;
use pilotfish_model::ObjectMeta;

/// The most items of each list.
const MOST_TARGETS: usize = 16;
const MOST_AUTHORITIES: usize = 8;
const MOST_NAMES: usize = 5;

pub(in crate::validate) fn check(
    policy: &BackendTlsPolicy,
    at: &Path<'_>,
    _: &ObjectMeta,
    checker: &mut Checker,
) {
    let at = at.field("spec");
    targets(&policy.spec.target_refs, &at.field("targetRefs"), checker);
    // The closed form of a refused policy has no settings.
    if policy.refused.is_none() {
        validation(&policy.spec.validation, &at.field("validation"), checker);
    }
    let options = at.field("options");
    for name in policy.spec.options.keys() {
        checker.warning(&options.key(name), "is not known and has no effect");
    }
}

fn targets(targets: &[PolicyTargetReference], at: &Path<'_>, checker: &mut Checker) {
    if targets.is_empty() {
        checker.error(at, "must be set");
    }
    at_most(targets.len(), MOST_TARGETS, at, checker);
    each(targets, at, checker, |target, at, checker| {
        for (field, value) in [("kind", &target.kind), ("name", &target.name)] {
            if value.is_empty() {
                checker.error(&at.field(field), "must be set");
            }
        }
        let kind = (target.group.as_str(), target.kind.as_str());
        if !matches!(kind, ("", "Service") | ("networking.istio.io", "ServiceEntry")) && !kind.1.is_empty() {
            let message = format!(
                "{} of group {} is no target, the policy has no effect there",
                quoted(kind.1),
                quoted(kind.0)
            );
            checker.warning(at, message);
        }
        if let Some(section) = target.section() {
            section_name(section, &at.field("sectionName"), checker);
        }
    });
    unique(targets, at, "", checker, |target| {
        Some((&target.group, &target.kind, &target.name, target.section()))
    });
}

fn validation(validation: &BackendTlsValidation, at: &Path<'_>, checker: &mut Checker) {
    let name = at.field("hostname");
    match validation.hostname.as_str() {
        "" => checker.error(&name, "must be set"),
        wildcard if wildcard.starts_with('*') => {
            checker
                .error(&name, format!("{} has a wildcard, a precise host name is needed", quoted(wildcard)));
        }
        plain => hostname(plain, &name, checker),
    }
    authorities(validation, at, checker);
    let names = &validation.subject_alt_names;
    let names_at = at.field("subjectAltNames");
    at_most(names.len(), MOST_NAMES, &names_at, checker);
    each(names, &names_at, checker, subject_alt_name);
}

fn authorities(validation: &BackendTlsValidation, at: &Path<'_>, checker: &mut Checker) {
    let (refs, refs_at) = (&validation.ca_certificate_refs, at.field("caCertificateRefs"));
    let well_known = validation.well_known_ca_certificates.as_deref().filter(|name| !name.is_empty());
    match (refs.as_slice(), well_known) {
        ([], None) => checker.error(at, "one of caCertificateRefs and wellKnownCACertificates must be set"),
        ([], Some(SYSTEM_AUTHORITIES)) => {}
        ([], Some(other)) => {
            let message =
                format!("{} is not known, only {SYSTEM_AUTHORITIES:?}: nothing passes", quoted(other));
            checker.warning(&at.field("wellKnownCACertificates"), message);
        }
        (_, Some(_)) => {
            checker.error(at, "only one of caCertificateRefs and wellKnownCACertificates may be set");
        }
        ([_], None) => {}
        (_, None) => checker.warning(&refs_at, "has several items, only the first is used"),
    }
    at_most(refs.len(), MOST_AUTHORITIES, &refs_at, checker);
    each(refs, &refs_at, checker, |authority, at, checker| {
        for (field, value) in [("kind", &authority.kind), ("name", &authority.name)] {
            if value.is_empty() {
                checker.error(&at.field(field), "must be set");
            }
        }
        if let Some(namespace) = &authority.namespace {
            let message =
                format!("{} has no effect, authorities are of the policy's namespace", quoted(namespace));
            checker.warning(&at.field("namespace"), message);
        }
    });
    if let Some(first) = refs.first()
        && (first.group.as_str(), first.kind.as_str()) != ("", "ConfigMap")
        && !first.kind.is_empty()
    {
        let message = format!("{} is no ConfigMap of the core group: nothing passes", quoted(&first.kind));
        checker.warning(&refs_at.index(0).field("kind"), message);
    }
}

fn subject_alt_name(name: &SubjectAltName, at: &Path<'_>, checker: &mut Checker) {
    let (field, value, other, other_value) = match name.r#type.as_str() {
        "Hostname" => ("hostname", &name.hostname, "uri", &name.uri),
        "URI" => ("uri", &name.uri, "hostname", &name.hostname),
        other => {
            let message = format!("{} is none of Hostname and URI", quoted(other));
            return checker.error(&at.field("type"), message);
        }
    };
    if !other_value.is_empty() {
        checker.error(&at.field(other), format!("must not be set for type {}", name.r#type));
    }
    let at = at.field(field);
    match field {
        _ if value.is_empty() => checker.error(&at, format!("must be set for type {}", name.r#type)),
        "hostname" => hostname(value, &at, checker),
        _ if url_scheme(value).is_none() => {
            checker.error(&at, format!("{} is not a URI with a scheme and an authority", quoted(value)));
        }
        _ => {}
    }
}

fn at_most(count: usize, most: usize, at: &Path<'_>, checker: &mut Checker) {
    if count > most {
        checker.error(at, format!("has {count} items, at most {most} are allowed"));
    }
}
