//! The built `pilotfish` with its own folder.

use super::{Container, Program, WrongClock, eventually, free_port};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tokio::process::Command;

pub struct Pilotfish {
    binary: PathBuf,
    folder: TempDir,
    start: Start,
    xds: u16,
    admin: u16,
    program: Program,
    /// Its container, if there is one.
    container: Option<Container>,
}

/// Options of a start, other than the addresses.
#[derive(Default)]
struct Start {
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// Commands of a shell that then executes the process.
    shell: Option<String>,
}

impl Pilotfish {
    /// Starts it on files with these names and texts, and waits until it is ready.
    ///
    /// # Panics
    /// When it does not become ready.
    pub async fn start(binary: &str, files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mesh = folder_with(&folder, files);
        let this = Self::launch_in(folder, binary, vec![mesh.to_string_lossy().into_owned()]);
        this.ready().await;
        this
    }

    /// Starts `pilotfish serve` with these arguments on free ports, without waiting for readiness.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn launch(binary: &str, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self::launch_in(folder, binary, arguments.iter().map(|&argument| argument.to_owned()).collect())
    }

    /// Starts `pilotfish serve` with a wrong clock, without waiting for readiness.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn launch_with_clock(binary: &str, arguments: &[&str], clock: &WrongClock) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let start = Start { arguments, environment: clock.environment(), shell: None };
        Self::launch_as(folder, binary, start)
    }

    /// Starts `pilotfish serve` by a shell that first runs these commands: limits, traps, redirections.
    ///
    /// # Panics
    /// When there is no shell.
    #[must_use]
    pub fn launch_by_shell(binary: &str, commands: &str, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let start = Start { arguments, shell: Some(commands.to_owned()), ..Start::default() };
        Self::launch_as(folder, binary, start)
    }

    fn launch_in(folder: TempDir, binary: &str, arguments: Vec<String>) -> Self {
        Self::launch_as(folder, binary, Start { arguments, ..Start::default() })
    }

    fn launch_as(folder: TempDir, binary: &str, start: Start) -> Self {
        let (xds, admin) = (free_port(), free_port());
        let binary = PathBuf::from(binary);
        let program = serve(&binary, folder.path(), &start, xds, admin);
        Self { binary, folder, start, xds, admin, program, container: None }
    }

    /// Starts it on these files in a container, as this user, and waits until it is ready. The binary is one
    /// of the machine, for bootstraps.
    ///
    /// # Panics
    /// When it does not become ready.
    pub async fn start_in(container: Container, user: u32, binary: &str, files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mesh = folder_with(&folder, files);
        let (xds, admin) = (free_port(), free_port());
        let arguments = vec![mesh.to_string_lossy().into_owned()];
        let all = serve_arguments(&arguments, xds, admin);
        let mut command = Command::from(container.command(user, &mesh, &all));
        let program = Program::start(&mut command, folder.path().join("pilotfish.log"));
        let (binary, container) = (PathBuf::from(binary), Some(container));
        let start = Start { arguments, ..Start::default() };
        let this = Self { binary, folder, start, xds, admin, program, container };
        this.ready().await;
        this
    }

    /// Its container, if there is one.
    #[must_use]
    pub fn container(&self) -> Option<&Container> {
        self.container.as_ref()
    }

    /// Number of open files and connections of the process.
    ///
    /// # Panics
    /// When it has ended.
    #[must_use]
    pub fn open_files(&self) -> usize {
        let all = std::fs::read_dir(format!("/proc/{}/fd", self.program.id()));
        all.expect("it runs").count()
    }

    #[must_use]
    pub fn xds_port(&self) -> u16 {
        self.xds
    }

    /// Port of the admin API.
    #[must_use]
    pub fn admin_port(&self) -> u16 {
        self.admin
    }

    /// Process id; 0 when it has ended.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.program.id()
    }

    /// File with its output.
    #[must_use]
    pub fn log(&self) -> &Path {
        self.program.log()
    }

    /// Executable that was started.
    #[must_use]
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Folder for logs and other files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Replaces a file atomically, like editors.
    ///
    /// # Panics
    /// When the folder cannot be written.
    pub fn write(&self, name: &str, text: &str) {
        let new = self.folder.path().join("new");
        std::fs::write(&new, text).expect("the folder can be written");
        std::fs::rename(&new, self.folder.path().join("mesh").join(name)).expect("the folder can be written");
    }

    /// Removes a file.
    ///
    /// # Panics
    /// When there is none.
    pub fn remove(&self, name: &str) {
        std::fs::remove_file(self.folder.path().join("mesh").join(name)).expect("the file is there");
    }

    /// Loads a page of the admin API.
    ///
    /// # Errors
    /// The status, or another error.
    pub async fn page(&self, path: &str) -> Result<String, String> {
        let request = format!("http://127.0.0.1:{}{path}", self.admin);
        super::load::fetch(&request).await
    }

    /// Status and text of a page of the admin API, for errors with a meaningful text.
    ///
    /// # Errors
    /// The error message, if there was no response.
    pub async fn answer(&self, path: &str) -> Result<(u16, String), String> {
        super::load::answer(&format!("http://127.0.0.1:{}{path}", self.admin)).await
    }

    /// Loads a page of the admin API as JSON.
    ///
    /// # Panics
    /// When it fails.
    pub async fn json(&self, path: &str) -> serde_json::Value {
        let text = self.page(path).await.unwrap_or_else(|error| panic!("{path}: {error}"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
    }

    /// Sum of a metric over all its labels; 0 when it was never counted.
    ///
    /// # Panics
    /// When the metrics cannot be loaded.
    pub async fn metric(&self, name: &str) -> f64 {
        self.metric_of(name, "").await
    }

    /// Sum of a metric over values with a label, written as `name="value"`.
    ///
    /// # Panics
    /// When the metrics cannot be loaded.
    pub async fn metric_of(&self, name: &str, label: &str) -> f64 {
        let text = self.page("/metrics").await.expect("metrics are served");
        let values = text.lines().filter_map(|line| {
            let rest = line.strip_prefix(name).filter(|rest| rest.contains(label))?;
            let value = if rest.starts_with('{') { rest.rsplit_once('}')?.1 } else { rest };
            value.starts_with(' ').then(|| value.trim().parse::<f64>().ok()).flatten()
        });
        values.sum()
    }

    /// Kills it like a crash.
    pub async fn kill(&mut self) {
        self.program.kill().await;
    }

    /// Restarts it on the same files and ports, and waits until it is ready.
    ///
    /// # Panics
    /// When it does not become ready, or ran in a container, which is not restarted.
    pub async fn restart(&mut self) {
        assert!(self.container.is_none(), "a container is started once");
        self.program = serve(&self.binary, self.folder.path(), &self.start, self.xds, self.admin);
        self.ready().await;
    }

    /// Output so far.
    #[must_use]
    pub fn printed(&self) -> String {
        self.program.printed()
    }

    pub fn program(&mut self) -> &mut Program {
        &mut self.program
    }

    /// Waits until it is ready.
    ///
    /// # Panics
    /// When it does not become ready.
    pub async fn ready(&self) {
        eventually("pilotfish is ready", || async {
            self.page("/ready").await.map_err(|error| format!("{error}\n{}", self.program.printed()))
        })
        .await;
    }
}

/// Creates the served folder.
fn folder_with(folder: &TempDir, files: &[(&str, &str)]) -> PathBuf {
    let mesh = folder.path().join("mesh");
    std::fs::create_dir(&mesh).expect("it is new");
    for (name, text) in files {
        std::fs::write(mesh.join(name), text).expect("the folder can be written");
    }
    mesh
}

fn serve(binary: &Path, folder: &Path, start: &Start, xds: u16, admin: u16) -> Program {
    let mut command = match &start.shell {
        None => Command::new(binary),
        Some(commands) => {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(format!("{commands}\nexec \"$0\" \"$@\"")).arg(binary);
            shell
        }
    };
    command.args(serve_arguments(&start.arguments, xds, admin)).envs(start.environment.iter().cloned());
    Program::start(&mut command, folder.join("pilotfish.log"))
}

fn serve_arguments(arguments: &[String], xds: u16, admin: u16) -> Vec<String> {
    let addresses = [("--xds-address", xds), ("--admin-address", admin)];
    let mut all = vec!["serve".to_owned()];
    all.extend(arguments.iter().cloned());
    for (flag, port) in addresses {
        all.extend([flag.to_owned(), format!("127.0.0.1:{port}")]);
    }
    all
}
