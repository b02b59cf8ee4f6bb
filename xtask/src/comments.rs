//! The width of comments: rustfmt wraps code and leaves comments as they are.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::workspace;

/// Characters of a line, as `max_width` of rustfmt.toml.
const WIDTH: usize = 110;

/// Checks the comments of all Rust sources. Returns the lines that are too long, by file and line.
///
/// # Errors
/// When a file cannot be read.
pub(crate) fn check() -> Result<Vec<String>> {
    let (root, mut long) = (workspace::root(), Vec::new());
    for folder in ["crates", "dev", "xtask"] {
        collect(&root.join(folder), &root, &mut long)?;
    }
    Ok(long)
}

fn collect(folder: &Path, root: &Path, long: &mut Vec<String>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, root, long)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text =
                fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let name = path.strip_prefix(root).unwrap_or(&path).display();
            long.extend(too_long(&text).map(|line| {
                format!("{name}:{line}: the comment is longer than {WIDTH} characters: wrap its paragraph")
            }));
        }
    }
    Ok(())
}

/// The numbers of comment lines that are too long. Code blocks, tables and lines of one word, such as
/// addresses, cannot be wrapped.
fn too_long(text: &str) -> impl Iterator<Item = usize> {
    let mut in_block = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            in_block = false;
            return None;
        };
        let words = comment.trim_start_matches(['/', '!']).trim();
        if words.starts_with("```") {
            in_block = !in_block;
        }
        let can_wrap = !in_block && !words.starts_with('|') && words.contains(' ');
        (can_wrap && line.chars().count() > WIDTH).then_some(index + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_comments_are_found_and_what_cannot_be_wrapped_is_not() {
        let words = "word ".repeat(30);
        let of = |text: String| -> Vec<usize> { too_long(&text).collect() };
        assert_eq!(of(format!("/// Short.\n    // {words}\n//! {words}\n/// {words}\n")), [2, 3, 4]);
        assert_eq!(of(format!("let text = \"{words}\"; // {words}\n")), [0; 0]);
        assert_eq!(of(format!("/// ```text\n/// {words}\n/// ```\n/// | {words}|\n")), [0; 0]);
        assert_eq!(of(format!("/// ```text\n/// ```\n/// {words}\n")), [3]);
        assert_eq!(of(format!("/// <https://example.com/{}>\n", "x".repeat(110))), [0; 0]);
    }
}
