//! Permission of a proxy to read Secrets.

use pilotfish_model::SecretReader;

/// Permission of an authenticated proxy to read Secrets. CA certificates in ConfigMaps are readable by every
/// identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum SecretAccess {
    /// Without an API server to ask: the proxy reads the Secrets of its namespace that the configuration
    /// refers to.
    #[default]
    Referenced,
    /// As the API server decides, which is a fact of the world.
    Reviewed(SecretReader),
    /// None: the identity belongs to another cluster than the Secrets.
    Foreign,
}
