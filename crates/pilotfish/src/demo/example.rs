//! Files of the bundled example.

use anyhow::{Context, Result, bail};
use std::path::Path;

/// Folder of the example in a checkout, and default folder for writing it.
pub(super) const FOLDER: &str = "examples/shop";

/// Names and contents of the files.
const FILES: [(&str, &str); 3] = [
    ("services.yaml", include_str!("../../../../examples/shop/services.yaml")),
    ("endpoints.yaml", include_str!("../../../../examples/shop/endpoints.yaml")),
    ("routes.yaml", include_str!("../../../../examples/shop/routes.yaml")),
];

/// Port of the services in the bundled example.
pub(super) const PORT: u16 = 8080;

/// Writes the example with this port of its services, unless the folder exists, because it may have been
/// edited. Returns true if it was written.
///
/// # Errors
/// When the folder cannot be written.
pub(super) fn write_if_missing(folder: &Path, port: u16) -> Result<bool> {
    if folder.exists() {
        return Ok(false);
    }
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    for (name, text) in FILES {
        let file = folder.join(name);
        let text = text.replace(&PORT.to_string(), &port.to_string());
        std::fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(true)
}

/// Returns the port of the services in a folder that may not exist yet.
///
/// # Errors
/// When the folder exists and has another port than the requested one.
pub(super) fn port(folder: &Path, wanted: Option<u16>) -> Result<u16> {
    let file = folder.join(FILES[0].0);
    // A folder without services.yaml gets the requested port, or that of the example.
    let there = std::fs::read_to_string(&file).ok().as_deref().and_then(declared);
    match (there, wanted) {
        (Some(there), Some(wanted)) if there != wanted => bail!(
            "{} has services on port {there}, not {wanted}\n\
             hint: --dir shop-{wanted} writes an example with port {wanted}",
            file.display()
        ),
        (there, wanted) => Ok(there.or(wanted).unwrap_or(PORT)),
    }
}

/// Finds the first port in the text: `port: 8080` or `number: 8080`.
fn declared(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("port: ").or_else(|| text.split_once("number: "))?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example_is_written_once_with_the_wanted_port() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("shop");
        assert_eq!(port(&folder, None).unwrap(), PORT);
        assert_eq!(port(&folder, Some(18_080)).unwrap(), 18_080);
        assert!(write_if_missing(&folder, 18_080).unwrap());
        let text = std::fs::read_to_string(folder.join("services.yaml")).unwrap();
        assert_eq!((text.matches("18080").count(), text.replace("18080", "").contains("8080")), (3, false));
        assert_eq!(port(&folder, None).unwrap(), 18_080);
        let error = port(&folder, Some(8_081)).unwrap_err().to_string();
        assert!(error.ends_with("hint: --dir shop-8081 writes an example with port 8081"), "{error}");
        std::fs::write(folder.join("routes.yaml"), "mine").unwrap();
        assert!(!write_if_missing(&folder, 18_080).unwrap());
        assert_eq!(std::fs::read_to_string(folder.join("routes.yaml")).unwrap(), "mine");
    }
}
