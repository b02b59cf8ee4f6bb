//! Filter expressions.

use super::request::{Answer, Refusal};
use http::StatusCode;
use regex::Regex;
use serde_json::Value;
use std::collections::VecDeque;

/// [filtering] Expression: selectors with `==`, `!=`, `is empty`, `in`, `contains`, `matches`, joined by
/// `and`, `or`, `not` and parentheses.
pub(super) enum Filter {
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    Not(Box<Self>),
    Equal(Vec<String>, String),
    Empty(Vec<String>),
    Contains(Vec<String>, String),
    Matches(Vec<String>, Regex),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Word(String),
    Text(String),
    Sign(&'static str),
}

impl Filter {
    pub(super) fn parse(text: &str) -> Answer<Self> {
        let failed = |reason: String| {
            Refusal(
                StatusCode::BAD_REQUEST,
                format!("Failed to create boolean expression evaluator: {reason}"),
            )
        };
        let mut tokens = Self::tokens(text).map_err(failed)?;
        let filter = Self::or(&mut tokens).map_err(failed)?;
        match tokens.front() {
            None => Ok(filter),
            Some(token) => Err(failed(format!("unexpected {token:?}"))),
        }
    }

    pub(super) fn tokens(text: &str) -> Result<VecDeque<Token>, String> {
        let mut tokens = VecDeque::new();
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let signs = ["==", "!=", "(", ")"];
            let (token, length) = if let Some(sign) = signs.into_iter().find(|sign| rest.starts_with(sign)) {
                (Token::Sign(sign), sign.len())
            } else if first == '"' || first == '`' {
                let end = rest[1..].find(first).ok_or("a string does not end")?;
                (Token::Text(rest[1..=end].to_owned()), end + 2)
            } else {
                // A selector may have a key in brackets.
                let mut quoted = false;
                let end = rest.find(|c: char| {
                    quoted ^= c == '"';
                    !quoted && (c.is_whitespace() || "()!=`".contains(c))
                });
                let end = end.unwrap_or(rest.len());
                (Token::Word(rest[..end].to_owned()), end)
            };
            if length == 0 {
                return Err(format!("unexpected {first:?}"));
            }
            tokens.push_back(token);
            rest = rest[length..].trim_start();
        }
        Ok(tokens)
    }

    pub(super) fn or(tokens: &mut VecDeque<Token>) -> Result<Self, String> {
        let mut left = Self::and(tokens)?;
        while Self::word(tokens, "or") {
            left = Self::Or(Box::new(left), Box::new(Self::and(tokens)?));
        }
        Ok(left)
    }

    pub(super) fn and(tokens: &mut VecDeque<Token>) -> Result<Self, String> {
        let mut left = Self::not(tokens)?;
        while Self::word(tokens, "and") {
            left = Self::And(Box::new(left), Box::new(Self::not(tokens)?));
        }
        Ok(left)
    }

    pub(super) fn not(tokens: &mut VecDeque<Token>) -> Result<Self, String> {
        if Self::word(tokens, "not") {
            return Ok(Self::Not(Box::new(Self::not(tokens)?)));
        }
        if tokens.front() == Some(&Token::Sign("(")) {
            tokens.pop_front();
            let inner = Self::or(tokens)?;
            return match tokens.pop_front() {
                Some(Token::Sign(")")) => Ok(inner),
                _ => Err("a parenthesis does not end".to_owned()),
            };
        }
        Self::matching(tokens)
    }

    pub(super) fn matching(tokens: &mut VecDeque<Token>) -> Result<Self, String> {
        let left = tokens.pop_front().ok_or("an expression is missing")?;
        if tokens.front() == Some(&Token::Sign("==")) || tokens.front() == Some(&Token::Sign("!=")) {
            let unequal = tokens.pop_front() == Some(Token::Sign("!="));
            let equal = Self::Equal(Self::selector(&left)?, Self::value(tokens.pop_front())?);
            return Ok(if unequal { Self::Not(Box::new(equal)) } else { equal });
        }
        if Self::word(tokens, "is") {
            let not = Self::word(tokens, "not");
            return if Self::word(tokens, "empty") {
                let empty = Self::Empty(Self::selector(&left)?);
                Ok(if not { Self::Not(Box::new(empty)) } else { empty })
            } else {
                Err("`is` needs `empty`".to_owned())
            };
        }
        let not = Self::word(tokens, "not");
        let plain = if Self::word(tokens, "in") {
            let right = tokens.pop_front().ok_or("a selector is missing")?;
            Self::Contains(Self::selector(&right)?, Self::value(Some(left))?)
        } else if Self::word(tokens, "contains") {
            Self::Contains(Self::selector(&left)?, Self::value(tokens.pop_front())?)
        } else if Self::word(tokens, "matches") {
            let pattern = Self::value(tokens.pop_front())?;
            Self::Matches(Self::selector(&left)?, Regex::new(&pattern).map_err(|error| error.to_string())?)
        } else {
            return Err(format!("no operator after {left:?}"));
        };
        Ok(if not { Self::Not(Box::new(plain)) } else { plain })
    }

    pub(super) fn word(tokens: &mut VecDeque<Token>, word: &str) -> bool {
        let there = matches!(tokens.front(), Some(Token::Word(own)) if own == word);
        if there {
            tokens.pop_front();
        }
        there
    }

    pub(super) fn value(token: Option<Token>) -> Result<String, String> {
        match token {
            Some(Token::Word(text) | Token::Text(text)) => Ok(text),
            _ => Err("a value is missing".to_owned()),
        }
    }

    /// Parses a selector such as `Service.Meta.key` or `Service.Meta["key"]`.
    pub(super) fn selector(token: &Token) -> Result<Vec<String>, String> {
        let Token::Word(text) = token else { return Err(format!("not a selector: {token:?}")) };
        let mut parts = Vec::new();
        for part in text.split('[') {
            match part.strip_suffix("\"]").and_then(|part| part.strip_prefix('"')) {
                Some(key) => parts.push(key.to_owned()),
                None => parts.extend(part.split('.').filter(|part| !part.is_empty()).map(str::to_owned)),
            }
        }
        Ok(parts)
    }

    pub(super) fn holds(&self, item: &Value) -> bool {
        match self {
            Self::And(left, right) => left.holds(item) && right.holds(item),
            Self::Or(left, right) => left.holds(item) || right.holds(item),
            Self::Not(inner) => !inner.holds(item),
            Self::Equal(path, value) => any(item, path, &|found| plain(found) == *value),
            Self::Empty(path) => !any(item, path, &|found| match found {
                Value::Array(list) => !list.is_empty(),
                Value::Object(map) => !map.is_empty(),
                Value::String(text) => !text.is_empty(),
                _ => true,
            }),
            Self::Contains(path, value) => any(item, path, &|found| match found {
                Value::Array(list) => list.iter().any(|one| plain(one) == *value),
                Value::Object(map) => map.contains_key(value),
                Value::String(text) => text.contains(value.as_str()),
                _ => false,
            }),
            Self::Matches(path, pattern) => any(item, path, &|found| pattern.is_match(&plain(found))),
        }
    }
}

pub(super) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// True if a value at the path satisfies the test; lists are searched item by item.
pub(super) fn any(value: &Value, path: &[String], test: &dyn Fn(&Value) -> bool) -> bool {
    let Some((name, rest)) = path.split_first() else { return test(value) };
    match value {
        Value::Array(list) => list.iter().any(|one| any(one, path, test)),
        _ => value.get(name).is_some_and(|inner| any(inner, rest, test)),
    }
}
