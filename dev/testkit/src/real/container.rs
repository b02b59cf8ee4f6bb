//! The image of `cargo xtask image` in a container of runc, the runtime of Kubernetes nodes.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

use super::Tool;

/// The unpacked image, and its container. Killed on drop.
pub struct Container {
    bundle: TempDir,
    runtime: PathBuf,
    id: String,
}

impl Container {
    /// Unpacks the image. `None` when it was not built, or containers are not permitted; in CI that is a
    /// failure.
    ///
    /// # Panics
    /// When the image cannot be unpacked, and with `CI` set when something is missing.
    #[must_use]
    pub fn of_image() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (unpacker, runtime, layout) = (Tool::Umoci.find()?, Tool::Runc.find()?, Tool::Image.find()?);
        if !is_root() {
            assert!(std::env::var_os("CI").is_none(), "only root may run containers as any user");
            return None;
        }
        let bundle = tempfile::tempdir().expect("a temporary folder");
        let index = std::fs::read(layout.join("index.json")).expect("the layout has an index");
        let index: Value = serde_json::from_slice(&index).expect("the index is JSON");
        let tag = index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"].as_str();
        let image = format!("{}:{}", layout.display(), tag.expect("the image has a tag"));
        let mut unpack = Command::new(unpacker);
        unpack.args(["unpack", "--image", &image]).arg(bundle.path().join("bundle"));
        let output = unpack.output().expect("umoci runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let id = format!("pilotfish-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Some(Self { bundle, runtime, id })
    }

    /// Files of the image by path, sorted, without folders.
    ///
    /// # Panics
    /// When they cannot be listed.
    #[must_use]
    pub fn files(&self) -> Vec<String> {
        let root = self.bundle().join("rootfs");
        let mut files = Vec::new();
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("the image can be read") {
                let path = entry.expect("the image can be read").path();
                if path.is_dir() && !path.is_symlink() {
                    folders.push(path);
                } else {
                    let name = path.strip_prefix(&root).expect("it is inside").to_string_lossy().into_owned();
                    files.push(name);
                }
            }
        }
        files.sort();
        files
    }

    /// Default command of the image: the `process` of a runtime configuration.
    ///
    /// # Panics
    /// When the unpacked image has no configuration.
    #[must_use]
    pub fn process(&self) -> Value {
        self.configuration()["process"].take()
    }

    /// Command to run it as an unprivileged user and group, and otherwise as in `deploy/`: with a read-only
    /// root, without capabilities. It uses the machine's network, and has `folder` mounted read-only at the
    /// same path.
    pub(super) fn command(&self, user: u32, folder: &Path, arguments: &[String]) -> Command {
        let mut configuration = self.configuration();
        let process = &mut configuration["process"];
        process["terminal"] = false.into();
        process["user"] = json!({"uid": user, "gid": user});
        process["noNewPrivileges"] = true.into();
        process["capabilities"] = json!({
            "bounding": [], "effective": [], "inheritable": [], "permitted": [], "ambient": [],
        });
        if let Some(words) = process["args"].as_array_mut() {
            words.extend(arguments.iter().map(|argument| Value::from(argument.as_str())));
        }
        configuration["root"]["readonly"] = true.into();
        if let Some(namespaces) = configuration["linux"]["namespaces"].as_array_mut() {
            namespaces.retain(|namespace| namespace["type"] != "network");
        }
        if let Some(mounts) = configuration["mounts"].as_array_mut() {
            mounts.push(json!({
                "destination": folder, "source": folder, "type": "bind", "options": ["rbind", "ro"],
            }));
        }
        let text = serde_json::to_vec(&configuration).expect("JSON can be written");
        std::fs::write(self.bundle().join("config.json"), text).expect("the folder can be written");
        let mut run = self.runtime();
        run.arg("run").arg("--bundle").arg(self.bundle()).arg(&self.id);
        run
    }

    /// Content of a file in `/proc/PID` for its first process.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn proc(&self, file: &str) -> String {
        let state = self.runtime().args(["state", &self.id]).output().expect("runc runs");
        let state: Value = serde_json::from_slice(&state.stdout).expect("the container runs");
        std::fs::read_to_string(format!("/proc/{}/{file}", state["pid"])).expect("its process runs")
    }

    fn runtime(&self) -> Command {
        let mut command = Command::new(&self.runtime);
        command.arg("--root").arg(self.bundle.path().join("state"));
        command
    }

    fn bundle(&self) -> PathBuf {
        self.bundle.path().join("bundle")
    }

    fn configuration(&self) -> Value {
        let text = std::fs::read(self.bundle().join("config.json")).expect("it was unpacked");
        serde_json::from_slice(&text).expect("umoci writes JSON")
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // Fails if it never started or has ended.
        let _ = self.runtime().args(["delete", "--force", &self.id]).output();
    }
}

/// True for the root user.
fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"))
}
