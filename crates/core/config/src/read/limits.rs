//! Limits on the size of files and documents.

/// Limits on input. They bound memory and time for any content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of a file, in bytes. Larger files are not read at all.
    pub file_bytes: u64,
    /// Maximum number of values in one YAML document, with aliases resolved.
    pub nodes: usize,
    /// Maximum bytes of scalars in one YAML document, with aliases resolved.
    pub text_bytes: usize,
    /// Maximum nesting depth of one document.
    pub depth: usize,
    /// Maximum number of problems kept for one file; further ones are counted.
    pub problems: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { file_bytes: 64 << 20, nodes: 2_000_000, text_bytes: 128 << 20, depth: 96, problems: 100 }
    }
}
