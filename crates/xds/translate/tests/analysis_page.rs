//! `docs/analysis.md` has each code that there is, and each of `istioctl analyze` 1.29, there or with the
//! reason why not.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pilotfish_translate::{Code, Level};
use std::collections::BTreeMap;

const PAGE: &str = include_str!("../../../../docs/analysis.md");

/// The messages of istioctl 1.29. Numbers that are missing are retired, or were never given.
const ISTIOCTL: [(u32, u32); 14] = [
    (1, 2),
    (101, 103),
    (106, 112),
    (116, 116),
    (118, 118),
    (123, 123),
    (125, 132),
    (133, 148),
    (149, 155),
    (156, 162),
    (163, 164),
    (165, 169),
    (170, 171),
    (173, 174),
];

/// The rows of the table under a heading: code and name.
fn rows(heading: &str) -> BTreeMap<&'static str, &'static str> {
    let section = PAGE.split("\n## ").find(|section| section.starts_with(heading)).unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| IST") || line.starts_with("| PLF"));
    let cells = rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    cells
        .map(|cells| {
            assert!(cells.iter().all(|cell| !cell.is_empty()), "{cells:?}");
            (cells[0], cells[1])
        })
        .collect()
}

#[test]
fn the_page_has_the_codes_that_there_are() {
    let found = rows("What is found");
    let codes: BTreeMap<_, _> = Code::ALL.iter().map(|code| (code.id(), code.name())).collect();
    assert_eq!(found, codes);
    for code in Code::ALL {
        let row = PAGE.lines().find(|line| line.starts_with(&format!("| {code} "))).unwrap();
        assert_eq!(code.level() == Level::Info, row.contains("| Info. "), "{row}");
    }
}

#[test]
fn each_message_of_istioctl_is_there_or_has_a_reason() {
    let (found, left_out) = (rows("What is found"), rows("What is not here"));
    for (first, last) in ISTIOCTL {
        for number in first..=last {
            let code = format!("IST{number:04}");
            let places = usize::from(found.contains_key(&*code)) + usize::from(left_out.contains_key(&*code));
            assert_eq!(places, 1, "{code}");
        }
    }
}
