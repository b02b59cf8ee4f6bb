//! Readers of objects: files of many documents, single objects of an API server, and the files of mesh-wide
//! settings.

mod documents;
mod limits;
mod live;
mod mesh_file;
pub(crate) mod metadata;
mod timestamp;

pub use documents::{ReadFile, ReadObject, Rejected, belongs_to_mesh, lines_of, read, read_checked};
pub use limits::Limits;
pub use live::{Served, read_live, served};
pub use mesh_file::{MeshFile, read_mesh_file};
pub use metadata::is_object_name;
