//! Bundles of roots.

use std::collections::BTreeSet;

/// Joins texts of certificates in PEM, each certificate once, in their order. Also returns the positions of
/// texts without certificates or with malformed ones, which are left out.
#[must_use]
pub fn join_roots<'a>(texts: impl IntoIterator<Item = &'a str>) -> (String, Vec<usize>) {
    let (mut joined, mut unusable) = (String::new(), Vec::new());
    let mut seen = BTreeSet::new();
    for (position, text) in texts.into_iter().enumerate() {
        let sections = pem::parse_many(text).unwrap_or_default();
        let is_certificate = |section: &pem::Pem| {
            section.tag() == "CERTIFICATE"
                && webpki::anchor_from_trusted_cert(&section.contents().into()).is_ok()
        };
        if sections.is_empty() || !sections.iter().all(is_certificate) {
            unusable.push(position);
            continue;
        }
        for section in sections {
            let section = pem::Pem::new("CERTIFICATE", section.contents());
            if seen.insert(section.contents().to_vec()) {
                let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
                joined.push_str(&pem::encode_config(&section, config));
            }
        }
    }
    (joined, unusable)
}
