//! Mesh config and mesh networks from files of their own: plain, or inside a ConfigMap.

use super::documents::{ReadFile, ReadObject, Rejected, text_of};
use super::limits::Limits;
use crate::kinds::content::read_object;
use crate::path::FieldPath;
use crate::problem::Problem;
use crate::yaml::{Loaded, Node, load};
use pilotfish_model::{Kind, ObjectKey, ObjectMeta};

/// The two kinds of mesh files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MeshFile {
    /// `MeshConfig`, or a ConfigMap with the key `mesh`.
    Config,
    /// `MeshNetworks`, or a ConfigMap with the key `meshNetworks`.
    Networks,
}

impl MeshFile {
    /// The kind of the one object.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self {
            Self::Config => Kind::MeshConfig,
            Self::Networks => Kind::MeshNetworks,
        }
    }

    /// The key of the one object: no namespace, named `default`.
    #[must_use]
    pub fn key(self) -> ObjectKey {
        ObjectKey::new(self.kind(), "", crate::mesh::OBJECT_NAME)
    }

    /// The key in a ConfigMap.
    #[must_use]
    pub fn config_map_key(self) -> &'static str {
        match self {
            Self::Config => "mesh",
            Self::Networks => "meshNetworks",
        }
    }
}

/// Reads mesh config or mesh networks. An empty file has Istio's defaults.
#[must_use]
pub fn read_mesh_file(which: MeshFile, file: &str, bytes: &[u8], limits: &Limits) -> ReadFile {
    let mut read = ReadFile::default();
    match single_document(bytes, limits) {
        Err(problem) => reject(&mut read, which, problem),
        Ok(root) if is_config_map(&root) => from_config_map(&mut read, which, file, &root, limits),
        Ok(root) => document(&mut read, which, file, &root, 0),
    }
    read
}

fn reject(read: &mut ReadFile, which: MeshFile, problem: Problem) {
    let line = problem.line.unwrap_or(1);
    read.rejected.push(Rejected { key: Some(which.key()), ..Rejected::nameless(1, line, problem) });
}

/// The only document of the text; nothing when the text is empty.
fn single_document(bytes: &[u8], limits: &Limits) -> Result<Node, Problem> {
    let mut found: Result<Option<Node>, Problem> = Ok(None);
    load(text_of(bytes)?, limits, |loaded| {
        let problem = match (loaded, &found) {
            (Loaded::Document { root, .. }, Ok(None)) => return found = Ok(Some(root)),
            (Loaded::Broken { line, message, .. }, Ok(_)) => {
                Problem::error(FieldPath::default(), message).at_line(line)
            }
            (Loaded::Document { root, .. }, Ok(Some(_))) => {
                Problem::error(FieldPath::default(), "there must be one document").at_line(root.line)
            }
            (_, Err(_)) => return,
        };
        found = Err(problem);
    });
    Ok(found?.unwrap_or_else(|| Node::null(1)))
}

fn is_config_map(root: &Node) -> bool {
    root.get("kind").and_then(Node::text) == Some("ConfigMap")
}

fn from_config_map(read: &mut ReadFile, which: MeshFile, file: &str, root: &Node, limits: &Limits) {
    let key = which.config_map_key();
    let Some(value) = root.get("data").and_then(|data| data.get(key)) else {
        let problem = Problem::error(FieldPath::default(), format!("the ConfigMap has no data[{key}]"));
        return reject(read, which, problem.at_line(root.line));
    };
    // The text of a block begins on the line after `key: |`; lines in messages are those of the file.
    let offset = value.line;
    match single_document(value.text().unwrap_or_default().as_bytes(), limits) {
        Ok(inner) => document(read, which, file, &inner, offset),
        Err(problem) => {
            let line = problem.line.unwrap_or(1) + offset;
            reject(read, which, problem.at_line(line));
        }
    }
}

fn document(read: &mut ReadFile, which: MeshFile, file: &str, root: &Node, offset: u32) {
    let line = root.line + offset;
    let mut meta = ObjectMeta::of(which.key());
    meta.origin = format!("{file}:{line}").into();
    let decoded = read_object(which.kind(), root, meta, false);
    let shifted = |problem: Problem| Problem { line: problem.line.map(|line| line + offset), ..problem };
    let problems: Vec<_> = decoded.problems.into_iter().map(shifted).collect();
    match decoded.object {
        Some(object) => read.objects.push(ReadObject { object, document: 1, line, warnings: problems }),
        None => {
            let key = Some(which.key());
            read.rejected.push(Rejected { key, revision: None, document: 1, line, problems, closed: None })
        }
    }
}
