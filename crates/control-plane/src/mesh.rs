//! Mesh-wide settings of a world.

use pilotfish_config::MeshFile;
use pilotfish_config::mesh::MeshConfig;
use pilotfish_model::World;

/// Returns the trust domain of the mesh.
#[must_use]
pub fn trust_domain(world: &World) -> String {
    let written = with_mesh(world, |mesh| mesh.trust_domain.clone());
    if written.is_empty() { MeshConfig::default().trust_domain } else { written }
}

/// Calls `read` with the MeshConfig of the world, or with its defaults.
pub fn with_mesh<T>(world: &World, read: impl FnOnce(&MeshConfig) -> T) -> T {
    match world.object(&MeshFile::Config.key()).and_then(|object| object.typed::<MeshConfig>()) {
        Some(config) => read(&config),
        None => read(&MeshConfig::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_model::{Object, ObjectMeta, Update, WorldWriter};

    #[test]
    fn the_trust_domain_is_the_meshs() {
        assert_eq!(trust_domain(&World::default()), "cluster.local");
        let mut writer = WorldWriter::new();
        let config = MeshConfig { trust_domain: "td".into(), ..MeshConfig::default() };
        let object = Object::new(ObjectMeta::of(MeshFile::Config.key()), config);
        writer.apply(Update::Object(object));
        let (world, _) = writer.publish().unwrap();
        assert_eq!(trust_domain(&world), "td");
    }
}
