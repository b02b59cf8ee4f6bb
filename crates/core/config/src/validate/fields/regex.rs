//! Regular expressions that RE2 and Go refuse. Envoy refuses a whole resource for one such expression.
//!
//! The expression is parsed in one pass without recursion, so that no text can exhaust the stack.

use crate::path::printable;
use std::collections::HashSet;

/// Maximum number of repetitions of one item, including nested repetitions.
const MOST_REPEATS: u32 = 1_000;

/// Maximum nesting depth of groups.
const MOST_DEPTH: usize = 1_000;

/// Maximum size of a regular expression, in bytes, checked before parsing (limit `regex-bytes`). Some fields
/// allow less.
pub const MAX_REGEX_BYTES: usize = 16 << 10;

/// True if RE2, and so Envoy, accepts the text as a regular expression.
#[must_use]
pub fn is_regex(expression: &str) -> bool {
    refusal(expression).is_none()
}

/// Returns why RE2 refuses the expression; `None` if it accepts it.
pub(in crate::validate) fn refusal(expression: &str) -> Option<String> {
    if expression.len() > MAX_REGEX_BYTES {
        let length = expression.len();
        return Some(format!(
            "has {length} bytes, and at most {MAX_REGEX_BYTES} are allowed (limit regex-bytes)"
        ));
    }
    let mut parser = Parser::new(expression);
    // The reason may quote a part of the expression.
    parser.run().err().map(|why| printable(&why).into_owned())
}

type Step<T = ()> = Result<T, String>;

/// The item before a repetition operator.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Last {
    #[default]
    Nothing,
    Atom,
    Repeated,
}

#[derive(Default)]
struct Group {
    last: Last,
    /// The product of repetitions in the last atom, and the largest in the group.
    repeats: u32,
    most: u32,
}

struct Parser<'a> {
    rest: &'a str,
    groups: Vec<Group>,
    names: HashSet<&'a str>,
    /// True if no `:]` is left, which saves searching for it again at each `[:`.
    no_posix: bool,
}

impl<'a> Parser<'a> {
    fn new(expression: &'a str) -> Self {
        Self { rest: expression, groups: vec![Group::default()], names: HashSet::new(), no_posix: false }
    }

    fn run(&mut self) -> Step {
        while let Some(c) = self.next() {
            match c {
                '(' => self.open()?,
                ')' => self.close()?,
                '|' => self.top(|group| group.last = Last::Nothing),
                '[' => self.class()?,
                '\\' => self.escape_or_quote()?,
                '*' | '+' | '?' => self.repeat(1, c)?,
                '{' => match self.counts() {
                    Some((least, most)) => self.repeat_counted(least, most)?,
                    None => self.atom(),
                },
                _ => self.atom(),
            }
        }
        if self.groups.len() > 1 { Err("missing closing )".to_owned()) } else { Ok(()) }
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = self.rest.get(c.len_utf8()..)?;
        Some(c)
    }

