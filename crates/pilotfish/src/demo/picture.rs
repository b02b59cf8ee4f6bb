//! Live picture: the shares of the services in the latest answers.

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Number of the latest requests of a kind from which shares are computed.
const WINDOW: usize = 100;
/// Interval at which the shares are printed without a terminal.
const EVERY: Duration = Duration::from_secs(2);

/// Bars on a terminal, lines elsewhere. Logs are written through it, so that they do not tear the bars.
pub(crate) struct Picture {
    bars: MultiProgress,
    terminal: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    flows: BTreeMap<String, Flow>,
    printed: Option<Instant>,
}

#[derive(Default)]
struct Flow {
    latest: VecDeque<String>,
    bars: BTreeMap<String, ProgressBar>,
}

impl Default for Picture {
    fn default() -> Self {
        let terminal = std::io::stdout().is_terminal();
        let target = if terminal { ProgressDrawTarget::stdout() } else { ProgressDrawTarget::hidden() };
        Self { bars: MultiProgress::with_draw_target(target), terminal, state: Mutex::default() }
    }
}

impl Picture {
    /// Prints text above the bars.
    pub(crate) fn say(&self, text: &str) {
        self.bars.suspend(|| {
            // A closed stdout is ignored.
            let _ = writeln!(std::io::stdout(), "{text}");
        });
    }

    /// Hides the bars while `write` writes to the terminal.
    pub(crate) fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bars.suspend(write)
    }

    /// Counts an answer to a request.
    pub(super) fn count(&self, flow: &str, from: &str) {
        let mut state = self.state.lock();
        let entry = state.flows.entry(flow.to_owned()).or_default();
        entry.latest.push_back(from.to_owned());
        if entry.latest.len() > WINDOW {
            entry.latest.pop_front();
        }
        if self.terminal {
            self.draw(flow, entry);
        } else if state.printed.is_none_or(|printed| printed.elapsed() >= EVERY) {
            state.printed = Some(Instant::now());
            let lines = state.lines();
            drop(state);
            self.say(&lines);
        }
    }

    fn draw(&self, name: &str, flow: &mut Flow) {
        for (from, share) in flow.shares() {
            let bar = flow.bars.entry(from.clone()).or_insert_with(|| {
                let bar = self.bars.add(ProgressBar::new(100));
                let style = ProgressStyle::with_template("{msg:44} {bar:40.cyan/white} {pos:>3} %");
                bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
                bar.set_message(format!("{name} -> {from}"));
                bar
            });
            bar.set_position(share);
        }
    }
}

impl Flow {
    /// Returns the share of each service that ever answered, in percent.
    fn shares(&self) -> BTreeMap<String, u64> {
        let mut counts: BTreeMap<String, u64> = self.bars.keys().map(|from| (from.clone(), 0)).collect();
        for from in &self.latest {
            *counts.entry(from.clone()).or_default() += 1;
        }
        let all = self.latest.len().max(1) as u64;
        counts.into_iter().map(|(from, count)| (from, (100 * count + all / 2) / all)).collect()
    }
}

impl State {
    fn lines(&self) -> String {
        let line = |(name, flow): (&String, &Flow)| {
            let shares: Vec<_> =
                flow.shares().iter().map(|(from, share)| format!("{from} {share} %")).collect();
            format!("{name}: {}", shares.join(", "))
        };
        self.flows.iter().map(line).collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_latest_requests() {
        let picture = Picture { terminal: true, ..Picture::default() };
        for n in 0..200 {
            picture.count("a", if n < 110 { "v1" } else { "v2" });
        }
        let state = picture.state.lock();
        assert_eq!(state.flows["a"].shares(), BTreeMap::from([("v1".into(), 10), ("v2".into(), 90)]));
        assert_eq!(state.lines(), "a: v1 10 %, v2 90 %");
    }
}
