//! What follows from changed files, without a file system.

use pilotfish_config::networking::VirtualService;
use pilotfish_config::security::AuthorizationPolicy;
use pilotfish_config::{Limits, MeshFile, SourceEvent};
use pilotfish_files::{FileChange, FileContent, FileRole, FileState};
use std::path::Path;

fn change(path: &str, role: FileRole, content: FileContent) -> FileChange {
    FileChange { path: Path::new(path).into(), name: path.into(), role, content }
}

fn text(path: &str, text: &str) -> FileChange {
    change(path, FileRole::Objects, FileContent::Bytes(text.as_bytes().to_vec()))
}

fn absent(path: &str) -> FileChange {
    change(path, FileRole::Objects, FileContent::Absent)
}

fn route(name: &str, host: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: {name}, namespace: shop}}\n\
         spec:\n  hosts: [{host}]\n  http: [{{route: [{{destination: {{host: {host}}}}}]}}]\n"
    )
}

/// Events in short: `+shop/a(host)`, `-shop/a`.
fn events(state: &mut FileState, changes: Vec<FileChange>) -> Vec<String> {
    let short = |event: SourceEvent| match event {
        SourceEvent::Apply(object) => {
            let hosts =
                object.typed::<VirtualService>().map(|object| object.hosts.join(",")).unwrap_or_default();
            format!("+{}({hosts})", object.key().name)
        }
        SourceEvent::Delete(key) => format!("-{}", key.name),
        other => format!("{other:?}"),
    };
    state.apply(changes).into_iter().map(short).collect()
}

fn problems(state: &FileState) -> Vec<String> {
    state.problems().reports.iter().map(ToString::to_string).collect()
}

#[test]
fn only_differences_are_reported() {
    let mut state = FileState::new(Limits::default());
    let two = format!("{}---\n{}", route("a", "one"), route("b", "one"));
    assert_eq!(events(&mut state, vec![text("x.yaml", &two)]), ["+a(one)", "+b(one)"]);
    // Other lines, other comments: nothing that counts has changed.
    assert!(events(&mut state, vec![text("x.yaml", &format!("# moved\n\n{two}"))]).is_empty());
    let changed = format!("{}---\n{}", route("a", "one"), route("b", "two"));
    assert_eq!(events(&mut state, vec![text("x.yaml", &changed)]), ["+b(two)"]);
    assert_eq!(events(&mut state, vec![text("x.yaml", &route("b", "two"))]), ["-a"]);
    assert_eq!(events(&mut state, vec![absent("x.yaml")]), ["-b"]);
    assert!(problems(&state).is_empty());
}

#[test]
fn an_object_that_moves_to_another_file_does_not_change() {
    let mut state = FileState::new(Limits::default());
    events(&mut state, vec![text("x.yaml", &route("a", "one"))]);
    assert!(events(&mut state, vec![absent("x.yaml"), text("y.yaml", &route("a", "one"))]).is_empty());
    assert_eq!(events(&mut state, vec![text("y.yaml", "")]), ["-a"]);
}

#[test]
fn the_last_good_version_stays_while_the_text_is_broken() {
    let mut state = FileState::new(Limits::default());
    let good = format!("{}---\n{}", route("a", "one"), route("b", "one"));
    events(&mut state, vec![text("x.yaml", &good)]);
    let broken = format!("{}---\n{}", route("a", "two"), route("b", "one").replace("http:", "htpt:"));
    assert_eq!(events(&mut state, vec![text("x.yaml", &broken)]), ["+a(two)"]);
    assert_eq!(
        problems(&state),
        [
            "x.yaml:11: VirtualService shop/b: spec: one of http, tls and tcp must be set (\"htpt\" in line 13 is unknown: did you mean \"http\"?); the last good version stays in force",
            "x.yaml:13: VirtualService shop/b: spec.htpt: unknown to this version: it is ignored (did you mean \"http\"?)"
        ]
    );
    // Broken from the start: there is no last good version.
    let new = route("c", "one").replace("http:", "htpt:");
    assert!(events(&mut state, vec![text("y.yaml", &new)]).is_empty());
    assert!(problems(&state)[2].ends_with("did you mean \"http\"?); this VirtualService is not applied"));
    assert_eq!(events(&mut state, vec![text("x.yaml", &good)]), ["+a(one)"]);
    assert_eq!(problems(&state).len(), 2, "{:?}", problems(&state));
}

