//! Path of a file, as a key of maps.

use std::cmp::Ordering;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Path of a file. It sorts by components but compares bytes: a start with 10,000 files compares a million
/// paths, and splitting both each time took a tenth of the start.
#[derive(Clone, Debug)]
pub struct FilePath(Arc<Path>);

impl FilePath {
    fn bytes(&self) -> &[u8] {
        self.0.as_os_str().as_bytes()
    }
}

/// Normalizes the path (no `.`, doubled or trailing slashes), so that equal paths have equal bytes.
impl From<&Path> for FilePath {
    fn from(path: &Path) -> Self {
        Self(path.components().collect::<PathBuf>().into())
    }
}

impl Deref for FilePath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl PartialEq for FilePath {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for FilePath {}

impl PartialOrd for FilePath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for FilePath {
    fn cmp(&self, other: &Self) -> Ordering {
        // The end of a component comes before any other byte.
        let rank = |byte: u8| if byte == b'/' { 0 } else { u16::from(byte) + 1 };
        let (a, b) = (self.bytes(), other.bytes());
        match a.iter().zip(b).find(|(a, b)| a != b) {
            Some((a, b)) => rank(*a).cmp(&rank(*b)),
            None => a.len().cmp(&b.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_in_the_order_of_paths() {
        let texts = [
            "/",
            "/a",
            "/a/b",
            "/a/b.yaml",
            "/a/b/c",
            "/a-b",
            "/a-b/c",
            "/a.d/x",
            "/a/",
            "//a",
            "/a/./b",
            "/a//b",
            "/A",
            "/ä",
            "a",
            "a/b",
            "a b",
            "a!b/c",
            "/a/b/",
            "/ab",
            "/a/\u{1}",
            "/a\u{1}",
            "/a\0b",
        ];
        for one in texts.map(Path::new) {
            for other in texts.map(Path::new) {
                let (a, b) = (FilePath::from(one), FilePath::from(other));
                assert_eq!(a.cmp(&b), one.cmp(other), "{one:?} {other:?}");
                assert_eq!(a == b, one == other, "{one:?} {other:?}");
            }
        }
    }
}
