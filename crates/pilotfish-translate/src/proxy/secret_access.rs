//! By which right a proxy reads Secrets.

use pilotfish_model::SecretReader;

/// By which right a proxy with an identity reads Secrets. Certificates of authorities in ConfigMaps are for every identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum SecretAccess {
    /// No API server is there that could be asked: of its namespace, it reads what the configuration in force names.
    #[default]
    Referenced,
    /// As the API server says, which is a fact of the world.
    Reviewed(SecretReader),
    /// None: its identity is one of another cluster than that which the Secrets are of.
    Foreign,
}
