//! `pilotfish crds`: CustomResourceDefinitions of the supported kinds, for clusters without Istio.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use pilotfish_crd as crd;
use serde_json::json;
use std::collections::BTreeSet;
use std::io::Write;

/// Arguments of `pilotfish crds`.
#[derive(Args, Clone, Debug)]
pub struct Crds {
    /// Only kinds of this API group, for example networking.istio.io; may be given several times
    #[arg(long, value_name = "GROUP")]
    group: Vec<String>,
    /// Format of the definitions
    #[arg(short, long, value_enum, default_value = "yaml")]
    output: Output,
}

/// Format of the definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A YAML document each.
    Yaml,
    /// One JSON object, a `List`.
    Json,
}

impl Crds {
    /// Writes the definitions to `out`.
    ///
    /// # Errors
    /// When a group has no kinds that are read, or `out` cannot be written.
    pub fn run(&self, out: &mut impl Write) -> Result<()> {
        let kinds = crd::defined_kinds();
        let groups: BTreeSet<_> = kinds.iter().map(|kind| kind.group()).collect();
        if let Some(unknown) = self.group.iter().find(|group| !groups.contains(group.as_str())) {
            let known = groups.into_iter().collect::<Vec<_>>().join(", ");
            bail!("no kind of the API group {unknown:?} is read\nhint: there are {known}");
        }
        let wanted = |group: &str| self.group.is_empty() || self.group.iter().any(|wanted| wanted == group);
        let definitions = kinds.into_iter().filter(|kind| wanted(kind.group())).filter_map(crd::definition);
        match self.output {
            Output::Yaml => {
                for definition in definitions {
                    writeln!(out, "---\n{}", serde_saphyr::to_string(&definition)?.trim_end())?;
                }
            }
            Output::Json => {
                let items: Vec<_> = definitions.collect();
                writeln!(out, "{:#}", json!({"apiVersion": "v1", "kind": "List", "items": items}))?;
            }
        }
        Ok(())
    }
}
