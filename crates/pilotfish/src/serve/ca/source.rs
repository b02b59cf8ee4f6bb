//! Sources of the certificate authority: files, or Secrets of the cluster.

use super::files::{self, AuthorityFiles, AuthorityTexts, Text};
use crate::serve::polled_files::POLL_INTERVAL;
use anyhow::{Context, Result, bail};
use pilotfish_ca::{RootState, Rotation, SelfSigned};
use pilotfish_kube::client::Client;
use pilotfish_kube_writer::ca_secret::{self, CaSecret};
use pilotfish_runtime::FileReader;
use std::time::{Duration, SystemTime};

/// Polling interval of Secrets: each poll is one or two requests to the API server.
const SECRET_POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Source of an authority's key and certificates.
#[derive(Clone)]
pub(super) enum AuthoritySource {
    Files(AuthorityFiles),
    Secrets(AuthoritySecrets),
}

/// Secrets of a namespace, under istiod's names.
#[derive(Clone)]
pub(super) struct AuthoritySecrets {
    client: Client,
    namespace: String,
    /// True if the plug-in authority was used. Without its Secret, the last version stays in force: falling
    /// back to another root would break the mesh.
    is_plugged_in: bool,
}

impl AuthoritySource {
    /// Returns the interval at which the source is read.
    pub(super) fn interval(&self) -> Duration {
        match self {
            Self::Files(_) => POLL_INTERVAL,
            Self::Secrets(_) => SECRET_POLL_INTERVAL,
        }
    }

    /// Reads the key and the certificates.
    ///
    /// # Errors
    /// When they cannot be read or are incomplete.
    pub(super) async fn read(&mut self, reader: &FileReader) -> Result<AuthorityTexts> {
        match self {
            Self::Files(files) => {
                let files = files.clone();
                reader.run(move || files.read()).await.context("reading files")?
            }
            Self::Secrets(secrets) => secrets.read().await,
        }
    }

    /// Replaces the state of a self-signed authority by the result of `change`; nothing if that is `None`.
    /// Returns the new state.
    ///
    /// # Errors
    /// When the authority is a plug-in one, cannot be read or written, or was changed in the meantime.
    pub(super) async fn change(
        &self,
        change: impl FnOnce(&RootState) -> Result<Option<RootState>>,
    ) -> Result<Option<RootState>> {
        match self {
            Self::Files(AuthorityFiles::Folder(folder)) => {
                bail!("{} has a plug-in authority: replace its files", folder.display())
            }
            Self::Files(AuthorityFiles::Roots(path)) => {
                bail!("{} has the roots of an external signer: replace the file", path.display())
            }
            Self::Files(AuthorityFiles::Single(path)) => {
                let before = files::read_state(path)?;
                let after = change(&before)?;
                if let Some(after) = &after {
                    files::replace_state(path, &before, after)?;
                }
                Ok(after)
            }
            Self::Secrets(secrets) => secrets.change(change).await,
        }
    }
}

impl AuthoritySecrets {
    /// Returns the Secrets of a namespace without creating one.
    pub(super) fn existing(client: Client, namespace: &str) -> Self {
        Self { client, namespace: namespace.to_owned(), is_plugged_in: false }
    }

    async fn change(
        &self,
        change: impl FnOnce(&RootState) -> Result<Option<RootState>>,
    ) -> Result<Option<RootState>> {
        let (namespace, name) = (&self.namespace, ca_secret::SELF_SIGNED);
        let secret = match self.find().await? {
            Some((found, secret)) if found == name => secret,
            Some((found, _)) => {
                bail!("Secret {namespace}/{found} has a plug-in authority: replace its entries")
            }
            None => bail!("there is no Secret {namespace}/{name}"),
        };
        let before = state(&secret).with_context(|| format!("Secret {namespace}/{name}"))?;
        let Some(after) = change(&before)? else { return Ok(None) };
        let written = ca_secret::replace(&self.client, namespace, &with_state(secret, &after)).await;
        if !written.with_context(|| format!("writing Secret {namespace}/{name}"))? {
            bail!("Secret {namespace}/{name} was changed in the meantime");
        }
        Ok(Some(after))
    }

