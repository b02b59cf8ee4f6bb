//! What is refused and what is warned about, kind by kind: every rule with a value that breaks it, the
//! message for it, and a value that keeps it.
#![allow(clippy::too_many_lines, clippy::unwrap_used, reason = "tables of tests")]

mod destination_rule;
mod gateway;
mod gateway_api;
mod kubernetes;
mod mesh;
mod networking;
mod security;
mod service_entry;
mod stream_routes;
mod telemetry;
mod virtual_service;

#[path = "../../../crd/tests/support/schema.rs"]
#[allow(dead_code, clippy::panic, reason = "shared with the tests of definitions")]
mod schema;

use pilotfish_config::{Limits, MeshFile, ReadFile, read, read_mesh_file};

/// Every problem of the file on a line, warnings marked as such.
fn problems(file: &ReadFile) -> Vec<String> {
    let refused = file.rejected.iter().flat_map(|refused| &refused.problems);
    let warned = file.objects.iter().flat_map(|object| &object.warnings);
    let line = |problem: &pilotfish_config::Problem| match problem.is_error() {
        true => problem.to_string(),
        false => format!("warning: {problem}"),
    };
    refused.chain(warned).map(line).collect()
}

/// One rule: what breaks it, the whole message, what keeps it.
type Rule<'a> = (&'a str, &'a str, &'a str);

/// Checks a table of rules. `document` makes a document of the parts in the table.
fn check(document: impl Fn(&str) -> String, rules: &[Rule<'_>]) {
    let limits = Limits::default();
    let mut wrong = Vec::new();
    for (bad, message, good) in rules {
        let file = read("a.yaml", document(bad).as_bytes(), &limits);
        let found = problems(&file);
        if found != [*message] {
            wrong.push(format!("{bad}\n  found    {found:?}\n  expected {message:?}"));
        }
        let is_warning = message.starts_with("warning: ");
        if file.objects.len() != usize::from(is_warning) {
            wrong.push(format!("{bad}\n  only errors refuse an object: {file:?}"));
        }
        for taken in if is_warning { vec![bad, good] } else { vec![good] } {
            wrong.extend(refused_by_definition(&document(taken)));
        }
        let file = read("a.yaml", document(good).as_bytes(), &limits);
        let found = problems(&file);
        if !found.is_empty() || file.objects.len() != 1 {
            wrong.push(format!("{good}\n  should be accepted: {found:?}, ignored {:?}", file.ignored));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The errors of the kind's definition for an object that the reader accepts.
fn refused_by_definition(document: &str) -> Option<String> {
    let object: serde_json::Value = schema::documents(document).into_iter().next()?;
    let (group, _) = object["apiVersion"].as_str()?.split_once('/')?;
    let kind = pilotfish_model::Kind::find(group, object["kind"].as_str()?)?;
    let verdict = schema::submit(&pilotfish_crd::definition(kind)?, &object);
    (!verdict.is_clean()).then(|| format!("{document}\n  is refused by the definition: {verdict:?}"))
}

/// A document of an Istio kind with this `spec` in flow style.
fn spec_of<'a>(api: &'a str, kind: &'a str) -> impl Fn(&str) -> String + 'a {
    move |spec| {
        format!("apiVersion: {api}\nkind: {kind}\nmetadata: {{name: a, namespace: shop}}\nspec: {{{spec}}}\n")
    }
}

/// The same for mesh config and mesh networks, which are the whole document.
fn check_mesh(which: MeshFile, rules: &[Rule<'_>]) {
    let limits = Limits::default();
    for (bad, message, good) in rules {
        let file = read_mesh_file(which, "mesh", bad.as_bytes(), &limits);
        assert_eq!(problems(&file), [*message], "{bad}");
        let file = read_mesh_file(which, "mesh", good.as_bytes(), &limits);
        assert_eq!(problems(&file), [""; 0], "{good}");
    }
}

#[test]
fn a_problem_names_the_line_of_its_field() {
    let text = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: a}\nspec:\n  hosts: [a]\n  \
                http:\n  - route:\n    - destination:\n        host: b\n        port:\n          number: 70000\n";
    let file = read("a.yaml", text.as_bytes(), &Limits::default());
    let problem = &file.rejected[0].problems[0];
    assert_eq!(problem.line, Some(11));
    assert_eq!(
        problem.to_string(),
        "spec.http[0].route[0].destination.port.number: 70000 is not a port, must be 1 to 65535"
    );
}

#[test]
fn what_follows_from_a_mistyped_field_is_not_reported() {
    let text = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: a}\nspec: {hosts: [a], http: 7}\n";
    let file = read("a.yaml", text.as_bytes(), &Limits::default());
    assert_eq!(problems(&file), ["spec.http: expected a list, got the number 7"]);
}

#[test]
fn an_object_with_countless_problems_keeps_a_few() {
    let hosts = vec!["a_b"; 10_000].join(", ");
    let text = format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: a}}\nspec: {{hosts: [{hosts}]}}\n"
    );
    let file = read("a.yaml", text.as_bytes(), &Limits::default());
    assert_eq!(file.rejected[0].problems.len(), 100);
}
