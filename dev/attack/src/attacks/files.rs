//! Files of a tenant who may write into the watched directory: special files, and incompletely written ones.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use pilotfish_testkit::real::fetch;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::{Attack, Counts, Deadline, Tally, Target};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "special-files",
        what: "Pipes, devices, sockets and links to files of the kernel in the watched folder",
        run: |target, deadline| special_files(target, deadline).boxed(),
    },
    Attack {
        name: "half-written-files",
        what: "A file that is emptied and written in place, slowly and again and again",
        run: |target, deadline| half_written(target, deadline).boxed(),
    },
];

/// Pause between two steps.
const STEP: Duration = Duration::from_millis(300);

/// A file that is removed on drop.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        // It may not exist now.
        let _ = fs::remove_file(&self.0);
    }
}

/// Creates a special file at the path.
type Put = fn(&Path) -> std::io::Result<()>;

const SPECIAL: [Put; 5] = [
    |path| Ok(mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?),
    |path| symlink("/proc/kmsg", path),
    |path| symlink("/dev/zero", path),
    |path| symlink("/proc/self/fd/0", path),
    |path| std::os::unix::net::UnixListener::bind(path).map(drop),
];

/// Edits of the operator next to it show that the directory is still read.
async fn special_files(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let counts = Counts::new();
    let file = Removed(target.config.join("special.yaml"));
    let attack = async {
        for put in SPECIAL.iter().cycle() {
            put(&file.0).context("the folder cannot be written")?;
            counts.sent(0);
            tokio::time::sleep(STEP).await;
            match fetch(&format!("http://{}/debug/problemz", target.admin)).await {
                Ok(page) if page.contains("special.yaml") => counts.refused("a problem is told"),
                Ok(_) => counts.answered(),
                Err(error) => counts.refused(error),
            }
            fs::remove_file(&file.0).context("the folder cannot be written")?;
        }
        Ok(())
    };
    deadline.cut(attack).await.unwrap_or(Ok::<(), anyhow::Error>(()))?;
    Ok(counts.tally())
}

const ENTRY: &str = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\n\
    metadata: {name: half-written, namespace: tenant}\nspec:\n  hosts: [half-written.example.com]\n  \
    exportTo: [.]\n  resolution: STATIC\n  ports: [{number: 80, name: http, protocol: HTTP}]\n  \
    endpoints: [{address: 192.0.2.1}]\n";

/// The object of the file has to stay in force.
async fn half_written(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let counts = Counts::new();
    let file = Removed(target.config.join("half-written.yaml"));
    let page = format!("http://{}/debug/configz?kind=ServiceEntry&namespace=tenant", target.admin);
    let is_there = async || fetch(&page).await.map(|page| page.contains("half-written.example.com"));
    let (first, second) = ENTRY.split_at(ENTRY.len() / 2);
    let attack = async {
        fs::write(&file.0, ENTRY).context("the folder cannot be written")?;
        while !matches!(is_there().await, Ok(true)) {
            tokio::time::sleep(STEP / 10).await;
        }
        loop {
            let mut open = File::create(&file.0).context("the folder cannot be written")?;
            for part in [first, second] {
                tokio::time::sleep(STEP).await;
                match is_there().await {
                    Ok(there) => ensure!(there, "an object was taken away while its file was written"),
                    Err(error) => counts.refused(error),
                }
                counts.answered();
                open.write_all(part.as_bytes()).context("the folder cannot be written")?;
                counts.sent(part.len());
            }
        }
    };
    deadline.cut(attack).await.unwrap_or(Ok::<(), anyhow::Error>(()))?;
    Ok(counts.tally())
}
