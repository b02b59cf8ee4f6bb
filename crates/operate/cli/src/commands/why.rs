//! `pilotfish why`.

use super::shown::Shown;
use crate::client::{Client, Connection};
use crate::error::CliError;
use crate::output::{Colour, Output, Screen};
use crate::table::Table;
use clap::{Args, Subcommand};
use pilotfish_api::v1::{Dropped, Step, Verdict, Why as Answer, WhyEndpoint, WhyObject};
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

pub(super) const EXAMPLES: &str = "Examples:
  pilotfish why web-0.shop --to catalog
      a short name, as an application of that proxy would use it
  pilotfish why web-0.shop --to payment.example.com:443
  pilotfish why front.istio-ingress --to https://shop.example.com/cart
      through a gateway; tls:// for TLS that is no HTTP
  pilotfish why web-0.shop --to catalog:80 --path /v2/items --header x-user=tester
  pilotfish why web-0.shop --to catalog --at 41                 at an earlier revision
  pilotfish why client.shop --to catalog --files ./mesh
      about files, without a control plane: for a sidecar of that Pod
  pilotfish why no config VirtualService/shop/catalog
      whom an object reaches, or why nobody
  pilotfish why endpoint 10.0.0.7
      which services an address is in, and what kept it out of others

The last line is the verdict. The exit code is 0 when the request reaches a service, 1 when it does
not.";

/// Explains where a request goes.
#[derive(Args, Clone, Debug)]
#[command(subcommand_negates_reqs = true)]
pub struct Why {
    #[command(subcommand)]
    other: Option<Other>,
    /// The proxy that sends the request: NAME.NAMESPACE, its node's id, or the beginning of its name
    #[arg(required = true)]
    proxy: Option<String>,
    /// Destination of the request: a host as the application names it, and a port; the scheme decides about
    /// TLS
    #[arg(long, value_name = "[SCHEME://]HOST[:PORT]", required = true)]
    to: Option<String>,
    /// The path of an HTTP request
    #[arg(long, default_value = "/")]
    path: String,
    /// The method of an HTTP request
    #[arg(long, default_value = "GET")]
    method: String,
    /// A header of an HTTP request; may be given several times
    #[arg(long = "header", value_name = "NAME=VALUE")]
    headers: Vec<String>,
    /// Asks about this folder instead of a running control plane, for a sidecar of a Pod in it
    #[arg(long, value_name = "DIR")]
    pub files: Option<PathBuf>,
    /// With --files: Istio's MeshConfig
    #[arg(long, value_name = "FILE", requires = "files")]
    pub mesh_config: Option<PathBuf>,
    /// With --files: Istio's MeshNetworks
    #[arg(long, value_name = "FILE", requires = "files")]
    pub mesh_networks: Option<PathBuf>,
    /// The Pod is a gateway, whose Envoy stands alone; for a folder, and for a Pod that is not connected
    #[arg(long)]
    pub gateway: bool,
    /// At an earlier revision; `pilotfish history` lists them
    #[arg(long, value_name = "REVISION", conflicts_with = "files")]
    at: Option<u64>,
    #[command(flatten)]
    shown: Shown,
}

/// Subcommands of `pilotfish why`; without one, it explains a request.
#[derive(Subcommand, Clone, Debug)]
enum Other {
    /// Explains which services an address is an endpoint of, and by which rule it is kept out of others
    Endpoint(Endpoint),
    /// Explains why proxies have nothing of an object: `why no config VirtualService/shop/catalog`
    No(No),
}

#[derive(Args, Clone, Debug)]
struct No {
    #[command(subcommand)]
    what: NoWhat,
}

#[derive(Subcommand, Clone, Debug)]
enum NoWhat {
    /// Names the proxies that an object reaches, and why it does not reach others
    Config(NoConfig),
}

#[derive(Args, Clone, Debug)]
struct NoConfig {
    /// Object to explain: KIND/NAMESPACE/NAME
    object: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Args, Clone, Debug)]
