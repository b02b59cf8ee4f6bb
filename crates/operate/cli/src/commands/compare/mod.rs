//! `pilotfish compare`: what proxies of another control plane have or would be sent by it, against what
//! Pilotfish would send them.

pub(crate) mod cluster;
mod files;
pub(crate) mod istiod;
mod pods;
mod proxies;
mod text;

use super::envoy;
use crate::client::{Client, Connection};
use crate::error::CliError;
use crate::output::Output;
use crate::terminal::one_line;
use clap::Args;
use istiod::FromIstiod;
use pilotfish_api::v1::{NodeRequest, Overview, Section};
use pilotfish_compare::{ALL_KINDS, Held, Names, Report, Resources, Sent};
use serde_json::Value;
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

pub(super) const EXAMPLES: &str = "Examples:
  kubectl -n istio-system port-forward deploy/istiod 25010:15010 8080 &
  pilotfish compare --istiod 127.0.0.1:25010                    all proxies of this istiod
  pilotfish compare --istiod 127.0.0.1:25010 web-0.shop --save before
  pilotfish compare --istiod 127.0.0.1:25010 --nodes nodes.yaml proxies of a file
  pilotfish compare --istiod 127.0.0.1:25010 --pods             proxies of all Pods of the cluster
  pilotfish compare --istiod 127.0.0.1:25012 --pods --mint-tokens --istiod-ca root.pem
  pilotfish compare --dumps before -o json | jq '.causes[] | select(.isKnown | not)'

  mkdir dumps                                                   what Envoys have, instead of istiod
  istioctl proxy-config all web-0.shop -o json > dumps/web-0.json
  kubectl -n shop exec web-0 -c istio-proxy -- pilot-agent request GET \\
      'config_dump?include_eds' > dumps/web-0.json              the same, without istioctl
  pilotfish compare --dumps dumps                               against the Pilotfish that runs here

Nothing is changed: istiod takes the readers for proxies that connect once more, and counts them;
Pilotfish only computes what it would send. The exit code is 1 where a difference is not known,
and 2 where a proxy could not be compared. Secrets are not compared; extension configuration and
name tables with --istiod only.";

/// Compares what proxies of istiod have with what Pilotfish would send them.
#[derive(Args, Clone, Debug)]
pub struct Compare {
    /// Proxies, NAME.NAMESPACE; all without one
    #[arg(value_name = "PROXY")]
    proxies: Vec<String>,
    /// Folder with a dump of each proxy: Envoy's config_dump?include_eds, `istioctl proxy-config all -o
    /// json`, or written by --save
    #[arg(long, value_name = "DIR", required_unless_present = "istiod", conflicts_with = "istiod")]
    dumps: Option<PathBuf>,
    /// Writes what was compared into this folder, for later comparisons with --dumps
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    #[command(flatten)]
    istiod: FromIstiod,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

/// Resources of a proxy, from a dump or from istiod.
#[derive(Debug)]
pub(super) struct Dump {
    /// Name of the proxy, as `web-0.shop`.
    proxy: String,
    node: Value,
    /// Names that it subscribes to, other than by reference.
    names: Names,
    held: Resources<Held>,
}

impl Compare {
    pub(super) async fn run(self) -> Result<ExitCode, CliError> {
        let client = self.connection.client();
        let mut comparing = Comparing {
            save: self.save.clone(),
            report: Report::default(),
            progress: Progress::new(),
            client: client.clone(),
        };
        match &self.dumps {
            Some(folder) => {
                let files = files::files(folder)?;
                // Without a control plane, all proxies would fail in the same way.
                let _: Overview = client.get("overview", &[]).await?;
                comparing.progress.total = files.len();
                for file in files {
                    comparing.progress.next(&file.file_stem().unwrap_or_default().to_string_lossy());
                    match files::read(&file) {
                        Ok(dump) if !self.is_meant(&dump.proxy) => {}
                        read => comparing.add(&file.display().to_string(), read).await?,
                    }
                }
            }
            None => {
                let _: Overview = client.get("overview", &[]).await?;
                let own = &self.connection.address;
                let mut ahead = self.istiod.open(&client, own, |proxy| self.is_meant(proxy)).await?;
                comparing.progress.total = ahead.len();
                while let Some((name, read)) = ahead.next().await {
                    comparing.progress.next(&name);
                    comparing.add(&name, read).await?;
                }
            }
        }
        comparing.progress.end();
        let mut report = comparing.report;
        if report.proxies.is_empty() && report.failed.is_empty() {
            return Err(self.nothing());
        }
        report.finish();
        self.output.write(&report, |screen| text::text(&report, screen))?;
        Ok(code(&report))
    }

