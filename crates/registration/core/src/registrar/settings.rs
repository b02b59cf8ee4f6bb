use crate::Limits;
use crate::liveness::LivenessSettings;

/// Settings of the registrar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegistrarSettings {
    pub limits: Limits,
    /// Settings of removals and of self-preservation.
    pub liveness: LivenessSettings,
}