    /// Returns the Secrets of a namespace, and creates a self-signed authority if there is none. If several
    /// replicas do that at the same time, the API server accepts the first Secret, and all read that.
    ///
    /// # Errors
    /// When the API server does not answer or refuses.
    pub(super) async fn open(client: Client, namespace: &str, now: SystemTime) -> Result<Self> {
        let secrets = Self::existing(client, namespace);
        if secrets.find().await?.is_none() {
            let made = SelfSigned::create(now)?;
            let name = ca_secret::SELF_SIGNED;
            let created = ca_secret::create(&secrets.client, namespace, &made.certificate, &made.key).await;
            if created.with_context(|| format!("creating Secret {namespace}/{name}"))? {
                tracing::info!(secret = name, namespace, "created a self-signed certificate authority");
            }
        }
        Ok(secrets)
    }

    async fn read(&mut self) -> Result<AuthorityTexts> {
        let (one, other) = (ca_secret::PLUGGED_IN, ca_secret::SELF_SIGNED);
        let Some((name, secret)) = self.find().await? else {
            let namespace = &self.namespace;
            match self.is_plugged_in {
                true => bail!("there is no Secret {namespace}/{one} any more"),
                false => bail!("there is neither a Secret {namespace}/{one} nor {namespace}/{other}"),
            }
        };
        let texts = texts(&format!("Secret {}/{name}", self.namespace), &secret)?;
        self.is_plugged_in |= name == one;
        let rotation = rotation(&secret).with_context(|| format!("Secret {}/{name}", self.namespace))?;
        Ok(texts.with_rotation(rotation))
    }

    /// Reads the Secret of the plug-in authority, or else that of the self-signed one.
    async fn find(&self) -> Result<Option<(&'static str, CaSecret)>> {
        for name in candidates(self.is_plugged_in) {
            let read = ca_secret::read(&self.client, &self.namespace, name).await;
            let read = read.with_context(|| format!("reading Secret {}/{name}", self.namespace))?;
            if let Some(secret) = read {
                return Ok(Some((name, secret)));
            }
        }
        Ok(None)
    }
}

/// Returns the names of Secrets in the order in which they count.
fn candidates(is_plugged_in: bool) -> &'static [&'static str] {
    const NAMES: [&str; 2] = [ca_secret::PLUGGED_IN, ca_secret::SELF_SIGNED];
    if is_plugged_in { &NAMES[..1] } else { &NAMES }
}

/// Returns the rotation in a Secret.
fn rotation(secret: &CaSecret) -> Result<Option<Rotation>> {
    let text = secret.entries.contains_key(ca_secret::ROTATION).then(|| entry(secret, ca_secret::ROTATION));
    text.transpose()?.map(Rotation::from_text).transpose().map_err(anyhow::Error::msg)
}

/// Returns the state of a self-signed authority in its Secret.
fn state(secret: &CaSecret) -> Result<RootState> {
    let certificate = entry(secret, "ca-cert.pem")?.to_owned();
    let roots = match secret.entries.contains_key("root-cert.pem") {
        true => entry(secret, "root-cert.pem")?.to_owned(),
        false => certificate.clone(),
    };
    let key = entry(secret, "ca-key.pem")?.to_owned();
    Ok(RootState { certificate, key, roots, rotation: rotation(secret)? })
}

/// Returns the Secret with another state.
fn with_state(mut secret: CaSecret, state: &RootState) -> CaSecret {
    let RootState { certificate, key, roots, rotation } = state;
    for (name, text) in [("ca-cert.pem", certificate), ("ca-key.pem", key), ("root-cert.pem", roots)] {
        secret.entries.insert(name.to_owned(), text.clone().into_bytes());
    }
    match rotation {
        Some(rotation) => {
            secret.entries.insert(ca_secret::ROTATION.to_owned(), rotation.to_text().into_bytes());
        }
        None => drop(secret.entries.remove(ca_secret::ROTATION)),
    }
    secret
}

