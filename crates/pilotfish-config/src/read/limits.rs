//! How much is read before a file or document is rejected.

/// Limits on what is read. They bound memory and time for any input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest file, in bytes. Larger ones are not read at all.
    pub file_bytes: u64,
    /// Values in one YAML document, with aliases resolved.
    pub nodes: usize,
    /// Bytes of texts in one YAML document, with aliases resolved.
    pub text_bytes: usize,
    /// Levels of nesting.
    pub depth: usize,
    /// Problems that are kept for one file; the rest is counted.
    pub problems: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { file_bytes: 64 << 20, nodes: 2_000_000, text_bytes: 128 << 20, depth: 96, problems: 100 }
    }
}
