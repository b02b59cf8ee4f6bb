//! Numbers with their nouns.

use pilotfish_api::counted;

/// Kinds that are rarely the reason of a refusal: they configure nothing in Envoy directly.
const NO_SUSPECTS: [&str; 4] = ["Service", "EndpointSlice", "Pod", "Namespace"];
/// Maximum number of objects of which one is named although none is a suspect.
const FEW: usize = 3;

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

/// Verb for that number of things.
pub(crate) fn is_or_are(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
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
    fn verbs_agree_with_their_numbers() {
        assert_eq!([0, 1, 2].map(is_or_are), ["are", "is", "are"]);
    }
}
