//! Parallel comparison of many cases.

use crate::cases::{Case, CaseObjects, translator};
use crate::dump::dump_also;
use anyhow::Result;
use pilotfish_compare::{Comparison, Difference};
use pilotfish_translate::{Proxy, Translator};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Results of all cases, by name.
pub struct Scores(pub Vec<CaseScore>);

/// Result of one case.
pub struct CaseScore {
    pub case: String,
    /// Comparison for each proxy, in the order of `proxies.yaml`.
    pub proxies: Vec<(String, Comparison)>,
    /// Reason why there is nothing to compare.
    pub error: Option<String>,
    /// Objects that Pilotfish refuses, such as `Secret edge/web: data.tls.crt`.
    pub refused: Vec<String>,
}

/// Resources of the proxies in a case, and refused objects.
pub struct Found {
    /// Dumps by the name of the proxy.
    pub dumps: BTreeMap<String, Value>,
    /// Refused objects; empty if they are unknown.
    pub refused: Vec<String>,
}

/// Compares cases, `threads` at a time. `find` returns the resources of a case's proxies.
pub fn score(cases: &[Case], threads: usize, find: impl Fn(&Case) -> Result<Found> + Sync) -> Scores {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(cases.len()));
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, cases.len().max(1)) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let score = score_case(case, &find);
                    done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(score);
                }
            });
        }
    });
    let mut scores = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    scores.sort_by(|a, b| a.case.cmp(&b.case));
    Scores(scores)
}

fn score_case(case: &Case, find: &impl Fn(&Case) -> Result<Found>) -> CaseScore {
    let mut score =
        CaseScore { case: case.name.clone(), proxies: Vec::new(), error: None, refused: Vec::new() };
    let compared = find(case).and_then(|mut found| {
        score.refused = found.refused;
        case.proxies
            .iter()
            .map(|proxy| {
                let Some(got) = found.dumps.remove(&proxy.name) else {
                    anyhow::bail!("nothing is there for the proxy {}", proxy.name)
                };
                Ok((proxy.name.clone(), Comparison::of(&case.golden(proxy)?, &got)))
            })
            .collect()
    });
    match compared {
        Ok(proxies) => score.proxies = proxies,
        Err(error) => score.error = Some(format!("{error:#}")),
    }
    score
}

/// Resources from the case's files, read in this process. `recorded_names` also includes recorded resources
/// that no proxy would request.
///
/// # Errors
/// When the case cannot be read.
pub fn dumps_of_files(case: &Case, recorded_names: bool) -> Result<Found> {
    let CaseObjects { objects, refused } = case.objects()?;
    Ok(Found { dumps: dumps(case, &translator(objects), recorded_names)?, refused })
}

/// Resources from a translator with the case's world. `recorded_names` also includes recorded resources that
/// no proxy would request.
///
/// # Errors
/// When a proxy or a recording cannot be read.
pub fn dumps(case: &Case, translator: &Translator, recorded_names: bool) -> Result<BTreeMap<String, Value>> {
    let mut dumps = BTreeMap::new();
    for entry in &case.proxies {
        let client = translator.connect(Proxy::from_node(&entry.node())?);
        let also = if recorded_names { case.golden(entry)? } else { Value::Null };
        let got = dump_also(&translator.snapshot(), &client, entry.listeners.as_deref(), &also)?;
        dumps.insert(entry.name.clone(), got);
    }
    Ok(dumps)
}

impl CaseScore {
    /// Number of equal resources, and of all.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        self.proxies.iter().map(|(_, proxy)| proxy.counts()).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    }

    /// True if everything is equal.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let (same, all) = self.counts();
        self.error.is_none() && same == all
    }

    /// First word of the case's name.
    #[must_use]
    pub fn area(&self) -> &str {
        self.case.split('-').next().unwrap_or_default()
    }
}

impl Scores {
    /// Number of equal resources, and of all.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        self.0.iter().map(CaseScore::counts).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    }

    /// Number of completely equal cases.
    #[must_use]
    pub fn whole(&self) -> usize {
        self.0.iter().filter(|case| case.is_whole()).count()
    }

    /// All differences, with `CASE/PROXY`.
    pub fn differences(&self) -> impl Iterator<Item = (String, &Difference)> {
        self.0.iter().flat_map(|case| {
            case.proxies.iter().flat_map(move |(proxy, found)| {
                let place = format!("{}/{proxy}", case.case);
                found.differences.iter().map(move |difference| (place.clone(), difference))
            })
        })
    }
}
