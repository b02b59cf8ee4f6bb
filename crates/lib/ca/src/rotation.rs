//! Replacement of a self-signed root without a failed handshake: a state machine without IO.
//!
//! ```text
//! stage         signs   trusted      lasts
//! (none)        old     old
//! distributing  old     old, new     until all certificates that were issued with the old roots have expired
//! overlapping   new     new, old     until all certificates that the old root signed have expired
//! (none)        new     new
//! ```

use crate::{AuthorityError, SelfSigned, join_roots};
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time added to each stage: replicas, ConfigMaps and kubelets follow a change after seconds or minutes.
const MARGIN: Duration = Duration::from_secs(600);
/// Tag of the section with a rotation in a PEM text.
const TAG: &str = "PILOTFISH ROTATION";

/// Key, certificate and roots of a self-signed authority, in PEM, with the rotation that is under way.
#[derive(Clone, PartialEq, Eq)]
pub struct RootState {
    /// The certificate that signs.
    pub certificate: String,
    pub key: String,
    /// Roots that clients trust, the signing one first.
    pub roots: String,
    pub rotation: Option<Rotation>,
}

/// Stage of a rotation.
#[derive(Clone, PartialEq, Eq)]
pub struct Rotation {
    /// Time at which the next stage begins.
    pub until: SystemTime,
    pub stage: RotationStage,
}

/// Stage with its data beside the key, certificate and roots in force.
#[derive(Clone, PartialEq, Eq)]
pub enum RotationStage {
    /// The new root is trusted, and the old one signs.
    Distributing {
        /// Duration of each stage without the margin.
        overlap: Duration,
        /// Certificate of the new root.
        certificate: String,
        /// Key of the new root.
        key: String,
    },
    /// The new root signs, and the old one is trusted.
    Overlapping {
        /// Certificate of the old root.
        certificate: String,
    },
}

/// Shows the stage only.
impl fmt::Debug for Rotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rotation").field("until", &self.until).field("stage", &self.stage()).finish()
    }
}

/// Shows the stage only.
impl fmt::Debug for RootState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RootState").field("rotation", &self.rotation).finish_non_exhaustive()
    }
}

impl Rotation {
    /// Name of the stage.
    #[must_use]
    pub fn stage(&self) -> &'static str {
        match self.stage {
            RotationStage::Distributing { .. } => "distributing",
            RotationStage::Overlapping { .. } => "overlapping",
        }
    }

    /// Parses the text of [`to_text`](Self::to_text).
    ///
    /// # Errors
    /// A description of the mistake, without a part of the text.
    pub fn from_text(text: &str) -> Result<Self, String> {
        let mut lines = text.lines();
        let mut field = |name: &str| {
            let line = lines.next().and_then(|line| line.strip_prefix(name)?.strip_prefix(": "));
            line.ok_or_else(|| format!("the state of the rotation has no {name}"))
        };
        let seconds = |text: &str| {
            text.parse()
                .map(Duration::from_secs)
                .map_err(|_| "a time of the rotation is no number".to_owned())
        };
        let stage = field("stage")?;
        let until = UNIX_EPOCH
            .checked_add(seconds(field("until")?)?)
            .ok_or("the end of the rotation's stage is too late")?;
        let overlap = seconds(field("overlap")?)?;
        let sections = pem::parse_many(text).map_err(|_| "the certificates of the rotation are malformed")?;
        let section = |tag: &str| sections.iter().find(|section| section.tag() == tag).map(encoded);
        let certificate = section("CERTIFICATE").ok_or("the rotation has no certificate")?;
        let stage = match stage {
            "distributing" => {
                let key = section("PRIVATE KEY").ok_or("the rotation has no key")?;
                RotationStage::Distributing { overlap, certificate, key }
            }
            "overlapping" => RotationStage::Overlapping { certificate },
            _ => return Err("the stage of the rotation is neither distributing nor overlapping".to_owned()),
        };
        Ok(Self { until, stage })
    }

    /// Returns the rotation as a text, which holds a private key.
    #[must_use]
    pub fn to_text(&self) -> String {
        let until = self.until.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let (overlap, certificate, key) = match &self.stage {
            RotationStage::Distributing { overlap, certificate, key } => {
                (*overlap, certificate, key.as_str())
            }
            RotationStage::Overlapping { certificate } => (Duration::ZERO, certificate, ""),
        };
        let (stage, overlap) = (self.stage(), overlap.as_secs());
        format!("stage: {stage}\nuntil: {until}\noverlap: {overlap}\n{certificate}{key}")
    }

    /// Returns the rotation in a PEM text that holds other sections as well; `None` if it has none.
    ///
    /// # Errors
    /// As [`from_text`](Self::from_text).
    pub fn in_pem(text: &str) -> Result<Option<Self>, String> {
        let sections = pem::parse_many(text).map_err(|_| "the text is malformed PEM")?;
        let Some(section) = sections.iter().find(|section| section.tag() == TAG) else { return Ok(None) };
        let inner = std::str::from_utf8(section.contents()).map_err(|_| "the rotation is no text")?;
        Self::from_text(inner).map(Some)
    }
}

