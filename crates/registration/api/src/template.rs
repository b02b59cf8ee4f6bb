//! Path templates of `google.api.http`: `/v1/services/{service}/instances/{id}:renew`.

use percent_encoding::percent_decode_str;

/// A path template; each variable is one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    segments: Vec<Segment>,
    /// Custom verb: the text after a colon in the last segment.
    verb: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(String),
    /// The path of a field, `instance.id`.
    Variable(String),
}

impl Template {
    /// Parses a template; `None` if it does not have this form.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let path = text.strip_prefix('/')?;
        let (path, verb) = match path.rsplit_once(':') {
            Some((path, verb)) if !verb.contains(['/', '}']) => (path, Some(verb.to_owned())),
            _ => (path, None),
        };
        let segments = path.split('/').map(|segment| match segment.strip_prefix('{') {
            Some(rest) => rest.strip_suffix('}').map(|field| Segment::Variable(field.to_owned())),
            None => (!segment.is_empty()).then(|| Segment::Literal(segment.to_owned())),
        });
        Some(Self { segments: segments.collect::<Option<_>>()?, verb })
    }

    /// Matches a path and returns the decoded value of each variable with its field. `None` if it does not
    /// match.
    pub(crate) fn matches(&self, path: &str) -> Option<Vec<(&str, String)>> {
        let path = path.strip_prefix('/')?;
        let path = match &self.verb {
            Some(verb) => path.strip_suffix(verb.as_str())?.strip_suffix(':')?,
            None => path,
        };
        let mut given = path.split('/');
        let mut variables = Vec::new();
        for segment in &self.segments {
            let text = given.next()?;
            match segment {
                Segment::Literal(literal) if literal == text => {}
                Segment::Literal(_) => return None,
                Segment::Variable(field) => {
                    let value =
                        percent_decode_str(text).decode_utf8().ok().filter(|value| !value.is_empty())?;
                    variables.push((field.as_str(), value.into_owned()));
                }
            }
        }
        given.next().is_none().then_some(variables)
    }

    /// Returns the fields of its variables.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Variable(field) => Some(field.as_str()),
            Segment::Literal(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_match_segment_by_segment() {
        let renew = "/v1/services/{service}/instances/{id}:renew";
        for (template, path, expected) in [
            ("/v1/instances", "/v1/instances", Some(vec![])),
            ("/v1/instances", "/v1/instances/", None),
            ("/v1/instances", "/v1/instance", None),
            ("/v1/instances:watch", "/v1/instances:watch", Some(vec![])),
            ("/v1/instances:watch", "/v1/instances", None),
            ("/v1/a/{x.y}", "/v1/a/b", Some(vec![("x.y", "b")])),
            ("/v1/a/{x.y}", "/v1/a/", None),
            ("/v1/a/{x.y}", "/v1/a/b%2Fc%3A1", Some(vec![("x.y", "b/c:1")])),
            ("/v1/a/{x.y}", "/v1/a/%ff", None),
            (
                renew,
                "/v1/services/web/instances/10.0.0.1:80:renew",
                Some(vec![("service", "web"), ("id", "10.0.0.1:80")]),
            ),
            (renew, "/v1/services/web/instances/a", None),
            (renew, "/v1/services/web/instances/:renew", None),
        ] {
            let parsed = Template::parse(template).unwrap();
            let found = parsed.matches(path);
            let expected = expected.map(|all: Vec<(&str, &str)>| {
                all.into_iter().map(|(f, v)| (f, v.to_owned())).collect::<Vec<_>>()
            });
            assert_eq!(found, expected, "{template} {path}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for text in ["", "v1", "/", "/v1//a", "/v1/{a", "/v1/{a}b"] {
            assert_eq!(Template::parse(text), None, "{text}");
        }
    }
}
