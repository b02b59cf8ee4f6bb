//! `pilotfish compare`: what proxies of another control plane have, against what Pilotfish would send them.

use super::envoy;
use super::record::write_private;
use crate::client::{Client, Connection};
use crate::error::CliError;
use crate::output::{Colour, Output, Screen};
use crate::table::{Cell, Table};
use crate::terminal::one_line;
use crate::words::causes;
use clap::Args;
use pilotfish_api::counted;
use pilotfish_api::v1::{NodeRequest, Overview};
use pilotfish_compare::{Cause, Held, KINDS, ProxyResult, Report, Resources, Sent, held, node, to_dump};
use serde_json::Value;
use std::fmt::Write;
use std::io::{IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub(super) const EXAMPLES: &str = "Examples:
  mkdir dumps
  istioctl proxy-config all web-0.shop -o json > dumps/web-0.json
  kubectl -n shop exec web-0 -c istio-proxy -- pilot-agent request GET \\
      'config_dump?include_eds' > dumps/web-0.json              the same, without istioctl
  pilotfish compare --dumps dumps                               against the Pilotfish that runs here
  pilotfish compare --dumps dumps web-0.shop                    one of the proxies
  pilotfish compare --dumps dumps --save before                 keeps what was compared
  pilotfish compare --dumps before -o json | jq '.causes[] | select(.isKnown | not)'

Nothing is changed: proxies are not asked, and Pilotfish only computes what it would send. The exit
code is 1 where a difference is not known, and 2 where a proxy could not be compared. Secrets,
extension configuration and name tables are not compared.";

/// Maximum size of a dump.
const DUMP_BYTES: u64 = 256 << 20;
/// Maximum number of characters of a value.
const VALUE: usize = 200;

/// Compares what proxies of istiod have with what Pilotfish would send them.
#[derive(Args, Clone, Debug)]
pub struct Compare {
    /// Proxies, NAME.NAMESPACE; all without one
    #[arg(value_name = "PROXY")]
    proxies: Vec<String>,
    /// Folder with a dump of each proxy: Envoy's config_dump?include_eds, or `istioctl proxy-config all -o
    /// json`
    #[arg(long, value_name = "DIR")]
    dumps: PathBuf,
    /// Writes what was compared into this folder, for later comparisons with --dumps
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

/// The dump of a proxy.
struct Dump {
    /// Name of the proxy, as `web-0.shop`.
    proxy: String,
    node: Value,
    held: Resources<Held>,
}

impl Compare {
    pub(super) async fn run(self) -> Result<ExitCode, CliError> {
        let files = files(&self.dumps)?;
        let client = self.connection.client();
        // Without a control plane, all proxies would fail in the same way.
        let _: Overview = client.get("overview", &[]).await?;
        let mut report = Report::default();
        let progress = Progress::new(files.len());
        for (at, file) in files.iter().enumerate() {
            progress.show(at, file);
            match read(file) {
                Ok(dump) if !self.is_meant(&dump.proxy) => {}
                Ok(dump) => match sent(&client, &dump.node).await {
                    Ok(sent) => {
                        if let Some(folder) = &self.save {
                            save(folder, &dump)?;
                        }
                        report.add(&dump.proxy, &dump.held, &sent);
                    }
                    Err(error) => report.fail(dump.proxy, error.to_string()),
                },
                Err(error) => report.fail(file.display().to_string(), error),
            }
        }
        progress.end();
        if report.proxies.is_empty() && report.failed.is_empty() {
            return Err(self.nothing());
        }
        report.finish();
        self.output.write(&report, |screen| text(&report, screen))?;
        Ok(code(&report))
    }

    fn is_meant(&self, proxy: &str) -> bool {
        self.proxies.is_empty() || self.proxies.iter().any(|wanted| wanted == proxy)
    }

    fn nothing(&self) -> CliError {
        let folder = self.dumps.display();
        match self.proxies.as_slice() {
            [] => CliError::new(format!("{folder} has no dump"))
                .hint("istioctl proxy-config all POD -o json > DIR/POD.json writes one"),
            wanted => CliError::new(format!("{folder} has no dump of {}", wanted.join(", ")))
                .hint("proxies are named as NAME.NAMESPACE, as in their node id"),
        }
    }
}

fn code(report: &Report) -> ExitCode {
    match (report.unknown(), report.failed.is_empty()) {
        (0, true) => ExitCode::SUCCESS,
        (0, false) => ExitCode::from(2),
        _ => ExitCode::FAILURE,
    }
}

/// JSON files of a folder, by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let wrong = |error: std::io::Error| CliError::new(format!("{}: {error}", folder.display()));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read(file: &Path) -> Result<Dump, String> {
    let size = std::fs::metadata(file).map_err(|error| error.to_string())?.len();
    if size > DUMP_BYTES {
        return Err(format!("larger than {} MiB", DUMP_BYTES >> 20));
    }
    let bytes = std::fs::read(file).map_err(|error| error.to_string())?;
    let dump: Value = serde_json::from_slice(&bytes).map_err(|error| format!("no JSON: {error}"))?;
    if dump.get("configs").is_none() {
        return Err("no dump of an Envoy: it has no configs".into());
    }
    let node =
        node(&dump).ok_or("it has no bootstrap with the node of the proxy: dump it without a filter")?;
    let id = node.get("id").and_then(Value::as_str).unwrap_or_default();
    let name = id.split('~').nth(2).filter(|name| !name.is_empty());
    let proxy = name.unwrap_or(id).to_owned();
    let held = held(&dump);
    let has = |kind: &str| held.keys().any(|(its, _)| *its == kind);
    let is_eds = |held: &Held| held.resource.get("type").is_some_and(|ty| ty == "EDS");
    if !has("endpoints") && held.values().any(is_eds) {
        return Err("it has no endpoints: dump it with ?include_eds".into());
    }
    Ok(Dump { proxy, node, held })
}

fn save(folder: &Path, dump: &Dump) -> Result<(), CliError> {
    let resources =
        dump.held.iter().map(|((kind, name), held)| (*kind, name.as_str(), held.latest().clone()));
    let text = to_dump(&dump.node, resources).to_string();
    // A name that comes from a dump leads out of no folder.
    let file = folder.join(dump.proxy.replace(['/', '\\'], "_") + ".json");
    let written = std::fs::create_dir_all(folder).and_then(|()| write_private(&file, text.as_bytes()));
    written.map_err(|error| CliError::new(format!("{}: {error}", file.display())))
}

/// Resources that Pilotfish would send to a node.
async fn sent(client: &Client, node: &Value) -> Result<Resources<Sent>, CliError> {
    let page = async |offset| client.post("node/config", &NodeRequest { node: node.clone(), offset }).await;
    let config = envoy::pages(page).await?;
    let mut sent = Resources::new();
    for resource in config.resources {
        if let Some(kind) = KINDS.into_iter().find(|kind| *kind == resource.section.as_str()) {
            let (made_by, content) = (resource.made_by, resource.resource);
            sent.insert((kind, resource.name), Sent { resource: content, made_by });
        }
    }
    Ok(sent)
}

/// Line on a terminal that names the proxy that is being compared.
struct Progress {
    total: usize,
    is_shown: bool,
}

impl Progress {
    fn new(total: usize) -> Self {
        Self { total, is_shown: std::io::stderr().is_terminal() }
    }

    fn show(&self, done: usize, file: &Path) {
        let file = file.file_stem().unwrap_or_default().to_string_lossy();
        self.write(&format!("{} of {}: {}", done + 1, self.total, one_line(&file)));
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

fn text(report: &Report, screen: &Screen) -> String {
    let mut table = Table::new(["proxy", "equal", "known", "unknown"]);
    for row in &report.proxies {
        let colour = |count, colour| if count == 0 { Colour::Good } else { colour };
        table.row([
            row.proxy.as_str().into(),
            row.equal.to_string().into(),
            Cell::coloured(row.known.to_string(), colour(row.known, Colour::Doubtful)),
            Cell::coloured(row.unknown.to_string(), colour(row.unknown, Colour::Bad)),
        ]);
    }
    let mut out = if table.is_empty() { String::new() } else { table.text(screen) };
    for cause in &report.causes {
        out.push('\n');
        write_cause(&mut out, cause, screen);
    }
    if !report.failed.is_empty() {
        let line = format!("{} not compared:", counted(report.failed.len(), "proxy"));
        out.push('\n');
        let _ = writeln!(out, "{}", screen.paint(&line, Colour::Bad));
    }
    for failed in &report.failed {
        let _ = writeln!(out, "  {}: {}", one_line(&failed.what), one_line(&failed.error));
    }
    out.push('\n');
    out.push_str(&verdict(report, screen));
    out
}

fn write_cause(out: &mut String, cause: &Cause, screen: &Screen) {
    let (word, colour) = if cause.is_known { ("known", Colour::Doubtful) } else { ("unknown", Colour::Bad) };
    let what = cause.what.split_whitespace().collect::<Vec<_>>().join(" ");
    let _ = writeln!(out, "{} {}", screen.paint(word, colour), one_line(&what));
    let differences = counted(cause.differences, "difference");
    let more = cause.proxies.saturating_sub(cause.names.len());
    let names = cause.names.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() };
    let _ = writeln!(out, "  {differences} in {}: {}", counted(cause.proxies, "proxy"), one_line(&names));
    let place = &cause.example.place;
    let field = if place.field.is_empty() { String::new() } else { format!(": {}", place.field) };
    let line = format!("{} {} {}{field}", place.proxy, place.kind, place.resource);
    let _ = writeln!(out, "  such as {}", one_line(&line));
    let _ = writeln!(out, "    istiod     {}", value(cause.example.istiod.as_ref()));
    let _ = writeln!(out, "    Pilotfish  {}", value(cause.example.pilotfish.as_ref()));
    let made_by = causes(&cause.made_by, |first, others| format!("{first} (or {others})"));
    if !made_by.is_empty() {
        let _ = writeln!(out, "    made by    {}", one_line(&made_by));
    }
}

/// A value in one short line.
fn value(value: Option<&Value>) -> String {
    let Some(value) = value else { return "(absent)".to_owned() };
    let text = value.to_string();
    let mut short: String = text.chars().take(VALUE).collect();
    if short.len() < text.len() {
        short.push_str(" ...");
    }
    one_line(&short)
}

fn verdict(report: &Report, screen: &Screen) -> String {
    let count =
        |is_meant: fn(&ProxyResult) -> bool| report.proxies.iter().filter(|row| is_meant(row)).count();
    let (all, unknown) = (report.proxies.len(), count(|row| row.unknown > 0));
    let known = count(|row| row.unknown == 0 && row.known > 0);
    let (line, colour) = if unknown > 0 {
        let ways = counted(report.unknown(), "way");
        (
            format!(
                "{unknown} of {} would get other configuration, in {ways} not known",
                counted(all, "proxy")
            ),
            Colour::Bad,
        )
    } else if known > 0 {
        (
            format!("{known} of {} would get other configuration, in known ways only", counted(all, "proxy")),
            Colour::Doubtful,
        )
    } else {
        (
            format!(
                "{} would get what {} now",
                counted(all, "proxy"),
                if all == 1 { "it has" } else { "they have" }
            ),
            Colour::Good,
        )
    };
    screen.paint(&line, colour) + "\n"
}
