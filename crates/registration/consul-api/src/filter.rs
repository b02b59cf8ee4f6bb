//! Filter expressions, a part of Consul's: comparisons joined by `and` and `or`.

use pilotfish_registration_server::Failure;
use serde_json::Value;
use std::iter::Peekable;
use std::vec::IntoIter;

/// A filter: one of the groups has to match, with all of its comparisons.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Filter(Vec<Vec<Comparison>>);

#[derive(Debug, PartialEq, Eq)]
struct Comparison {
    selector: Vec<String>,
    operator: Operator,
    is_negated: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Operator {
    Equal(String),
    Contains(String),
    Empty,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Quoted(String),
    Sign(&'static str),
}

type Tokens = Peekable<IntoIter<Token>>;

impl Filter {
    /// Parses an expression over items with these fields.
    pub(crate) fn parse(text: &str, fields: &[&str]) -> Result<Self, Failure> {
        let wrong = |reason: String| {
            Failure::invalid(format!(
                "filter: {reason}. Comparisons with ==, !=, in, not in, contains, not contains, is empty and \
                 is not empty are served, joined by and, or"
            ))
        };
        let mut tokens = tokens(text).map_err(wrong)?.into_iter().peekable();
        let mut groups = vec![Vec::new()];
        loop {
            let comparison = Comparison::parse(&mut tokens).map_err(wrong)?;
            let first = comparison.selector.first().map(String::as_str).unwrap_or_default();
            if !fields.contains(&first) {
                return Err(wrong(format!("{:?} is no selector", comparison.selector.join("."))));
            }
            if let Some(group) = groups.last_mut() {
                group.push(comparison);
            }
            match tokens.next() {
                None => return Ok(Self(groups)),
                Some(Token::Word(word)) if word == "and" => {}
                Some(Token::Word(word)) if word == "or" => groups.push(Vec::new()),
                Some(token) => return Err(wrong(format!("{token} is not expected"))),
            }
        }
    }

    /// True if an item matches.
    pub(crate) fn matches(&self, item: &Value) -> bool {
        self.0.iter().any(|group| group.iter().all(|comparison| comparison.matches(item)))
    }
}

impl Comparison {
    fn parse(tokens: &mut Tokens) -> Result<Self, String> {
        let first = tokens.next().ok_or("a comparison is missing")?;
        let word = |tokens: &mut Tokens, word: &str| {
            tokens.next_if(|token| matches!(token, Token::Word(own) if own == word)).is_some()
        };
        if let Some(Token::Sign(sign)) = tokens.next_if(|token| matches!(token, Token::Sign(_))) {
            let operator = Operator::Equal(value(tokens.next())?);
            return Ok(Self { selector: selector(&first)?, operator, is_negated: sign == "!=" });
        }
        if word(tokens, "is") {
            let is_negated = word(tokens, "not");
            if !word(tokens, "empty") {
                return Err("`is` needs `empty`".to_owned());
            }
            return Ok(Self { selector: selector(&first)?, operator: Operator::Empty, is_negated });
        }
        let is_negated = word(tokens, "not");
        if word(tokens, "in") {
            let right = tokens.next().ok_or("a selector is missing")?;
            let operator = Operator::Contains(value(Some(first))?);
            return Ok(Self { selector: selector(&right)?, operator, is_negated });
        }
        if word(tokens, "contains") {
            let operator = Operator::Contains(value(tokens.next())?);
            return Ok(Self { selector: selector(&first)?, operator, is_negated });
        }
        Err(format!("there is no known operator after {first}"))
    }

    fn matches(&self, item: &Value) -> bool {
        let matches = match &self.operator {
            Operator::Equal(value) => any(item, &self.selector, &|found| plain(found) == *value),
            Operator::Contains(value) => any(item, &self.selector, &|found| contains(found, value)),
            Operator::Empty => !any(item, &self.selector, &|found| !is_empty(found)),
        };
        matches != self.is_negated
    }
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Word(text) | Self::Quoted(text) => write!(f, "{text:?}"),
            Self::Sign(sign) => write!(f, "{sign:?}"),
        }
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let sign = ["==", "!="].into_iter().find(|sign| rest.starts_with(sign));
        let (token, length) = match (sign, first) {
            (Some(sign), _) => (Token::Sign(sign), sign.len()),
            (None, '"' | '`') => {
                let (quoted, _) = rest[1..].split_once(first).ok_or("a text does not end")?;
                (Token::Quoted(quoted.to_owned()), quoted.len() + 2)
            }
            _ => word(rest).ok_or_else(|| format!("{first:?} is not expected"))?,
        };
        tokens.push(token);
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

/// Returns the word at the start of a text. A selector may have a quoted key in brackets.
fn word(text: &str) -> Option<(Token, usize)> {
    let mut is_quoted = false;
    let end = text.find(|c: char| {
        is_quoted ^= c == '"';
        !is_quoted && c != '"' && (c.is_whitespace() || "()!=`".contains(c))
    });
    let end = end.unwrap_or(text.len());
    (end > 0).then(|| (Token::Word(text[..end].to_owned()), end))
}

/// Parses a selector such as `Service.Meta.key` or `Service.Meta["key"]`.
fn selector(token: &Token) -> Result<Vec<String>, String> {
    let Token::Word(text) = token else { return Err(format!("{token} is no selector")) };
    let mut parts = Vec::new();
    for part in text.split('[') {
        match part.strip_suffix("\"]").and_then(|part| part.strip_prefix('"')) {
            Some(key) => parts.push(key.to_owned()),
            None => parts.extend(part.split('.').filter(|part| !part.is_empty()).map(str::to_owned)),
        }
    }
    Ok(parts)
}

fn value(token: Option<Token>) -> Result<String, String> {
    match token {
        Some(Token::Word(text) | Token::Quoted(text)) => Ok(text),
        Some(token) => Err(format!("{token} is no value")),
        None => Err("a value is missing".to_owned()),
    }
}

/// True if a value at the path satisfies a test; items of lists are tried one by one.
fn any(value: &Value, path: &[String], test: &dyn Fn(&Value) -> bool) -> bool {
    let Some((name, rest)) = path.split_first() else { return test(value) };
    match value {
        Value::Array(items) => items.iter().any(|item| any(item, path, test)),
        _ => value.get(name).is_some_and(|inner| any(inner, rest, test)),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn contains(found: &Value, value: &str) -> bool {
    match found {
        Value::Array(items) => items.iter().any(|item| plain(item) == value),
        Value::Object(map) => map.contains_key(value),
        Value::String(text) => text.contains(value),
        _ => false,
    }
}

fn is_empty(found: &Value) -> bool {
    match found {
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Null => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    proptest! {
        #[test]
        fn any_text_is_a_filter_or_an_error(text in r#"(Service|Node|and|or|in|is|not|empty|[=!"`\[\]. é]|\PC){0,12}"#) {
            if let Ok(filter) = Filter::parse(&text, &FIELDS) {
                filter.matches(&json!({"Service": {"Tags": ["a"]}, "Node": null}));
            }
        }
    }

    const FIELDS: [&str; 3] = ["Node", "Service", "Checks"];

    #[test]
    fn expressions_match_fields() {
        let item = json!({"Node": {"Node": "n1"}, "Service": {"ID": "web-1", "Port": 80, "Tags": ["a", "b"],
            "Meta": {"env": "qa", "a.b": "c"}, "Address": ""}, "Checks": [{"Status": "passing"}, {"Status": "warning"}]});
        for (text, expected) in [
            (r#"Service.ID == "web-1""#, true),
            ("Service.ID == web-1", true),
            (r#"Service.ID == """#, false),
            (r#"Service.ID != "web-1""#, false),
            ("Service.Port == 80", true),
            ("Service.Meta.env==`qa`", true),
            (r#"Service.Meta["a.b"] == "c""#, true),
            (r#"Service.Meta.none == "x""#, false),
            (r#"Service.Meta.none != "x""#, true),
            (r#""a" in Service.Tags"#, true),
            ("c not in Service.Tags", true),
            (r#"Service.Tags contains "b""#, true),
            ("Service.Tags not contains b", false),
            ("env in Service.Meta", true),
            ("Service.Address is empty", true),
            ("Service.Tags is not empty", true),
            (r#"Checks.Status == "warning""#, true),
            (r#"Service.Port == 81 or Node.Node == "n1""#, true),
            (r#"Service.Port == 80 and Node.Node == "n2" or Service.ID == "x""#, false),
        ] {
            assert_eq!(Filter::parse(text, &FIELDS).unwrap().matches(&item), expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_served_is_named() {
        for (text, part) in [
            ("", "a comparison is missing"),
            ("Service.ID", "no known operator after \"Service.ID\""),
            ("Service.ID matches \"x\"", "no known operator"),
            ("Service.ID ==", "a value is missing"),
            ("Service.ID == \"x", "a text does not end"),
            ("(Service.ID == x)", "'(' is not expected"),
            ("not Service.ID == x", "no known operator after \"not\""),
            ("Service.ID == x and", "a comparison is missing"),
            ("Service.ID == x y", "\"y\" is not expected"),
            ("Service.ID is full", "`is` needs `empty`"),
            ("\"x\" == y", "\"x\" is no selector"),
            ("ServiceID == x", "\"ServiceID\" is no selector"),
            ("x in", "a selector is missing"),
            ("é", "no known operator"),
        ] {
            let error = Filter::parse(text, &FIELDS).unwrap_err();
            assert!(error.message().contains(part), "{text}: {error:?}");
            assert_eq!(error.http_status(), 400);
        }
    }
}
