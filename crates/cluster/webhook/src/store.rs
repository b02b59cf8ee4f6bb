//! Secret in which replicas share the certificates.

use crate::certificate::Material;
use crate::error::StepError;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ObjectMeta, PostParams};
use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

/// Name of the Secret, in the namespace of mesh-wide settings, followed by the revision if there is one.
pub const SECRET: &str = "pilotfish-webhook-certificate";

const AUTHORITIES: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const AUTHORITY_EXPIRES: &str = "ca.expires";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// Content of the Secret. Missing or invalid entries are empty, and are replaced therefore.
pub(crate) fn material(secret: &Secret) -> Material {
    let text = |key: &str| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(key));
        bytes.and_then(|bytes| std::str::from_utf8(&bytes.0).ok()).unwrap_or_default().to_owned()
    };
    let expires = text(AUTHORITY_EXPIRES).trim().parse::<jiff::Timestamp>().ok();
    let expires = expires.and_then(|time| u64::try_from(time.as_second()).ok()).unwrap_or(0);
    Material {
        authorities: text(AUTHORITIES),
        authority_key: text(AUTHORITY_KEY),
        authority_expires: UNIX_EPOCH + Duration::from_secs(expires),
        certificate: text(CERTIFICATE),
        key: text(KEY),
    }
}

fn data(material: &Material) -> BTreeMap<String, ByteString> {
    let seconds = material.authority_expires.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let expires =
        jiff::Timestamp::from_second(i64::try_from(seconds).unwrap_or(i64::MAX)).unwrap_or_default();
    let entries = [
        (AUTHORITIES, material.authorities.clone()),
        (AUTHORITY_KEY, material.authority_key.clone()),
        (AUTHORITY_EXPIRES, expires.to_string()),
        (CERTIFICATE, material.certificate.clone()),
        (KEY, material.key.clone()),
    ];
    entries.into_iter().map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes()))).collect()
}

/// Writes the Secret of that name. `before` is the Secret as it was read; later writes of others are not
/// overwritten.
///
/// # Errors
/// A conflict if another replica was faster: read the Secret again and use its certificates.
pub(crate) async fn write(
    api: &Api<Secret>,
    name: &str,
    before: Option<Secret>,
    material: &Material,
) -> Result<(), StepError> {
    let written = match before {
        None => {
            let labels = BTreeMap::from([("app.kubernetes.io/name".to_owned(), "pilotfish".to_owned())]);
            let metadata =
                ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() };
            let secret = Secret {
                metadata,
                data: Some(data(material)),
                type_: Some("Opaque".to_owned()),
                ..Secret::default()
            };
            api.create(&PostParams::default(), &secret).await
        }
        Some(mut secret) => {
            secret.data.get_or_insert_default().extend(data(material));
            api.replace(name, &PostParams::default(), &secret).await
        }
    };
    written
        .map(|_| ())
        .map_err(|error| StepError::request("writing the Secret with certificates of webhooks", error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::{CertificateLifetimes, Need, make};
    use std::collections::BTreeSet;

    #[test]
    fn what_is_written_is_read() {
        let now = UNIX_EPOCH + Duration::from_secs(1_900_000_000);
        let names = BTreeSet::from(["a.n.svc".to_owned()]);
        let made = make(None, &Need::Nothing, &names, &CertificateLifetimes::default(), now).unwrap();
        let secret = Secret { data: Some(data(&made)), ..Secret::default() };
        assert_eq!(material(&secret), made);
        assert!(material(&Secret::default()).authorities.is_empty());
    }
}