struct Endpoint {
    /// IP address of the endpoint
    address: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

impl Why {
    pub(super) async fn run(self) -> Result<ExitCode, CliError> {
        match &self.other {
            Some(Other::Endpoint(endpoint)) => return endpoint.run().await,
            Some(Other::No(No { what: NoWhat::Config(config) })) => return config.run().await,
            None => {}
        }
        self.shown.repeat(async |client| self.ask(client).await).await
    }

    async fn ask(&self, client: &Client) -> Result<ExitCode, CliError> {
        let mut query = vec![("path", self.path.as_str()), ("method", self.method.as_str())];
        query.extend(self.proxy.as_deref().map(|proxy| ("proxy", proxy)));
        query.extend(self.to.as_deref().map(|to| ("to", to)));
        query.extend(self.gateway.then_some(("gateway", "true")));
        query.extend(self.headers.iter().map(|header| ("header", header.as_str())));
        let at = self.at.map(|revision| revision.to_string());
        query.extend(at.as_deref().map(|revision| ("at", revision)));
        let answer: Answer = client.get("why", &query).await?;
        self.show(&answer)
    }

    /// Parameters of the query: proxy, host, path, method and headers.
    #[must_use]
    pub fn question(&self) -> (&str, &str, &str, &str, &[String]) {
        (
            self.proxy.as_deref().unwrap_or_default(),
            self.to.as_deref().unwrap_or_default(),
            &self.path,
            &self.method,
            &self.headers,
        )
    }

