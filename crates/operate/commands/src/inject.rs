//! `pilotfish inject`: adds sidecars to Deployments, Jobs, Pods and the like in files.

use anyhow::{Context, Result};
use clap::Args;
use pilotfish_model::Revision;
use pilotfish_node::bootstrap::{PodTarget, pair};
use pilotfish_node::injection::{AUDIENCE, TOKEN_AUDIENCE, authorities_of, injector};
use pilotfish_webhook::inject::{DEFAULT_TEMPLATE, inject_documents};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::PathBuf;

/// Size limit of the input in bytes.
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
    /// Address that the sidecars connect to [default: pilotfish.istio-system.svc:15010, over TLS port 15012]
    #[arg(long, value_name = "HOST:PORT")]
    xds_address: Option<String>,
    /// The authorities of Pilotfish's certificate in PEM: with them, sidecars reach it over TLS and show the
    /// token of their service account
    #[arg(long, value_name = "FILE")]
    xds_ca_file: Option<PathBuf>,
    /// Sidecars take the certificates of their workloads from Pilotfish, for mutual TLS of the mesh. It needs
    /// --ca
    #[arg(long, requires = "xds_ca_file")]
    workload_certificates: bool,
    /// The cluster that the Pods run in
    #[arg(long, value_name = "ID", default_value = "Kubernetes")]
    cluster_id: String,
    /// The revision of the Pilotfish that serves the Pods, for their annotation istio.io/rev
    #[arg(long, value_name = "NAME")]
    revision: Option<String>,
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
        let port = if self.xds_ca_file.is_some() { 15012 } else { 15010 };
        let default = format!("pilotfish.istio-system.svc:{port}");
        let address = self.xds_address.as_deref().unwrap_or(&default);
        let mut target = PodTarget::new(address, &self.cluster_id)?;
        let mut values: BTreeMap<_, _> = self.values.iter().cloned().collect();
        if let Some(path) = &self.xds_ca_file {
            target = target.over_tls(authorities_of("--xds-ca-file", path)?);
            target = target.with_certificates(self.workload_certificates);
            values.entry(TOKEN_AUDIENCE.to_owned()).or_insert_with(|| AUDIENCE.to_owned());
        }
        let revision = self.revision.as_deref().map(Revision::named).unwrap_or_default();
        let injector = injector(self.template.as_deref(), values, target)?.with_revision(&revision);
        let name = self.file.display();
        let text = self.read().with_context(|| format!("--file {name}"))?;
        let injected = inject_documents(&injector, &text).with_context(|| format!("--file {name}"))?;
        for warning in &injected.warnings {
            // A closed stderr is ignored.
            let _ = writeln!(std::io::stderr(), "warning: {warning}");
        }
        Ok(out.write_all(injected.text.as_bytes())?)
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
