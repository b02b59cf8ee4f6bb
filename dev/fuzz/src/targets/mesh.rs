//! Mesh config and mesh networks: any bytes, or settings by their schemas, plain or in a ConfigMap.

use super::checks::{file, limits};
use crate::input::Input;
use crate::{generate, render, schemas};
use pilotfish_config::{MeshFile, ReadFile, read_mesh_file, spec_json};
use serde_json::json;

pub(super) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let form = input.byte();
    let which = if form & 1 == 0 { MeshFile::Config } else { MeshFile::Networks };
    if form & 2 == 0 {
        check(which, input.all());
        return;
    }
    let content = generate::content(schemas::of(which.kind()), &mut input);
    let plain = check(which, render::yaml(&content).as_bytes());
    let inside = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "istio"},
        "data": {which.config_map_key(): render::json(&content)}});
    let inside = check(which, render::yaml(&inside).as_bytes());
    assert_eq!(outcome(&plain), outcome(&inside), "plain, and inside of a ConfigMap");
}

fn check(which: MeshFile, bytes: &[u8]) -> ReadFile {
    let read = read_mesh_file(which, "mesh", bytes, &limits());
    file(&read);
    assert_eq!(read.objects.len() + read.rejected.len(), 1, "an object or the reason why not: {read:?}");
    read
}

fn outcome(file: &ReadFile) -> Option<serde_json::Value> {
    file.objects.first().map(|read| spec_json(&read.object))
}
