//! Forms of differences: equal for similar ones of many resources.

use crate::Difference;
use std::collections::BTreeMap;

/// Differences with one form, each with its place.
pub type Alike<'a, P> = Vec<(P, &'a Difference)>;

/// Groups differences by kind and field, without indexes of entries; the most frequent form first.
#[must_use]
pub fn by_form<'a, P>(
    differences: impl IntoIterator<Item = (P, &'a Difference)>,
) -> Vec<(String, Alike<'a, P>)> {
    let mut forms: BTreeMap<String, Alike<'a, P>> = BTreeMap::new();
    for (place, difference) in differences {
        forms.entry(form(difference)).or_default().push((place, difference));
    }
    let mut rows: Vec<_> = forms.into_iter().collect();
    // A stable sort: equally frequent forms stay in the order of their names.
    rows.sort_by_key(|(_, alike)| std::cmp::Reverse(alike.len()));
    rows
}

/// Form of a difference, such as `clusters: missing` and `routes: virtual_hosts[].domains`.
#[must_use]
pub fn form(difference: &Difference) -> String {
    match (difference.field.as_str(), &difference.got) {
        ("", None) => format!("{}: missing", difference.kind),
        ("", Some(_)) => format!("{}: extra", difference.kind),
        (field, _) => format!("{}: {}", difference.kind, without_numbers(field)),
    }
}

/// Path without the indexes of list entries: equal for similar differences.
#[must_use]
pub fn without_numbers(field: &str) -> String {
    let mut parts = field.split('[');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |out, part| {
        out + "[" + part.trim_start_matches(|c: char| c.is_ascii_digit() || c == '+')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_entries_are_left_out_of_the_general_path() {
        assert_eq!(without_numbers("a[0].b[+12].c.d"), "a[].b[].c.d");
    }
}