#[test]
fn a_policy_that_was_never_good_is_closed_until_it_is_mended() {
    let policy = |rules: &str| {
        format!(
            "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\n\
             metadata: {{name: p, namespace: shop}}\nspec: {{rules: {rules}}}\n"
        )
    };
    let in_force = |state: &FileState| {
        let (key, object) = state.objects().first_key_value().expect("the policy");
        (object.typed::<AuthorizationPolicy>().expect("a policy").rules.len(), state.is_closed(key))
    };
    let mut state = FileState::new(Limits::default());
    events(&mut state, vec![text("p.yaml", &policy("[{from: 7}]"))]);
    assert_eq!(in_force(&state), (0, true));
    assert_eq!(
        problems(&state),
        [
            "p.yaml:4: AuthorizationPolicy shop/p: spec.rules[0].from: expected a list, got the number 7; until it is mended, \
          what it cannot decide is denied"
        ]
    );
    // What stands in for it is no version to keep.
    events(&mut state, vec![text("p.yaml", &policy("[{}, {from: 7}]"))]);
    assert_eq!(in_force(&state), (1, true));
    // Another document of the file is broken: it may be this one.
    events(&mut state, vec![text("p.yaml", "kind: [\n")]);
    assert_eq!(in_force(&state), (1, true));
    events(&mut state, vec![text("p.yaml", &policy("[{}, {}]"))]);
    assert_eq!(in_force(&state), (2, false));
    assert!(problems(&state).is_empty());
    // Now there is a good version.
    assert!(events(&mut state, vec![text("p.yaml", &policy("[{from: 7}]"))]).is_empty());
    assert_eq!(in_force(&state), (2, false));
    assert!(problems(&state)[0].ends_with("; the last good version stays in force"));
}

#[test]
fn a_syntax_error_takes_nothing_away() {
    let mut state = FileState::new(Limits::default());
    let good = format!("{}---\n{}---\n{}", route("a", "one"), route("b", "one"), route("c", "one"));
    events(&mut state, vec![text("x.yaml", &good)]);
    let broken = format!("{}---\n{}---\n{}", route("a", "two"), "kind: [\n", route("c", "two"));
    assert_eq!(events(&mut state, vec![text("x.yaml", &broken)]), ["+a(two)", "+c(two)"]);
    let found = problems(&state);
    assert!(found[0].starts_with("x.yaml:8: not YAML: "), "{found:?}");
    assert!(found[0].ends_with("; the last good version stays in force"), "{found:?}");
    assert_eq!(events(&mut state, vec![text("x.yaml", &route("a", "two"))]), ["-b", "-c"]);
}

#[test]
fn a_file_that_cannot_be_read_keeps_its_objects() {
    let mut state = FileState::new(Limits::default());
    events(&mut state, vec![text("x.yaml", &route("a", "one"))]);
    let unreadable = || FileContent::Unreadable("permission denied".to_owned());
    assert!(events(&mut state, vec![change("x.yaml", FileRole::Objects, unreadable())]).is_empty());
    assert_eq!(
        problems(&state),
        ["x.yaml: cannot be read: permission denied; the last good version stays in force"]
    );
    assert_eq!(events(&mut state, vec![text("x.yaml", &route("a", "two"))]), ["+a(two)"]);
    assert!(problems(&state).is_empty());
}

#[test]
fn the_first_of_two_objects_by_path_counts() {
    let mut state = FileState::new(Limits::default());
    assert_eq!(events(&mut state, vec![text("m.yaml", &route("a", "m"))]), ["+a(m)"]);
    assert!(events(&mut state, vec![text("z.yaml", &route("a", "z"))]).is_empty());
    assert_eq!(
        problems(&state),
        ["z.yaml:1: VirtualService shop/a: is also at m.yaml:1, which counts; this one is not applied"]
    );
    assert_eq!(events(&mut state, vec![text("b.yaml", &route("a", "b"))]), ["+a(b)"]);
    assert_eq!(problems(&state).len(), 2);
    assert_eq!(events(&mut state, vec![absent("b.yaml")]), ["+a(m)"]);
    assert_eq!(events(&mut state, vec![absent("m.yaml")]), ["+a(z)"]);
    assert!(problems(&state).is_empty());
    // Twice in one file.
    let twice = format!("{}---\n{}", route("q", "first"), route("q", "second"));
    assert_eq!(events(&mut state, vec![text("q.yaml", &twice)]), ["+q(first)"]);
    assert_eq!(
        problems(&state),
        ["q.yaml:8: VirtualService shop/q: is also at q.yaml:1, which counts; this one is not applied"]
    );
}

