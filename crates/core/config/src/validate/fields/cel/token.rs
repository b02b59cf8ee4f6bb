//! Tokens of CEL.

use std::fmt;

/// A token of a CEL expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    Name(&'a str),
    /// A name between backticks.
    Quoted(&'a str),
    Number,
    /// The characters between the quotes, with escapes as they are written.
    Text(&'a str),
    Symbol(&'a str),
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(text) | Self::Quoted(text) | Self::Text(text) | Self::Symbol(text) => {
                write!(f, "{text:?}")
            }
            Self::Number => f.write_str("a number"),
        }
    }
}

/// Symbols, longer ones first.
const SYMBOLS: [&str; 24] = [
    "||", "&&", "<=", ">=", "==", "!=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")",
    "[", "]", "{", "}",
];

/// Splits an expression into tokens.
///
/// # Errors
/// If it has text that is no token.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, String> {
    let mut out = Vec::new();
    let mut rest = skip_space(text);
    while !rest.is_empty() {
        let (token, after) = token(rest)?;
        out.push(token);
        rest = skip_space(after);
    }
    Ok(out)
}

/// Skips white space and comments.
fn skip_space(text: &str) -> &str {
    let mut rest = text.trim_start_matches([' ', '\t', '\r', '\n', '\u{c}']);
    while let Some(comment) = rest.strip_prefix("//") {
        rest = comment.split_once('\n').map_or("", |(_, after)| after);
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n', '\u{c}']);
    }
    rest
}

fn token(rest: &str) -> Result<(Token<'_>, &str), String> {
    if let Some((prefix, quote, body)) = opening(rest) {
        return text(prefix, quote, body);
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let first = rest.chars().next().unwrap_or_default();
    let second = rest.chars().nth(1).unwrap_or_default();
    if first.is_ascii_digit() || first == '.' && second.is_ascii_digit() {
        return number(rest);
    }
    if is_name(first) {
        let (name, after) = rest.split_at(rest.find(|c| !is_name(c)).unwrap_or(rest.len()));
        return Ok((Token::Name(name), after));
    }
    if let Some(quoted) = rest.strip_prefix('`') {
        let (name, after) = quoted.split_once('`').ok_or("a backtick is not closed")?;
        return Ok((Token::Quoted(name), after));
    }
    let symbol = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol));
    let symbol = symbol.ok_or_else(|| format!("{first:?} is not known"))?;
    Ok((Token::Symbol(symbol), rest.strip_prefix(symbol).unwrap_or_default()))
}

/// Splits a string literal into prefix, quotes and the rest; `None` if there is none.
fn opening(rest: &str) -> Option<(&str, &str, &str)> {
    let body = rest.trim_start_matches(['r', 'R', 'b', 'B']);
    let (prefix, _) = rest.split_at(rest.len() - body.len());
    let quote = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| body.starts_with(quote))?;
    (prefix.len() <= 2).then(|| (prefix, quote, body.strip_prefix(quote).unwrap_or_default()))
}

fn text<'a>(prefix: &str, quote: &str, body: &'a str) -> Result<(Token<'a>, &'a str), String> {
    let is_raw = prefix.contains(['r', 'R']);
    let mut at = 0;
    loop {
        let rest = body.get(at..).unwrap_or_default();
        if let Some(after) = rest.strip_prefix(quote) {
            return Ok((Token::Text(body.get(..at).unwrap_or_default()), after));
        }
        match rest.chars().next() {
            None => return Err("a text is not closed".to_owned()),
            Some('\n' | '\r') if quote.len() == 1 => {
                return Err("a text is not closed on its line".to_owned());
            }
            Some('\\') if !is_raw => at += escape(rest)?,
            Some(c) => at += c.len_utf8(),
        }
    }
}

/// Length of an escape sequence.
fn escape(rest: &str) -> Result<usize, String> {
    let unknown = || format!("{:?} is no escape", rest.chars().take(2).collect::<String>());
    let kind = rest.chars().nth(1).ok_or_else(unknown)?;
    let digits = match kind {
        'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '\\' | '\'' | '"' | '`' | '?' => return Ok(2),
        'x' | 'X' => 2,
        'u' => 4,
        'U' => 8,
        '0'..='3' => {
            let is_octal =
                rest.get(1..4).is_some_and(|digits| digits.bytes().all(|b| matches!(b, b'0'..=b'7')));
            return if is_octal { Ok(4) } else { Err(unknown()) };
        }
        _ => return Err(unknown()),
    };
    let is_hex = rest.get(2..2 + digits).is_some_and(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
    if is_hex { Ok(2 + digits) } else { Err(unknown()) }
}

fn number(rest: &str) -> Result<(Token<'_>, &str), String> {
    let too_large = |text: &str| format!("the number {text} is too large");
    if let Some(hex) = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")) {
        let (digits, after) = hex.split_at(hex.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(hex.len()));
        let value = u64::from_str_radix(digits, 16).map_err(|_| too_large(digits))?;
        return whole(value, after).ok_or_else(|| too_large(digits));
    }
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let mut end = digits(rest);
    let mut is_whole = true;
    let fraction = rest.get(end..).and_then(|after| after.strip_prefix('.')).map_or(0, digits);
    if fraction > 0 {
        (end, is_whole) = (end + 1 + fraction, false);
    }
    let power = rest.get(end..).and_then(|after| after.strip_prefix(['e', 'E']));
    if let Some(power) = power {
        let unsigned = power.strip_prefix(['+', '-']).unwrap_or(power);
        if digits(unsigned) > 0 {
            end += 1 + (power.len() - unsigned.len()) + digits(unsigned);
            is_whole = false;
        }
    }
    let (written, after) = rest.split_at(end);
    if !is_whole {
        return Ok((Token::Number, after));
    }
    let value = written.parse().map_err(|_| too_large(written))?;
    whole(value, after).ok_or_else(|| too_large(written))
}

/// An integer; a trailing `u` makes it unsigned.
fn whole(value: u64, after: &str) -> Option<(Token<'_>, &str)> {
    match after.strip_prefix(['u', 'U']) {
        Some(after) => Some((Token::Number, after)),
        None => i64::try_from(value).is_ok().then_some((Token::Number, after)),
    }
}