    fn eat(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Consumes characters while the condition holds.
    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !wanted(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn top(&mut self, change: impl FnOnce(&mut Group)) {
        if let Some(group) = self.groups.last_mut() {
            change(group);
        }
    }

    fn atom(&mut self) {
        self.top(|group| (group.last, group.repeats) = (Last::Atom, 1));
    }

    fn open(&mut self) -> Step {
        if self.eat("?") && !self.group_kind()? {
            return Ok(());
        }
        if self.groups.len() > MOST_DEPTH {
            return Err("groups are nested too deeply".to_owned());
        }
        self.groups.push(Group::default());
        Ok(())
    }

    /// Parses the rest of a group after `(?`. Returns true if a group begins, false if only flags are set.
    fn group_kind(&mut self) -> Step<bool> {
        let unknown = |rest: &str| {
            let text: String = rest.chars().take(2).collect();
            Err(format!("(?{text} is not supported"))
        };
        let start = self.rest;
        if !self.rest.starts_with("<=") && !self.rest.starts_with("<!") && (self.eat("P<") || self.eat("<")) {
            let name = self.take_while(|c| c.is_alphanumeric() || c == '_');
            if name.is_empty() || !self.eat(">") {
                return Err("the name of a group must be letters, digits and _".to_owned());
            }
            if !self.names.insert(name) {
                return Err(format!("two groups are named {name:?}"));
            }
            return Ok(true);
        }
        let flags = self.take_while(|c| matches!(c, 'i' | 'm' | 's' | 'U' | '-'));
        let one_minus = flags.matches('-').count() <= 1 && !flags.ends_with('-');
        match self.next() {
            Some(':') if one_minus => Ok(true),
            Some(')') if one_minus && !flags.is_empty() => {
                // Flags match nothing: a repetition after them applies to the item before.
                self.top(|group| {
                    group.last = if group.last == Last::Nothing { group.last } else { Last::Atom }
                });
                Ok(false)
            }
            _ => unknown(start),
        }
    }

    fn close(&mut self) -> Step {
        if self.groups.len() < 2 {
            return Err("unexpected )".to_owned());
        }
        let inner = self.groups.pop().map_or(1, |group| group.most).max(1);
        self.top(|group| {
            (group.last, group.repeats) = (Last::Atom, inner);
            group.most = group.most.max(inner);
        });
        Ok(())
    }

    /// Parses `{2}`, `{2,}` or `{2,5}`; anything else after `{` is literal text. Reads no further than such a
    /// count can reach.
    fn counts(&mut self) -> Option<(u32, Option<u32>)> {
        let (least, rest) = number(self.rest)?;
        let (most, rest) = match rest.strip_prefix(',') {
            None => (Some(least), rest),
            Some(rest) => number(rest).map_or((None, rest), |(most, rest)| (Some(most), rest)),
        };
        self.rest = rest.strip_prefix('}')?;
        Some((least, most))
    }

    fn repeat_counted(&mut self, least: u32, most: Option<u32>) -> Step {
        let largest = most.unwrap_or(least);
        if least > MOST_REPEATS || largest > MOST_REPEATS || largest < least {
            return Err("a repetition must be {least,most} with at most 1000".to_owned());
        }
        self.repeat(largest.max(1), '{')
    }

    fn repeat(&mut self, times: u32, operator: char) -> Step {
        self.eat("?");
        let Some(group) = self.groups.last_mut() else { return Ok(()) };
        match group.last {
            Last::Nothing => return Err(format!("nothing is before the repetition {operator}")),
            Last::Repeated => return Err(format!("the repetition {operator} follows another one")),
            Last::Atom => {}
        }
        group.last = Last::Repeated;
        group.repeats = group.repeats.saturating_mul(times);
        group.most = group.most.max(group.repeats);
        if group.most > MOST_REPEATS {
            return Err("repetitions in each other are more than 1000".to_owned());
        }
        Ok(())
    }

    /// Parses the rest of an escape outside of a class, after `\`.
    fn escape_or_quote(&mut self) -> Step {
        if self.eat("Q") {
            let end = self.rest.find("\\E");
            let text = end.and_then(|end| self.rest.get(..end)).unwrap_or(self.rest);
            self.rest = end.and_then(|end| self.rest.get(end + 2..)).unwrap_or_default();
            if !text.is_empty() {
                self.atom();
            }
            return Ok(());
        }
        if !["A", "b", "B", "z"].into_iter().any(|anchor| self.eat(anchor)) && !self.class_escape()? {
            self.character_escape()?;
        }
        self.atom();
        Ok(())
    }

    /// Parses `\d`, `\pL` and the like after the `\`. Returns true if there is one.
    fn class_escape(&mut self) -> Step<bool> {
        if ["d", "D", "s", "S", "w", "W"].into_iter().any(|class| self.eat(class)) {
            return Ok(true);
        }
        if !self.eat("p") && !self.eat("P") {
            return Ok(false);
        }
        let name = if self.eat("{") {
            let Some((name, rest)) = self.rest.split_once('}') else {
                return Err("\\p{ is not closed".to_owned());
            };
            self.rest = rest;
            name.strip_prefix('^').unwrap_or(name).to_owned()
        } else {
            self.next().map(String::from).unwrap_or_default()
        };
        let known = name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.chars().all(|c| c.is_ascii_alphabetic() || c == '_');
        let one_letter = name.len() > 1 || "LMNPSZC".contains(&name);
        if known && one_letter {
            Ok(true)
        } else {
            Err(format!("\\p{{{name}}} is not a class of characters"))
        }
    }

    /// Parses a single escaped character after `\`.
    fn character_escape(&mut self) -> Step<char> {
        let Some(c) = self.next() else { return Err("a \\ is at the end".to_owned()) };
        match c {
            '1'..='7' if !self.rest.starts_with(|c| matches!(c, '0'..='7')) => {
                Err(format!("\\{c} refers back to a group, which is not supported"))
            }
            '0'..='7' => {
                let mut value = c.to_digit(8).unwrap_or_default();
                for _ in 0..2 {
                    let Some(digit) = self.rest.chars().next().and_then(|c| c.to_digit(8)) else { break };
                    self.next();
                    value = value * 8 + digit;
                }
                char::from_u32(value).ok_or_else(|| "not a character".to_owned())
            }
            'x' => self.hexadecimal(),
            'a' => Ok('\u{7}'),
            'f' => Ok('\u{c}'),
            'n' => Ok('\n'),
            'r' => Ok('\r'),
            't' => Ok('\t'),
            'v' => Ok('\u{b}'),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => Ok(c),
            c => Err(format!("\\{c} is not supported")),
        }
    }

    fn hexadecimal(&mut self) -> Step<char> {
        let wrong = || "\\x must be followed by two hexadecimal digits or by {...}".to_owned();
        let digits = if self.eat("{") {
            let digits = self.take_while(|c| c.is_ascii_hexdigit());
            if !self.eat("}") {
                return Err(wrong());
            }
            digits
        } else {
            let two = self.rest.get(..2).ok_or_else(wrong)?;
            self.rest = self.rest.get(2..).unwrap_or_default();
            two
        };
        if digits.is_empty() || !digits.bytes().all(|c| c.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        u32::from_str_radix(digits, 16).ok().and_then(char::from_u32).ok_or_else(wrong)
    }

    /// Parses the rest of a character class after `[`.
    fn class(&mut self) -> Step {
        self.eat("^");
        let mut first = true;
        while first || !self.eat("]") {
            if self.rest.is_empty() {
                return Err("missing closing ]".to_owned());
            }
            self.class_item()?;
            first = false;
        }
        self.atom();
        Ok(())
    }

    fn class_item(&mut self) -> Step {
        if let Some(name) = self.posix_class() {
            let known = POSIX.contains(&name.strip_prefix('^').unwrap_or(name));
            return if known { Ok(()) } else { Err(format!("[:{name}:] is not a class of characters")) };
        }
        if let Some(rest) = self.rest.strip_prefix('\\') {
            let before = std::mem::replace(&mut self.rest, rest);
            if self.class_escape()? {
                return Ok(());
            }
            self.rest = before;
        }
        let low = self.class_character()?;
        let range = self.rest.starts_with('-') && !self.rest.starts_with("-]") && self.rest.len() > 1;
        if !range {
            return Ok(());
        }
        self.eat("-");
        let high = self.class_character()?;
        if high < low { Err(format!("the range {low}-{high} is backwards")) } else { Ok(()) }
    }

    /// Parses the name in `[:name:]`.
    fn posix_class(&mut self) -> Option<&'a str> {
        if self.no_posix {
            return None;
        }
        let found = self.rest.strip_prefix("[:")?.split_once(":]");
        self.no_posix = found.is_none();
        let (name, rest) = found?;
        self.rest = rest;
        Some(name)
    }

    fn class_character(&mut self) -> Step<char> {
        match self.next() {
            Some('\\') => self.character_escape(),
            Some(c) => Ok(c),
            None => Err("missing closing ]".to_owned()),
        }
    }
}

/// Splits a number off the beginning of a text.
fn number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    (!digits.is_empty()).then(|| (digits.parse().unwrap_or(u32::MAX), rest))
}

const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

#[cfg(test)]
mod tests {
    use super::{MAX_REGEX_BYTES, Parser, refusal};
    use proptest::prelude::*;

