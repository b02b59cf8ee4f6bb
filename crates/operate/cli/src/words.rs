//! Verbs that agree with numbers.

/// Verb for that number of things.
pub(crate) fn is_or_are(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_agree_with_their_numbers() {
        assert_eq!([0, 1, 2].map(is_or_are), ["are", "is", "are"]);
    }
}