    fn is_meant(&self, proxy: &str) -> bool {
        self.proxies.is_empty() || self.proxies.iter().any(|wanted| wanted == proxy)
    }

    fn nothing(&self) -> CliError {
        let (place, has, hint) = match &self.dumps {
            Some(folder) => (
                folder.display().to_string(),
                "no dump",
                "istioctl proxy-config all POD -o json > DIR/POD.json writes one",
            ),
            None => (
                "istiod".to_owned(),
                "no proxy",
                "each replica of istiod lists the proxies that are connected to it; --nodes names others",
            ),
        };
        match self.proxies.as_slice() {
            [] => CliError::new(format!("{place} has {has}")).hint(hint),
            wanted => {
                let of = if self.dumps.is_some() { " of" } else { "" };
                CliError::new(format!("{place} has {has}{of} {}", wanted.join(", ")))
                    .hint("proxies are named as NAME.NAMESPACE, as in their node id")
            }
        }
    }
}

/// State of a comparison while proxies are read.
struct Comparing {
    save: Option<PathBuf>,
    report: Report,
    progress: Progress,
    client: Client,
}

impl Comparing {
    /// Compares a proxy; `what` is named if it could not be read.
    async fn add(&mut self, what: &str, read: Result<Dump, String>) -> Result<(), CliError> {
        let dump = match read {
            Ok(dump) => dump,
            Err(error) => {
                self.report.fail(what, error);
                return Ok(());
            }
        };
        match sent(&self.client, &dump).await {
            Ok(sent) => {
                if let Some(folder) = &self.save {
                    files::save(folder, &dump)?;
                }
                self.report.add(&dump.proxy, &dump.held, &sent);
            }
            Err(error) => self.report.fail(dump.proxy, error.to_string()),
        }
        Ok(())
    }
}

fn code(report: &Report) -> ExitCode {
    match (report.unknown(), report.failed.is_empty()) {
        (0, true) => ExitCode::SUCCESS,
        (0, false) => ExitCode::from(2),
        _ => ExitCode::FAILURE,
    }
}

/// Name of a proxy from its node id, such as `web-0.shop`; the whole id if that has another form.
fn name_of(node: &Value) -> String {
    let id = node.get("id").and_then(Value::as_str).unwrap_or_default();
    let name = id.split('~').nth(2).filter(|name| !name.is_empty());
    name.unwrap_or(id).to_owned()
}

/// Resources that Pilotfish would send to the proxy of a dump.
async fn sent(client: &Client, dump: &Dump) -> Result<Resources<Sent>, CliError> {
    let names = dump.names.iter();
    let names: std::collections::BTreeMap<Section, Vec<String>> =
        names.filter_map(|(kind, names)| Some((Section::parse(kind)?, names.clone()))).collect();
    let page = async |offset| {
        let request = NodeRequest { node: dump.node.clone(), offset, names: names.clone() };
        client.post("node/config", &request).await
    };
    let config = envoy::pages(page).await?;
    let mut sent = Resources::new();
    for resource in config.resources {
        if let Some(kind) = ALL_KINDS.into_iter().find(|kind| *kind == resource.section.as_str()) {
            let (made_by, content) = (resource.made_by, resource.resource);
            sent.insert((kind, resource.name), Sent { resource: content, made_by });
        }
    }
    Ok(sent)
}

/// Line on a terminal that names the proxy that is being compared.
struct Progress {
    total: usize,
    done: usize,
    is_shown: bool,
}

impl Progress {
    fn new() -> Self {
        Self { total: 0, done: 0, is_shown: std::io::stderr().is_terminal() }
    }

    fn next(&mut self, name: &str) {
        self.done += 1;
        self.write(&format!("{} of {}: {}", self.done, self.total, one_line(name)));
    }

    fn end(&self) {
        self.write("");
    }

    fn write(&self, text: &str) {
        if self.is_shown {
            // Fails if stderr is closed; the progress is lost then.
            let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
        }
    }
}
