//! Paths of fields in an object: `spec.http[0].route[1].weight`.

use std::borrow::Cow;
use std::fmt;

/// Path of a field in an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath(Vec<Segment>);

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Segment {
    /// A field of a message.
    Field(Box<str>),
    /// A key of a map with free keys.
    Key(Box<str>),
    /// An item of a list, counted from 0.
    Index(usize),
}

impl FieldPath {
    pub(crate) fn new(segments: Vec<Segment>) -> Self {
        Self(segments)
    }

    pub(crate) fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// Reads a path of fields and indices as it is printed: `spec.http[0].timeout`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut segments = Vec::new();
        for part in text.split('.') {
            let mut pieces = part.split('[');
            segments.extend(
                pieces.next().filter(|name| !name.is_empty()).map(|name| Segment::Field(name.into())),
            );
            segments.extend(
                pieces.filter_map(|piece| piece.strip_suffix(']')).map(|inside| {
                    inside.parse().map_or_else(|_| Segment::Key(inside.into()), Segment::Index)
                }),
            );
        }
        Self(segments)
    }

    /// True if a problem at this path may only follow from a field that cannot be read: this path contains
    /// the field, is beside it, or is within it.
    #[must_use]
    pub(crate) fn may_follow_from(&self, unreadable: &Self) -> bool {
        let (own, field) = (&self.0, &unreadable.0);
        let home = field.split_last().map_or(&[][..], |(_, home)| home);
        home.starts_with(own)
            || own.split_last().is_some_and(|(_, beside)| beside == home)
            || own.starts_with(field)
    }

    /// True if the path is that of the object itself.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Field(name) if position == 0 => f.write_str(&printable(name))?,
                Segment::Field(name) => write!(f, ".{}", printable(name))?,
                Segment::Key(key) => write!(f, "[{}]", printable(key))?,
                Segment::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// Returns the text as it is if it is short and on one line, else its beginning with control characters
/// escaped. The content of a file must not add lines to a log or control a terminal.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    const LONGEST: usize = 100;
    let escaped = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    if text.len() <= LONGEST && !text.contains(escaped) {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    for c in text.chars().take(LONGEST) {
        if escaped(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    if text.chars().nth(LONGEST).is_some() {
        out.push_str("...");
    }
    Cow::Owned(out)
}

/// Path of a field during a check: linked on the stack, and converted only for a problem.
#[derive(Clone, Copy)]
pub(crate) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Field(&'a str),
    Key(&'a str),
    Index(usize),
}

impl<'a> Path<'a> {
    /// Path of the object itself.
    pub(crate) const ROOT: Path<'static> = Path { parent: None, step: Step::Root };

    pub(crate) fn field(&'a self, name: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Field(name) }
    }

    pub(crate) fn key(&'a self, key: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Key(key) }
    }

    pub(crate) fn index(&'a self, index: usize) -> Path<'a> {
        Path { parent: Some(self), step: Step::Index(index) }
    }

    pub(crate) fn to_field_path(self) -> FieldPath {
        let mut segments = Vec::new();
        let mut at = Some(&self);
        while let Some(path) = at {
            match path.step {
                Step::Root => {}
                Step::Field(name) => segments.push(Segment::Field(name.into())),
                Step::Key(key) => segments.push(Segment::Key(key.into())),
                Step::Index(index) => segments.push(Segment::Index(index)),
            }
            at = path.parent;
        }
        segments.reverse();
        FieldPath(segments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_written_like_in_kubectl() {
        let spec = Path::ROOT.field("spec");
        let labels = spec.field("subsets");
        let subset = labels.index(2);
        let labels = subset.field("labels");
        let path = labels.key("app.kubernetes.io/name").to_field_path();
        assert_eq!(path.to_string(), "spec.subsets[2].labels[app.kubernetes.io/name]");
        assert_eq!(Path::ROOT.to_field_path().to_string(), "");
    }

    #[test]
    fn what_a_file_holds_stays_on_its_line() {
        assert_eq!(printable("a.b/c"), "a.b/c");
        assert_eq!(printable("a\nERROR\u{1b}[0m"), "a\\nERROR\\u{1b}[0m");
        assert_eq!(printable(&"ä".repeat(200)), format!("{}...", "ä".repeat(100)));
        assert_eq!(Path::ROOT.key("a\nb").to_field_path().to_string(), "[a\\nb]");
    }
}
