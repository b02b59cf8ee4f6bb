//! Scores the translation on recorded cases, in one process: the quick sibling of `cargo xtask oracle`.
#![allow(clippy::print_stdout, reason = "a command-line tool")]

use anyhow::{Context, Result};
use clap::Parser;
use pilotfish_testkit::cases::Case;
use pilotfish_testkit::compare::{KINDS, Report};
use pilotfish_testkit::dump::dump_also;
use pilotfish_testkit::live;
use pilotfish_testkit::real::{ApiServer, ApiServerOptions};
use pilotfish_translate::Proxy;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

/// Scores the translation on recorded cases.
#[derive(Parser)]
struct Args {
    /// Cases whose name matches, with `*`; may repeat.
    #[arg(long)]
    only: Vec<String>,
    /// Rows of each list.
    #[arg(long, default_value_t = 20)]
    most: usize,
    /// Only differences whose path begins so, as `clusters`.
    #[arg(long, default_value = "")]
    kind: String,
    /// Asks also for the names that the recording has.
    #[arg(long)]
    recorded_names: bool,
    /// Writes what was generated: CASE.PROXY.json.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// The share of equal resources below which the exit code is 1, 0 to 1.
    #[arg(long, default_value_t = 0.0)]
    min: f64,
    /// Writes each case to a real API server and reads it from there, instead of reading its files.
    #[arg(long)]
    live: bool,
    /// The folder with the cases.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../oracle/cases"))]
    cases: PathBuf,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let live = if args.live { Some(Live::start()?) } else { None };
    let mut total = Report::default();
    let mut areas: BTreeMap<String, (usize, usize, usize, usize)> = BTreeMap::new();
    for case in Case::all(&args.cases)? {
        if !args.only.is_empty() && !args.only.iter().any(|pattern| matches(pattern, &case.name)) {
            continue;
        }
        let mut report = Report::default();
        let error = run(&case, &args, live.as_ref(), &mut [&mut report, &mut total]).err();
        let (same, all) = report.counts();
        let area = areas.entry(case.name.split('-').next().unwrap_or_default().to_owned()).or_default();
        *area = (
            area.0 + same,
            area.1 + all,
            area.2 + usize::from(report.is_whole() && error.is_none()),
            area.3 + 1,
        );
        println!("{:7.2}%  {}", percent(same, all), case.name);
        if let Some(error) = error {
            println!("          {error:#}");
        }
    }
    print_report(&total, &args);
    for (area, (same, all, whole, cases)) in &areas {
        println!("{area:8} {same:5}/{all:5} {:7.2}%  whole cases {whole}/{cases}", percent(*same, *all));
    }
    let (same, all) = total.counts();
    println!("equal: {:.2}% of {all} resources", percent(same, all));
    let whole: usize = areas.values().map(|area| area.2).sum();
    println!("whole cases equal: {whole}/{}", areas.values().map(|area| area.3).sum::<usize>());
    let enough = percent(same, all) >= 100.0 * args.min;
    Ok(if enough { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
}

fn run(case: &Case, args: &Args, live: Option<&Live>, reports: &mut [&mut Report]) -> Result<()> {
    let translator = match live {
        Some(live) => live.runtime.block_on(live::translator(case, &live.server))?,
        None => case.translator()?,
    };
    for entry in &case.proxies {
        let client = translator.connect(Proxy::from_node(&entry.node())?);
        let golden = case.golden(entry)?;
        let also = if args.recorded_names { golden.clone() } else { serde_json::Value::Null };
        let got = dump_also(&translator.snapshot(), &client, entry.listeners.as_deref(), &also)?;
        if let Some(folder) = &args.keep {
            std::fs::create_dir_all(folder)?;
            let file = folder.join(format!("{}.{}.json", case.name, entry.name));
            std::fs::write(file, serde_json::to_string_pretty(&got)?)?;
        }
        for report in reports.iter_mut() {
            report.add(&format!("{}/{}", case.name, entry.name), &golden, &got);
        }
    }
    Ok(())
}

fn print_report(total: &Report, args: &Args) {
    println!();
    for kind in KINDS {
        let same = total.same.get(kind).copied().unwrap_or_default();
        println!("{kind:10} same {same}/{}", total.total.get(kind).copied().unwrap_or_default());
    }
    for (title, rows) in [("missing", &total.missing), ("extra", &total.extra)] {
        let rows: Vec<_> = rows.iter().filter(|row| row.starts_with(&args.kind)).collect();
        for row in rows.iter().take(args.most) {
            println!("  {title}: {row}");
        }
        if rows.len() > args.most {
            println!("  {title}: (+{} more)", rows.len() - args.most);
        }
    }
    let show = |value: &Option<serde_json::Value>| match value {
        None => "(absent)".to_owned(),
        Some(value) => value.to_string().chars().take(300).collect(),
    };
    for (path, count, example) in
        total.ranked().into_iter().filter(|row| row.0.starts_with(&args.kind)).take(args.most)
    {
        println!("  {count:5} x {path}\n          e.g. {}", example.place);
        println!("          want {}\n          got  {}", show(&example.want), show(&example.got));
    }
}

fn percent(same: usize, all: usize) -> f64 {
    if all == 0 { 0.0 } else { 100.0 * same as f64 / all as f64 }
}

/// Whether a name matches a pattern in which `*` stands for anything.
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
