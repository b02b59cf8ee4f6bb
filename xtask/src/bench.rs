//! `cargo xtask bench`: builds Pilotfish and the benchmarks with a release profile, and runs them.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;

use crate::workspace::{self, Profile};
use crate::{process, tools};

/// Profile that is similar to the release and quicker to build, for comparisons of versions.
const QUICK_BUILD: &str = "bench-quick";
/// Benchmark of a live cluster.
const KUBERNETES: &str = "bench_kubernetes";
/// Benchmark of a mesh on a live cluster.
const MESH_KUBERNETES: &str = "bench_mesh_kubernetes";
/// Benchmark of registration, and its package.
const REGISTRATION: (&str, &str) = ("bench_registration", "pilotfish-registration-redb");
/// Benchmark of registries with their own source.
const REGISTRY: &str = "bench_registry";

/// Benchmark of a cluster that is synced into Polaris.
const POLARIS: &str = "bench_polaris";

/// Options of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Measure this executable instead of building one
    #[arg(long, visible_alias = "binary", value_name = "FILE")]
    pilotfish: Option<PathBuf>,
    /// The build that is measured; the bars are for releases
    #[arg(
        long, value_name = "NAME", default_value = Profile::Release.name(),
        value_parser = ["release", QUICK_BUILD]
    )]
    profile: String,
    /// Measure a mesh in which every proxy is a Pod of its own
    #[arg(long, conflicts_with_all = ["registry", "polaris", "registration"])]
    mesh: bool,
    /// Measure large worlds, many streams, storms, slow readers; `-- churn` measures half an hour of changes
    #[arg(long, conflicts_with_all = ["mesh", "kubernetes", "registry", "polaris", "registration"])]
    scale: bool,
    /// Measure certificates that Pilotfish signs, beside rcgen alone
    #[arg(long, conflicts_with_all = ["mesh", "scale", "kubernetes", "registry", "polaris", "registration"])]
    certificates: bool,
    /// Proxies of the mesh
    #[arg(long, value_name = "N", requires = "mesh")]
    proxies: Option<usize>,
    /// The mesh with fewer rounds, and without broadcasts beside it
    #[arg(long, requires = "mesh")]
    quick: bool,
    /// Measure a live cluster instead: a real API server with etcd
    #[arg(long)]
    kubernetes: bool,
    /// Measure a registry with a source of its own instead, beside a bare client of its product
    #[arg(long, value_name = "NAME", conflicts_with = "kubernetes")]
    registry: Option<String>,
    /// Measure `pilotfish sync polaris` instead, beside a bare watch
    #[arg(long, conflicts_with_all = ["kubernetes", "registry", "registration"])]
    polaris: bool,
    /// Measure registration on the embedded store instead
    #[arg(long, conflicts_with_all = ["kubernetes", "registry", "pilotfish"])]
    registration: bool,
    /// Options of the bench itself; `-- --help` shows them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

impl Args {
    /// Example that measures, unless it is the benchmark with files.
    fn example(&self) -> Option<&'static str> {
        match (self.kubernetes, &self.registry) {
            (true, _) if self.mesh => Some(MESH_KUBERNETES),
            (true, _) => Some(KUBERNETES),
            (false, Some(_)) => Some(REGISTRY),
            (false, None) => self.polaris.then_some(POLARIS),
        }
    }

    /// Subcommand of the benchmark with files.
    fn files(&self) -> &'static str {
        match (self.mesh, self.scale, self.certificates) {
            (true, ..) => "mesh",
            (_, true, _) => "scale",
            (_, _, true) => "certificates",
            _ => "compare",
        }
    }

    /// Tools that the measurement needs.
    fn tools(&self) -> &'static [&'static str] {
        match self.registry.as_deref() {
            None => &["etcd", "kube-apiserver"],
            Some("etcd") => &["etcd"],
            Some("dns") => &["bind"],
            Some("eureka") => &["jdk", "java-eureka"],
            Some("nacos") => &["rnacos", "iptables"],
            Some("zookeeper") => &["jdk", "zookeeper", "java-dubbo"],
            Some(_) => &[],
        }
    }
}

/// Runs the task. `Ok(false)` when a bar was missed.
///
/// # Errors
/// When something cannot be built or started.
pub(crate) fn run(args: &Args) -> Result<bool> {
    if args.registration {
        return registration(args);
    }
    let folder = workspace::target().join(&args.profile);
    let mut build = process::cargo();
    build.args(["build", "--profile", &args.profile]);
    let example = args.example();
    match example {
        Some(example) => {
            tools::ensure(args.tools())?;
            build.args(["--package", "pilotfish", "--example", example]);
        }
        None => drop(build.args(["--package", "pilotfish-bench"])),
    }
    if args.registry.is_some() {
        // Simulated servers.
        build.args(["--package", "pilotfish-testkit", "--bins"]);
    }
    let pilotfish = match &args.pilotfish {
        Some(path) => std::env::current_dir()?.join(path),
        None => {
            build.args(["--package", "pilotfish", "--bins"]);
            folder.join("pilotfish")
        }
    };
    process::check(&mut build)?;
    let mut bench = match example {
        Some(example) => process::command(folder.join("examples").join(example)),
        None => process::command(folder.join("pilotfish-bench")),
    };
    match &args.registry {
        Some(name) => drop(bench.arg(name)),
        None if example.is_none() => drop(bench.arg(args.files())),
        None => {}
    }
    if let Some(proxies) = args.proxies {
        bench.arg("--proxies").arg(proxies.to_string());
    }
    if args.quick {
        bench.arg("--quick");
    }
    bench.arg("--pilotfish").arg(pilotfish).args(&args.rest);
    process::succeeds(&mut bench)
}

/// Needs neither Pilotfish nor a server: it calls the registrar.
fn registration(args: &Args) -> Result<bool> {
    let (example, package) = REGISTRATION;
    process::check(process::cargo().args([
        "build",
        "--release",
        "--package",
        package,
        "--example",
        example,
    ]))?;
    let bench = Profile::Release.folder().join("examples").join(example);
    process::succeeds(process::command(bench).args(&args.rest))
}
