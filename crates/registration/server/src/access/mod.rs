//! Authorization: tokens and rules, from files that are read again when they change.

mod rules;
mod unruled;

use crate::identity::{ANONYMOUS, Who};
use crate::mesh::Mesh;
use arc_swap::ArcSwap;
use pilotfish_access::{Digest, NamedTokens, digest};
use pilotfish_identity::WorkloadId;
use pilotfish_registration::{Instance, InstanceKey};
use pilotfish_runtime::{RegularFileError, read_regular_text};
pub(crate) use rules::Grant;
use rules::Rules;
use serde::Deserialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum size of a file of tokens or rules in bytes.
const FILE_BYTES: u64 = 4 << 20;

/// Action of a client on an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Action {
    /// Registers, changes and renews.
    Register,
    Deregister,
    /// Gets, lists and watches.
    Read,
}

/// Error of a file of tokens or rules.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: std::io::Error },
    /// The blocking read failed.
    #[error("cannot read the files")]
    Task(#[from] std::io::Error),
    /// The file does not have the form that docs/registration.md describes.
    #[error("{0}")]
    Invalid(String),
    /// An invalid file, with its path.
    #[error("{path}: {reason}")]
    InvalidFile { path: PathBuf, reason: String },
}

impl AccessError {
    pub(crate) fn invalid(reason: impl Into<String>) -> Self {
        Self::Invalid(reason.into())
    }
}

/// Paths of tokens and rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessFiles {
    /// File of tokens (YAML).
    pub tokens: Option<PathBuf>,
    /// Rules (YAML). Without them, workloads register in their own namespace, and all clients read
    /// everything.
    pub rules: Option<PathBuf>,
}

/// Facts for authorization other than tokens and rules.
pub(crate) struct Surroundings {
    pub(crate) mesh: Arc<dyn Mesh>,
    /// The domain of the cluster.
    pub(crate) domain: String,
    /// True if only this machine reaches the listener.
    pub(crate) is_loopback: bool,
}

/// Reason for denying an action on an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// No rule allows it.
    Rule,
    /// Without rules: the instance is in another namespace than its client.
    Namespace,
    /// Without rules: the client is no workload of the mesh.
    TrustDomain,
    /// Without rules: the service is a host name with dots.
    Host,
    /// Without rules: this object defines the service.
    Owned(String),
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rule => "no rule allows it",
            Self::Namespace => "without a rule, a workload registers in its own namespace only",
            Self::TrustDomain => {
                "without a rule, only workloads of the mesh's trust domain \
                 (spiffe://DOMAIN/ns/NAMESPACE/sa/ACCOUNT) register"
            }
            Self::Host => "a host with dots needs a rule that names it",
            Self::Owned(owner) => return write!(f, "{owner} makes this service, which then needs a rule"),
        })
    }
}

/// Tokens and rules in force.
pub(crate) struct Access {
    files: AccessFiles,
    around: Surroundings,
    now: ArcSwap<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    /// Digests of both files.
    digests: Digests,
    tokens: NamedTokens,
    rules: Option<Rules>,
}

type Digests = [Option<Digest>; 2];

impl Access {
    pub(crate) fn load(files: AccessFiles, around: Surroundings) -> Result<Self, AccessError> {
        let now = ArcSwap::from_pointee(parse(&files, read(&files)?)?);
        Ok(Self { files, around, now })
    }

    /// Reads the files again; returns true if they changed. On failure the current rules and tokens stay in
    /// force.
    pub(crate) fn reload(&self) -> Result<bool, AccessError> {
        let texts = read(&self.files)?;
        if self.now.load().digests == digests(&texts) {
            return Ok(false);
        }
        self.now.store(Arc::new(parse(&self.files, texts)?));
        Ok(true)
    }

    /// True if files are configured.
    pub(crate) fn has_files(&self) -> bool {
        self.files != AccessFiles::default()
    }

    /// True if a file of tokens is configured.
    pub(crate) fn has_tokens(&self) -> bool {
        self.files.tokens.is_some()
    }

    /// Returns the identity of a token's client.
    pub(crate) fn identity(&self, digest: &Digest) -> Option<Arc<str>> {
        self.now.load().tokens.identity(digest).cloned()
    }