    #[test]
    fn what_re2_takes_is_taken() {
        let good = [
            "",
            "a",
            ".*",
            "^(.*?;)?(beta=yes)(;.*)?$",
            "PUT|PATCH",
            "catalog\\..*",
            "[a-z0-9]{3,}",
            "/v[0-9]+/id/.*",
            "(?i)foo",
            "(?i:foo)(?-s)bar",
            "(?P<name>a)(?<other>b)",
            "a{,2}",
            "a{x}",
            "{",
            "a{2}b{2,}c{2,3}?",
            "[]a]",
            "[^]a]",
            "[a-]",
            "[-a]",
            "[[:alpha:]_]",
            "[\\d\\-.]",
            "\\x41\\x{1F600}\\012",
            "\\pL\\p{Greek}\\P{^Lu}",
            "\\Qa(b\\E+",
            "\\bfoo\\b\\z",
            "^*",
            "a|*b".trim_end_matches("*b"),
            "(|a)",
            "é+",
            "\\.\\/\\_",
            "(a{10}){100}",
        ];
        for expression in good {
            assert_eq!(refusal(expression), None, "{expression}");
        }
    }

    #[test]
    fn what_re2_refuses_is_refused() {
        let wrong = [
            ("(", "missing closing )"),
            (")", "unexpected )"),
            ("a)", "unexpected )"),
            ("[a", "missing closing ]"),
            ("[]", "missing closing ]"),
            ("*", "nothing is before the repetition *"),
            ("a|*", "nothing is before the repetition *"),
            ("(?i)+", "nothing is before the repetition +"),
            ("a**", "the repetition * follows another one"),
            ("a{2}{3}", "the repetition { follows another one"),
            ("a{1001}", "a repetition must be {least,most} with at most 1000"),
            ("a{3,2}", "a repetition must be {least,most} with at most 1000"),
            ("((a{100}){100})", "repetitions in each other are more than 1000"),
            ("(?=a)", "(?=a is not supported"),
            ("(?!a)", "(?!a is not supported"),
            ("(?<=a)", "(?<= is not supported"),
            ("(?>a)", "(?>a is not supported"),
            ("(?i-)", "(?i- is not supported"),
            ("(?P<a>x)(?P<a>y)", "two groups are named \"a\""),
            ("(?P<>x)", "the name of a group must be letters, digits and _"),
            ("(a)\\1", "\\1 refers back to a group, which is not supported"),
            ("a\\", "a \\ is at the end"),
            ("\\y", "\\y is not supported"),
            ("\\C", "\\C is not supported"),
            ("[\\A]", "\\A is not supported"),
            ("[z-a]", "the range z-a is backwards"),
            ("[[:foo:]]", "[:foo:] is not a class of characters"),
            ("\\x4", "\\x must be followed by two hexadecimal digits or by {...}"),
            ("\\p{", "\\p{ is not closed"),
            ("\\px", "\\p{x} is not a class of characters"),
        ];
        for (expression, expected) in wrong {
            assert_eq!(refusal(expression).as_deref(), Some(expected), "{expression}");
        }
        assert!(refusal(&"(".repeat(100_000)).is_some());
    }

