//! `pilotfish top`: a live overview of a control plane.

mod keys;

use super::history::in_force;
use crate::client::{Client, Connection};
use crate::error::CliError;
use crate::output::{Colour, Screen};
use crate::table::{Cell, Table};
use crate::terminal::{cut, one_line};
use crate::time::{about, parse_duration};
use clap::Args;
use keys::{Keys, quits};
use pilotfish_api::counted;
use pilotfish_api::v1::{History, Memory, Overview, Page, Profile, Proxy, State};
use pilotfish_api::{Problem, Registry};
use std::fmt::Write;
use std::io::{IsTerminal, Write as _};
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

pub(super) const EXAMPLES: &str = "Examples:
  pilotfish top                         every 2s, until q or Ctrl-C
  pilotfish top --every 500ms

It is for terminals; proxies, history, registries and problems have --watch and -o json.";

/// Shows a control plane at a glance.
#[derive(Args, Clone, Debug)]
pub struct Top {
    /// Refresh interval, at least 100ms
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
    every: Duration,
    #[command(flatten)]
    connection: Connection,
}

/// Minimum of `--every`; shorter intervals are raised to it.
const SOONEST: Duration = Duration::from_millis(100);
/// Rows of each list, and page size of the requests.
const ROWS: usize = 10;
const LIMIT: (&str, &str) = ("limit", "10");
/// Escape sequences to enter the alternate screen without a cursor, and to leave it.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
const LEAVE: &[u8] = b"\x1b[?25h\x1b[?1049l";

/// Data of one refresh.
#[derive(Default)]
struct View {
    overview: Overview,
    /// First proxies that are not in sync, refusing ones first.
    behind: Vec<Proxy>,
    history: History,
    registries: Vec<Registry>,
    problems: Page<Problem>,
    memory: Memory,
    /// CPU time since the process began.
    profile: Profile,
    /// CPU time in the previous view.
    before: Option<Profile>,
}

impl Top {
    pub(super) async fn run(self) -> Result<ExitCode, CliError> {
        if !std::io::stdout().is_terminal() {
            return Err(CliError::new("stdout is no terminal").hint(
                "pilotfish proxies --watch and pilotfish history --watch write to pipes; -o json is \
                 for programs",
            ));
        }
        let client = self.connection.client();
        // An error before the first view is returned.
        let first = View::ask(&client).await?;
        let keys = Keys::begin();
        std::io::stdout().lock().write_all(ENTER)?;
        let shown = self.show(&client, first).await;
        std::io::stdout().lock().write_all(LEAVE)?;
        drop(keys);
        shown.map(|()| ExitCode::SUCCESS)
    }

    /// Refreshes the view until q or a signal, and restores the screen in either case.
    async fn show(&self, client: &Client, mut view: View) -> Result<(), CliError> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut quit = quits();
        let mut error = String::new();
        loop {
            draw(&view, &error)?;
            let next = async {
                tokio::time::sleep(self.every.max(SOONEST)).await;
                View::ask(client).await
            };
            tokio::select! {
                next = next => match next {
                    Ok(next) => (view, error) = (next.after(view), String::new()),
                    Err(failed) => error = failed.to_string().replace('\n', "; "),
                },
                done = tokio::signal::ctrl_c() => return Ok(done?),
                _ = terminate.recv() => return Ok(()),
                _ = hangup.recv() => return Ok(()),
                Some(()) = quit.recv() => return Ok(()),
            }
        }
    }
}

/// Overwrites the screen line by line, so that it does not flicker; lines are cut to the size of the
/// terminal.
fn draw(view: &View, error: &str) -> Result<(), CliError> {
    let screen = Screen::stdout();
    let text = view.text(&screen, error);
    let (width, height) = keys::size();
    let mut out = String::from("\x1b[H");
    let lines: Vec<String> =
        screen.cleaned(&text).lines().take(height).map(|line| cut(line, width)).collect();
    // A line break after a full last line would scroll the screen.
    out.push_str(&lines.join("\x1b[K\r\n"));
    out.push_str("\x1b[K\x1b[J");
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(out.as_bytes())?;
    Ok(stdout.flush()?)
}

impl View {
    /// Requests all data. The amount does not depend on the number of proxies.
    async fn ask(client: &Client) -> Result<Self, CliError> {
        let registries: Page<Registry> = client.get("registries", &[LIMIT]).await?;
        let mut behind = Vec::new();
        for state in ["rejected", "pending"] {
            let page: Page<Proxy> = client.get("proxies", &[("state", state), LIMIT]).await?;
            behind.extend(page.items);
        }
        Ok(Self {
            overview: client.get("overview", &[]).await?,
            behind,
            history: client.get("history", &[LIMIT, ("endpoints", "true")]).await?,
            registries: registries.items,
            problems: client.get("problems", &[LIMIT]).await?,
            memory: client.get("memory", &[]).await?,
            profile: client.get("profile", &[("seconds", "0")]).await?,
            before: None,
        })
    }

    /// Continues from the previous view.
    fn after(self, before: Self) -> Self {
        Self { before: Some(before.profile), ..self }
    }

