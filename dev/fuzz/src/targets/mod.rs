//! All targets, in one file each.

mod admission;
mod checks;
mod csr;
mod kinds;
mod kubeconfig;
mod mesh;
mod node;
mod regex;
mod registration;
mod session;
mod world;
mod yaml;

use crate::cost::Budget;

/// Fuzz target: a function of bytes, with its limits.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of the target, and of the folder with its inputs.
    pub name: &'static str,
    /// Cost limit of an input.
    pub budget: Budget,
    work: fn(&[u8]),
}

impl Target {
    /// Runs an input; returns the number of bytes that were allocated for it.
    ///
    /// # Panics
    /// When a property is violated.
    pub fn run(&self, input: &[u8]) -> usize {
        self.budget.spend(input.len(), || (self.work)(input))
    }
}

pub static TARGETS: &[Target] = &[
    Target { name: "admission", budget: Budget::of(32, 64), work: admission::run },
    Target { name: "csr", budget: Budget::of(16, 2), work: csr::run },
    Target { name: "kinds", budget: Budget::of(32, 64), work: kinds::run },
    Target { name: "kubeconfig", budget: Budget::of(32, 16), work: kubeconfig::run },
    Target { name: "mesh", budget: Budget::of(32, 64), work: mesh::run },
    Target { name: "node", budget: Budget::of(64, 64), work: node::run },
    Target { name: "regex", budget: Budget::of(64, 8), work: regex::run },
    Target { name: "registration", budget: Budget::of(16, 16), work: registration::run },
    Target { name: "session", budget: Budget::of(64, 64), work: session::run },
    Target { name: "world", budget: Budget::of(512, 256), work: world::run },
    Target { name: "yaml", budget: Budget::of(128, 16), work: yaml::run },
];

#[must_use]
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_takes_nothing_and_anything() {
        for target in TARGETS {
            target.run(b"");
            for byte in [0, 1, 7, 0x41, 0xff] {
                target.run(&[byte; 300]);
            }
            target.run(target.name.repeat(20).as_bytes());
        }
    }

    #[test]
    fn targets_are_found_by_their_names() {
        assert!(TARGETS.is_sorted_by_key(|target| target.name));
        assert_eq!(find("yaml").map(|target| target.name), Some("yaml"));
        assert!(find("no").is_none());
    }
}
