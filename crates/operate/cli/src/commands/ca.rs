//! `pilotfish ca`: the certificate authority of a running control plane.

use super::shown::Shown;
use crate::client::Connection;
use crate::error::CliError;
use crate::output::{Colour, Screen};
use crate::table::{Cell, Table};
use pilotfish_api::counted;
use pilotfish_api::v1::{CaRole, CaRotation, CaRotationRequest, CertificateAuthority};
use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

/// Shows the certificate authority of a running control plane, once or repeatedly. The exit code is 1 if
/// newer key and certificates cannot be used.
///
/// # Errors
/// If the request fails, or no certificates are signed.
pub async fn show_status(shown: &Shown) -> Result<ExitCode, CliError> {
    let code = |authority: &CertificateAuthority| match authority.failure {
        Some(_) => ExitCode::FAILURE,
        None => ExitCode::SUCCESS,
    };
    shown.judged("ca", &[], status, code).await
}

/// Shows the roots in PEM.
///
/// # Errors
/// If the request fails, or no certificates are signed.
pub async fn show_roots(shown: &Shown) -> Result<ExitCode, CliError> {
    shown.one("ca", &[], |authority: &CertificateAuthority, _| authority.roots.clone()).await
}

/// Begins a rotation of the root at a running control plane, which takes the role of an admin. Returns the
/// end of its first stage.
///
/// # Errors
/// If the request fails, or the rotation cannot begin.
pub async fn rotate(connection: &Connection, overlap: Duration) -> Result<String, CliError> {
    let request = CaRotationRequest { overlap_seconds: overlap.as_secs() };
    let rotation: CaRotation = connection.client().post("ca/rotate", &request).await?;
    Ok(rotation.until)
}

fn status(authority: &CertificateAuthority, screen: &Screen) -> String {
    let CertificateAuthority { source, signed, .. } = authority;
    let mut out = format!(
        "{source}: {} signed by this process\n",
        counted(usize::try_from(*signed).unwrap_or(usize::MAX), "certificate")
    );
    if let Some(failure) = &authority.failure {
        let line = format!("newer key and certificates cannot be used: {failure}");
        let _ = writeln!(out, "{}", screen.paint(&line, Colour::Bad));
    }
    if let Some(rotation) = &authority.rotation {
        let signs =
            if rotation.stage == "distributing" { "the old root signs" } else { "the new root signs" };
        let line =
            format!("rotation: {}, until {}: {signs}, both are trusted", rotation.stage, rotation.until);
        let _ = writeln!(out, "{}", screen.paint(&line, Colour::Doubtful));
    }
    let mut table = Table::new(["part", "subject", "serial", "expires"]);
    for certificate in &authority.certificates {
        let part = match certificate.role {
            CaRole::Signing => "signs",
            CaRole::Chain => "chain",
            CaRole::Root => "root",
        };
        let texts = [part, &certificate.subject, &certificate.serial, &certificate.expires];
        table.row(texts.map(Cell::from));
    }
    out + &table.text(screen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_api::v1::CaCertificate;

    #[test]
    fn status_names_source_rotation_and_certificates() {
        let certificate = |role, serial: &str| CaCertificate {
            role,
            subject: "O=Pilotfish".into(),
            serial: serial.into(),
            expires: "2036-01-01T00:00:00Z".into(),
        };
        let authority = CertificateAuthority {
            source: "Secret istio-system/istio-ca-secret, ca-cert.pem".into(),
            failure: Some("no key".into()),
            rotation: Some(CaRotation { stage: "distributing".into(), until: "2026-01-02T00:00:00Z".into() }),
            signed: 2,
            certificates: vec![certificate(CaRole::Signing, "a1"), certificate(CaRole::Root, "b2")],
            roots: String::new(),
        };
        let expected = "\
Secret istio-system/istio-ca-secret, ca-cert.pem: 2 certificates signed by this process
newer key and certificates cannot be used: no key
rotation: distributing, until 2026-01-02T00:00:00Z: the old root signs, both are trusted
PART   SUBJECT      SERIAL  EXPIRES
signs  O=Pilotfish  a1      2036-01-01T00:00:00Z
root   O=Pilotfish  b2      2036-01-01T00:00:00Z
";
        assert_eq!(status(&authority, &Screen::plain()), expected);
    }
}
