//! Untrusted text on a terminal. Names, reasons and errors come from proxies, registries and files; control
//! characters in them could move the cursor, change the title, or simulate input.

use pilotfish_runtime::is_control;
use std::borrow::Cow;

/// Colour sequences of [`crate::Screen`], and their end.
const COLOURS: [&str; 5] = ["\u{1b}[0m", "\u{1b}[2m", "\u{1b}[31m", "\u{1b}[32m", "\u{1b}[33m"];

/// Replaces control characters by spaces, except for line breaks and tabs, and also characters that change
/// the writing direction. If the terminal `has_colours`, our own five colour sequences stay, so untrusted
/// text can be coloured at most.
#[must_use]
pub fn cleaned(text: &str, has_colours: bool) -> Cow<'_, str> {
    let is_kept = |c: char| c == '\n' || c == '\t' || !is_control(c);
    if text.chars().all(is_kept) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let colour = COLOURS.iter().find(|colour| has_colours && rest.starts_with(**colour));
        let part = colour.map_or(c.len_utf8(), |colour| colour.len());
        let (part, others) = rest.split_at(part);
        out.push_str(if colour.is_some() || is_kept(c) { part } else { " " });
        rest = others;
    }
    Cow::Owned(out)
}

/// Cuts a line to that many columns, keeping its colour sequences.
pub(crate) fn cut(line: &str, width: usize) -> String {
    let mut out = String::with_capacity(line.len());
    let (mut columns, mut rest) = (0, line);
    while let Some(c) = rest.chars().next() {
        let colour = COLOURS.iter().find(|colour| rest.starts_with(**colour));
        let (part, others) = rest.split_at(colour.map_or(c.len_utf8(), |colour| colour.len()));
        columns += usize::from(colour.is_none());
        // Colours after the cut are kept: one of them ends the colour before it.
        if columns <= width || colour.is_some() {
            out.push_str(part);
        }
        rest = others;
    }
    out
}

/// A text on one line, for a place where a line of its own would look like one of ours.
#[must_use]
pub fn one_line(text: &str) -> String {
    text.chars().map(|c| if is_control(c) { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_a_blank() {
        for (text, clean) in [
            ("two\n\tlines", "two\n\tlines"),
            ("\u{1b}]0;title\u{7}", " ]0;title "),
            ("\u{1b}[2Jgone", " [2Jgone"),
            ("\u{9b}2J\u{7f}\r\u{8}", " 2J   "),
            ("a\u{202e}b\u{2028}c", "a b c"),
            ("\u{1b}[31mred\u{1b}[0m", " [31mred [0m"),
            ("é", "é"),
        ] {
            assert_eq!(cleaned(text, false), clean, "{text:?}");
        }
    }

    #[test]
    fn lines_are_cut_to_the_width_and_colours_end() {
        assert_eq!(cut("abcdef", 4), "abcd");
        assert_eq!(cut("é", 4), "é");
        assert_eq!(cut("a\u{1b}[31mbcdef\u{1b}[0mg", 3), "a\u{1b}[31mbc\u{1b}[0m");
    }

    #[test]
    fn our_colours_stay_where_there_are_colours() {
        for text in COLOURS {
            assert_eq!(cleaned(text, true), text, "{text:?}");
        }
        for text in ["\u{1b}[1m", "\u{1b}[31", "\u{1b}[2J", "\u{1b}[38;5;1m", "\u{1b}"] {
            assert!(!cleaned(text, true).contains('\u{1b}'), "{text:?}");
        }
    }
}
