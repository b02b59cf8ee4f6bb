//! Patterns of paths: `spec.servers[*].tls`, `spec.**.tls.mode`.

use crate::path::Segment;

/// Length of the shortest prefix of the path that matches the pattern.
pub(super) fn matched(pattern: &str, path: &[Segment]) -> Option<usize> {
    beginning(&parts(pattern), path, 0)
}

/// The steps of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    Field(&'a str),
    /// Any item of a list, or any key of a map.
    Each,
    /// Any number of steps.
    Deep,
}

pub(crate) fn parts(pattern: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    for step in pattern.split('.').filter(|step| !step.is_empty()) {
        match step.strip_suffix("[*]") {
            _ if step == "**" => parts.push(Part::Deep),
            Some(field) => parts.extend([Part::Field(field), Part::Each]),
            None => parts.push(Part::Field(step)),
        }
    }
    parts
}

fn beginning(parts: &[Part<'_>], path: &[Segment], length: usize) -> Option<usize> {
    let Some((part, more)) = parts.split_first() else { return Some(length) };
    let next = path.get(length);
    let fits = match (part, next) {
        (Part::Deep, _) => {
            return (length..=path.len()).find_map(|length| beginning(more, path, length));
        }
        (Part::Field(name), Some(Segment::Field(written))) => **written == **name,
        (Part::Each, Some(Segment::Index(_) | Segment::Key(_))) => true,
        _ => false,
    };
    if fits { beginning(more, path, length + 1) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FieldPath;

    #[test]
    fn a_pattern_describes_the_beginning_of_a_path() {
        for (pattern, path, length) in [
            ("", "spec.a", Some(0)),
            ("spec", "spec.a", Some(1)),
            ("spec.a", "spec.b", None),
            ("spec.a[*]", "spec.a[3].b", Some(3)),
            ("spec.a[*]", "spec.a", None),
            ("spec.a[*].b", "spec.a[x].b.c", Some(4)),
            ("spec.**.tls.mode", "spec.tls.mode", Some(3)),
            ("spec.**.tls.mode", "spec.a[1].tls.mode", Some(5)),
            ("spec.**.tls.mode", "spec.a[1].tls.sni", None),
        ] {
            assert_eq!(matched(pattern, FieldPath::parse(path).segments()), length, "{pattern} {path}");
        }
    }
}
