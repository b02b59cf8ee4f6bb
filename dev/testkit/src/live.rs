//! Recorded cases through a real API server instead of files.

use crate::cases::{self, Case};
use crate::real::ApiServer;
use anyhow::{Context, Result, bail};
use pilotfish_config::SourceEvent;
use pilotfish_kube::{KubeSource, KubeSourceSettings};
use pilotfish_model::{Kind, Object, ObjectKey};
use pilotfish_translate::Translator;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Timeout of reading a cluster.
const LIMIT: Duration = Duration::from_secs(60);

/// Current objects of a cluster from its source, without the API server's own Service and invalid objects.
///
/// # Errors
/// When the cluster cannot be read in time.
pub async fn read_cluster(server: &ApiServer) -> Result<Vec<Object>> {
    let (sender, mut batches) = mpsc::channel(64);
    let source =
        tokio::spawn(KubeSource::new(server.client(), KubeSourceSettings::new("Kubernetes"), sender).run());
    let mut objects: BTreeMap<ObjectKey, Object> = BTreeMap::new();
    let read = async {
        loop {
            let batch = batches.recv().await.context("the source ended by itself")?;
            for event in batch.events {
                match event {
                    SourceEvent::Apply(object) => drop(objects.insert(object.key().clone(), object)),
                    SourceEvent::Delete(key) => drop(objects.remove(&key)),
                    SourceEvent::Listed => return Ok(()),
                    SourceEvent::Failed { reason, .. } => bail!("{reason}"),
                    SourceEvent::Recovered | SourceEvent::ListBegan(_) | SourceEvent::ListEnded(_) => {}
                }
            }
        }
    };
    let result = tokio::time::timeout(LIMIT, read).await;
    source.abort();
    result.context("the cluster was not read in time")??;
    objects.remove(&ObjectKey::new(Kind::Service, "default", "kubernetes"));
    Ok(objects.into_values().collect())
}

/// Translator for a case whose objects went through an API server, which is empty again afterwards.
///
/// # Errors
/// When a file or the cluster cannot be read.
///
/// # Panics
/// When the API server refuses an object of the case.
pub async fn translator(case: &Case, server: &ApiServer) -> Result<Translator> {
    let mut yaml = of_defined_kinds(&case.file("config.yaml")?.context("no config.yaml")?);
    for proxy in &case.proxies {
        yaml.push_str(&namespace(&proxy.namespace));
    }
    if let Some(mesh) = mesh_config_map(case)? {
        yaml.push_str(&mesh);
    }
    server.apply(&yaml).await;
    let objects = read_cluster(server).await;
    server.clear(&yaml).await;
    Ok(cases::translator(objects?.into_iter().map(of_one_age)))
}

/// The documents of a text but for those of Istio's and the Gateway API's kinds that have no definition.
fn of_defined_kinds(yaml: &str) -> String {
    let line = |document: &str, key: &str| {
        document.lines().find_map(|line| line.strip_prefix(key)).map(|value| value.trim().to_owned())
    };
    let is_defined = |document: &&str| {
        let (version, kind) = (line(document, "apiVersion:"), line(document, "kind:"));
        let (Some((group, _)), Some(kind)) = (version.as_deref().and_then(|v| v.split_once('/')), kind)
        else {
            return true;
        };
        let is_defined_here = group.ends_with(".istio.io") || group == "gateway.networking.k8s.io";
        !is_defined_here || Kind::find(group, &kind).is_some()
    };
    yaml.split("\n---\n").filter(is_defined).collect::<Vec<_>>().join("\n---\n")
}

/// The object as old as all others, as in the case's file. The API server's clock may tick between two of
/// them, and of those that claim the same port or host the older one wins.
fn of_one_age(mut object: Object) -> Object {
    Arc::make_mut(&mut object.meta).created = 0;
    object
}

/// Manifest for a namespace without a Namespace object in the case, which would have labels.
fn namespace(name: &str) -> String {
    format!(
        "\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: makes-the-namespace, namespace: {name}}}\n"
    )
}

/// Mesh settings of the case as a ConfigMap.
fn mesh_config_map(case: &Case) -> Result<Option<String>> {
    let (mesh, networks) = (case.file("mesh.yaml")?, case.file("networks.yaml")?);
    if mesh.is_none() && networks.is_none() {
        return Ok(None);
    }
    let mut data = serde_json::Map::new();
    for (key, text) in [("mesh", mesh), ("meshNetworks", networks)] {
        if let Some(text) = text {
            data.insert(key.into(), text.into());
        }
    }
    let map = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "istio", "namespace": "istio-system"}, "data": data,
    });
    Ok(Some(format!("\n---\n{map}\n")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_model::{KindSpec, ObjectMeta};

    #[derive(Debug, PartialEq)]
    struct Empty;

    impl KindSpec for Empty {
        const KIND: Kind = Kind::ServiceEntry;
    }

    #[test]
    fn objects_of_a_cluster_are_ordered_as_those_of_a_file() {
        let object = |name: &str, created: i64| {
            let meta = ObjectMeta::of(ObjectKey::new(Empty::KIND, "port", name));
            Object::new(ObjectMeta { created, ..meta }, Empty)
        };
        let [ferry, dock] = [object("ferry", 10), object("dock", 11)];
        assert!(ferry.meta.precedence() < dock.meta.precedence());
        let [ferry, dock] = [ferry, dock].map(of_one_age);
        assert!(dock.meta.precedence() < ferry.meta.precedence());
    }
}
