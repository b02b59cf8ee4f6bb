//! Leases, drains and stores know no wall clock, so clocks that jump do nothing to them.

use std::fs;
use std::path::{Path, PathBuf};

/// What would read one.
const WALL_CLOCKS: [&str; 4] = ["SystemTime", "UNIX_EPOCH", "jiff", "time::OffsetDateTime"];
/// The crates in which time decides about instances.
const CRATES: [&str; 2] = ["core", "store-redb"];

#[test]
fn nothing_reads_a_wall_clock() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of registration crates");
    let mut read = 0;
    let mut folders: Vec<PathBuf> = CRATES.iter().map(|name| crates.join(name).join("src")).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).expect("a source file");
            for clock in WALL_CLOCKS {
                assert!(!text.contains(clock), "{} in {}", clock, path.display());
            }
            read += 1;
        }
    }
    assert!(read > 30, "{read} files are not all");
}
