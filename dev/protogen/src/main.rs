//! Regenerates the descriptor sets: both, or the one that is named, `envoy` or `istio`.

use anyhow::{Result, bail};
use std::path::Path;

fn main() -> Result<()> {
    let which: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = which.iter().find(|name| !["envoy", "istio"].contains(&name.as_str())) {
        bail!("there is no set {unknown:?}; known are envoy, istio");
    }
    let wanted = |name: &str| which.is_empty() || which.iter().any(|chosen| chosen == name);
    if wanted("envoy") {
        write(&pilotfish_protogen::target(), &pilotfish_protogen::generate()?)?;
    }
    if wanted("istio") {
        write(&pilotfish_protogen::istio::target(), &pilotfish_protogen::istio::generate()?)?;
    }
    Ok(())
}

fn write(target: &Path, set: &[u8]) -> Result<()> {
    if let Some(folder) = target.parent() {
        std::fs::create_dir_all(folder)?;
    }
    Ok(std::fs::write(target, set)?)
}