#[test]
fn mesh_files_fall_back_to_what_they_were() {
    let mut state = FileState::new(Limits::default());
    let mesh = FileRole::Mesh(MeshFile::Config);
    let bytes = |text: &str| FileContent::Bytes(text.as_bytes().to_vec());
    assert_eq!(events(&mut state, vec![change("mesh", mesh, bytes("trustDomain: a"))]), ["+default()"]);
    assert!(events(&mut state, vec![change("mesh", mesh, bytes("trustDomain: [a"))]).is_empty());
    assert!(problems(&state)[0].contains("the last good version stays in force"), "{:?}", problems(&state));
    assert!(events(&mut state, vec![change("mesh", mesh, FileContent::Absent)]).is_empty());
    assert_eq!(
        problems(&state),
        [
            "mesh: MeshConfig default: cannot be read: there is no such file; the last good version stays in force"
        ]
    );
}

#[test]
fn ignored_kinds_are_counted() {
    let mut state = FileState::new(Limits::default());
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n";
    events(&mut state, vec![text("x.yaml", deployment), text("y.yaml", deployment)]);
    assert_eq!(state.problems().ignored.get("apps/v1 Deployment"), Some(&2));
    assert!(state.problems().reports.is_empty());
    events(&mut state, vec![absent("x.yaml"), absent("y.yaml")]);
    assert!(state.problems().ignored.is_empty());
}

#[test]
fn problems_of_one_file_are_limited() {
    let mut state = FileState::new(Limits { problems: 3, ..Limits::default() });
    let many: String =
        (0..10).map(|n| format!("---\n{}", route(&format!("a{n}"), "one").replace("http", "x"))).collect();
    events(&mut state, vec![text("x.yaml", &many)]);
    let found = problems(&state);
    assert_eq!(found.len(), 4);
    assert_eq!(found.iter().filter(|problem| problem.ends_with("7 more problems in this file")).count(), 1);
}

#[test]
fn a_refused_policy_is_closed_until_it_is_good() {
    use pilotfish_config::gateway_api::BackendTlsPolicy;
    let policy = |target: &str, hostname: &str| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: BackendTLSPolicy\nmetadata: {{name: p, namespace: shop}}\n\
             spec:\n  targetRefs: [{{kind: Service, name: {target}}}]\n  \
             validation: {{hostname: '{hostname}', wellKnownCACertificates: System}}\n"
        )
    };
    let mut state = FileState::new(Limits::default());
    let mut step = |content: &str| {
        state.apply(vec![text("x.yaml", content)]);
        let objects = state.objects().values().filter_map(|object| object.typed::<BackendTlsPolicy>());
        let held: Vec<_> = objects
            .map(|policy| format!("{} {}", policy.spec.target_refs[0].name, policy.refused.is_some()))
            .collect();
        (held.join(","), problems(&state).pop().unwrap_or_default())
    };
    let (held, problem) = step(&policy("web", "*.b"));
    assert_eq!(held, "web true");
    assert_eq!(
        problem,
        "x.yaml:6: BackendTLSPolicy shop/p: spec.validation.hostname: \"*.b\" has a wildcard, a precise host name is \
         needed; until it is mended, nothing passes where it would hold"
    );
    assert_eq!(step(&policy("cart", "*.b")).0, "cart true", "what never was good is no last good version");
    assert_eq!(step(&policy("cart", "a.b")), ("cart false".into(), String::new()));
    let (held, problem) = step(&policy("web", "*.b"));
    assert_eq!(held, "cart false");
    assert!(problem.ends_with("the last good version stays in force"), "{problem}");
    assert_eq!(step("").0, "");
}

#[test]
fn last_good_version_of_another_revision_is_given_up() {
    let labelled = |label: &str, host: &str, is_good: bool| {
        let labels =
            if label.is_empty() { String::new() } else { format!(", labels: {{istio.io/rev: {label}}}") };
        let text = route("a", host).replace("namespace: shop", &format!("namespace: shop{labels}"));
        if is_good { text } else { text.replace("  hosts:", "  tls: 7\n  hosts:") }
    };
    for (before, after, expected) in [
        ("", "", ""),
        ("canary", "canary", ""),
        ("", "canary", "-a"),
        ("canary", "", "-a"),
        ("canary", "stable", "-a"),
    ] {
        let mut state = FileState::new(Limits::default());
        assert_eq!(events(&mut state, vec![text("x.yaml", &labelled(before, "one", true))]), ["+a(one)"]);
        let broken = events(&mut state, vec![text("x.yaml", &labelled(after, "two", false))]);
        assert_eq!(broken.concat(), expected, "{before:?} {after:?}");
        let reports = state.problems().reports;
        assert_eq!(reports[0].revision.as_deref(), Some(after).filter(|label| !label.is_empty()));
        assert_eq!(events(&mut state, vec![text("x.yaml", &labelled(after, "two", true))]), ["+a(two)"]);
    }
}
