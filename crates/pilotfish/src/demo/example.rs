//! The bundled example.

use anyhow::{Context, Result};
use std::path::Path;

/// Where the example lies in a checkout, and where it is written otherwise.
pub(super) const FOLDER: &str = "examples/shop";

/// The files of the example.
const FILES: [(&str, &str); 3] = [
    ("services.yaml", include_str!("../../../../examples/shop/services.yaml")),
    ("endpoints.yaml", include_str!("../../../../examples/shop/endpoints.yaml")),
    ("routes.yaml", include_str!("../../../../examples/shop/routes.yaml")),
];

/// Writes the example, unless the folder is there already: what a person edited is theirs.
pub(super) fn write_if_missing(folder: &Path) -> Result<()> {
    if folder.exists() {
        return Ok(());
    }
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    for (name, text) in FILES {
        let file = folder.join(name);
        std::fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}
