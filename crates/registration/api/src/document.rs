//! Comments of the API definition.

use prost_reflect::FileDescriptor;

/// Returns the leading comment of the element with this path as one text; empty for none.
pub(crate) fn comment(file: &FileDescriptor, path: &[i32]) -> String {
    let info = file.file_descriptor_proto().source_code_info.as_ref();
    let location = info.and_then(|info| info.location.iter().find(|location| location.path == path));
    let lines = location.map(|location| location.leading_comments()).unwrap_or_default().lines();
    lines.map(str::trim).collect::<Vec<_>>().join(" ").trim().to_owned()
}
