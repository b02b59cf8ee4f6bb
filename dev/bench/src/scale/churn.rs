//! Changing endpoints, routes, services and proxies: memory must not grow.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{Bar, NAMESPACE, Options, SETTLE, Setup, Target, address, bar, megabytes};
use crate::fleet::Fleet;

const SERVICES: usize = 200;
/// Number of groups in which proxies reconnect.
const GROUPS: usize = 10;
const GROUP: usize = 20;
/// Interval of steps: ten per second.
const STEP: Duration = Duration::from_millis(100);
const MINUTE: usize = 600;
/// History budget of the server in bytes.
const HISTORY: &str = "4194304";
/// Maximum ratio that counts as no growth.
const SAME: f64 = 1.05;

/// Resources of the server process.
#[derive(Clone, Copy, Debug)]
struct Held {
    memory: u64,
    files: usize,
    threads: usize,
}

pub(super) async fn run(options: &Options) -> Result<Vec<Bar>> {
    // The history is kept on purpose, up to a budget, which is used up before the comparison.
    let history = ["--history-bytes", HISTORY].map(Into::into);
    let setup = Setup::start_with(options, SERVICES, 10, &history, |_| Ok(())).await?;
    let (folder, mut groups) = (setup.folder(), VecDeque::new());
    for group in 0..GROUPS {
        groups.push_back(setup.fleet(std::iter::repeat_n(NAMESPACE, GROUP), group * GROUP).await?);
    }
    let minutes = usize::try_from(options.minutes).unwrap_or(usize::MAX).max(2);
    // Shorter runs are compared with an earlier minute.
    let first = minutes.min(6) - 1;
    let (mut then, mut highest): (Option<Held>, u64) = (None, 0);
    let mut steps = interval(STEP);
    steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let began = Instant::now();
    for number in 0..minutes * MINUTE {
        steps.tick().await;
        step(&setup, &folder, &mut groups, number).await?;
        if number % MINUTE == MINUTE - 1 {
            let held = held(&setup)?;
            highest = highest.max(held.memory);
            let minute = number / MINUTE + 1;
            eprintln!("bench:   minute {minute} ({:.0} s): {held:?}", began.elapsed().as_secs_f64());
            if minute == first {
                then = Some(held);
            }
        }
    }
    tokio::time::sleep(SETTLE).await;
    let (then, now) = (then.context("no minute passed")?, held(&setup)?);
    eprintln!("bench:   {} steps; at most {:.0} MB", minutes * MINUTE, megabytes(highest));
    let of = format!("minute {minutes} to minute {first}");
    #[allow(clippy::cast_precision_loss)]
    let ratio = |of: fn(&Held) -> u64| of(&now) as f64 / of(&then).max(1) as f64;
    Ok(vec![
        bar(format!("churn: resident memory, {of}"), ratio(|held| held.memory), SAME, "x"),
        bar(format!("churn: open files, {of}"), ratio(|held| held.files as u64), SAME, "x"),
        bar(format!("churn: threads, {of}"), ratio(|held| held.threads as u64), SAME, "x"),
    ])
}

/// One step: always changes an endpoint, and sometimes other objects.
async fn step(setup: &Setup, folder: &Path, groups: &mut VecDeque<Fleet>, number: usize) -> Result<()> {
    setup.world.change_service(number % SERVICES, &address(number % 5_000))?;
    if number.is_multiple_of(7) {
        setup.world.change(Target::Few, &address(number % 5_000))?;
    }
    if number.is_multiple_of(5) {
        route(folder, number)?;
    }
    if number.is_multiple_of(10) {
        service(folder, number / 10)?;
    }
    if number.is_multiple_of(50) {
        for fleet in groups.iter() {
            fleet.check()?;
        }
        // The oldest group of proxies disconnects, and a new one connects.
        drop(groups.pop_front());
        let place = number / 50 % GROUPS;
        groups.push_back(setup.fleet(std::iter::repeat_n(NAMESPACE, GROUP), place * GROUP).await?);
    }
    Ok(())
}

/// Changes the weights of a route.
fn route(folder: &Path, number: usize) -> Result<()> {
    let (host, weight) = (number / 5 % 20, 1 + number % 99);
    let text = format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\n\
         metadata: {{name: route-{host}, namespace: {NAMESPACE}}}\nspec:\n  hosts: [svc-{host}]\n  http:\n  \
         - route:\n    - {{destination: {{host: svc-{host}}}, weight: {weight}}}\n    \
         - {{destination: {{host: svc-{}}}, weight: {}}}\n",
        host + 1,
        100 - weight
    );
    replace(&folder.join(format!("route-{host}.yaml")), &text)
}

/// Adds a service, and removes the one added ten steps before.
fn service(folder: &Path, number: usize) -> Result<()> {
    let path = |number: usize| -> PathBuf { folder.join(format!("guest-{}.yaml", number % 1_000)) };
    let guest = number % 1_000;
    let text = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: guest-{guest}, namespace: {NAMESPACE}}}\nspec:\n  \
         clusterIP: 10.98.{}.{}\n  ports:\n  - {{name: http, port: 80, targetPort: 8080, protocol: TCP}}\n",
        guest / 250,
        1 + guest % 250
    );
    replace(&path(number), &text)?;
    match number.checked_sub(10).map(path) {
        Some(old) => fs::remove_file(&old).with_context(|| format!("cannot remove {}", old.display())),
        None => Ok(()),
    }
}

fn replace(path: &Path, text: &str) -> Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text).with_context(|| format!("cannot write {}", new.display()))?;
    fs::rename(&new, path).with_context(|| format!("cannot replace {}", path.display()))
}

fn held(setup: &Setup) -> Result<Held> {
    let process = PathBuf::from(format!("/proc/{}", setup.server.pid()));
    let count = |what: &str| -> Result<usize> {
        let path = process.join(what);
        Ok(fs::read_dir(&path).with_context(|| format!("cannot read {}", path.display()))?.count())
    };
    Ok(Held { memory: setup.server.memory()?.0, files: count("fd")?, threads: count("task")? })
}
