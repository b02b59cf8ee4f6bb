//! The complete registry in docs/design/registries.md is the code that is compiled and tested.
#![allow(clippy::unwrap_used, reason = "a test fails this way")]

const PAGE: &str = include_str!("../../../docs/design/registries.md");
const EXAMPLE: &str = include_str!("../examples/lines.rs");

#[test]
fn the_example_of_the_page_is_the_one_that_runs() {
    let (_, after) = PAGE.split_once("<!-- examples/lines.rs -->\n```rust\n").unwrap();
    let (shown, _) = after.split_once("```\n<!-- end of examples/lines.rs -->").unwrap();
    let (_, code) = EXAMPLE.split_once("\nuse ").unwrap();
    assert_eq!(
        shown,
        format!("use {code}"),
        "copy examples/lines.rs, from its first `use` on, into docs/design/registries.md"
    );
}

#[test]
fn the_example_is_short() {
    let code = EXAMPLE.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
    assert!(code.clone().count() < 100, "{} lines", code.count());
}
