//! Characters that a terminal obeys.

/// True if a terminal obeys a character, or shows what follows it in another order (Unicode's bidirectional
/// formatting).
#[must_use]
pub fn is_control(c: char) -> bool {
    let turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}')
}
