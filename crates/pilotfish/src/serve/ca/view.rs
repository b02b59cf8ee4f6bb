//! State of the authority for operators: `pilotfish ca`.

use super::Standing;
use super::issuer::Issuer;
use pilotfish_api::v1::{CaCertificate, CaRole, CaRotation, CertificateAuthority};
use pilotfish_ca::{CertificateInfo, CertificateRole};
use pilotfish_control_plane::control::time;

/// Returns the state of an authority; certificates that cannot be parsed are a failure.
pub(super) fn view(authority: &Issuer, standing: &Standing, signed: u64) -> CertificateAuthority {
    let (certificates, unreadable) = match authority.certificates() {
        Ok(certificates) => (certificates, None),
        Err(reason) => (Vec::new(), Some(reason)),
    };
    CertificateAuthority {
        source: standing.source.clone(),
        failure: standing.failure.clone().or(unreadable),
        rotation: standing
            .rotation
            .map(|(stage, until)| CaRotation { stage: stage.to_owned(), until: time(until) }),
        signed,
        certificates: certificates.into_iter().map(certificate).collect(),
        roots: authority.roots_pem(),
    }
}

fn certificate(info: CertificateInfo) -> CaCertificate {
    let role = match info.role {
        CertificateRole::Signing => CaRole::Signing,
        CertificateRole::Chain => CaRole::Chain,
        CertificateRole::Root => CaRole::Root,
    };
    let CertificateInfo { subject, serial, expires, .. } = info;
    CaCertificate { role, subject, serial, expires: time(expires) }
}