    /// True if the token of a client is still valid.
    pub(crate) fn is_current(&self, who: &Who) -> bool {
        let now = self.now.load();
        who.token.is_none_or(|digest| now.tokens.identity(&digest).is_some_and(|name| *name == who.identity))
    }

    /// Returns the permission of a client for an action on an instance.
    ///
    /// # Errors
    /// With the reason for denying it.
    pub(crate) fn grant(&self, who: &Who, action: Action, key: &InstanceKey) -> Result<Grant, Denied> {
        match &self.now.load().rules {
            Some(rules) => rules.grant(&who.identities, action, key).ok_or(Denied::Rule),
            None => unruled::check(who, action, key, &self.around).map(|()| Grant { any_owner: false }),
        }
    }

    /// Checks the addresses and service account of an instance whose key is granted.
    pub(crate) fn check_instance(&self, who: &Who, instance: &Instance) -> Result<(), &'static str> {
        let is_own = || is_own_account(&who.identities, instance, &*self.around.mesh);
        match &self.now.load().rules {
            Some(rules) => rules.check_instance(&who.identities, instance, is_own),
            // Anonymous clients have proved nothing, so there is no account to compare with.
            None if &*who.identity == ANONYMOUS => Ok(()),
            None if is_own() => Ok(()),
            None => Err("without a rule, a client registers its own service account only"),
        }
    }

    /// Facts for authorization other than tokens and rules.
    pub(crate) fn around(&self) -> &Surroundings {
        &self.around
    }

    /// True if a client may do this with at least some instances.
    pub(crate) fn allows_some(&self, who: &Who, action: Action) -> bool {
        self.now.load().rules.as_ref().is_none_or(|rules| rules.allows_some(&who.identities, action))
    }
}

/// True if an instance has no service account, or that of one of these SPIFFE ids in its own namespace.
/// Accounts of other trust domains do not match.
fn is_own_account(identities: &[String], instance: &Instance, mesh: &dyn Mesh) -> bool {
    let is = |id: &WorkloadId<'_>| {
        mesh.has_trust_domain(id.trust_domain)
            && id.namespace == &*instance.key.namespace
            && id.service_account == &*instance.service_account
    };
    instance.service_account.is_empty()
        || identities.iter().filter_map(|id| WorkloadId::parse(id)).any(|id| is(&id))
}

/// Contents of the files of tokens and rules.
type Texts = [Option<String>; 2];

fn read(files: &AccessFiles) -> Result<Texts, AccessError> {
    let read = |path: &Option<PathBuf>| path.as_deref().map(read_one).transpose();
    Ok([read(&files.tokens)?, read(&files.rules)?])
}

fn read_one(path: &Path) -> Result<String, AccessError> {
    let path = || path.to_owned();
    read_regular_text(&path(), FILE_BYTES).map_err(|error| match error {
        RegularFileError::Io(source) => AccessError::Read { path: path(), source },
        other => AccessError::InvalidFile { path: path(), reason: other.to_string() },
    })
}

fn digests(texts: &Texts) -> Digests {
    texts.each_ref().map(|text| text.as_deref().map(digest))
}

fn parse(files: &AccessFiles, texts: Texts) -> Result<Loaded, AccessError> {
    let digests = digests(&texts);
    let [tokens, rules] = texts;
    let tokens = tokens.map(|text| NamedTokens::parse(&text).map_err(AccessError::Invalid)).transpose();
    let tokens = tokens.map_err(in_file(files.tokens.as_deref()))?;
    let rules = rules.map(|text| Rules::parse(&text)).transpose().map_err(in_file(files.rules.as_deref()))?;
    Ok(Loaded { digests, tokens: tokens.unwrap_or_default(), rules })
}

/// Adds the path of the file to an error.
fn in_file(path: Option<&Path>) -> impl FnOnce(AccessError) -> AccessError {
    move |error| match (error, path) {
        (AccessError::Invalid(reason), Some(path)) => {
            AccessError::InvalidFile { path: path.to_owned(), reason }
        }
        (error, _) => error,
    }
}
