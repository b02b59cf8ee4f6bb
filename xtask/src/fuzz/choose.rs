//! Selection of inputs to keep: a few that together cover as much as possible.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, Result};

/// Selects at most `most` inputs from the control file of a merge, each time the one with the most features
/// that no other has covered.
///
/// The file has the number of inputs and of the initial ones, their names, and a line for each with its
/// features: `FT NUMBER FEATURE...`.
///
/// # Errors
/// When the file is malformed.
pub(super) fn inputs(control: &str, most: usize) -> Result<Vec<PathBuf>> {
    let mut lines = control.lines();
    let count: usize = lines.next().and_then(|line| line.parse().ok()).context("no number of inputs")?;
    let _first = lines.next();
    let names: Vec<&str> = lines.by_ref().take(count).collect();
    let mut reached: Vec<(usize, BTreeSet<u64>)> = lines.filter_map(features).collect();
    let mut chosen = Vec::new();
    while chosen.len() < most {
        // The first one of equal inputs: they are in the order of their length.
        let best = reached.iter().rev().max_by_key(|(_, features)| features.len());
        let Some((number, new)) = best.filter(|(_, features)| !features.is_empty()).cloned() else { break };
        reached.iter_mut().for_each(|(_, features)| features.retain(|feature| !new.contains(feature)));
        chosen.push(PathBuf::from(*names.get(number).context("an input without a name")?));
    }
    Ok(chosen)
}

fn features(line: &str) -> Option<(usize, BTreeSet<u64>)> {
    let mut parts = line.strip_prefix("FT ")?.split(' ').filter_map(|part| part.parse().ok());
    let number = usize::try_from(parts.next()?).ok()?;
    Some((number, parts.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTROL: &str = "4\n1\nkept/a\nnew/b\nnew/c\nnew/d\nSTARTED 0 1\nFT 0 1 2\nCOV 0 7\nSTARTED 1 2\nFT 1 1 2 3 4\nSTARTED 2 3\n\
                           FT 2 5\nSTARTED 3 9\nFT 3 3 4\n";

    fn chosen(most: usize) -> Vec<String> {
        let chosen = inputs(CONTROL, most).unwrap();
        chosen.into_iter().map(|file| file.display().to_string()).collect()
    }

    #[test]
    fn those_that_reach_most_are_chosen_and_none_that_reaches_nothing_more() {
        assert_eq!(chosen(9), ["new/b", "new/c"]);
        assert_eq!(chosen(1), ["new/b"]);
    }

    #[test]
    fn another_form_is_an_error() {
        assert!(inputs("", 5).is_err());
        assert!(inputs("1\n0\na\nFT 7 1 2\n", 5).is_err());
        assert!(inputs("1\n0\na\n", 5).unwrap().is_empty());
    }
}
