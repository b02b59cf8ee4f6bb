//! `pilotfish wait`.

use crate::client::{Address, Client};
use crate::error::CliError;
use crate::output::{Colour, Output, Screen};
use crate::time::{about, parse_duration};
use clap::Args;
use pilotfish_api::v1::{Acknowledgement, State};
use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;

pub(super) const EXAMPLES: &str = "Examples:
  pilotfish wait                                        until all proxies have what is in force now
  pilotfish wait VirtualService/shop/catalog            until those that this object concerns have it as it was read last
  pilotfish wait --revision 42 --timeout 10s
  kubectl apply -f routes.yaml && pilotfish wait VirtualService/shop/catalog && ./smoke-test

The exit code is 0 when all have acknowledged, 1 when some have not within the time: they are named, with what they say.";

/// Waits until a change is in force.
#[derive(Args, Clone, Debug)]
pub struct Wait {
    /// The object that changed: KIND/NAMESPACE/NAME, or KIND/NAME where it has no namespace
    #[arg(conflicts_with = "revision")]
    object: Option<String>,
    /// The revision
    #[arg(long)]
    revision: Option<u64>,
    /// How long it is waited; 0s asks once
    #[arg(long, visible_alias = "for", value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    timeout: Duration,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    address: Address,
}

/// How long one of the answers may take.
const ANSWER: Duration = Duration::from_secs(10);
/// How long to wait between two questions, at first and at most.
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

impl Wait {
    pub(super) async fn run(self) -> Result<ExitCode, CliError> {
        let client = self.address.client(ANSWER);
        let began = Instant::now();
        let mut answer = self.first(&client).await?;
        let mut pause = FIRST;
        while !answer.missing.is_empty() && began.elapsed() < self.timeout {
            tokio::time::sleep(pause.min(self.timeout.saturating_sub(began.elapsed()))).await;
            pause = (pause * 2).min(LONGEST);
            let revision = answer.revision.to_string();
            answer = client.get("acknowledgements", &[("revision", &revision)]).await?;
        }
        let took = began.elapsed();
        self.output.write(&answer, |screen| text(&answer, took, screen))?;
        Ok(if answer.missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    async fn first(&self, client: &Client) -> Result<Acknowledgement, CliError> {
        let revision = self.revision.map(|revision| revision.to_string());
        let mut query = Vec::new();
        query.extend(revision.as_deref().map(|revision| ("revision", revision)));
        query.extend(self.object.as_deref().map(|object| ("object", object)));
        client.get("acknowledgements", &query).await
    }
}

fn text(answer: &Acknowledgement, took: Duration, screen: &Screen) -> String {
    let Acknowledgement { revision, proxies, acknowledged, .. } = answer;
    let took = about(took.as_secs_f64());
    let mut out = String::new();
    if answer.missing.is_empty() {
        let line = format!(
            "revision {revision} is in force: each of {proxies} connected proxies has it, or is not concerned, after {took}"
        );
        let line = if *proxies == 0 {
            format!("revision {revision} is in force; no proxy is connected")
        } else {
            line
        };
        let _ = writeln!(out, "{}", screen.paint(&line, Colour::Good));
        return out;
    }
    let line = format!(
        "revision {revision}: {acknowledged} of {proxies} proxies have it after {took}; these have not:"
    );
    let _ = writeln!(out, "{}", screen.paint(&line, Colour::Bad));
    for missing in &answer.missing {
        let state = match missing.state {
            State::Rejected => "refuses",
            _ => "has not acknowledged",
        };
        let since =
            if missing.since.is_empty() { String::new() } else { format!(" since {}", missing.since) };
        let reason = if missing.reason.is_empty() { String::new() } else { format!(": {}", missing.reason) };
        let _ = writeln!(out, "  {} {state} {}{since}{reason}", missing.proxy, missing.resource_type);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_api::v1::NotAcknowledged;

    #[test]
    fn those_that_have_not_are_named_with_what_they_say() {
        let done = Acknowledgement { revision: 4, current: 5, proxies: 2, acknowledged: 2, missing: vec![] };
        assert_eq!(
            text(&done, Duration::from_millis(120), &Screen::plain()),
            "revision 4 is in force: each of 2 connected proxies has it, or is not concerned, after 0.1 s\n"
        );
        let missing = NotAcknowledged {
            proxy: "web-0.shop".into(),
            resource_type: "listeners".into(),
            state: State::Rejected,
            since: "2026-01-01T00:00:00Z".into(),
            reason: "no such filter".into(),
        };
        let open = Acknowledgement { acknowledged: 1, missing: vec![missing], ..done };
        assert_eq!(
            text(&open, Duration::from_secs(30), &Screen::plain()),
            "revision 4: 1 of 2 proxies have it after 30 s; these have not:\n  web-0.shop refuses listeners since \
             2026-01-01T00:00:00Z: no such filter\n"
        );
    }
}
