//! Texts with a `*` at one end, as Envoy matches them.

use pilotfish_proto::config_any;
use pilotfish_proto::envoy::config::core::v3::TypedExtensionConfig;
use pilotfish_proto::envoy::config::route::v3::HeaderMatcher;
use pilotfish_proto::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use pilotfish_proto::envoy::extensions::path::r#match::uri_template::v3::UriTemplateMatchConfig;
use pilotfish_proto::envoy::r#type::matcher::v3::metadata_matcher::{PathSegment, path_segment};
use pilotfish_proto::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use pilotfish_proto::envoy::r#type::matcher::v3::{
    ListMatcher, MetadataMatcher, OrMatcher, PathMatcher, RegexMatcher, StringMatcher, ValueMatcher,
    list_matcher, path_matcher, value_matcher,
};

fn pattern(pattern: MatchPattern) -> StringMatcher {
    StringMatcher { match_pattern: Some(pattern), ..Default::default() }
}

/// A whole text by a regular expression.
pub(super) fn regex(regex: impl Into<String>) -> StringMatcher {
    pattern(MatchPattern::SafeRegex(RegexMatcher { regex: regex.into(), ..Default::default() }))
}

pub(super) fn exact(text: impl Into<String>) -> StringMatcher {
    pattern(MatchPattern::Exact(text.into()))
}

/// Any text that is not empty.
pub(super) fn any_text() -> StringMatcher {
    regex(".+")
}

/// Texts that begin so.
pub(super) fn prefix(text: &str) -> StringMatcher {
    pattern(MatchPattern::Prefix(text.to_owned()))
}

/// Texts that end so.
pub(super) fn suffix(text: &str) -> StringMatcher {
    pattern(MatchPattern::Suffix(text.to_owned()))
}

/// A text with a `*` at one end, or `*` for any.
pub(super) fn text(written: &str) -> StringMatcher {
    match (written.strip_prefix('*'), written.strip_suffix('*')) {
        _ if written == "*" => any_text(),
        (Some(end), _) => suffix(end),
        (_, Some(beginning)) => prefix(beginning),
        _ => exact(written),
    }
}

/// The value of a header.
pub(super) fn header(name: &str, written: &str, ignore_case: bool) -> HeaderMatcher {
    let specifier = match written {
        "*" => HeaderMatchSpecifier::PresentMatch(true),
        _ => HeaderMatchSpecifier::StringMatch(StringMatcher { ignore_case, ..text(written) }),
    };
    HeaderMatcher { name: name.to_owned(), header_match_specifier: Some(specifier), ..Default::default() }
}

/// The path of a request.
pub(super) fn path(written: &str) -> PathMatcher {
    path_by(text(written))
}

/// A path that fits a text.
pub(super) fn path_by(text: StringMatcher) -> PathMatcher {
    PathMatcher { rule: Some(path_matcher::Rule::Path(text)) }
}

/// A path with `{*}` for one element and `{**}` for any number; `None` when there is neither.
pub(super) fn path_template(written: &str) -> Option<TypedExtensionConfig> {
    if !written.contains("{*}") && !written.contains("{**}") {
        return None;
    }
    let path_template = written.replace("{**}", "**").replace("{*}", "*");
    Some(TypedExtensionConfig {
        name: "uri-template".to_owned(),
        typed_config: config_any(&UriTemplateMatchConfig { path_template }),
    })
}

/// A value that is a text.
pub(super) fn value(text: StringMatcher) -> ValueMatcher {
    ValueMatcher { match_pattern: Some(value_matcher::MatchPattern::StringMatch(text)) }
}

/// A value that fulfils one of several conditions.
pub(super) fn any_value(mut values: Vec<ValueMatcher>) -> ValueMatcher {
    if values.len() == 1 {
        return values.swap_remove(0);
    }
    let or = OrMatcher { value_matchers: values };
    ValueMatcher { match_pattern: Some(value_matcher::MatchPattern::OrMatch(or)) }
}

/// A list with an element that fulfils a condition.
pub(super) fn list_with(element: ValueMatcher) -> ValueMatcher {
    let list = ListMatcher { match_pattern: Some(list_matcher::MatchPattern::OneOf(Box::new(element))) };
    ValueMatcher { match_pattern: Some(value_matcher::MatchPattern::ListMatch(Box::new(list))) }
}

/// A value in the metadata of a filter.
pub(super) fn metadata<'a>(
    filter: &str,
    path: impl IntoIterator<Item = &'a str>,
    value: ValueMatcher,
) -> MetadataMatcher {
    let segment = |key: &str| PathSegment { segment: Some(path_segment::Segment::Key(key.to_owned())) };
    MetadataMatcher {
        filter: filter.to_owned(),
        path: path.into_iter().map(segment).collect(),
        value: Some(value),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_at_one_end() {
        let show = |matcher: StringMatcher| match matcher.match_pattern {
            Some(MatchPattern::Exact(text)) => format!("={text}"),
            Some(MatchPattern::Prefix(text)) => format!("{text}.."),
            Some(MatchPattern::Suffix(text)) => format!("..{text}"),
            Some(MatchPattern::SafeRegex(regex)) => format!("/{}/", regex.regex),
            _ => String::new(),
        };
        for (written, want) in [("a", "=a"), ("a*", "a.."), ("*a", "..a"), ("*", "/.+/")] {
            assert_eq!(show(text(written)), want, "{written}");
        }
    }

    #[test]
    fn templates_are_distinguished_from_other_texts() {
        assert!(path_template("/a/*").is_none() && path_template("/a/{*}").is_some());
    }
}
