//! Key patterns: `{namespace}/{service}/{instance}`.

use std::collections::BTreeMap;
use std::fmt;

/// Meaning of a captured part of a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Field {
    Service,
    /// Service name as a domain with reversed labels, one per segment: `com/example/web`.
    Domain,
    Namespace,
    Group,
    Region,
    Zone,
    SubZone,
    Protocol,
    /// `HOST:PORT`, or a host alone.
    Address,
    Port,
    /// An encoded URL of a Dubbo provider.
    Url,
    /// A label of this name.
    Label(String),
    /// An instance id, used only to distinguish keys.
    Instance,
}

const FIELDS: &[(&str, Field)] = &[
    ("service", Field::Service),
    ("domain", Field::Domain),
    ("namespace", Field::Namespace),
    ("group", Field::Group),
    ("region", Field::Region),
    ("zone", Field::Zone),
    ("subZone", Field::SubZone),
    ("protocol", Field::Protocol),
    ("address", Field::Address),
    ("port", Field::Port),
    ("url", Field::Url),
    ("instance", Field::Instance),
];

impl Field {
    fn parse(name: &str) -> Result<Self, String> {
        if let Some(label) = name.strip_prefix("label:").filter(|label| !label.is_empty()) {
            return Ok(Self::Label(label.to_owned()));
        }
        let found = FIELDS.iter().find(|(known, _)| *known == name);
        found.map(|(_, field)| field.clone()).ok_or_else(|| {
            let known: Vec<_> = FIELDS.iter().map(|(known, _)| *known).collect();
            format!("there is no {{{name}}}; known are {}, label:NAME", known.join(", "))
        })
    }
}

/// Captured parts of a key.
pub(crate) type Captures = BTreeMap<Field, String>;

/// Pattern of the part of a key after the prefix.
///
/// Matching goes segment by segment, so its time is linear in the length of the key. One capture may span
/// segments; segments before it are counted from the left, those after it from the right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyPattern {
    text: String,
    before: Vec<Segment>,
    /// The capture that spans segments, and the segments after it.
    spanning: Option<(Field, Vec<Segment>)>,
}

/// Pattern of one segment: captures separated by literals. Every literal but the first and last is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Segment {
    start: String,
    captures: Vec<(Field, String)>,
}

impl fmt::Display for KeyPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl KeyPattern {
    /// Parses a pattern. Each name in braces stands for a part of a segment of the key, with `*` at its end
    /// for one or more whole segments.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut this = Self { text: text.to_owned(), before: Vec::new(), spanning: None };
        let mut seen: Vec<Field> = Vec::new();
        for written in text.split('/') {
            let spanning = written.strip_prefix('{').and_then(|rest| rest.strip_suffix("*}"));
            let segment = match spanning {
                Some(name) if !name.contains(['{', '}']) => {
                    if this.spanning.is_some() {
                        return Err("only one {NAME*} can span segments".to_owned());
                    }
                    let field = Field::parse(name)?;
                    seen.push(field.clone());
                    this.spanning = Some((field, Vec::new()));
                    continue;
                }
                _ => Segment::parse(written)?,
            };
            seen.extend(segment.captures.iter().map(|(field, _)| field.clone()));
            match &mut this.spanning {
                Some((_, after)) => after.push(segment),
                None => this.before.push(segment),
            }
        }
        let twice = seen.iter().enumerate().find(|(index, field)| seen[..*index].contains(field));
        match twice {
            Some((_, field)) if *field != Field::Instance => Err(format!("{field:?} stands in it twice")),
            _ => Ok(this),
        }
    }

    /// True if the pattern captures this field.
    pub(crate) fn has(&self, field: &Field) -> bool {
        let spanning = self.spanning.iter();
        let after = spanning.clone().flat_map(|(_, after)| after);
        let in_segments = self.before.iter().chain(after).flat_map(|segment| &segment.captures);
        in_segments.map(|(of, _)| of).chain(spanning.map(|(of, _)| of)).any(|of| of == field)
    }

    /// Returns the captures of a key; `None` if it does not match.
    pub(crate) fn captures(&self, key: &str) -> Option<Captures> {
        let segments: Vec<&str> = key.split('/').collect();
        let (before, rest) = segments.split_at_checked(self.before.len())?;
        let mut found = Captures::new();
        match &self.spanning {
            None if rest.is_empty() => {}
            None => return None,
            Some((field, after)) => {
                let (span, last) = rest.split_at_checked(rest.len().checked_sub(after.len())?)?;
                let span = join(field, span)?;
                found.insert(field.clone(), span);
                capture_all(after, last, &mut found)?;
            }
        }
        capture_all(&self.before, before, &mut found)?;
        Some(found)
    }
}

