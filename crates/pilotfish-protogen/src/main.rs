//! Writes the descriptor set anew.

fn main() -> anyhow::Result<()> {
    let target = pilotfish_protogen::target();
    if let Some(folder) = target.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(&target, pilotfish_protogen::generate()?)?;
    Ok(())
}