    /// CPU use since the previous view, in percent of one processor; since the process began in the first
    /// view, and after a restart of the control plane.
    fn cpu(&self) -> f64 {
        let Profile { seconds, cpu_seconds, .. } = self.profile;
        let share = |cpu: f64, seconds: f64| 100.0 * cpu / seconds.max(0.001);
        match &self.before {
            Some(before) if seconds > before.seconds && cpu_seconds >= before.cpu_seconds => {
                share(cpu_seconds - before.cpu_seconds, seconds - before.seconds)
            }
            _ => share(cpu_seconds, seconds),
        }
    }

    fn text(&self, screen: &Screen, error: &str) -> String {
        let mut out = String::new();
        let cpu = self.cpu();
        let resident = self.memory.resident >> 20;
        let _ = writeln!(out, "revision {}   {resident} MiB   {cpu:.0} % CPU", self.history.current);
        if !error.is_empty() {
            let _ = writeln!(out, "{}", screen.paint(error, Colour::Bad));
        }
        self.proxies(screen, &mut out);
        self.changes(screen, &mut out);
        self.sources(screen, &mut out);
        out
    }

    fn proxies(&self, screen: &Screen, out: &mut String) {
        let Overview { proxies, proxies_pending: pending, proxies_rejected: rejected, .. } = self.overview;
        let line = format!("{}, {pending} pending, {rejected} rejected", counted(proxies, "proxy"));
        let colour = if rejected > 0 { Colour::Bad } else { Colour::Good };
        let _ = writeln!(out, "\n{}", screen.paint(&line, colour));
        for proxy in self.behind.iter().take(ROWS) {
            for ty in proxy.types.iter().filter(|ty| ty.state != State::Synced) {
                let reason =
                    ty.rejection.as_ref().map(|rejection| rejection.reason.as_str()).unwrap_or_default();
                let lag = ty.lag_seconds.map(about).unwrap_or_default();
                let line = format!("  {} {} {} {lag} {reason}", proxy.name, ty.name, ty.state);
                let _ = writeln!(out, "{}", one_line(&line).trim_end());
            }
        }
    }

    fn changes(&self, screen: &Screen, out: &mut String) {
        let mut table = Table::new(["revision", "at", "change", "proxies", "in force"]);
        for change in self.history.page.items.iter().take(ROWS) {
            let summary: String = change.summary.chars().take(80).collect();
            table.row([
                change.revision.to_string().into(),
                change.at.as_str().into(),
                summary.into(),
                change.proxies.to_string().into(),
                in_force(change),
            ]);
        }
        let _ = write!(out, "\n{}", table.text(screen));
    }

    fn sources(&self, screen: &Screen, out: &mut String) {
        let mut table = Table::new(["registry", "state", "services", "endpoints"]);
        for registry in self.registries.iter().take(ROWS) {
            let (word, colour) = match (&registry.failure, registry.synced) {
                (Some(_), _) => ("failing", Colour::Bad),
                (None, true) => ("synced", Colour::Good),
                (None, false) => ("pending", Colour::Doubtful),
            };
            table.row([
                registry.name.as_str().into(),
                Cell::coloured(word, colour),
                registry.services.to_string().into(),
                registry.endpoints.to_string().into(),
            ]);
        }
        let _ = write!(out, "\n{}", table.text(screen));
        if self.problems.total > 0 {
            let line = format!("{}: pilotfish problems", counted(self.problems.total, "problem"));
            let _ = writeln!(out, "\n{}", screen.paint(&line, Colour::Doubtful));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_api::v1::Change;

    #[test]
    fn the_processors_are_those_since_the_view_before() {
        let at = |seconds, cpu_seconds| View {
            profile: Profile { seconds, cpu_seconds, ..Profile::default() },
            ..View::default()
        };
        assert_eq!(at(100.0, 10.0).cpu(), 10.0);
        assert_eq!(at(102.0, 11.0).after(at(100.0, 10.0)).cpu(), 50.0);
        assert_eq!(at(2.0, 1.0).after(at(100.0, 10.0)).cpu(), 50.0, "it was started again");
    }

    #[test]
    fn a_glance_has_proxies_changes_and_registries() {
        let change = Change {
            revision: 7,
            summary: "VirtualService shop/web changed".into(),
            proxies: 2,
            ..Change::default()
        };
        let mut view = View { memory: Memory { resident: 64 << 20, ..Memory::default() }, ..View::default() };
        view.history = History { current: 7, ..History::default() };
        view.history.page.items.push(change);
        view.registries.push(Registry {
            name: "Kubernetes/c".into(),
            synced: true,
            services: 3,
            ..Registry::default()
        });
        view.problems.total = 2;
        view.overview = Overview { proxies: 2_000, proxies_pending: 1, ..Overview::default() };
        let late = pilotfish_api::v1::ProxyType {
            name: "routes".into(),
            state: State::Pending,
            ..Default::default()
        };
        view.behind.push(Proxy { name: "web-0.shop".into(), types: vec![late], ..Proxy::default() });
        let text = view.text(&Screen::plain(), "gone");
        assert!(
            text.starts_with("revision 7   64 MiB   0 % CPU\ngone\n\n2000 proxies, 1 pending, 0 rejected\n  web-0.shop routes pending\n"),
            "{text}"
        );
        assert!(text.contains("VirtualService shop/web changed  2        pending\n"), "{text}");
        assert!(
            text.contains("Kubernetes/c  synced  3         0\n")
                && text.ends_with("2 problems: pilotfish problems\n"),
            "{text}"
        );
    }
}
