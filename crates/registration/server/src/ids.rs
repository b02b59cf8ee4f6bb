//! Ids of other products as ids of registrations.

use std::fmt::Write;

/// Returns the id of a registration: characters that it may not have are written as `~` and two digits.
#[must_use]
pub fn encode_id(id: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:@+".contains(&byte);
    let is_dots = matches!(id, "." | "..");
    let mut encoded = String::with_capacity(id.len());
    for byte in id.bytes() {
        if is_plain(byte) && !is_dots {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(encoded, "~{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_written_with_the_characters_of_the_registrar() {
        for (id, encoded) in
            [("host:a:80", "host:a:80"), ("a/b c", "a~2Fb~20c"), ("a~2F", "a~7E2F"), ("..", "~2E~2E")]
        {
            assert_eq!(encode_id(id), encoded);
        }
    }
}
