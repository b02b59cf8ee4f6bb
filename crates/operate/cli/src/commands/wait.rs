//! `pilotfish wait`.

use super::history::refused_by;
use crate::client::{Address, Client};
use crate::error::CliError;
use crate::output::{Colour, Output, Screen};
use crate::time::{about, parse_duration};
use crate::words::is_or_are;
use clap::Args;
use pilotfish_api::counted;
use pilotfish_api::v1::{Acknowledgement, Outcome, State};
use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;

pub(super) const EXAMPLES: &str = "Examples:
  pilotfish wait                                        until all proxies have what is in force now
  pilotfish wait VirtualService/shop/catalog            until those that this object concerns have
                                                        it as it was read last
  pilotfish wait --revision 42 --timeout 10s

After a write to an API server, wait for the generation that it made: the object may not be read yet
  generation=$(kubectl apply -f routes.yaml -o jsonpath='{.metadata.generation}')
  pilotfish wait VirtualService/shop/catalog --generation $generation && ./smoke-test

Of several replicas, the one that is asked answers, for the proxies that are connected to it: its
name is in the answer.

The exit code is 0 when all have acknowledged, 1 when some have not within the time: they are named,
with what they say. It is also 1 while the newest version of the object is invalid, and for a
revision that never was in force at proxies that refused it: they have left, or a later revision
replaced it there. `pilotfish history` says the same.";

/// Waits until a change is in force.
#[derive(Args, Clone, Debug)]
pub struct Wait {
    /// The object that changed: KIND/NAMESPACE/NAME, or KIND/NAME where it has no namespace
    #[arg(conflicts_with = "revision")]
    object: Option<String>,
    /// Wait for this revision of the configuration
    #[arg(long)]
    revision: Option<u64>,
    /// First waits until the object is read with this `metadata.generation` or a later one; files, and some
    /// kinds, have none
    #[arg(long, requires = "object", value_parser = clap::value_parser!(i64).range(1..))]
    generation: Option<i64>,
    /// Maximum time to wait; 0s asks once
    #[arg(
        long, visible_alias = "for", value_name = "DURATION", default_value = "30s",
        value_parser = parse_duration
    )]
    timeout: Duration,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    address: Address,
}

/// Timeout of one response.
const ANSWER: Duration = Duration::from_secs(10);
/// Delay between two requests, at first and at most.
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