/// Joins one or more segments into one text.
fn join(field: &Field, segments: &[&str]) -> Option<String> {
    if segments.is_empty() || segments.iter().any(|segment| segment.is_empty()) {
        return None;
    }
    Some(match field {
        Field::Domain => segments.iter().rev().copied().collect::<Vec<_>>().join("."),
        _ => segments.join("/"),
    })
}

fn capture_all(segments: &[Segment], texts: &[&str], found: &mut Captures) -> Option<()> {
    segments.iter().zip(texts).try_for_each(|(segment, text)| segment.capture(text, found))
}

impl Segment {
    fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = text.split('{');
        let start = pieces.next().unwrap_or_default().to_owned();
        let mut captures: Vec<(Field, String)> = Vec::new();
        for piece in pieces {
            let (name, after) =
                piece.split_once('}').ok_or_else(|| format!("a }} is missing in {text:?}"))?;
            if captures.last().is_some_and(|(_, between)| between.is_empty()) {
                return Err(format!("nothing stands between two names in {text:?}"));
            }
            captures.push((Field::parse(name)?, after.to_owned()));
        }
        let stray = start.contains('}') || captures.iter().any(|(_, after)| after.contains('}'));
        if stray { Err(format!("a {{ is missing in {text:?}")) } else { Ok(Self { start, captures }) }
    }

    /// Each capture ends at the first occurrence of the literal after it; the last one at the end.
    fn capture(&self, text: &str, found: &mut Captures) -> Option<()> {
        let mut rest = text.strip_prefix(self.start.as_str())?;
        if self.captures.is_empty() && !rest.is_empty() {
            return None;
        }
        let last = self.captures.len().saturating_sub(1);
        for (index, (field, after)) in self.captures.iter().enumerate() {
            let (value, next) = if index == last {
                (rest.strip_suffix(after.as_str())?, "")
            } else {
                rest.split_once(after.as_str())?
            };
            if value.is_empty() {
                return None;
            }
            found.insert(field.clone(), value.to_owned());
            rest = next;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, key: &str, wanted: Option<&[(&str, &str)]>) {
        let pattern = KeyPattern::parse(pattern).unwrap();
        let found = pattern.captures(key);
        let wanted: Option<Captures> = wanted.map(|wanted| {
            wanted.iter().map(|(name, value)| (Field::parse(name).unwrap(), (*value).to_owned())).collect()
        });
        assert_eq!(found, wanted, "{pattern} of {key}");
    }

    #[test]
    fn keys_are_taken_apart() {
        let plain = "{service}/{instance}";
        check(plain, "web/1", Some(&[("service", "web"), ("instance", "1")]));
        check(plain, "web", None);
        check(plain, "web/1/x", None);
        check(plain, "web/", None);
        check(plain, "/1", None);
        check(
            "v1/{namespace}/{service}:{label:version}/{address}",
            "v1/shop/web:a:b/10.0.0.1:80",
            Some(&[
                ("namespace", "shop"),
                ("service", "web"),
                ("label:version", "a:b"),
                ("address", "10.0.0.1:80"),
            ]),
        );
        check("v1/{service}", "v2/web", None);
        check("{service}.json", "web.json", Some(&[("service", "web")]));
        check("{service}.json", "web.yaml", None);
        check("{service}.json", ".json", None);
    }

    #[test]
    fn a_capture_may_span_segments() {
        let grpc = "{service*}/{address}";
        check(grpc, "a/b/c/10.0.0.1:80", Some(&[("service", "a/b/c"), ("address", "10.0.0.1:80")]));
        check(grpc, "a/b", Some(&[("service", "a"), ("address", "b")]));
        check(grpc, "a", None);
        check(grpc, "a//b", None);
        let dns = "{domain*}/{instance}";
        check(dns, "com/example/web/x1", Some(&[("domain", "web.example.com"), ("instance", "x1")]));
        check("{zone}/{service*}", "z/a/b", Some(&[("zone", "z"), ("service", "a/b")]));
        check("{zone}/{service*}/{instance}", "z/a", None);
    }

    #[test]
    fn mistakes_are_told() {
        let cases = [
            ("{name}", "there is no {name}; known are service, domain"),
            ("{service", "a } is missing"),
            ("service}", "a { is missing"),
            ("{service}{instance}", "nothing stands between"),
            ("{service*}/{group*}", "only one {NAME*}"),
            ("{service}/{service}", "Service stands in it twice"),
            ("{label:}", "there is no {label:}"),
        ];
        for (text, wanted) in cases {
            let error = KeyPattern::parse(text).unwrap_err();
            assert!(error.starts_with(wanted), "{text}: {error}");
        }
    }
}
