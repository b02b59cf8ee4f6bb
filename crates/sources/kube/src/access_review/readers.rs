//! Accounts with registered interest, their permissions, and the schedule of their reviews: a state machine
//! without IO or clock.

use super::Verdict;
use pilotfish_model::SecretReader;
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// Interval between reviews of an account, whether the last one allowed or denied.
pub(super) const FRESH: Duration = Duration::from_secs(60);
/// Pause before a failed review is repeated.
pub(super) const RETRY: Duration = Duration::from_secs(5);
/// Lifetime of a verdict without a newer one. After that, the account is served no Secrets.
pub(super) const HOLD: Duration = Duration::from_secs(600);
/// Limit on the number of accounts. Further accounts have no verdict.
pub(super) const MOST: usize = 10_000;

/// Schedule and results of reviews.
#[derive(Debug, Default)]
pub(super) struct Readers {
    known: HashMap<SecretReader, Known>,
    /// Times of the next reviews.
    due: BTreeSet<(Instant, SecretReader)>,
}

#[derive(Debug)]
struct Known {
    /// Number of clients with interest in the account.
    wanted: usize,
    /// Last answer and its time.
    verdict: Option<(bool, Instant)>,
    /// Key of the account in `due`; `None` during a review.
    due: Option<Instant>,
}

impl Readers {
    /// Registers the interest of a client. Returns true if the account is kept; it must then be released.
    pub(super) fn want(&mut self, reader: &SecretReader, now: Instant) -> bool {
        if let Some(known) = self.known.get_mut(reader) {
            known.wanted += 1;
            return true;
        }
        if self.known.len() >= MOST {
            return false;
        }
        self.due.insert((now, reader.clone()));
        self.known.insert(reader.clone(), Known { wanted: 1, verdict: None, due: Some(now) });
        true
    }

    /// Ends the interest of a client. The verdict stays until the next review would be due.
    pub(super) fn release(&mut self, reader: &SecretReader) {
        if let Some(known) = self.known.get_mut(reader) {
            known.wanted = known.wanted.saturating_sub(1);
        }
    }

    /// Takes at most `most` accounts whose review is due, and the verdicts that have expired.
    pub(super) fn take_due(&mut self, most: usize, now: Instant) -> (Vec<SecretReader>, Vec<Verdict>) {
        let (mut ask, mut forgotten) = (Vec::new(), Vec::new());
        while ask.len() < most {
            let Some((_, reader)) = self.due.first().filter(|(due, _)| *due <= now).cloned() else { break };
            self.due.pop_first();
            let Some(known) = self.known.get_mut(&reader) else { continue };
            known.due = None;
            if known.wanted == 0 {
                let had = self.known.remove(&reader).is_some_and(|known| known.verdict.is_some());
                forgotten.extend(had.then_some(Verdict { reader, allowed: None }));
                continue;
            }
            if known.verdict.is_some_and(|(_, at)| now.saturating_duration_since(at) >= HOLD) {
                known.verdict = None;
                forgotten.push(Verdict { reader: reader.clone(), allowed: None });
            }
            ask.push(reader);
        }
        (ask, forgotten)
    }

    /// Stores the result of a review, `None` if it failed. Returns the verdict if it differs from the last
    /// one.
    pub(super) fn answered(
        &mut self,
        reader: &SecretReader,
        allowed: Option<bool>,
        now: Instant,
    ) -> Option<Verdict> {
        let known = self.known.get_mut(reader)?;
        let before = known.verdict.map(|(allowed, _)| allowed);
        let wait = match allowed {
            Some(allowed) => {
                known.verdict = Some((allowed, now));
                FRESH
            }
            None => RETRY,
        };
        known.due = Some(now + wait);
        self.due.insert((now + wait, reader.clone()));
        let is_news = allowed.is_some() && allowed != before;
        is_news.then(|| Verdict { reader: reader.clone(), allowed })
    }

