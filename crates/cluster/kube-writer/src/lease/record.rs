//! Fields of a Lease for elections, and their encoding.

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::ObjectMeta;
use std::sync::Arc;
use std::time::Duration;

/// Fields of a Lease for elections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Identity of the holder; empty if it is free.
    pub(super) holder: Arc<str>,
    /// Validity after a renewal.
    pub(super) duration: Option<Duration>,
    /// Time of acquisition, by the holder's clock.
    pub(super) acquired: Option<Timestamp>,
    /// Time of the last renewal, by the holder's clock.
    pub(super) renewed: Option<Timestamp>,
    /// Number of changes of the holder.
    pub(super) transitions: i32,
}

impl Record {
    /// Record of the next claim. Every renewal differs from the one before, even if the clock stands still or
    /// was turned back: the difference shows other candidates that the holder is alive.
    pub(super) fn next(
        before: Option<&Self>,
        identity: &Arc<str>,
        duration: Duration,
        clock: Timestamp,
    ) -> Self {
        let last = before.and_then(|before| before.renewed);
        let later = last.and_then(|last| last.checked_add(SignedDuration::from_micros(1)).ok());
        let renewed = later.map_or(clock, |later| later.max(clock));
        let same = before.filter(|before| before.holder == *identity);
        let taken = before.map_or(0, |before| before.transitions.saturating_add(1));
        Self {
            holder: identity.clone(),
            duration: Some(duration),
            acquired: same.and_then(|same| same.acquired).or(Some(renewed)),
            renewed: Some(renewed),
            transitions: same.map_or(taken, |same| same.transitions),
        }
    }

    /// Record of a released Lease: the next candidate may claim it at once.
    pub(super) fn released(&self) -> Self {
        Self { holder: "".into(), duration: Some(Duration::from_secs(1)), ..self.clone() }
    }

    pub(super) fn of(spec: &LeaseSpec) -> Self {
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        Self {
            holder: spec.holder_identity.as_deref().unwrap_or_default().into(),
            duration: seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs),
            acquired: spec.acquire_time.as_ref().map(|time| time.0),
            renewed: spec.renew_time.as_ref().map(|time| time.0),
            transitions: spec.lease_transitions.unwrap_or(0),
        }
    }

    fn spec(&self) -> LeaseSpec {
        let seconds = self.duration.map(|duration| i32::try_from(duration.as_secs()).unwrap_or(i32::MAX));
        LeaseSpec {
            holder_identity: Some(self.holder.to_string()),
            lease_duration_seconds: seconds,
            acquire_time: self.acquired.map(MicroTime),
            renew_time: self.renewed.map(MicroTime),
            lease_transitions: Some(self.transitions),
            ..LeaseSpec::default()
        }
    }

    /// Lease object with the record and all other fields of `before`.
    pub(super) fn lease(&self, name: &str, version: Option<&str>, before: Option<Lease>) -> Lease {
        let mut lease = before.unwrap_or_default();
        lease.metadata = ObjectMeta {
            name: Some(name.to_owned()),
            resource_version: version.map(str::to_owned),
            ..lease.metadata
        };
        lease.spec = Some(self.spec());
        lease
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_renewal_differs_whatever_the_clock_does() {
        let identity: Arc<str> = "a".into();
        let clock = |seconds| Timestamp::from_second(seconds).unwrap();
        let duration = Duration::from_secs(15);
        let first = Record::next(None, &identity, duration, clock(1000));
        assert_eq!((first.transitions, first.acquired), (0, Some(clock(1000))));
        let stands = Record::next(Some(&first), &identity, duration, clock(1000));
        let back = Record::next(Some(&stands), &identity, duration, clock(5));
        assert!(first.renewed < stands.renewed && stands.renewed < back.renewed);
        assert_eq!((back.acquired, back.transitions), (first.acquired, 0));
        let other = Record::next(Some(&back), &"b".into(), duration, clock(2000));
        assert_eq!((other.acquired, other.transitions), (Some(clock(2000)), 1));
        let again = Record::next(Some(&other.released()), &"b".into(), duration, clock(2001));
        assert_eq!(again.transitions, 2, "to take it up again is a change");
    }

    #[test]
    fn a_record_survives_being_written() {
        let clock = Timestamp::from_microsecond(1_700_000_000_123_456).unwrap();
        let record = Record::next(None, &"pod_1".into(), Duration::from_secs(15), clock);
        let lease = record.lease("l", Some("7"), None);
        assert_eq!(Record::of(&lease.spec.unwrap()), record);
        assert_eq!(lease.metadata.resource_version.as_deref(), Some("7"));
    }

    #[test]
    fn nonsense_is_no_duration() {
        for seconds in [None, Some(0), Some(-5)] {
            let spec = LeaseSpec { lease_duration_seconds: seconds, ..LeaseSpec::default() };
            assert_eq!(Record::of(&spec).duration, None);
        }
    }
}
