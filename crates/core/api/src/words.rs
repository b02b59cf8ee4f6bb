//! Numbers with their nouns, for messages.

/// Number with its noun, given in the singular: `1 error`, `2 proxies`.
#[must_use]
pub fn counted(count: usize, noun: &str) -> String {
    if count == 1 {
        return format!("1 {noun}");
    }
    match noun.strip_suffix('y') {
        Some(stem) => format!("{count} {stem}ies"),
        None => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nouns_agree_with_their_numbers() {
        let all = [(0, "error"), (1, "error"), (2, "error"), (1, "proxy"), (3, "proxy")];
        let texts = all.map(|(count, noun)| counted(count, noun));
        assert_eq!(texts, ["0 errors", "1 error", "2 errors", "1 proxy", "3 proxies"]);
    }
}