impl Wait {
    pub(super) async fn run(self) -> Result<ExitCode, CliError> {
        let client = self.address.client(ANSWER);
        let began = Instant::now();
        let mut answer = self.first(&client).await?;
        let mut pause = FIRST;
        while !self.is_over(&answer) && !is_replaced(&answer) && began.elapsed() < self.timeout {
            tokio::time::sleep(pause.min(self.timeout.saturating_sub(began.elapsed()))).await;
            pause = (pause * 2).min(LONGEST);
            answer = self.next(&client, answer).await?;
        }
        let took = began.elapsed();
        self.output.write(&answer, |screen| text(&answer, self.generation, took, screen))?;
        Ok(if self.is_over(&answer) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn is_over(&self, answer: &Acknowledgement) -> bool {
        is_read(answer, self.generation) && is_in_force(answer)
    }

    async fn first(&self, client: &Client) -> Result<Acknowledgement, CliError> {
        let revision = self.revision.map(|revision| revision.to_string());
        let generation = self.generation.map(|generation| generation.to_string());
        let mut query = Vec::new();
        query.extend(revision.as_deref().map(|revision| ("revision", revision)));
        query.extend(self.object.as_deref().map(|object| ("object", object)));
        query.extend(generation.as_deref().map(|generation| ("generation", generation)));
        let answer: Acknowledgement = client.get("acknowledgements", &query).await?;
        if self.generation.is_some() && answer.object.is_none() {
            return Err(CliError::new("the control plane does not know of generations")
                .hint("it is of another version; see `pilotfish --version` and /version there"));
        }
        Ok(answer)
    }

    /// Repeats the request: for the object until it is read, and then for its acknowledgements.
    async fn next(&self, client: &Client, before: Acknowledgement) -> Result<Acknowledgement, CliError> {
        if !is_read(&before, self.generation) {
            return self.first(client).await;
        }
        let name = if before.everything { "up_to" } else { "revision" };
        let revision = before.revision.to_string();
        let answer: Acknowledgement = client.get("acknowledgements", &[(name, &revision)]).await?;
        Ok(Acknowledgement { object: before.object, ..answer })
    }
}

/// True if all proxies have what is waited for. Older servers name no outcome.
fn is_in_force(answer: &Acknowledgement) -> bool {
    answer.missing.is_empty()
        && !is_replaced(answer)
        && match answer.outcome {
            Some(Outcome::Pending) => false,
            // The revision is that of the newest version of the object, so only another part of it was
            // replaced.
            Some(Outcome::Refused) => answer.refusals.superseded_by.is_some(),
            _ => true,
        }
}

/// True if proxies refused the revision and a later one replaced it there, so that it never will be in force.
fn is_replaced(answer: &Acknowledgement) -> bool {
    answer.outcome == Some(Outcome::Refused)
        && answer.refusals.superseded_by.is_some()
        && answer.object.is_none()
}

/// True if the object is in force in the version that is waited for: a generation, or the newest that was
/// read.
fn is_read(answer: &Acknowledgement, generation: Option<i64>) -> bool {
    match (&answer.object, generation) {
        (None, generation) => generation.is_none(),
        (Some(object), None) => object.problems.is_empty(),
        (Some(object), Some(generation)) => object.generation.is_some_and(|read| read >= generation),
    }
}

fn text(answer: &Acknowledgement, generation: Option<i64>, took: Duration, screen: &Screen) -> String {
    let took = about(took.as_secs_f64());
    if !is_read(answer, generation) {
        let (first, others) = not_read(answer, generation, &took);
        return screen.paint(&first, Colour::Bad) + "\n" + &others;
    }
    let Acknowledgement { revision, proxies, concerned, missing, replica, .. } = answer;
    let mut out = String::new();
    if missing.is_empty() && !is_in_force(answer) {
        let refused_by = refused_by(&answer.refusals);
        let line = match answer.outcome {
            Some(Outcome::Refused) => {
                format!("revision {revision} is not in force on {replica}: refused by {refused_by}")
            }
            _ => format!(
                "revision {revision} is not in force on {replica} after {took}: a refusal has just come"
            ),
        };
        let _ = writeln!(out, "{}", screen.paint(&line, Colour::Bad));
        return out;
    }
    if missing.is_empty() {
        let who = match (*proxies, *concerned) {
            (0, _) => "no proxy is connected".to_owned(),
            (_, _) if answer.everything => {
                format!("each of {} has everything up to it", counted(*proxies, "connected proxy"))
            }
            (_, 0) => format!("it concerns none of {}", counted(*proxies, "connected proxy")),
            _ => format!(
                "each of {} that it concerns has it, of {proxies} that {} connected",
                counted(*concerned, "proxy"),
                is_or_are(*proxies)
            ),
        };
        let refusals = &answer.refusals;
        let refused = match refusals.refused {
            0 => String::new(),
            _ => format!("; refused at first by {}", refused_by(refusals)),
        };
        let line = format!("revision {revision} is in force on {replica}: {who}, after {took}{refused}");
        let _ = writeln!(out, "{}", screen.paint(&line, Colour::Good));
        return out;
    }
    let has = answer.acknowledged.saturating_sub(proxies - concerned.min(proxies));
    let line = format!(
        "revision {revision}: {has} of {} that it concerns on {replica} {} it after {took}; these have not:",
        counted(*concerned, "proxy"),
        if has == 1 { "has" } else { "have" }
    );
    let _ = writeln!(out, "{}", screen.paint(&line, Colour::Bad));
    for missing in missing {
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

/// Says that a version is not in force: in one line, with what is known of the object in further ones.
fn not_read(answer: &Acknowledgement, generation: Option<i64>, took: &str) -> (String, String) {
    let object = answer.object.clone().unwrap_or_default();
    let name = &object.name;
    let first = match (generation, object.generation) {
        (None, _) => format!("the newest version of {name} is not in force after {took}:"),
        (Some(wanted), Some(read)) => format!(
            "generation {wanted} of {name} was not read within {took}: generation {read} is in force, \
             from {}",
            object.source
        ),
        (Some(wanted), None) => {
            format!("generation {wanted} of {name} was not read within {took}: no such object was read")
        }
    };
    let mut others = String::new();
    for problem in &object.problems {
        let _ = writeln!(others, "  {problem}");
    }
    if !object.nearest.is_empty() {
        let _ = writeln!(others, "  near are {}", object.nearest.join(", "));
    }
    (first, others)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_api::v1::{NotAcknowledged, Refusals, WaitedObject};

    fn done() -> Acknowledgement {
        Acknowledgement {
            revision: 4,
            current: 5,
            replica: "pilotfish-0".into(),
            proxies: 3,
            concerned: 2,
            acknowledged: 3,
            ..Acknowledgement::default()
        }
    }

    fn shown(answer: &Acknowledgement, seconds: f64) -> String {
        text(answer, None, Duration::from_secs_f64(seconds), &Screen::plain())
    }

    #[test]
    fn what_is_in_force_says_for_whom_and_on_which_replica() {
        for (answer, expected) in [
            (done(), "each of 2 proxies that it concerns has it, of 3 that are connected"),
            (Acknowledgement { concerned: 0, ..done() }, "it concerns none of 3 connected proxies"),
            (Acknowledgement { proxies: 0, concerned: 0, ..done() }, "no proxy is connected"),
            (
                Acknowledgement { everything: true, concerned: 3, ..done() },
                "each of 3 connected proxies has everything up to it",
            ),
        ] {
            let line = format!("revision 4 is in force on pilotfish-0: {expected}, after 0.1 s\n");
            assert_eq!(shown(&answer, 0.12), line);
        }
    }

    #[test]
    fn those_that_have_not_are_named_with_what_they_say() {
        let missing = NotAcknowledged {
            proxy: "web-0.shop".into(),
            resource_type: "listeners".into(),
            state: State::Rejected,
            since: "2026-01-01T00:00:00Z".into(),
            reason: "no such filter".into(),
        };
        let open = Acknowledgement { acknowledged: 2, missing: vec![missing], ..done() };
        assert_eq!(
            shown(&open, 30.0),
            "revision 4: 1 of 2 proxies that it concerns on pilotfish-0 has it after 30 s; these have not:\n  web-0.shop \
             refuses listeners since 2026-01-01T00:00:00Z: no such filter\n"
        );
    }

    #[test]
    fn refused_revision_is_in_force_only_where_it_was_accepted_later() {
        let refusals = |superseded_by, accepted_with, gone| Refusals {
            refused: 1,
            refused_by: vec!["web-0.shop (lds)".into()],
            superseded_by,
            accepted_with,
            gone,
        };
        let object = Some(WaitedObject { known: true, ..WaitedObject::default() });
        let accepted = "is in force on pilotfish-0: each of 2 proxies that it concerns has it, of 3 that are connected, after 0.1 s; \
                        refused at first by web-0.shop (lds)";
        let never = "is not in force on pilotfish-0: refused by web-0.shop (lds)";
        let cases = [
            (
                Outcome::InForce,
                refusals(None, Some(6), false),
                None,
                true,
                format!("{accepted}; accepted there with revision 6"),
            ),
            (Outcome::InForce, refusals(None, None, true), None, true, format!("{accepted}; gone since")),
            (
                Outcome::Refused,
                refusals(Some(6), None, false),
                None,
                false,
                format!("{never}; superseded there by revision 6"),
            ),
            (Outcome::Refused, refusals(None, None, true), None, false, format!("{never}; gone since")),
            (
                Outcome::Refused,
                refusals(None, None, true),
                object.clone(),
                false,
                format!("{never}; gone since"),
            ),
            // Another object of the revision was replaced.
            (
                Outcome::Refused,
                refusals(Some(6), None, false),
                object,
                true,
                format!("{accepted}; superseded there by revision 6"),
            ),
        ];
        for (outcome, refusals, object, is_in_force, expected) in cases {
            let answer = Acknowledgement { outcome: Some(outcome), refusals, object, ..done() };
            assert_eq!(super::is_in_force(&answer), is_in_force, "{expected}");
            assert_eq!(shown(&answer, 0.12), format!("revision 4 {expected}\n"));
        }
        let pending = Acknowledgement { outcome: Some(Outcome::Pending), ..done() };
        assert!(!super::is_in_force(&pending));
    }

    #[test]
    fn a_generation_that_is_not_read_says_what_is() {
        let object = |generation: Option<i64>, problems: &[&str], nearest: &[&str]| {
            let object = WaitedObject {
                name: "VirtualService shop/web".into(),
                known: generation.is_some(),
                generation,
                source: "cluster Kubernetes".into(),
                problems: problems.iter().map(ToString::to_string).collect(),
                nearest: nearest.iter().map(ToString::to_string).collect(),
            };
            Acknowledgement { object: Some(object), ..done() }
        };
        let read =
            object(Some(3), &["spec.hosts: must not be empty; the last good version stays in force"], &[]);
        assert!(is_read(&read, Some(3)) && is_read(&read, Some(2)));
        assert!(!is_read(&read, Some(4)), "a later one satisfies, and an earlier one does not");
        let text = |answer: &Acknowledgement| {
            super::text(answer, Some(4), Duration::from_secs(30), &Screen::plain())
        };
        assert_eq!(
            text(&read),
            "generation 4 of VirtualService shop/web was not read within 30 s: generation 3 is in force, from cluster \
             Kubernetes\n  spec.hosts: must not be empty; the last good version stays in force\n"
        );
        assert_eq!(
            text(&object(None, &[], &["VirtualService/shop/wbe"])),
            "generation 4 of VirtualService shop/web was not read within 30 s: no such object was read\n  near are \
             VirtualService/shop/wbe\n"
        );
    }

    #[test]
    fn refused_newest_version_is_not_in_force() {
        let problem = "routes.yaml:16: spec.hosts: must not be empty; the last good version stays in force";
        for known in [true, false] {
            let object = WaitedObject {
                name: "VirtualService shop/web".into(),
                known,
                problems: vec![problem.to_owned()],
                ..WaitedObject::default()
            };
            let refused = Acknowledgement { object: Some(object), ..done() };
            assert!(!is_read(&refused, None), "all proxies have the version before");
            assert_eq!(
                shown(&refused, 30.0),
                format!(
                    "the newest version of VirtualService shop/web is not in force after 30 s:\n  {problem}\n"
                )
            );
        }
        let good = WaitedObject { known: true, ..WaitedObject::default() };
        assert!(is_read(&Acknowledgement { object: Some(good), ..done() }, None));
        assert!(is_read(&done(), None), "no object is waited for");
    }
}
