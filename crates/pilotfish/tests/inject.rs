//! `pilotfish inject` on files: each kind that makes Pods beside what is expected of it.
//!
//! To rewrite the expectations after a change that is meant:
//! `PILOTFISH_WRITE_GOLDEN=1 cargo test -p pilotfish --test inject`, and review the difference.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/inject")
}

fn inject(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pilotfish"));
    command.arg("inject").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn injected(arguments: &[&str], input: &str) -> String {
    let output = inject(arguments, input);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn check(name: &str, arguments: &[&str]) {
    let input = std::fs::read_to_string(folder().join(name)).unwrap();
    let found = injected(arguments, &input);
    assert_eq!(injected(arguments, &found), found, "twice is once");
    let golden = folder().join("golden").join(name);
    if std::env::var_os("PILOTFISH_WRITE_GOLDEN").is_some() {
        std::fs::create_dir_all(golden.parent().unwrap()).unwrap();
        std::fs::write(&golden, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&golden).unwrap();
    assert!(found == expected, "{name} differs from {}:\n{found}", golden.display());
}

#[test]
fn a_deployment_among_other_documents() {
    check("deployment.yaml", &[]);
}

#[test]
fn every_kind_that_makes_pods() {
    check("kinds.yaml", &["--set", "cpu=50m", "--xds-address", "pilotfish.mesh.svc:15010"]);
}

#[test]
fn a_list_in_json() {
    check("list.json", &["--set", "nativeSidecar=false"]);
}

#[test]
fn annotations_win_over_values() {
    check("annotated.yaml", &["--set", "image=example.com/other:1", "--set", "interception=NONE"]);
}

#[test]
fn probes_are_answered_by_the_sidecar() {
    check("probes.yaml", &[]);
}

#[test]
fn what_a_pod_asks_for_and_does_not_get_is_said() {
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  template:\n    metadata:\n      \
                      annotations:\n        proxy.istio.io/config: |\n          proxyMetadata: {ISTIO_META_DNS_CAPTURE: 'true'}\n    \
                      spec: {containers: [{name: app}]}\n";
    let output = inject(&[], deployment);
    assert!(output.status.success(), "{output:?}");
    let expected = "warning: Deployment \"web\": spec.template.metadata.annotations[\"proxy.istio.io/config\"]: \
                    proxyMetadata.ISTIO_META_DNS_CAPTURE: not captured";
    assert!(String::from_utf8_lossy(&output.stderr).starts_with(expected), "{output:?}");
}

#[test]
fn sidecars_over_tls_know_pilotfish_and_have_a_token() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: []}}\n";
    let refused = inject(&["--xds-ca-file", path], pod);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no certificate in PEM"), "{refused:?}");
    let authority = pilotfish_testkit::real::Authority::new();
    std::fs::write(path, authority.root()).unwrap();
    let found = injected(&["--xds-ca-file", path], pod);
    assert_eq!(injected(&["--xds-ca-file", path], &found), found, "twice is once");
    for part in [
        "inline_string",
        "pilotfish.istio-system.svc:15012",
        "mountPath: /var/run/secrets/tokens",
        "audience: istio-ca",
        "file_based_metadata",
    ] {
        assert!(found.contains(part), "{part} in {found}");
    }
    let vault = injected(&["--xds-ca-file", path, "--set", "tokenAudience=vault"], pod);
    assert!(vault.contains("audience: vault"), "{vault}");
}

#[test]
fn what_declines_is_given_back_letter_by_letter() {
    let input = std::fs::read_to_string(folder().join("declined.yaml")).unwrap();
    assert_eq!(injected(&[], &input), input);
    for input in ["", "# nothing\n", "---\n---\n"] {
        assert_eq!(injected(&[], input), input);
    }
}

#[test]
fn the_template_is_printed_and_can_be_changed() {
    let printed = injected(&["--print-template"], "");
    let template = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        template.path(),
        printed.replace("name: istio-proxy", "name: istio-proxy # changed\n    tty: true"),
    )
    .unwrap();
    let path = template.path().to_str().unwrap();
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: []}}\n";
    assert!(injected(&["--template", path], pod).contains("tty: true"));

    for (wrong, why) in [
        ("{{ nothing.at.all }}", "undefined"),
        ("{% if %}", "syntax error"),
        ("- a list", "no part of a Pod"),
        ("spec: {a: [}", "no YAML"),
    ] {
        std::fs::write(template.path(), wrong).unwrap();
        let output = inject(&["--template", path], pod);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(why), "{why:?} in {stderr:?}");
    }
}

#[test]
fn a_value_that_the_template_does_not_have_is_refused() {
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: []}}\n";
    let output = inject(&["--set", "nope=1"], pod);
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("no value \"nope\""), "{stderr}");
    // Of those that the template computes the names of, too.
    injected(&["--set", "includeOutboundPorts=80", "--set", "excludeInterfaces=eth1"], pod);
}

#[test]
fn a_file_that_is_no_yaml_is_reported_with_its_document() {
    let output = inject(&[], "a: 1\n---\na: [\n");
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty(), "nothing half done");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("document 2"), "{stderr}");
}

#[test]
fn images_are_of_this_version() {
    let deploy = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let read = |name: &str| std::fs::read_to_string(deploy.join(name)).unwrap();
    let texts = [injected(&["--print-template"], ""), read("Dockerfile"), read("kubernetes/deployment.yaml")];
    for text in &texts {
        for (_, image) in text.match_indices("ghcr.io/pilotfish-io/").map(|(at, _)| text.split_at(at)) {
            let image = image.split(['"', ' ', '\n']).next().unwrap();
            assert!(image.ends_with(concat!(":", env!("CARGO_PKG_VERSION"))), "{image}");
        }
    }
    assert!(read("helm/pilotfish/Chart.yaml").contains(concat!("appVersion: ", env!("CARGO_PKG_VERSION"))));
    // What the image is made of is where `cargo xtask image` leaves it, and is let into the build.
    let copied: Vec<_> = texts[1].lines().filter_map(|line| line.strip_prefix("COPY ")).collect();
    assert_eq!(copied, ["target/image/pilotfish /usr/local/bin/pilotfish"]);
    assert!(read("Dockerfile.dockerignore").contains("!target/image/pilotfish"));
}