    #[test]
    fn long_expressions_are_refused_before_they_are_read() {
        assert_eq!(refusal(&"a".repeat(MAX_REGEX_BYTES)), None);
        let why = refusal(&"(".repeat(MAX_REGEX_BYTES + 1)).unwrap();
        assert_eq!(why, "has 16385 bytes, and at most 16384 are allowed (limit regex-bytes)");
    }

    /// What looks for its end at each beginning takes minutes for these; they are read in a moment.
    #[test]
    fn reading_is_linear_also_where_nothing_is_closed() {
        const LENGTH: usize = 8 << 20;
        for part in ["{", "{1", "{1,", "[[:", "[:", "\\{"] {
            let expression = format!("a[{}", part.repeat(LENGTH / part.len()));
            assert!(Parser::new(&expression).run().is_err(), "{part}");
            let expression = part.repeat(LENGTH / part.len());
            let _ = Parser::new(&expression).run();
        }
        assert!(Parser::new(&"{".repeat(LENGTH)).run().is_ok());
        let names: String = (0..200_000).map(|n| format!("(?P<n{n}>a)")).collect();
        assert!(Parser::new(&names).run().is_ok());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// The library refuses what RE2 refuses as well, but for what only one of the two knows.
        #[test]
        fn another_parser_agrees(expression in "[ab(){}|*+?^$.,12\\[\\]\\-\\\\]{0,12}") {
            let known_to_one = ["&&", "--", "~~", "[[", "{,", "\\1", "\\2", "\\a", "\\b", "**", "??", "+?", "*+", "?+", "}{"];
            let stacked = |text: &str| {
                let repeats = |c| matches!(c, '*' | '+' | '?' | '}');
                text.chars().zip(text.chars().skip(1)).any(|(a, b)| repeats(a) && (repeats(b) || b == '{'))
            };
            let brackets = expression.matches('[').count() > 1 || expression.contains("{");
            if !known_to_one.iter().any(|part| expression.contains(part)) && !stacked(&expression) && !brackets {
                let other = regex::bytes::RegexBuilder::new(&expression).size_limit(1 << 24).build();
                prop_assert_eq!(refusal(&expression).is_none(), other.is_ok(), "{:?}: {:?}", expression, other);
            }
        }

        #[test]
        fn no_text_panics(expression in "\\PC{0,40}") {
            let _ = refusal(&expression);
        }
    }
}
