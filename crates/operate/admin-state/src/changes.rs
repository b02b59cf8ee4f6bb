//! Progress of the last changes towards the proxies.

use pilotfish_admin::millis;
use pilotfish_api::v1::ChangeProgress;
use pilotfish_control_plane::history::{Change, History, Outcome, Resolution};

/// Limit on the items that are named of a change.
const NAMED: usize = 5;

/// Returns the last changes, the newest first.
pub(super) fn newest(history: &History) -> Vec<ChangeProgress> {
    history.recent().iter().map(|change| progress(change)).collect()
}

fn progress(change: &Change) -> ChangeProgress {
    let (what, more) = change.named(NAMED);
    let mut what: Vec<String> = what.into_iter().map(str::to_owned).collect();
    if what.is_empty() {
        what.push(change.summary());
    }
    let proxies = change.concerned.len();
    let mut lacking = *change.lacking.lock();
    let (is_complete, after) = match &*change.outcome.lock() {
        Some(Outcome::InForce(after)) => (true, Some(*after)),
        Some(Outcome::Refused { resolution: Resolution::Accepted(_), .. }) => (true, None),
        Some(Outcome::Refused { by, .. }) => {
            (lacking.missing, lacking.refusing) = (by.count(), by.count());
            (false, None)
        }
        Some(Outcome::Late { .. } | Outcome::Unwatched) | None => (false, None),
    };
    // A change that concerned no client, or whose clients have all disconnected, has no duration.
    let seconds = after.filter(|after| !after.is_zero());
    ChangeProgress {
        revision: change.revision,
        at: millis(change.at),
        what,
        more,
        proxies,
        acknowledged: proxies.saturating_sub(lacking.missing),
        rejected: lacking.refusing,
        complete: is_complete,
        seconds: seconds.map(|after| (after.as_secs_f64() * 10_000.0).round() / 10_000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_control_plane::history::Tracker;
    use pilotfish_control_plane::history::testing::{Case, at, object, progress as acknowledged, refuses};
    use std::time::Duration;

    #[test]
    fn a_change_names_few_objects_and_counts_the_others() {
        let mut case = Case::default();
        case.publish(vec![object("z", "start")], &[]);
        let objects = ["a", "b", "c", "d", "e", "f", "g"].map(|name| object(name, "one"));
        let change = case.publish(objects.into(), &[]);
        let told = newest(&case.history);
        assert_eq!((told[0].what.len(), told[0].more), (5, 2));
        assert_eq!(told[0].what[0], "VirtualService shop/a");
        assert!(!told[0].complete, "nobody has looked yet");
        assert_eq!(told[1].what, ["everything that there was at the start"]);
        let mut tracker = Tracker::default();
        tracker.add(change);
        tracker.settle(&[], at(2));
        let told = newest(&case.history);
        assert!(told[0].complete && told[0].seconds.is_none(), "it concerns nobody");
    }

    /// Progress of a change; 0 is the newest.
    fn told(case: &Case, place: usize) -> (usize, usize, usize, bool, Option<f64>) {
        let ChangeProgress { proxies, acknowledged, rejected, complete, seconds, .. } =
            newest(&case.history).remove(place);
        (proxies, acknowledged, rejected, complete, seconds)
    }

    #[test]
    fn a_change_tells_who_has_it_and_who_refuses_it() {
        let mut case = Case::default();
        case.publish(vec![object("a", "start")], &[]);
        let change = case.publish(vec![object("a", "one")], &[1, 2, 3]);
        let mut tracker = Tracker::default();
        tracker.add(change);
        assert_eq!(told(&case, 0), (3, 0, 0, false, None));
        let (has, lacks) = (acknowledged(1, 2, None, 0.02), acknowledged(2, 2, Some(1), 0.0));
        let refuses = refuses(3, pilotfish_proto::ResourceType::Cluster, 1, 2);
        tracker.settle(&[has, lacks, refuses], at(2) + Duration::from_millis(50));
        assert_eq!(told(&case, 0), (3, 1, 1, false, None));
        // The third one refused it, and a later change replaced it there.
        tracker.add(case.publish(vec![object("a", "two")], &[3]));
        let mended = acknowledged(3, 3, None, 0.06);
        tracker.settle(&[has, acknowledged(2, 2, None, 0.04), mended], at(2) + Duration::from_millis(80));
        assert_eq!(told(&case, 1), (3, 2, 1, false, None), "it never was in force there");
    }

    #[test]
    fn a_change_that_is_accepted_after_a_refusal_is_complete() {
        let mut case = Case::default();
        case.publish(vec![object("a", "start")], &[]);
        let mut tracker = Tracker::default();
        tracker.add(case.publish(vec![object("a", "one")], &[1]));
        let refuses = refuses(1, pilotfish_proto::ResourceType::Cluster, 1, 2);
        tracker.settle(&[refuses], at(2) + Duration::from_millis(50));
        assert_eq!(told(&case, 0), (1, 0, 1, false, None));
        tracker.add(case.publish(vec![object("b", "one")], &[1]));
        tracker.settle(&[acknowledged(1, 3, None, 0.06)], at(3));
        assert_eq!(told(&case, 1), (1, 1, 0, true, None));
    }

    #[test]
    fn so_many_changes_are_told_whatever_is_kept_of_them() {
        let mut case = Case::keeping(0);
        for revision in 1..200 {
            case.publish(vec![object("a", &format!("host-{revision}"))], &[]);
        }
        let told = newest(&case.history);
        assert_eq!((told.len(), told[0].revision), (pilotfish_admin::CHANGES, 199));
        assert!(case.history.changes().is_empty(), "beside the budget of what can be undone")
    }
}