/// Returns an entry as text.
fn entry<'a>(secret: &'a CaSecret, name: &str) -> Result<&'a str> {
    let bytes = secret.entries.get(name).with_context(|| format!("there is no {name}"))?;
    str::from_utf8(bytes).with_context(|| name.to_owned())
}

/// Returns the texts of a Secret.
fn texts(origin: &str, secret: &CaSecret) -> Result<AuthorityTexts> {
    AuthorityTexts::of(origin, |name| {
        let bytes = secret.entries.get(name).cloned();
        Ok(bytes.map(|bytes| Text { path: format!("{origin}, {name}"), bytes }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(entries: &[(&str, &str)]) -> CaSecret {
        let entries = entries.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()));
        CaSecret { entries: entries.collect(), version: None }
    }

    #[test]
    fn secrets_have_the_names_of_istio_or_of_cert_manager() {
        let now = SystemTime::now();
        let SelfSigned { certificate, key } = SelfSigned::create(now).unwrap();
        let istio = [("ca-cert.pem", &*certificate), ("ca-key.pem", &*key), ("root-cert.pem", &*certificate)];
        let others = [("tls.crt", &*certificate), ("tls.key", &*key), ("ca.crt", &*certificate)];
        for entries in [istio, others] {
            let texts = texts("Secret istio-system/cacerts", &secret(&entries)).unwrap();
            assert!(texts.authority(now).unwrap().roots_pem().contains("CERTIFICATE"));
        }
        let error = texts("Secret istio-system/cacerts", &secret(&istio[..1])).err().unwrap();
        let expected =
            "Secret istio-system/cacerts: neither ca-cert.pem and ca-key.pem nor tls.crt and tls.key";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn unusable_entries_are_named_without_their_content() {
        let now = SystemTime::now();
        let SelfSigned { certificate, .. } = SelfSigned::create(now).unwrap();
        let planted = "-----BEGIN PRIVATE KEY-----\ncGxhbnRlZA==\n-----END PRIVATE KEY-----\n";
        let secret = secret(&[("ca-cert.pem", &certificate), ("ca-key.pem", planted)]);
        let texts = texts("Secret istio-system/cacerts", &secret).unwrap();
        let error = format!("{:#}", texts.authority(now).unwrap_err());
        assert!(error.contains("Secret istio-system/cacerts, ca-key.pem: no private key"), "{error}");
        assert!(!error.contains("cGxhbnRlZA") && !error.contains("planted"), "{error}");
    }

    #[test]
    fn rotation_of_a_secret_is_kept_in_it_until_it_ends() {
        let (now, overlap) = (SystemTime::now(), Duration::from_secs(60));
        let SelfSigned { certificate, key } = SelfSigned::create(now).unwrap();
        let first = secret(&[("ca-cert.pem", &certificate), ("ca-key.pem", &key), ("other", "stays")]);
        let begun = state(&first).unwrap().begin(overlap, now).unwrap();
        let mut stored = with_state(first, &begun);
        let mut stages = Vec::new();
        while let Some(rotation) = rotation(&stored).unwrap() {
            stages.push(rotation.stage());
            let next = state(&stored).unwrap().advance(rotation.until).unwrap().unwrap();
            stored = with_state(stored, &next);
        }
        assert_eq!(stages, ["distributing", "overlapping"]);
        let names: Vec<_> = stored.entries.keys().map(String::as_str).collect();
        assert_eq!(names, ["ca-cert.pem", "ca-key.pem", "other", "root-cert.pem"]);
        assert_ne!(stored.entries["ca-cert.pem"], certificate.into_bytes());
    }

    #[test]
    fn plug_in_authority_is_never_replaced_by_the_self_signed_one() {
        assert_eq!(candidates(false), ["cacerts", "istio-ca-secret"]);
        assert_eq!(candidates(true), ["cacerts"]);
    }
}
