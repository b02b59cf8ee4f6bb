//! One target for each parser.

use pilotfish_config::{
    Duration, Limits, MeshFile, Problem, ReadFile, SourceEvent, read, read_mesh_file, spec_json, validate,
};
use pilotfish_files::{FileChange, FileContent, FileRole, FileState};
use std::collections::BTreeSet;
use std::path::Path;

/// Tight limits: what they do to a file must be no other than what the usual ones do.
fn limits() -> Limits {
    Limits { nodes: 20_000, depth: 40, ..Limits::default() }
}

/// What holds of every file that was read, whatever was in it.
fn check(file: &ReadFile) {
    for read in &file.objects {
        assert!(read.line > 0 && read.document > 0);
        assert!(!read.warnings.iter().any(Problem::is_error), "{:?}", read.warnings);
        // What a file may hold, any other source may deliver: both are checked alike.
        assert!(!validate(&read.object).iter().any(Problem::is_error), "{:?}", read.object);
        let _ = spec_json(&read.object);
    }
    file.ignored.keys().for_each(|kind| one_line(kind));
    for rejected in &file.rejected {
        assert!(rejected.problems.iter().any(Problem::is_error), "{rejected:?}");
        for problem in &rejected.problems {
            one_line(&problem.to_string());
        }
        if let Some(key) = &rejected.key {
            one_line(&key.to_string());
        }
    }
}

/// Messages are of one line, not long, and without anything that drives a terminal.
fn one_line(text: &str) {
    assert!(!text.is_empty() && text.len() < 4_000 && !text.contains(char::is_control), "one line: {text:?}");
}

/// Files with objects.
pub(crate) fn objects(bytes: &[u8]) {
    check(&read("a.yaml", bytes, &limits()));
}

/// Files with the mesh config.
pub(crate) fn mesh_config(bytes: &[u8]) {
    mesh(MeshFile::Config, bytes);
}

/// Files with mesh networks.
pub(crate) fn mesh_networks(bytes: &[u8]) {
    mesh(MeshFile::Networks, bytes);
}

fn mesh(which: MeshFile, bytes: &[u8]) {
    let file = read_mesh_file(which, "mesh", bytes, &limits());
    check(&file);
    assert_eq!(file.objects.len() + file.rejected.len(), 1, "an object or the reason why not: {file:?}");
}

/// Durations.
pub(crate) fn duration(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(duration) = Duration::parse(text) {
        assert_eq!(Duration::parse(&duration.to_string()), Ok(duration), "{text}");
    }
}

/// Texts in the fields that are parsed further: expressions, headers, hosts, addresses, paths, times.
pub(crate) fn values(bytes: &[u8]) {
    // Only JSON writes any text in one line.
    let text = serde_json::to_string(&String::from_utf8_lossy(bytes)).unwrap();
    let documents = [
        format!(
            "{{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {{name: a, creationTimestamp: {text}}}, spec: \
             {{hosts: [{text}], gateways: [{text}], http: [{{match: [{{uri: {{regex: {text}}}, headers: {{{text}: {{regex: {text}}}}}}}], \
             retries: {{attempts: 1, retryOn: {text}}}, headers: {{request: {{set: {{{text}: {text}}}}}}}, route: [{{destination: \
             {{host: {text}, subset: {text}}}}}]}}], tls: [{{match: [{{sniHosts: [{text}]}}]}}]}}}}"
        ),
        format!(
            "{{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {{name: a}}, spec: {{hosts: [{text}], addresses: [{text}], \
             exportTo: [{text}], resolution: STATIC, endpoints: [{{address: {text}, ports: {{{text}: 1}}, labels: {{{text}: {text}}}}}]}}}}"
        ),
        format!(
            "{{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {{name: a}}, spec: {{host: {text}, trafficPolicy: \
             {{loadBalancer: {{localityLbSetting: {{distribute: [{{from: {text}, to: {{{text}: 100}}}}]}}}}}}}}}}"
        ),
        format!(
            "{{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {{name: a}}, spec: {{rules: [{{from: [{{source: \
             {{ipBlocks: [{text}]}}}}], to: [{{operation: {{paths: [{text}], ports: [{text}]}}}}], when: [{{key: {text}, values: [{text}]}}]}}]}}}}"
        ),
        format!(
            "{{apiVersion: networking.istio.io/v1, kind: Sidecar, metadata: {{name: a}}, spec: {{ingress: [{{port: {{number: 1}}, \
             defaultEndpoint: {text}}}], egress: [{{hosts: [{text}]}}]}}}}"
        ),
        format!(
            "{{apiVersion: security.istio.io/v1, kind: RequestAuthentication, metadata: {{name: a}}, spec: {{jwtRules: [{{issuer: a, jwks: \
             {text}, jwksUri: {text}}}]}}}}"
        ),
    ];
    for document in documents {
        let file = read("a.yaml", document.as_bytes(), &limits());
        check(&file);
        assert_eq!(file.objects.len() + file.rejected.len(), 1, "{document}: {file:?}");
    }
}

/// Files that change: what is reported is what is there, and a file that comes back as it was changes
/// nothing.
pub(crate) fn file_state(bytes: &[u8]) {
    let mut state = FileState::new(limits());
    let mut reported = BTreeSet::new();
    let (first, second) = bytes.split_at(bytes.len() / 2);
    for (path, content) in
        [("a.yaml", bytes), ("b.yaml", first), ("a.yaml", second), ("b.yaml", bytes), ("a.yaml", bytes)]
    {
        for round in 0..2 {
            let content = FileContent::Bytes(content.to_vec());
            let change = FileChange {
                path: Path::new(path).into(),
                name: path.into(),
                role: FileRole::Objects,
                content,
            };
            let events = state.apply(vec![change]);
            assert!(round == 0 || events.is_empty(), "nothing changed: {events:?}");
            for event in events {
                match event {
                    SourceEvent::Apply(object) => drop(reported.insert(object.key().clone())),
                    SourceEvent::Delete(key) => assert!(reported.remove(&key), "{key} was there"),
                    other => panic!("{other:?}"),
                }
            }
            assert!(reported.iter().eq(state.objects().keys()));
        }
    }
}
