//! Inputs: cuts of good files, damaged at random.

use std::path::Path;

/// Inputs are cut to this many bytes, so that many can be tried.
const LONGEST: usize = 3_000;

/// What means something to the parsers.
const TOKENS: &[&str] = &[
    "\n",
    "\n---\n",
    "\n...\n",
    "- ",
    ": ",
    "? ",
    "{",
    "}",
    "[",
    "]",
    ",",
    "&a ",
    "*a",
    "<<: *a\n",
    "!!str ",
    "!!binary ",
    "|\n",
    ">-\n",
    "\"",
    "'",
    "\\",
    "#",
    "%YAML 1.2\n",
    "\t",
    "\r\n",
    "\0",
    "\u{feff}",
    "\u{2028}",
    "~",
    "null",
    "true",
    "0x",
    "1e999",
    ".inf",
    "-1",
    "18446744073709551616",
    "9223372036854775807",
    "1.10",
    "-0",
    "metadata:",
    "spec:",
    "kind: List\nitems:\n",
    "apiVersion: v1\n",
    "kind: VirtualService\n",
    "ä",
    "\u{1f600}",
    "99999999999999999999s",
    "{}",
    "[]",
    "''",
    "*",
    "%",
    "regex: ",
    "exact: ",
    "port: ",
];

/// A source of random numbers (splitmix64), and of inputs made with them.
pub(crate) struct Mutator {
    state: u64,
}

impl Mutator {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, 0 when there is none.
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % (limit.max(1) as u64)).unwrap_or_default()
    }

    /// Now and then random bytes; else a piece of a good file with up to six changes.
    pub(crate) fn input(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        if self.below(16) == 0 {
            let length = self.below(200);
            return (0..length).map(|_| self.next().to_le_bytes()[0]).collect();
        }
        let mut input = self.piece(corpus);
        for _ in 0..self.below(7) {
            self.change(&mut input, corpus);
        }
        input
    }

    /// A run of lines of a file.
    fn piece(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let file = &corpus[self.below(corpus.len())];
        let from = if self.below(3) == 0 { self.below(file.len()) } else { 0 };
        let start = file[..from].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let length = self.below(LONGEST) + 1;
        file[start..].iter().copied().take(length).collect()
    }

    fn change(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let at = self.below(input.len() + 1);
        let length = self.below(40.min(input.len() - at) + 1);
        match self.below(7) {
            0 if at < input.len() => input[at] ^= 1 << self.below(8),
            1 => drop(input.drain(at..at + length)),
            2 => {
                let copy = input[at..at + length].to_vec();
                let to = self.below(input.len() + 1);
                input.splice(to..to, copy);
            }
            3 => input.truncate(at),
            4 => {
                let copy: Vec<_> = self.piece(corpus).into_iter().take(200).collect();
                input.splice(at..at, copy);
            }
            5 => {
                let token = TOKENS[self.below(TOKENS.len())];
                input.splice(at..at + length, token.bytes());
            }
            _ => {
                let token = TOKENS[self.below(TOKENS.len())].repeat(1 + self.below(3));
                input.splice(at..at, token.bytes());
            }
        }
    }
}

/// The recorded configurations.
pub(crate) fn corpus() -> Vec<Vec<u8>> {
    files(&["config.yaml"])
}

/// The recorded mesh configs and networks.
pub(crate) fn mesh_corpus() -> Vec<Vec<u8>> {
    files(&["mesh.yaml", "networks.yaml"])
}

fn files(names: &[&str]) -> Vec<Vec<u8>> {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../oracle/cases");
    let mut folders: Vec<_> = std::fs::read_dir(cases).unwrap().map(|case| case.unwrap().path()).collect();
    folders.sort();
    let files = folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name)));
    let files: Vec<_> = files.filter_map(|file| std::fs::read(file).ok()).collect();
    assert!(files.len() > 10, "only {} files", files.len());
    files
}
