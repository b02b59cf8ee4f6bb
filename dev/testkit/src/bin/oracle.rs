//! Compares Pilotfish's resources with the recorded cases and the list of known differences. Sources are
//! files in this process, a real API server, or the dumps of `oracle/ask.py` over the wire.
#![allow(clippy::print_stdout, reason = "a command-line tool")]

use anyhow::{Context, Result, bail};
use clap::Parser;
use pilotfish_compare::{Comparison, KINDS, by_form};
use pilotfish_testkit::cases::Case;
use pilotfish_testkit::live;
use pilotfish_testkit::oracle::{self, Found, Known, Scores, Way};
use pilotfish_testkit::real::{ApiServer, ApiServerOptions};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Compares what Pilotfish sends with the recorded cases. The exit code is 1 unless exactly the known
/// differences are there.
#[derive(Parser)]
struct Args {
    /// Cases whose name matches, with `*`; may repeat.
    #[arg(long)]
    only: Vec<String>,
    /// Rows of each list.
    #[arg(long, default_value_t = 20)]
    most: usize,
    /// Ranks only differences whose path begins so, as `clusters`.
    #[arg(long, default_value = "")]
    kind: String,
    /// No line for cases that are equal.
    #[arg(long)]
    summary: bool,
    /// Asks also for the names that the recording has.
    #[arg(long, conflicts_with_all = ["dumps", "write_differences"])]
    recorded_names: bool,
    /// Writes what was generated: CASE.PROXY.json.
    #[arg(long, value_name = "DIR", conflicts_with = "dumps")]
    keep: Option<PathBuf>,
    /// Writes each case to a real API server and reads it from there, instead of reading its files.
    #[arg(long, conflicts_with_all = ["dumps", "write_differences"])]
    live: bool,
    /// Compares what is in this folder, CASE.PROXY.json, instead of translating.
    #[arg(long, value_name = "DIR", conflicts_with = "write_differences")]
    dumps: Option<PathBuf>,
    /// Writes what differs now into the list, where each difference keeps its reason, and the documentation
    /// made from it.
    #[arg(long)]
    write_differences: bool,
    /// The folder with the cases. The list of known differences is beside it.
    #[arg(long, value_name = "DIR", default_value_os_t = oracle::cases_folder())]
    cases: PathBuf,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let mut cases = Case::all(&args.cases)?;
    let all = cases.len();
    cases.retain(|case| args.only.is_empty() || args.only.iter().any(|pattern| matches(pattern, &case.name)));
    if cases.is_empty() {
        bail!("no case matches");
    }
    let list = args.cases.join("../differences.yaml");
    let mut known = if list.exists() { Known::read(&list)? } else { Known::default() };
    let (way, scores) = scores(&cases, &args)?;
    let is_all = cases.len() == all;
    if args.write_differences {
        known.update(&scores, is_all);
        std::fs::write(&list, known.text()).with_context(|| format!("writing {}", list.display()))?;
        if is_all && args.cases == oracle::cases_folder() {
            oracle::write_pages(&scores, &known)?;
        }
    }
    print_scores(&scores, &known, way, &args);
    let verdict = known.judge(&scores, way, is_all);
    println!();
    if verdict.is_good() {
        println!("exactly the known differences are there");
        return Ok(ExitCode::SUCCESS);
    }
    println!("not as {} says:\n{verdict}", list.display());
    Ok(ExitCode::FAILURE)
}

fn scores(cases: &[Case], args: &Args) -> Result<(Way, Scores)> {
    let kept = |case: &Case, found: Result<Found>| -> Result<Found> {
        let found = found?;
        if let Some(folder) = &args.keep {
            keep(folder, case, &found)?;
        }
        Ok(found)
    };
    if let Some(folder) = &args.dumps {
        return Ok((Way::Wire, oracle::score(cases, oracle::threads(), |case| read_dumps(folder, case))));
    }
    if args.live {
        let live = Live::start()?;
        // A cluster has the objects of one case at a time.
        let found = |case: &Case| kept(case, live.dumps(case, args.recorded_names));
        return Ok((Way::Live, oracle::score(cases, 1, found)));
    }
    let found = |case: &Case| kept(case, oracle::dumps_of_files(case, args.recorded_names));
    Ok((Way::Files, oracle::score(cases, oracle::threads(), found)))
}

