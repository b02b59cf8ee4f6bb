//! CEL conditions that Envoy refuses, for each of which it refuses a whole listener.
//!
//! Only errors that Envoy finds on loading a condition are found here: syntax, functions that it does not
//! have, and disabled features (comprehensions, conversion to strings). As in Envoy, attributes without a
//! value are no error.

mod token;

use crate::path::printable;
use crate::validate::fields::regex;
use token::{Token, tokens};

/// Maximum nesting depth of expressions, as in Envoy's parser.
const MOST_DEPTH: usize = 32;

/// Reserved words, which are no names.
const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "package",
    "return",
    "var",
    "while",
];

/// Functions with their numbers of arguments, the receiver counted as one.
const FUNCTIONS: &[(&str, &[usize])] = &[
    ("bool", &[1]),
    ("bytes", &[1]),
    ("contains", &[2]),
    ("double", &[1]),
    ("duration", &[1]),
    ("dyn", &[1]),
    ("endsWith", &[2]),
    ("getDate", &[1, 2]),
    ("getDayOfMonth", &[1, 2]),
    ("getDayOfWeek", &[1, 2]),
    ("getDayOfYear", &[1, 2]),
    ("getFullYear", &[1, 2]),
    ("getHours", &[1, 2]),
    ("getMilliseconds", &[1, 2]),
    ("getMinutes", &[1, 2]),
    ("getMonth", &[1, 2]),
    ("getSeconds", &[1, 2]),
    ("int", &[1]),
    ("matches", &[2]),
    ("re.capture", &[2]),
    ("re.captureN", &[2]),
    ("re.extract", &[3]),
    ("size", &[1]),
    ("startsWith", &[2]),
    ("timestamp", &[1]),
    ("type", &[1]),
    ("uint", &[1]),
];

/// Macros over all elements of a list or map, by name and numbers of arguments.
const COMPREHENSIONS: [(&str, &[usize]); 5] =
    [("all", &[2]), ("exists", &[2]), ("exists_one", &[2]), ("filter", &[2]), ("map", &[2, 3])];

/// Returns why Envoy refuses the condition; `None` if it accepts it.
pub(in crate::validate) fn refusal(expression: &str) -> Option<String> {
    let parsed = tokens(expression).and_then(|tokens| {
        let mut parser = Parser { tokens: &tokens, depth: 0 };
        parser.expression()?;
        parser.tokens.first().map_or(Ok(()), |token| Err(format!("{token} is not expected")))
    });
    // The reason may quote a part of the expression.
    parsed.err().map(|why| printable(&why).into_owned())
}

type Step<T = ()> = Result<T, String>;

struct Parser<'a> {
    tokens: &'a [Token<'a>],
    depth: usize,
}

