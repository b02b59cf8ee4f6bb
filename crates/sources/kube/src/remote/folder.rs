//! Kubeconfigs of remote clusters in a folder: `ID.yaml` or `ID.yml` for each cluster. The folder is polled,
//! which also notices changed symbolic links, as in a mounted Secret.

use pilotfish_runtime::{FileReader, read_regular_file};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Polling interval of the folder.
pub(super) const INTERVAL: Duration = Duration::from_secs(2);
/// Size limit of a kubeconfig in bytes, equal to that of a Secret.
const LARGEST: u64 = 1 << 20;
/// Limit on the number of files.
const MOST: usize = 1000;

/// A file with a kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    /// Id of the cluster, from the name of the file.
    pub(super) cluster: Arc<str>,
    /// Content, or the reason why the file cannot be read.
    pub(super) content: Result<Vec<u8>, String>,
}

/// All kubeconfigs of a folder, by their paths.
pub(super) type Files = BTreeMap<Arc<str>, File>;

/// Reads the folder.
///
/// # Errors
/// When it cannot be listed: its files are unknown then, not gone.
pub(super) async fn read(reader: &FileReader, folder: PathBuf) -> Result<Files, String> {
    let failed = folder.display().to_string();
    let read = reader.run(move || list(&folder)).await;
    read.flatten().map_err(|error| format!("{failed}: {error}"))
}

fn list(folder: &Path) -> std::io::Result<Files> {
    let mut files = Files::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let Some(cluster) = cluster_of(&path) else { continue };
        if files.len() == MOST {
            return Err(std::io::Error::other(format!("more than {MOST} kubeconfigs")));
        }
        let content = content(&path);
        files.insert(path.display().to_string().into(), File { cluster, content });
    }
    Ok(files)
}

/// Returns the id of the cluster of a file.
fn cluster_of(path: &Path) -> Option<Arc<str>> {
    let extension = path.extension()?.to_str()?;
    let name = path.file_stem()?.to_str()?;
    (["yaml", "yml"].contains(&extension) && !name.starts_with('.')).then(|| name.into())
}

fn content(path: &Path) -> Result<Vec<u8>, String> {
    read_regular_file(path, LARGEST).map_err(|error| error.to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails this way")]
mod tests {
    use super::*;

    #[test]
    fn files_stand_for_clusters() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["west.yaml", "east.eu.yml", "README.md", ".hidden.yaml"] {
            fs::write(at(name), name).unwrap();
        }
        fs::create_dir(at("..data")).unwrap();
        fs::write(at("..data/north.yaml"), "linked").unwrap();
        std::os::unix::fs::symlink("..data/north.yaml", at("north.yaml")).unwrap();
        std::os::unix::fs::symlink("..data/nothing.yaml", at("broken.yaml")).unwrap();
        fs::create_dir(at("folder.yaml")).unwrap();
        fs::write(at("large.yaml"), vec![b'x'; (1 << 20) + 1]).unwrap();
        let files = list(folder.path()).unwrap();
        let files: Vec<(&str, Option<&[u8]>)> =
            files.values().map(|file| (&*file.cluster, file.content.as_deref().ok())).collect();
        let want: [(&str, Option<&[u8]>); 6] = [
            ("broken", None),
            ("east.eu", Some(b"east.eu.yml")),
            ("folder", None),
            ("large", None),
            ("north", Some(b"linked")),
            ("west", Some(b"west.yaml")),
        ];
        assert_eq!(files, want);
        assert!(list(&at("nowhere")).is_err());
    }
}