/// Returns the end of a stage.
fn end(now: SystemTime, overlap: Duration) -> Result<SystemTime, AuthorityError> {
    let end = overlap.checked_add(MARGIN).and_then(|time| now.checked_add(time));
    end.ok_or(AuthorityError::Overlap)
}

impl RootState {
    /// Returns the state as one PEM text.
    #[must_use]
    pub fn to_pem(&self) -> String {
        let rotation = self.rotation.as_ref();
        let rotation = rotation.map(|rotation| encoded(&pem::Pem::new(TAG, rotation.to_text())));
        let Self { certificate, key, roots, .. } = self;
        let (further, _) = join_roots([certificate.as_str(), roots]);
        let further = further.strip_prefix(certificate.as_str()).unwrap_or(&further).to_owned();
        format!("{certificate}{key}{further}{}", rotation.unwrap_or_default())
    }

    /// Parses the text of [`to_pem`](Self::to_pem).
    ///
    /// # Errors
    /// A description of the mistake, without a part of the text.
    pub fn from_pem(text: &str) -> Result<Self, String> {
        let sections = pem::parse_many(text).map_err(|_| "the text is malformed PEM")?;
        let mut certificates = sections.iter().filter(|section| section.tag() == "CERTIFICATE").map(encoded);
        let certificate = certificates.next().ok_or("the text has no certificate")?;
        let key = sections.iter().find(|section| section.tag().ends_with("PRIVATE KEY")).map(encoded);
        let key = key.ok_or("the text has no private key")?;
        let roots = [certificate.clone()].into_iter().chain(certificates).collect();
        Ok(Self { certificate, key, roots, rotation: Rotation::in_pem(text)? })
    }

    /// Begins a rotation: a new root is created and trusted. `overlap` is the longest validity of
    /// certificates that were issued, and will be.
    ///
    /// # Errors
    /// When a rotation is under way, or a root cannot be created.
    pub fn begin(&self, overlap: Duration, now: SystemTime) -> Result<Self, AuthorityError> {
        if self.rotation.is_some() {
            return Err(AuthorityError::Rotating);
        }
        let SelfSigned { certificate, key } = SelfSigned::create(now)?;
        let (roots, unusable) = join_roots([self.certificate.as_str(), &self.roots, &certificate]);
        if !unusable.is_empty() && !self.roots.is_empty() {
            return Err(AuthorityError::Roots);
        }
        let until = end(now, overlap)?;
        let stage = RotationStage::Distributing { overlap, certificate, key };
        Ok(Self { roots, rotation: Some(Rotation { until, stage }), ..self.clone() })
    }

    /// Returns the next stage if it is time for it.
    ///
    /// # Errors
    /// When the stage would end too late.
    pub fn advance(&self, now: SystemTime) -> Result<Option<Self>, AuthorityError> {
        let Some(rotation) = self.rotation.as_ref().filter(|rotation| rotation.until <= now) else {
            return Ok(None);
        };
        let next = match &rotation.stage {
            RotationStage::Distributing { overlap, certificate, key } => {
                let (roots, _) = join_roots([certificate.as_str(), &self.roots]);
                let until = end(now, *overlap)?;
                let stage = RotationStage::Overlapping { certificate: self.certificate.clone() };
                let rotation = Some(Rotation { until, stage });
                Self { certificate: certificate.clone(), key: key.clone(), roots, rotation }
            }
            RotationStage::Overlapping { certificate } => {
                let old = join_roots([certificate.as_str()]).0;
                let roots = join_roots([self.roots.as_str()]).0.replace(&old, "");
                Self { roots, rotation: None, ..self.clone() }
            }
        };
        Ok(Some(next))
    }
}

