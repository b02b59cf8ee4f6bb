//! Verification of workload certificates, as both sides of a connection do it.

use crate::revocation::Revocations;
use rustls::pki_types::{CertificateDer, UnixTime};
use std::time::{SystemTime, UNIX_EPOCH};
use webpki::{EndEntityCert, ExpirationPolicy, KeyUsage, RevocationOptionsBuilder, anchor_from_trusted_cert};

/// Verifies a certificate as that of a client and of a server.
///
/// # Errors
/// With the reason, also for roots that cannot be used.
pub(crate) fn verify(
    leaf: &CertificateDer<'_>,
    chain: &[CertificateDer<'_>],
    roots: &[CertificateDer<'_>],
    revocations: Option<(&Revocations, ExpirationPolicy)>,
    now: SystemTime,
) -> Result<(), String> {
    let anchors: Result<Vec<_>, _> = roots.iter().map(anchor_from_trusted_cert).collect();
    let anchors = anchors.map_err(|error| format!("a root: {error}"))?;
    let leaf = EndEntityCert::try_from(leaf).map_err(|error| error.to_string())?;
    let time = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or_default());
    let lists: Vec<_> = revocations.into_iter().flat_map(|(all, _)| &all.lists).collect();
    // Envoy wants a list of each authority in the chain.
    let revocation = RevocationOptionsBuilder::new(&lists).ok();
    let revocation = revocation.zip(revocations);
    let revocation = revocation.map(|(options, (_, policy))| options.with_expiration_policy(policy).build());
    for usage in [KeyUsage::client_auth(), KeyUsage::server_auth()] {
        leaf.verify_for_usage(webpki::ALL_VERIFICATION_ALGS, &anchors, chain, time, usage, revocation, None)
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}
