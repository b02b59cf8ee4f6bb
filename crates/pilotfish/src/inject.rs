//! `pilotfish inject`: adds sidecars to what makes Pods, in files.

use crate::bootstrap::{PodTarget, pair};
use anyhow::{Context, Result};
use clap::Args;
use pilotfish_webhook::inject::{DEFAULT_TEMPLATE, Injector, inject_documents};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The largest input, in bytes.
const LARGEST: u64 = 256 << 20;

/// Adds sidecars to files.
#[derive(Args, Clone, Debug)]
pub struct Inject {
    /// The file with Deployments, Pods and the like in YAML or JSON; - for the standard input
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// The template of the sidecar [default: the one that --print-template prints]
    #[arg(long, value_name = "FILE")]
    template: Option<PathBuf>,
    /// A value for the template, as in image=docker.io/envoyproxy/envoy:distroless-v1.40.0; may repeat
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = pair)]
    values: Vec<(String, String)>,
    /// Where the sidecars find Pilotfish
    #[arg(long, value_name = "HOST:PORT", default_value = "pilotfish.istio-system.svc:15010")]
    xds_address: String,
    /// The cluster that the Pods run in
    #[arg(long, value_name = "ID", default_value = "Kubernetes")]
    cluster_id: String,
    /// Prints the default template, to be changed and given with --template
    #[arg(long)]
    print_template: bool,
}

impl Inject {
    /// Writes the file with sidecars to `out`.
    ///
    /// # Errors
    /// When the file or the template is wrong.
    pub fn run(&self, out: &mut impl Write) -> Result<()> {
        if self.print_template {
            return Ok(out.write_all(DEFAULT_TEMPLATE.as_bytes())?);
        }
        let target = PodTarget::new(&self.xds_address, &self.cluster_id)?;
        let injector = injector(self.template.as_deref(), self.values.iter().cloned().collect(), target)?;
        let name = self.file.display();
        let text = self.read().with_context(|| format!("--file {name}"))?;
        let injected = inject_documents(&injector, &text).with_context(|| format!("--file {name}"))?;
        Ok(out.write_all(injected.as_bytes())?)
    }

    fn read(&self) -> Result<String> {
        let mut text = String::new();
        let source: Box<dyn Read> = match self.file.as_os_str() == "-" {
            true => Box::new(std::io::stdin().lock()),
            false => Box::new(std::fs::File::open(&self.file)?),
        };
        let read = source.take(LARGEST + 1).read_to_string(&mut text)?;
        anyhow::ensure!(read as u64 <= LARGEST, "larger than {LARGEST} bytes");
        Ok(text)
    }
}

/// An injector of sidecars that find Pilotfish there.
///
/// # Errors
/// When the template cannot be read, or is wrong.
pub fn injector(
    template: Option<&Path>,
    values: BTreeMap<String, String>,
    target: PodTarget,
) -> Result<Injector> {
    let text = match template {
        Some(path) => {
            std::fs::read_to_string(path).with_context(|| format!("--template {}", path.display()))?
        }
        None => DEFAULT_TEMPLATE.to_owned(),
    };
    Ok(Injector::new(&text, values, Arc::new(move |workload| target.bootstrap(workload)))?)
}