fn encoded(section: &pem::Pem) -> String {
    pem::encode_config(section, pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Authority, AuthorityPem, CertificateRequest, WorkloadKey};
    use pilotfish_identity::{Pem, WorkloadId};
    use std::collections::BTreeSet;

    const DAY: Duration = Duration::from_secs(86_400);

    fn fresh(now: SystemTime) -> RootState {
        let SelfSigned { certificate, key } = SelfSigned::create(now).unwrap();
        RootState { roots: certificate.clone(), certificate, key, rotation: None }
    }

    fn roots(text: &str) -> BTreeSet<Vec<u8>> {
        pem::parse_many(text).unwrap().into_iter().map(pem::Pem::into_contents).collect()
    }

    /// A workload: the root that signed its certificate, and the roots that it got with it.
    struct Workload {
        issuer: Vec<u8>,
        trusted: BTreeSet<Vec<u8>>,
        renews: SystemTime,
    }

    impl Workload {
        fn obtain(state: &RootState, at: SystemTime, lifetime: Duration) -> Self {
            let issuer = pem::parse(&state.certificate).unwrap().into_contents();
            Self { issuer, trusted: roots(&state.roots), renews: at + lifetime }
        }
    }

    #[test]
    fn no_two_workloads_reject_each_other_during_a_whole_rotation() {
        let start = SystemTime::now();
        let first = fresh(start);
        let mut state = first.clone();
        // Each renews at the last moment, all at different times.
        let obtain =
            |state: &RootState, hour: u32| Workload::obtain(state, start + DAY / 24 * hour, DAY - DAY / 24);
        let mut workloads: Vec<_> = (0..24).map(|hour| obtain(&state, hour)).collect();
        let mut stages = vec![(0, "none")];
        for hour in 24..24 * 6 {
            let now = start + DAY / 24 * hour;
            if hour == 30 {
                state = state.begin(DAY, now).unwrap();
                assert!(matches!(state.begin(DAY, now), Err(AuthorityError::Rotating)));
            }
            if let Some(next) = state.advance(now).unwrap() {
                state = next;
            }
            let stage = state.rotation.as_ref().map_or("none", Rotation::stage);
            if stages.last().is_none_or(|(_, last)| *last != stage) {
                stages.push((hour, stage));
            }
            for workload in workloads.iter_mut().filter(|workload| workload.renews <= now) {
                *workload = Workload::obtain(&state, now, DAY - DAY / 24);
            }
            for (one, other) in
                workloads.iter().flat_map(|one| workloads.iter().map(move |other| (one, other)))
            {
                assert!(one.trusted.contains(&other.issuer), "hour {hour}");
            }
        }
        assert_eq!(stages, [(0, "none"), (30, "distributing"), (55, "overlapping"), (80, "none")]);
        assert!(state.certificate != first.certificate && state.roots == state.certificate);
    }

    /// States of a rotation with the times at which they begin; each stage begins late by `delay`.
    fn timeline(start: SystemTime, overlap: Duration, delay: Duration) -> Vec<(SystemTime, RootState)> {
        let first = fresh(start);
        let mut all = vec![(start, first.clone()), (start + DAY, first.begin(overlap, start + DAY).unwrap())];
        while let Some(rotation) = &all.last().unwrap().1.rotation {
            let at = rotation.until + delay;
            let next = all.last().unwrap().1.advance(at).unwrap().unwrap();
            all.push((at, next));
        }
        all
    }

    /// True at `[one][other]` if a verifier with the roots of the second state accepts certificates that the
    /// first one signed.
    fn accepted(states: &[(SystemTime, RootState)], at: SystemTime) -> Vec<Vec<bool>> {
        let authority = |state: &RootState| {
            let pem = |text| Pem { origin: "ca.pem", text };
            let (certificate, key) = (pem(state.certificate.as_bytes()), pem(state.key.as_bytes()));
            let texts =
                AuthorityPem { certificate, key, chain: None, roots: Some(pem(state.roots.as_bytes())) };
            Authority::from_pem(&texts, at).unwrap()
        };
        let issue = |state: &RootState| {
            let key = WorkloadKey::create().unwrap();
            let request = CertificateRequest::from_pem(&key.request(None).unwrap()).unwrap();
            let web = WorkloadId::parse("spiffe://cluster.local/ns/shop/sa/web").unwrap();
            (authority(state).sign(&request, web, DAY, at).unwrap(), key)
        };
        let is_accepted = |(chain, key): &(Vec<String>, WorkloadKey), verifier: &RootState| {
            let (_, leaf) = chain.split_last().unwrap();
            key.accept_pem(&leaf.concat(), &verifier.roots, None, at).is_ok()
        };
        let of = |(_, signer): &(_, RootState)| {
            let issued = issue(signer);
            states.iter().map(|(_, verifier)| is_accepted(&issued, verifier)).collect()
        };
        states.iter().map(of).collect()
    }

    #[test]
    fn each_verifier_accepts_each_certificate_in_each_order_of_propagation() {
        let (start, overlap) = (UNIX_EPOCH + 20_000 * DAY, 6 * MARGIN);
        for delay in [Duration::ZERO, 3 * MARGIN] {
            let states = timeline(start, overlap, delay);
            let accepted = accepted(&states, start + DAY);
            assert!(!accepted[0][3] && !accepted[2][0], "the order of the stages matters");
            // State that a replica, a ConfigMap or an SDS stream has: each follows at its own time.
            let seen =
                |at: SystemTime, lag: Duration| states.iter().rposition(|(begins, _)| *begins <= at - lag);
            let steps = |count: u32| (0..=count).map(|step| step * (MARGIN / 2));
            // A lag is shorter than the margin, and so is what is left of a certificate at its renewal.
            let lags = [Duration::ZERO, MARGIN / 2, MARGIN - Duration::from_secs(1)];
            let mut checked = BTreeSet::new();
            for now in steps(60).map(|since| start + DAY + since) {
                // A certificate that is valid, and roots that a workload got with its own certificate.
                let ages: Vec<_> = steps(12).filter(|age| *age < overlap).collect();
                for (issued, obtained) in
                    ages.iter().flat_map(|one| ages.iter().map(move |other| (one, other)))
                {
                    for (signer, verifier) in
                        lags.iter().flat_map(|one| lags.iter().map(move |other| (one, other)))
                    {
                        let pair = seen(now - *issued, *signer).zip(seen(now - *obtained, *verifier));
                        let (signs, trusts) = pair.expect("a state was in force");
                        assert!(
                            accepted[signs][trusts],
                            "{delay:?} {issued:?} {obtained:?} {signs} {trusts}"
                        );
                        checked.insert((signs, trusts));
                    }
                }
            }
            assert!(checked.contains(&(0, 1)) && checked.contains(&(2, 1)) && checked.contains(&(1, 2)));
        }
    }

    #[test]
    fn each_stage_is_a_valid_authority_and_survives_as_text() {
        let now = SystemTime::now();
        let mut state = fresh(now);
        state.roots += &fresh(now).certificate;
        let mut all = vec![state.clone(), state.begin(DAY, now).unwrap()];
        let mut later = now;
        while let Some(rotation) = &all.last().unwrap().rotation {
            assert!(all.last().unwrap().advance(rotation.until - Duration::from_secs(1)).unwrap().is_none());
            later = rotation.until;
            let next = all.last().unwrap().advance(later).unwrap().unwrap();
            all.push(next);
        }
        assert_eq!(all.iter().map(|state| roots(&state.roots).len()).collect::<Vec<_>>(), [2, 3, 3, 2]);
        assert!(all[3].roots.starts_with(&all[3].certificate), "the further root stays, behind the new one");
        for state in &all {
            let text = state.to_pem();
            let read = RootState::from_pem(&text).unwrap();
            assert!(read.to_pem() == text && read.certificate == state.certificate && read.key == state.key);
            assert_eq!(roots(&read.roots), roots(&state.roots));
            assert_eq!(
                read.rotation.as_ref().map(Rotation::stage),
                state.rotation.as_ref().map(Rotation::stage)
            );
            let pem = Pem { origin: "ca.pem", text: text.as_bytes() };
            let texts = AuthorityPem { certificate: pem, key: pem, chain: None, roots: Some(pem) };
            let authority = Authority::from_pem(&texts, later).unwrap();
            assert_eq!(roots(&authority.roots_pem()), roots(&state.roots));
        }
    }

    #[test]
    fn malformed_states_are_described_without_their_content() {
        let now = SystemTime::now();
        let mixed = fresh(now);
        let section = "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n";
        let mixed = RootState { roots: mixed.roots.clone() + section, ..mixed };
        assert!(matches!(mixed.begin(DAY, now), Err(AuthorityError::Roots)), "no root is lost");
        let rotating = fresh(now).begin(DAY, now).unwrap();
        let good = rotating.rotation.as_ref().unwrap().to_text();
        let shown = format!("{rotating:?}");
        assert!(shown.contains("distributing") && !shown.contains("BEGIN"), "{shown}");
        assert!(Rotation::from_text(&good).is_ok());
        for (from, to, expected) in [
            ("stage: distributing", "stage: planted", "neither distributing nor overlapping"),
            ("stage:", "planted:", "has no stage"),
            ("until: ", "until: planted", "no number"),
            ("until: ", "until: 999999999", "too late"),
            ("BEGIN CERTIFICATE", "BEGIN planted", "malformed"),
            ("PRIVATE KEY", "PLANTED KEY", "has no key"),
        ] {
            let error = Rotation::from_text(&good.replace(from, to)).unwrap_err();
            assert!(error.contains(expected) && !error.contains("planted"), "{from}: {error}");
        }
        for text in ["", "planted", "-----BEGIN CERTIFICATE-----\nplanted"] {
            assert!(RootState::from_pem(text).err().is_some_and(|error| !error.contains("planted")));
        }
    }
}
