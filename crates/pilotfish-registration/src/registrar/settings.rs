use crate::Limits;
use crate::liveness::LivenessSettings;

/// Settings of the registrar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegistrarSettings {
    /// What clients can make us keep.
    pub limits: Limits,
    /// When instances are removed, and when lapses are not believed.
    pub liveness: LivenessSettings,
}