    /// Returns the time of the next review.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(name: &str) -> SecretReader {
        SecretReader { namespace: "edge".into(), service_account: name.into(), vouched: true }
    }

    fn verdict(name: &str, allowed: Option<bool>) -> Verdict {
        Verdict { reader: reader(name), allowed }
    }

    const NONE: (Vec<SecretReader>, Vec<Verdict>) = (Vec::new(), Vec::new());

    #[test]
    fn an_account_is_asked_about_once_for_all_its_clients_and_again_when_the_answer_is_old() {
        let (mut readers, start) = (Readers::default(), Instant::now());
        let a = reader("a");
        assert!(readers.want(&a, start) && readers.want(&a, start));
        assert_eq!(readers.take_due(9, start), (vec![a.clone()], vec![]));
        assert_eq!((readers.take_due(9, start), readers.next()), (NONE, None), "it is being asked for");
        assert_eq!(readers.answered(&a, Some(true), start), Some(verdict("a", Some(true))));
        assert_eq!(readers.take_due(9, start + FRESH - RETRY), NONE);
        let again = start + FRESH;
        assert_eq!(readers.next(), Some(again));
        assert_eq!(readers.take_due(9, again), (vec![a.clone()], vec![]));
        assert_eq!(readers.answered(&a, Some(true), again), None, "that is no news");
        assert_eq!(readers.take_due(9, again + FRESH), (vec![a.clone()], vec![]));
        let taken_away = readers.answered(&a, Some(false), again + FRESH);
        assert_eq!(taken_away, Some(verdict("a", Some(false))));
    }

    #[test]
    fn without_an_answer_the_last_one_holds_for_a_while() {
        let (mut readers, start) = (Readers::default(), Instant::now());
        let a = reader("a");
        readers.want(&a, start);
        readers.take_due(9, start);
        readers.answered(&a, Some(true), start);
        let now = loop {
            let now = readers.next().unwrap();
            let (ask, forgotten) = readers.take_due(9, now);
            assert_eq!(ask, vec![a.clone()], "it is asked for again and again");
            if !forgotten.is_empty() {
                assert_eq!(forgotten, vec![verdict("a", None)]);
                break now;
            }
            assert_eq!(readers.answered(&a, None, now), None);
        };
        assert!(now >= start + HOLD && now <= start + HOLD + RETRY, "{:?}", now - start);
        readers.answered(&a, None, now);
        assert_eq!(readers.take_due(9, now + RETRY), (vec![a.clone()], vec![]), "it is forgotten once");
        let back = readers.answered(&a, Some(true), now + RETRY);
        assert_eq!(back, Some(verdict("a", Some(true))));
    }

    #[test]
    fn what_nobody_wants_is_let_go_when_it_is_not_fresh_any_more() {
        let (mut readers, start) = (Readers::default(), Instant::now());
        let a = reader("a");
        readers.want(&a, start);
        readers.release(&a);
        assert_eq!(readers.take_due(9, start), NONE, "it was not known yet");
        assert!(readers.known.is_empty() && readers.due.is_empty());

        readers.want(&a, start);
        readers.take_due(9, start);
        readers.release(&a);
        readers.answered(&a, Some(true), start);
        readers.want(&a, start + RETRY);
        assert_eq!(readers.take_due(9, start + RETRY), NONE, "a client that is back finds what is known");
        readers.release(&a);
        assert_eq!(readers.take_due(9, start + FRESH), (vec![], vec![verdict("a", None)]));
        assert!(readers.known.is_empty() && readers.due.is_empty());
    }

    #[test]
    fn there_are_never_more_than_the_limits() {
        let (mut readers, start) = (Readers::default(), Instant::now());
        let kept = (0..MOST + 5).filter(|n| readers.want(&reader(&n.to_string()), start)).count();
        assert_eq!(kept, MOST);
        assert_eq!(readers.take_due(16, start).0.len(), 16);
        assert_eq!(readers.take_due(0, start), NONE);
        assert_eq!(readers.take_due(MOST, start).0.len(), MOST - 16);
    }
}
