//! Update of the list of known differences to the results.

use super::known::{Entry, Key, Known, Refused, Resource, Resources, State, UNEXPLAINED, Way, case_of, key};
use super::{CaseScore, Scores};
use std::collections::{BTreeMap, BTreeSet};

impl Known {
    /// Updates the list to the results from files. Each remaining difference keeps its reason; a new one is
    /// added to the open ones of its case, or is marked as unexplained.
    pub fn update(&mut self, scores: &Scores, all: bool) {
        let cases: BTreeSet<&str> = scores.0.iter().map(|case| &*case.case).collect();
        let concerns = |case: &str| all || cases.contains(case);
        let mut found: BTreeMap<Key, State> =
            scores.differences().map(|(place, it)| (key(place, it), State::of(it))).collect();
        let mut unexplained = Entry {
            reason: UNEXPLAINED.into(),
            only: BTreeSet::new(),
            signs: Vec::new(),
            differs: BTreeMap::new(),
        };
        // An entry whose differences were all replaced stays the entry of its case.
        let cases_before: Vec<BTreeSet<String>> = self.open.iter().map(Entry::cases_from_files).collect();
        for entry in self.kept.iter_mut().chain(&mut self.open).filter(|entry| entry.shows(Way::Files)) {
            let listed: Vec<Key> = entry.listed().into_iter().map(|(key, _)| key).collect();
            let others = entry.listed().into_iter().filter(|(key, _)| !concerns(case_of(&key.0)));
            let stay = listed.into_iter().filter_map(|key| found.remove_entry(&key));
            entry.differs = nested(others.chain(stay).collect());
        }
        for (key, state) in found {
            let is_of_case = |cases: &BTreeSet<String>| cases.contains(case_of(&key.0));
            let at = cases_before.iter().position(is_of_case);
            let open = match at.and_then(|at| self.open.get_mut(at)) {
                Some(entry) => entry,
                None => &mut unexplained,
            };
            open.differs = nested(open.listed().into_iter().chain([(key, state)]).collect());
        }
        self.open.push(unexplained);
        self.kept.retain(|entry| !entry.differs.is_empty());
        self.open.retain(|entry| !entry.differs.is_empty());
        self.update_refused(&scores.0, concerns);
    }

    fn update_refused(&mut self, scores: &[CaseScore], concerns: impl Fn(&str) -> bool) {
        let of_case = |score: &CaseScore| {
            let case = score.case.clone();
            score.refused.clone().into_iter().map(move |object| (case.clone(), object))
        };
        let mut found: BTreeSet<(String, String)> = scores.iter().flat_map(of_case).collect();
        self.refused.retain(|it| found.remove(&(it.case.clone(), it.object.clone())) || !concerns(&it.case));
        self.refused.extend(found.into_iter().map(|(case, object)| Refused {
            case,
            object,
            reason: UNEXPLAINED.into(),
        }));
        self.refused.sort();
    }
}

fn nested(listed: Vec<(Key, State)>) -> BTreeMap<String, Resources> {
    let mut out: BTreeMap<String, Resources> = BTreeMap::new();
    for ((place, resource, field), state) in listed {
        let resources = out.entry(place).or_default();
        match state {
            State::Whole(text) => drop(resources.insert(resource, Resource::Whole(text))),
            State::Field(sides) => {
                let how = resources.entry(resource).or_insert_with(|| Resource::Fields(BTreeMap::new()));
                if let Resource::Fields(fields) = how {
                    fields.insert(field, sides);
                }
            }
        }
    }
    out
}

impl Entry {
    /// Cases with differences from files.
    fn cases_from_files(&self) -> BTreeSet<String> {
        let places = self.differs.keys().filter(|_| self.shows(Way::Files));
        places.map(|place| case_of(place).to_owned()).collect()
    }
}
