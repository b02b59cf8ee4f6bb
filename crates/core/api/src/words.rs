//! Numbers with their nouns, for messages.

/// Kinds that are rarely the reason of a refusal: they configure nothing in Envoy directly.
const NO_SUSPECTS: [&str; 4] = ["Service", "EndpointSlice", "Pod", "Namespace"];
/// Maximum number of objects of which one is named although none is a suspect.
const FEW: usize = 3;

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

/// Names the objects that made a refused resource, the most likely cause first, and counts the others. Among
/// many, only a suspect is named.
#[must_use]
pub fn causes(objects: &[String], others: impl Fn(&str, String) -> String) -> String {
    let is_suspect = |object: &str| !NO_SUSPECTS.contains(&object.split(' ').next().unwrap_or_default());
    match objects {
        [] => String::new(),
        [one] => one.clone(),
        [first, rest @ ..] if objects.len() <= FEW || is_suspect(first) => {
            others(first, counted(rest.len(), "other"))
        }
        many => counted(many.len(), "object"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_objects_only_suspects_are_named() {
        let objects = |first: &str, count: usize| {
            let more = (1..count).map(|n| format!("Service shop/{n}"));
            std::iter::once(first.to_owned()).chain(more).collect::<Vec<_>>()
        };
        for (first, count, text) in [
            ("Service shop/a", 1, "Service shop/a"),
            ("Service shop/a", 2, "Service shop/a (1 other)"),
            ("Service shop/a", 3, "Service shop/a (2 others)"),
            ("Service shop/a", 100, "100 objects"),
            ("EnvoyFilter shop/a", 100, "EnvoyFilter shop/a (99 others)"),
            ("ServiceEntry shop/a", 100, "ServiceEntry shop/a (99 others)"),
        ] {
            let found = causes(&objects(first, count), |first, others| format!("{first} ({others})"));
            assert_eq!(found, text);
        }
        assert_eq!(causes(&[], |_, _| String::new()), "");
    }

    #[test]
    fn nouns_agree_with_their_numbers() {
        let all = [(0, "error"), (1, "error"), (2, "error"), (1, "proxy"), (3, "proxy")];
        let texts = all.map(|(count, noun)| counted(count, noun));
        assert_eq!(texts, ["0 errors", "1 error", "2 errors", "1 proxy", "3 proxies"]);
    }
}
