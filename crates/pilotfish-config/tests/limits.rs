//! Input that is made to hurt: it costs itself, and not much time or memory.
#![allow(clippy::unwrap_used, reason = "a test fails this way")]

use pilotfish_config::{Limits, ReadFile, read};

const GOOD: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: good}\n";

/// Reads a bad document between two good ones.
fn beside_good_ones(bad: &str) -> ReadFile {
    read("a.yaml", format!("{GOOD}---\n{bad}\n---\n{GOOD}").as_bytes(), &Limits::default())
}

fn only_refused(bad: &str, message: &str) {
    let file = beside_good_ones(bad);
    let found: Vec<_> =
        file.rejected.iter().flat_map(|refused| &refused.problems).map(ToString::to_string).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains(message), "{found:?}");
    assert_eq!(file.rejected[0].document, 2);
    assert!(file.incomplete);
}

#[test]
fn an_alias_bomb_costs_itself() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", format!("*a{}, ", level - 1).repeat(10)));
    }
    only_refused(&bomb, "the document has more than 2000000 values, aliases resolved");
    assert_eq!(beside_good_ones(&bomb).objects.len(), 2);
}

#[test]
fn a_bomb_of_merged_fields_costs_itself() {
    let mut bomb = "m0: &m0 {a: b}\n".to_owned();
    for level in 1..40 {
        let before = level - 1;
        bomb.push_str(&format!(
            "m{level}: &m{level} {{<<: *m{before}, x{level}: *m{before}, y{level}: *m{before}}}\n"
        ));
    }
    only_refused(&bomb, "the document has more than 2000000 values, aliases resolved");
    assert_eq!(beside_good_ones(&bomb).objects.len(), 2);
}

#[test]
fn deep_nesting_costs_itself() {
    only_refused(&"[".repeat(200_000), "");
    only_refused(&"{a: ".repeat(200_000), "");
    let block: String = (0..2_000).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
    only_refused(&block, "");
    only_refused(&format!("a: {}", "- ".repeat(100_000)), "");
    let deep = format!("{}{}", "[".repeat(60), "]".repeat(60));
    let file =
        beside_good_ones(&format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\nother: {deep}"));
    assert_eq!((file.objects.len(), file.rejected.len()), (3, 0), "within the limit: {file:?}");
}

#[test]
fn an_anchor_inside_of_itself_is_refused() {
    only_refused("a: &a {b: *a}", "an alias refers to something that contains it");
}

#[test]
fn many_wrong_fields_are_not_all_listed() {
    let fields: String = (0..100_000).map(|n| format!("  f{n}: x\n")).collect();
    let bad =
        format!("apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {{name: a}}\nspec:\n{fields}");
    let file = beside_good_ones(&bad);
    assert_eq!(file.objects.len(), 2);
    assert_eq!(file.rejected[0].problems.len(), 100);
}

#[test]
fn checks_do_not_take_the_square_of_the_size() {
    let hosts: String = (0..20_000).map(|n| format!("h{n}.example.com, ")).collect();
    let matches: String = (0..5_000).map(|n| format!("{{uri: {{prefix: /{n}}}}}, ")).collect();
    let text = format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: a}}\nspec: {{hosts: [{hosts}], tls: [{{match: \
         [{{sniHosts: [{hosts}]}}], route: [{{destination: {{host: b}}}}]}}], http: [{{match: [{matches}], route: [{{destination: {{host: \
         b}}}}]}}]}}\n"
    );
    let file = read("a.yaml", text.as_bytes(), &Limits::default());
    assert_eq!((file.objects.len(), file.rejected.len()), (1, 0));
}

#[test]
fn text_in_no_known_encoding_is_refused() {
    for bytes in [&b"\xff\xfea\0:\0"[..], b"a: \xc3\x28\n", b"\x00\x01\x02", &[0x80; 1_000]] {
        let file = read("a.yaml", bytes, &Limits::default());
        assert!(file.objects.is_empty());
        assert_eq!(file.rejected.len(), 1, "{bytes:?}: {file:?}");
    }
}