/// The operand just parsed, as far as the syntax that may follow depends on it.
enum Read<'a> {
    /// A name with dots.
    Name(String),
    /// A field of an operand that is no name.
    Field,
    Text(&'a str),
    /// A value of another kind: number, list, map, or result of an operator or a call.
    Value,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Option<Token<'a>> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        Some(*first)
    }

    fn take(&mut self, symbol: &str) -> bool {
        let is_next = self.tokens.first() == Some(&Token::Symbol(symbol));
        if is_next {
            self.next();
        }
        is_next
    }

    fn expect(&mut self, symbol: &str) -> Step {
        if self.take(symbol) {
            return Ok(());
        }
        let found = self.tokens.first().map_or_else(|| "the end".to_owned(), ToString::to_string);
        Err(format!("expected {symbol:?}, not {found}"))
    }

    /// Parses an expression without operator precedence, which affects only the value.
    fn expression(&mut self) -> Step<Read<'a>> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err(format!("more than {MOST_DEPTH} expressions in each other"));
        }
        let mut read = self.unary()?;
        while self.operator() {
            self.unary()?;
            read = Read::Value;
        }
        if self.take("?") {
            self.expression()?;
            self.expect(":")?;
            self.expression()?;
            read = Read::Value;
        }
        self.depth -= 1;
        Ok(read)
    }

    fn operator(&mut self) -> bool {
        const OPERATORS: [&str; 13] = ["||", "&&", "<", "<=", ">", ">=", "==", "!=", "+", "-", "*", "/", "%"];
        let is_operator = match self.tokens.first() {
            Some(Token::Symbol(symbol)) => OPERATORS.contains(symbol),
            Some(Token::Name(name)) => *name == "in",
            _ => false,
        };
        if is_operator {
            self.next();
        }
        is_operator
    }

    fn unary(&mut self) -> Step<Read<'a>> {
        let mut signed = false;
        while self.take("!") || self.take("-") {
            signed = true;
        }
        let read = self.member()?;
        Ok(if signed { Read::Value } else { read })
    }

    fn member(&mut self) -> Step<Read<'a>> {
        let mut read = self.primary()?;
        loop {
            if self.take(".") {
                let name = match self.next() {
                    Some(Token::Name("in")) | None => return Err("a name is missing after \".\"".to_owned()),
                    Some(Token::Name(name) | Token::Quoted(name)) => name,
                    Some(other) => return Err(format!("expected a name after \".\", not {other}")),
                };
                read = if self.take("(") { self.call(Some(&read), name)? } else { select(read, name) };
            } else if self.take("[") {
                self.expression()?;
                self.expect("]")?;
                read = Read::Value;
            } else if let (Read::Name(name), true) = (&read, self.take("{")) {
                if !name.starts_with("google.protobuf.") {
                    return Err(format!("there is no message {name}"));
                }
                self.entries("}", Self::entry)?;
                read = Read::Value;
            } else {
                return Ok(read);
            }
        }
    }

    fn primary(&mut self) -> Step<Read<'a>> {
        match self.next() {
            None => Err("a value is missing at the end".to_owned()),
            Some(Token::Symbol("(")) => {
                let read = self.expression()?;
                self.expect(")")?;
                Ok(match read {
                    Read::Text(_) => read,
                    _ => Read::Value,
                })
            }
            Some(Token::Symbol("[")) => {
                self.entries("]", |parser| parser.expression().map(drop))?;
                Ok(Read::Value)
            }
            Some(Token::Symbol("{")) => {
                self.entries("}", Self::entry)?;
                Ok(Read::Value)
            }
            Some(Token::Symbol(".")) => self.primary(),
            Some(Token::Name("true" | "false" | "null") | Token::Number) => Ok(Read::Value),
            Some(Token::Text(text)) => Ok(Read::Text(text)),
            Some(Token::Name(name)) if RESERVED.contains(&name) => {
                Err(format!("{name:?} is a reserved word"))
            }
            Some(Token::Name(name)) if self.take("(") => self.call(None, name),
            Some(Token::Name(name)) => Ok(Read::Name(name.to_owned())),
            Some(other) => Err(format!("expected a value, not {other}")),
        }
    }

    /// Parses a key, or the name of a field, and its value.
    fn entry(&mut self) -> Step {
        self.expression()?;
        self.expect(":")?;
        self.expression().map(drop)
    }

    /// Parses entries up to a closing symbol, with or without a trailing comma.
    fn entries(&mut self, close: &str, mut entry: impl FnMut(&mut Self) -> Step) -> Step {
        while !self.take(close) {
            entry(self)?;
            if !self.take(",") {
                return self.expect(close);
            }
        }
        Ok(())
    }

    /// Parses the arguments of a call, after the opening parenthesis.
    fn call(&mut self, receiver: Option<&Read<'_>>, name: &str) -> Step<Read<'a>> {
        let mut arguments = Vec::new();
        if !self.take(")") {
            arguments.push(self.expression()?);
            while self.take(",") {
                arguments.push(self.expression()?);
            }
            self.expect(")")?;
        }
        check_call(receiver, name, &arguments)?;
        Ok(Read::Value)
    }
}

fn select<'a>(read: Read<'_>, name: &str) -> Read<'a> {
    match read {
        Read::Name(before) => Read::Name(format!("{before}.{name}")),
        _ => Read::Field,
    }
}

fn check_call(receiver: Option<&Read<'_>>, name: &str, arguments: &[Read<'_>]) -> Step {
    let count = arguments.len();
    let counts = |known: &[(&str, &[usize])], name: &str, count: usize| {
        known.iter().any(|(of, counts)| *of == name && counts.contains(&count))
    };
    match (receiver, name, arguments) {
        (None, "has", [Read::Name(name)]) if name.contains('.') => return Ok(()),
        (None, "has", [Read::Field]) => return Ok(()),
        (None, "has", _) => return Err("has() takes one field of something".to_owned()),
        (Some(_), ..) if counts(&COMPREHENSIONS, name, count) => {
            return Err(format!("{name}() goes through all elements, which Envoy does not allow"));
        }
        _ => {}
    }
    let qualified = match receiver {
        Some(Read::Name(namespace)) => counts(FUNCTIONS, &format!("{namespace}.{name}"), count),
        _ => false,
    };
    let all = count + usize::from(receiver.is_some());
    if !qualified && !counts(FUNCTIONS, name, all) {
        return Err(format!("there is no function {name}() of {all} arguments"));
    }
    match (name, arguments.last()) {
        ("matches", Some(Read::Text(expression))) => regex::refusal(expression)
            .map_or(Ok(()), |why| Err(format!("{expression:?} is no regular expression: {why}"))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
