//! Measured world as YAML files: one namespace with N Services, a file for each EndpointSlice, and one
//! Service that only ten proxies see.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Namespace of the services and of most proxies.
pub const NAMESPACE: &str = "bench";
/// Namespace of the few proxies, and of the service that only they see.
pub const FEW_NAMESPACE: &str = "bench-few";

/// Number of the service that only the few see: beyond the other ones, so that its endpoints have separate
/// addresses.
const FEW: usize = 62_499;
/// Maximum number of services with addresses.
pub const MOST_SERVICES: usize = 50_000;

/// Service whose endpoints change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A service that every proxy sees.
    All,
    /// The service that is exported to its own namespace only.
    Few,
}

/// A directory with the objects.
pub struct World {
    folder: PathBuf,
    endpoints: usize,
}

/// Address of the first endpoint in round `number`. All have the same length, so that none is a prefix of
/// another.
#[must_use]
pub fn address(number: usize) -> String {
    format!("10.250.{}.{}", 100 + number / 100 % 100, 100 + number % 100)
}

impl World {
    /// Writes the objects of `services` Services with `endpoints` endpoints each.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn create(folder: &Path, services: usize, endpoints: usize) -> Result<Self> {
        let world = Self { folder: folder.to_path_buf(), endpoints };
        let mut text = String::new();
        for namespace in [NAMESPACE, FEW_NAMESPACE] {
            let _ = write!(text, "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}}}\n");
        }
        for index in 0..services {
            text.push_str(&service(NAMESPACE, &name(index), index, ""));
        }
        let own = "\n  annotations: {networking.istio.io/exportTo: \".\"}";
        text.push_str(&service(FEW_NAMESPACE, "few", services, own));
        write(&world.folder.join("services.yaml"), &text)?;
        for index in 0..services {
            world.write_slice(NAMESPACE, &name(index), index, None)?;
        }
        world.write_slice(FEW_NAMESPACE, "few", FEW, None)?;
        Ok(world)
    }

    /// Changes the address of a service's first endpoint, by replacing one file like an editor.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn change(&self, target: Target, address: &str) -> Result<()> {
        match target {
            Target::All => self.write_slice(NAMESPACE, &name(0), 0, Some(address)),
            Target::Few => self.write_slice(FEW_NAMESPACE, "few", FEW, Some(address)),
        }
    }

    /// Changes the address of the first endpoint of the service with this number.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn change_service(&self, index: usize, address: &str) -> Result<()> {
        self.write_slice(NAMESPACE, &name(index), index, Some(address))
    }

    fn write_slice(&self, namespace: &str, name: &str, index: usize, first: Option<&str>) -> Result<()> {
        let mut text = format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: {name}\n  \
             namespace: {namespace}\n  labels: {{kubernetes.io/service-name: {name}}}\naddressType: IPv4\n\
             ports:\n- {{name: http, port: 8080, protocol: TCP}}\nendpoints:\n"
        );
        for k in 0..self.endpoints {
            let own = format!("10.{}.{}.{}", index / 250, index % 250, k + 1);
            let address = first.filter(|_| k == 0).unwrap_or(&own);
            let _ = writeln!(text, "- {{addresses: [{address}], conditions: {{ready: true}}}}");
        }
        let path = self.folder.join(format!("slice-{namespace}-{name}.yaml"));
        let new = path.with_extension("new");
        write(&new, &text)?;
        fs::rename(&new, &path).with_context(|| format!("cannot replace {}", path.display()))
    }
}

fn name(index: usize) -> String {
    format!("svc-{index}")
}

fn service(namespace: &str, name: &str, index: usize, more: &str) -> String {
    let address = format!("10.{}.{}.{}", 200 + index / 62_500, index / 250 % 250, 1 + index % 250);
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  namespace: {namespace}{more}\n\
         spec:\n  clusterIP: {address}\n  selector: {{app: {name}}}\n  ports:\n  \
         - {{name: http, port: 80, targetPort: 8080, protocol: TCP}}\n"
    )
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_rounds_differ_and_none_begins_another() {
        let all: std::collections::BTreeSet<String> = (0..5_000).map(address).collect();
        assert_eq!(all.len(), 5_000);
        assert!(all.iter().all(|address| address.len() == "10.250.100.100".len()));
    }

    #[test]
    fn a_change_replaces_one_address_in_one_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let world = World::create(folder.path(), 2, 3).expect("written");
        let count = || fs::read_dir(folder.path()).expect("readable").count();
        let files = count();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).expect("readable");
        let other = read("slice-bench-svc-1.yaml");
        world.change(Target::All, "10.250.100.101").expect("written");
        let slice = read("slice-bench-svc-0.yaml");
        assert!(
            slice.contains("10.250.100.101") && !slice.contains("10.0.0.1]") && slice.contains("10.0.0.2]")
        );
        assert_eq!((count(), read("slice-bench-svc-1.yaml")), (files, other));
    }
}