    /// Prints an explanation and returns its exit code.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn show(&self, answer: &Answer) -> Result<ExitCode, CliError> {
        // Proxies of a directory are never connected.
        let is_noted = self.files.is_none() && !answer.connected;
        self.shown.output.write(answer, |screen| text(answer, is_noted, screen))?;
        Ok(if answer.reaches { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl NoConfig {
    async fn run(&self) -> Result<ExitCode, CliError> {
        let query = [("object", self.object.as_str())];
        let answer: WhyObject = self.connection.client().get("why/object", &query).await?;
        self.output.write(&answer, |screen| object_text(&answer, screen))?;
        Ok(if answer.reached > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn object_text(answer: &WhyObject, screen: &Screen) -> String {
    let colour = if answer.reached > 0 { Colour::Good } else { Colour::Bad };
    let line =
        format!("{} reaches {} of {} connected proxies", answer.object, answer.reached, answer.proxies);
    let mut out = screen.paint(&line, colour) + "\n";
    for reached in answer.examples.iter().take(LINES) {
        let _ = writeln!(
            out,
            "{} {}: {}",
            screen.paint("->", Colour::Good),
            reached.proxy,
            few(&reached.resources)
        );
    }
    if answer.reached > LINES {
        let _ = writeln!(out, "   and {} more (-o json shows some of them)", answer.reached - LINES);
    }
    for Dropped { what, why } in &answer.reasons {
        let _ = writeln!(out, "{} {what}: {}", screen.paint("xx", Colour::Bad), why.replace('\n', " "));
    }
    out
}

/// The first few names, and the number of others.
fn few(names: &[String]) -> String {
    const FEW: usize = 3;
    let mut text = names.iter().take(FEW).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > FEW {
        let _ = write!(text, " and {} more", names.len() - FEW);
    }
    text
}

impl Endpoint {
    async fn run(&self) -> Result<ExitCode, CliError> {
        let query = [("address", self.address.as_str())];
        let answer: WhyEndpoint = self.connection.client().get("why/endpoint", &query).await?;
        self.output.write(&answer, |screen| endpoint_text(&answer, screen))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Maximum lines of each list, so that the output fits on a screen.
const LINES: usize = 8;

/// Text of an explanation. `is_noted`: mention that the Pod is not connected.
fn text(answer: &Answer, is_noted: bool, screen: &Screen) -> String {
    let mut out = format!("{} -> {}\n", answer.proxy, answer.request);
    if is_noted {
        let note = "not connected: answered for the proxy that this Pod would have";
        let _ = writeln!(out, "{}", screen.paint(note, Colour::Doubtful));
    }
    out.push('\n');
    for step in &answer.steps {
        step_text(step, screen, &mut out);
    }
    list("endpoints", &answer.endpoints, screen, &mut out);
    if !answer.dropped.is_empty() {
        let _ = writeln!(out, "  endpoints left out:");
        drops(&answer.dropped, screen, &mut out);
    }
    let colour = if answer.reaches { Colour::Good } else { Colour::Bad };
    let _ = writeln!(out, "\n{}", screen.paint(&format!("verdict: {}", answer.outcome), colour));
    out
}

fn step_text(step: &Step, screen: &Screen, out: &mut String) {
    let (mark, colour) = match step.verdict {
        Verdict::Ok => ("ok", Colour::Good),
        Verdict::Doubtful => ("!!", Colour::Doubtful),
        Verdict::Ends => ("xx", Colour::Bad),
    };
    let chosen = if step.chosen.is_empty() { String::new() } else { format!("{}: ", step.chosen) };
    let _ = writeln!(out, "{} {:<12} {chosen}{}", screen.paint(mark, colour), step.step, step.text);
    if !step.decided_by.is_empty() {
        let more = step.decided_by.len().saturating_sub(LINES);
        let mut by = step.decided_by.iter().take(LINES).cloned().collect::<Vec<_>>().join(", ");
        if more > 0 {
            let _ = write!(by, " and {more} more");
        }
        let _ = writeln!(out, "                {}", screen.paint(&format!("by {by}"), Colour::Faint));
    }
    drops(&step.others, screen, out);
}

fn drops(dropped: &[Dropped], screen: &Screen, out: &mut String) {
    for Dropped { what, why } in dropped.iter().take(LINES) {
        let _ =
            writeln!(out, "                {}", screen.paint(&format!("not {what}: {why}"), Colour::Faint));
    }
    if dropped.len() > LINES {
        let _ = writeln!(out, "                and {} more (-o json shows all)", dropped.len() - LINES);
    }
}

fn list(what: &str, items: &[String], screen: &Screen, out: &mut String) {
    for item in items.iter().take(LINES) {
        let _ = writeln!(out, "{} {:<12} {item}", screen.paint("->", Colour::Good), "");
    }
    if items.len() > LINES {
        let _ = writeln!(out, "                and {} more {what} (-o json shows all)", items.len() - LINES);
    }
}

fn endpoint_text(answer: &WhyEndpoint, screen: &Screen) -> String {
    let workloads = if answer.workloads.is_empty() {
        "no workload has it".to_owned()
    } else {
        answer.workloads.join(", ")
    };
    let mut out = format!("{}: {workloads}\n", answer.address);
    let mut table = Table::new(["service", "namespace", "serves", "by which rule", "object"]);
    for service in &answer.services {
        let (word, colour) = if service.serves { ("yes", Colour::Good) } else { ("no", Colour::Bad) };
        table.row([
            service.host.as_str().into(),
            service.namespace.as_str().into(),
            crate::table::Cell::coloured(word, colour),
            service.rule.as_str().into(),
            service.made_by.as_str().into(),
        ]);
    }
    if table.is_empty() {
        out.push_str("it is an endpoint of no service, and no selector selects its workloads\n");
        return out;
    }
    out + &table.text(screen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_with_its_verdict() {
        let step = |step: &str, verdict, text: &str| Step {
            step: step.into(),
            verdict,
            chosen: "x".into(),
            text: text.into(),
            decided_by: vec!["VirtualService shop/catalog".into()],
            others: vec![Dropped { what: "rule 2".into(), why: "shadowed".into() }],
        };
        let answer = Answer {
            proxy: "web-0.shop".into(),
            request: "GET http://catalog:80/".into(),
            outcome: "503: no endpoint".into(),
            steps: vec![step("route", Verdict::Ok, "prefix /"), step("endpoints", Verdict::Ends, "none")],
            dropped: vec![Dropped { what: "10.0.0.1:80".into(), why: "it is not ready".into() }],
            ..Answer::default()
        };
        let text = text(&answer, false, &Screen::plain());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], ["web-0.shop -> GET http://catalog:80/", ""]);
        assert_eq!(lines[2], "ok route        x: prefix /");
        assert_eq!(lines[3], "                by VirtualService shop/catalog");
        let end = ["                not 10.0.0.1:80: it is not ready", "", "verdict: 503: no endpoint"];
        assert_eq!(lines[lines.len() - 3..], end);
    }
}