fn keep(folder: &Path, case: &Case, found: &Found) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    for (proxy, dump) in &found.dumps {
        let file = folder.join(format!("{}.{proxy}.json", case.name));
        std::fs::write(file, serde_json::to_string_pretty(dump)?)?;
    }
    Ok(())
}

fn read_dumps(folder: &Path, case: &Case) -> Result<Found> {
    let mut dumps = BTreeMap::new();
    for proxy in &case.proxies {
        let file = folder.join(format!("{}.{}.json", case.name, proxy.name));
        let text = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        dumps.insert(proxy.name.clone(), serde_json::from_str(&text)?);
    }
    Ok(Found { dumps, refused: Vec::new() })
}

/// A real API server with the definitions of all kinds.
struct Live {
    runtime: tokio::runtime::Runtime,
    server: ApiServer,
}

impl Live {
    fn start() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let server = runtime.block_on(async {
            let server = ApiServer::start(ApiServerOptions::default()).await?;
            server.apply_definitions().await;
            Some(server)
        });
        let server = server.context("kube-apiserver or etcd is missing: run `cargo xtask tools`")?;
        Ok(Self { runtime, server })
    }

    fn dumps(&self, case: &Case, recorded_names: bool) -> Result<Found> {
        let translator = self.runtime.block_on(live::translator(case, &self.server))?;
        Ok(Found { dumps: oracle::dumps(case, &translator, recorded_names)?, refused: Vec::new() })
    }
}

fn print_scores(scores: &Scores, known: &Known, way: Way, args: &Args) {
    for case in &scores.0 {
        let (same, all) = case.counts();
        if !args.summary || !case.is_whole() {
            println!("{:7.2}%  {}", percent(same, all), case.case);
        }
        for line in case.error.iter().chain(case.refused.iter().filter(|_| !args.summary)) {
            println!("          {line}");
        }
    }
    println!();
    print_kinds(scores);
    print_ranking(scores, known, way, args);
    let (same, all) = scores.counts();
    println!("equal: {:.2}% of {all} resources", percent(same, all));
    println!("whole cases equal: {}/{}", scores.whole(), scores.0.len());
}

fn print_kinds(scores: &Scores) {
    for kind in KINDS {
        let found = || scores.0.iter().flat_map(|case| &case.proxies).map(|(_, found)| found);
        let sum = |of: fn(&Comparison) -> &BTreeMap<&'static str, usize>| -> usize {
            found().filter_map(|found| of(found).get(kind)).sum()
        };
        println!("{kind:10} same {}/{}", sum(|found| &found.same), sum(|found| &found.total));
    }
}

fn print_ranking(scores: &Scores, known: &Known, way: Way, args: &Args) {
    let mut rows = by_form(scores.differences());
    rows.retain(|(form, _)| form.starts_with(&args.kind));
    for (form, alike) in rows.iter().take(args.most) {
        let listed = alike.iter().filter(|(place, difference)| known.has(place, difference, way)).count();
        println!("  {:5} x {form} ({listed} known)", alike.len());
        if let Some((place, example)) = alike.first() {
            println!("          e.g. {place} {}", example.resource);
            let [want, got] = [&example.want, &example.got].map(|value| oracle::shown(value.as_ref()));
            println!("          want {want}\n          got  {got}");
        }
    }
    if rows.len() > args.most {
        println!("  (+{} more forms)", rows.len() - args.most);
    }
}

fn percent(same: usize, all: usize) -> f64 {
    if all == 0 { 0.0 } else { 100.0 * same as f64 / all as f64 }
}

/// True if a name matches a pattern in which `*` matches anything.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut open = false;
    for part in parts {
        open = true;
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        if part.is_empty() {
            rest = "";
        }
    }
    rest.is_empty() || open && pattern.ends_with('*')
}
