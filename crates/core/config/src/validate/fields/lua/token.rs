//! Lexer for Lua.

use std::fmt;

/// A token of Lua source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A name or a keyword.
    Word(&'a str),
    Number,
    Text,
    Symbol(&'static str),
    End,
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => write!(f, "{:?}", word.chars().take(40).collect::<String>()),
            Self::Symbol(symbol) => write!(f, "{symbol:?}"),
            Self::Number => f.write_str("a number"),
            Self::Text => f.write_str("a text"),
            Self::End => f.write_str("the end"),
        }
    }
}

/// Symbols, longer ones first.
const SYMBOLS: [&str; 27] = [
    "...", "..", "::", "==", "~=", "<=", ">=", "+", "-", "*", "/", "%", "^", "#", "<", ">", "=", "(", ")",
    "{", "}", "[", "]", ";", ":", ",", ".",
];

/// Splits a script into tokens.
#[derive(Clone)]
pub(super) struct Lexer<'a> {
    all: &'a str,
    rest: &'a str,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(script: &'a str) -> Self {
        Self { all: script, rest: script }
    }

    /// The current line, counted from 1.
    pub(super) fn line(&self) -> usize {
        let read = self.all.len() - self.rest.len();
        1 + self.all.as_bytes().iter().take(read).filter(|byte| **byte == b'\n').count()
    }

    /// Returns the next token.
    ///
    /// # Errors
    /// If the text is no token.
    pub(super) fn next(&mut self) -> Result<Token<'a>, String> {
        self.skip()?;
        let rest = self.rest;
        let Some(first) = rest.chars().next() else { return Ok(Token::End) };
        let second = rest.chars().nth(1).unwrap_or_default();
        if first.is_ascii_digit() || first == '.' && second.is_ascii_digit() {
            return self.number();
        }
        // LuaJIT treats every byte beyond ASCII as part of a name.
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii();
        if is_word(first) {
            return Ok(Token::Word(self.cut(rest.find(|c| !is_word(c)).unwrap_or(rest.len()))));
        }
        if first == '"' || first == '\'' {
            return self.text(first);
        }
        if let Some(level) = long_bracket(rest) {
            self.long(level, "a text")?;
            return Ok(Token::Text);
        }
        let symbol = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol));
        let symbol = symbol.ok_or_else(|| format!("{first:?} is not known"))?;
        self.cut(symbol.len());
        Ok(Token::Symbol(symbol))
    }

    /// Removes and returns that many bytes.
    fn cut(&mut self, length: usize) -> &'a str {
        let (cut, rest) = self.rest.split_at(length);
        self.rest = rest;
        cut
    }

    /// Skips blanks and comments.
    fn skip(&mut self) -> Result<(), String> {
        loop {
            self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n', '\u{b}', '\u{c}']);
            let Some(comment) = self.rest.strip_prefix("--") else { return Ok(()) };
            self.rest = comment;
            match long_bracket(comment) {
                Some(level) => self.long(level, "a comment")?,
                None => self.rest = comment.find('\n').and_then(|end| comment.get(end..)).unwrap_or_default(),
            }
        }
    }

    /// Skips a long string or comment, to the closing bracket of the same level.
    fn long(&mut self, level: usize, what: &str) -> Result<(), String> {
        let close = format!("]{}]", "=".repeat(level));
        let body = self.rest.get(level + 2..).unwrap_or_default();
        let end = body.find(&close).ok_or_else(|| format!("{what} is not closed"))?;
        self.rest = body.get(end + close.len()..).unwrap_or_default();
        Ok(())
    }

    fn text(&mut self, quote: char) -> Result<Token<'a>, String> {
        self.cut(1);
        loop {
            match self.rest.chars().next() {
                None | Some('\n' | '\r') => return Err("a text is not closed".to_owned()),
                Some('\\') => self.escape()?,
                Some(c) => {
                    self.cut(c.len_utf8());
                    if c == quote {
                        return Ok(Token::Text);
                    }
                }
            }
        }
    }

    fn escape(&mut self) -> Result<(), String> {
        self.cut(1);
        let unknown = || "an escape is not known".to_owned();
        let kind = self.rest.chars().next().ok_or_else(unknown)?;
        self.cut(kind.len_utf8());
        match kind {
            'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '\\' | '"' | '\'' | '\n' | '\r' => {}
            'z' => self.rest = self.rest.trim_start(),
            'x' => {
                let digits =
                    self.rest.get(..2).filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()));
                digits.ok_or_else(unknown)?;
                self.cut(2);
            }
            'u' => {
                let inside = self.rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
                let (digits, after) = inside.ok_or_else(unknown)?;
                u32::from_str_radix(digits, 16).map_err(|_| unknown())?;
                self.rest = after;
            }
            '0'..='9' => {
                let more = self.rest.bytes().take(2).take_while(u8::is_ascii_digit).count();
                let digits = format!("{kind}{}", self.cut(more));
                digits.parse::<u8>().map_err(|_| unknown())?;
            }
            _ => return Err(unknown()),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<Token<'a>, String> {
        let bytes = self.rest.as_bytes();
        let is_hex = self.rest.starts_with("0x") || self.rest.starts_with("0X");
        let mut length = 0;
        while let Some(byte) = bytes.get(length) {
            let power: &[u8] = if is_hex { b"pP" } else { b"eE" };
            let before = length.checked_sub(1).and_then(|before| bytes.get(before));
            let is_sign = matches!(byte, b'+' | b'-') && before.is_some_and(|before| power.contains(before));
            if !(byte.is_ascii_alphanumeric() || *byte == b'.' || *byte == b'_' || is_sign) {
                break;
            }
            length += 1;
        }
        let written = self.cut(length);
        if is_number(written, is_hex) { Ok(Token::Number) } else { Err(format!("{written:?} is no number")) }
    }
}

/// Returns true if the text is a number literal, including LuaJIT's suffixes for 64-bit and imaginary
/// numbers.
fn is_number(written: &str, is_hex: bool) -> bool {
    let lower = written.to_ascii_lowercase();
    let whole = lower.strip_suffix("ull").or_else(|| lower.strip_suffix("ll"));
    if let Some(whole) = whole {
        let digits = whole.strip_prefix("0x").unwrap_or(whole);
        let radix = if is_hex { 16 } else { 10 };
        return !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    }
    let plain = lower.strip_suffix('i').unwrap_or(&lower);
    if !is_hex {
        return plain.parse::<f64>().is_ok() && plain.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    }
    let digits = plain.strip_prefix("0x").unwrap_or_default();
    let (mantissa, power) = digits.split_once('p').unwrap_or((digits, "0"));
    let power = power.strip_prefix(['+', '-']).unwrap_or(power);
    let figures = mantissa.chars().filter(|c| c.is_ascii_hexdigit()).count();
    let others = mantissa.chars().filter(|c| !c.is_ascii_hexdigit()).collect::<String>();
    figures > 0
        && (others.is_empty() || others == ".")
        && !power.is_empty()
        && power.chars().all(|c| c.is_ascii_digit())
}

/// Returns the level (number of `=`) of an opening long bracket.
fn long_bracket(rest: &str) -> Option<usize> {
    let after = rest.strip_prefix('[')?;
    let level = after.bytes().take_while(|byte| *byte == b'=').count();
    after.get(level..)?.starts_with('[').then_some(level)
}
