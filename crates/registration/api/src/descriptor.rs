//! The compiled definition.

use prost_reflect::DescriptorPool;
use std::sync::LazyLock;

/// The definition and its imports as an encoded `FileDescriptorSet`, with comments.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/registration.fds"));

/// The full name of the service.
pub const SERVICE: &str = "pilotfish.registration.v1.RegistrationService";

static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(DESCRIPTORS).expect("the build compiled it: tested"));

/// The descriptors of [`DESCRIPTORS`].
#[must_use]
pub fn pool() -> &'static DescriptorPool {
    &POOL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_decodes_and_has_the_service() {
        let service = pool().get_service_by_name(SERVICE).unwrap();
        assert_eq!(service.methods().len(), 10);
    }
}
