//! The file source on a real file system: each test waits for what it expects, with a deadline.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use pilotfish_config::mesh::MeshConfig;
use pilotfish_config::networking::VirtualService;
use pilotfish_config::{SourceBatch, SourceEvent, SourceProblems};
use pilotfish_files::{FileSource, FileSourceSettings, OpenError, RunningFileSource, validate_paths};
use pilotfish_model::Kind;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

fn route(name: &str, host: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: {name}, namespace: shop}}\n\
         spec:\n  hosts: [{host}]\n  http: [{{route: [{{destination: {{host: {host}}}}}]}}]\n"
    )
}

/// A consumer that keeps what the source sent.
struct Consumer {
    batches: mpsc::Receiver<SourceBatch>,
    _source: RunningFileSource,
    hosts: BTreeMap<String, String>,
    problems: Arc<SourceProblems>,
    failed: Option<String>,
    listed: bool,
    received: usize,
}

impl Consumer {
    fn of(paths: Vec<PathBuf>) -> Self {
        Self::with(FileSourceSettings::new(paths))
    }

    /// A consumer of a source with all patience, so that a test that expects nothing to be taken away does
    /// not depend on how fast the machine is.
    fn patient(path: &Path) -> Self {
        let mut settings = FileSourceSettings::new(vec![path.to_owned()]);
        settings.timing.settle = Duration::from_secs(60);
        Self::with(settings)
    }

    /// A consumer of a source that waits half a second before a file counts as deleted: longer than a busy
    /// machine takes from the removal of a folder's files to that of the folder.
    fn unhurried(paths: Vec<PathBuf>) -> Self {
        let mut settings = FileSourceSettings::new(paths);
        settings.timing.settle = Duration::from_millis(500);
        Self::with(settings)
    }

    fn with(mut settings: FileSourceSettings) -> Self {
        // No test may pass by a rescan that should pass by watching.
        settings.timing.rescan = Duration::from_secs(3_600);
        let (sender, batches) = mpsc::channel(4);
        let source = FileSource::open(settings).unwrap().spawn(sender).unwrap();
        let mut consumer = Self {
            batches,
            _source: source,
            hosts: BTreeMap::new(),
            problems: Arc::default(),
            failed: None,
            listed: false,
            received: 0,
        };
        consumer.until("the first list", |consumer| consumer.listed);
        assert_eq!(consumer.received, 1, "the first list is one batch");
        consumer
    }

    fn take(&mut self, batch: SourceBatch) {
        self.received += 1;
        self.problems = batch.problems.unwrap_or_else(|| self.problems.clone());
        for event in batch.events {
            match event {
                SourceEvent::Apply(object) => {
                    let host = object
                        .typed::<VirtualService>()
                        .map(|route| route.hosts.join(","))
                        .or_else(|| object.typed::<MeshConfig>().map(|mesh| mesh.trust_domain.clone()))
                        .unwrap_or_default();
                    let name = match object.key().kind {
                        Kind::MeshNetworks => "networks".to_owned(),
                        _ => object.key().name.to_string(),
                    };
                    self.hosts.insert(name, host);
                }
                SourceEvent::Delete(key) => drop(self.hosts.remove(&*key.name)),
                SourceEvent::Listed => self.listed = true,
                SourceEvent::Failed { reason, .. } => self.failed = Some(reason.to_string()),
                SourceEvent::Recovered => self.failed = None,
                SourceEvent::ListBegan(_) | SourceEvent::ListEnded(_) => {}
            }
        }
    }

    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !done(self) {
            match self.batches.try_recv() {
                Ok(batch) => self.take(batch),
                Err(mpsc::error::TryRecvError::Empty) if Instant::now() < deadline => {
                    std::thread::park_timeout(Duration::from_micros(500));
                }
                Err(error) => panic!("no {what}: {error}; there is {:?}, {:?}", self.hosts, self.problems),
            }
        }
    }

    fn until_hosts(&mut self, expected: &[(&str, &str)]) {
        let expected: BTreeMap<_, _> =
            expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        self.until(&format!("{expected:?}"), |consumer| consumer.hosts == expected);
    }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn put(path: impl AsRef<Path>, text: &str) {
    fs::write(path, text).unwrap();
}

#[test]
fn edits_additions_and_removals_come_through() {
    let dir = folder();
    put(dir.path().join("a.yaml"), &route("a", "one"));
    put(dir.path().join("notes.txt"), "not read");
    put(dir.path().join(".hidden.yaml"), &route("hidden", "one"));
    let mut consumer = Consumer::of(vec![dir.path().to_owned()]);
    consumer.until_hosts(&[("a", "one")]);
    put(dir.path().join("a.yaml"), &route("a", "two"));
    consumer.until_hosts(&[("a", "two")]);
    fs::create_dir_all(dir.path().join("deep/er")).unwrap();
    put(dir.path().join("deep/er/b.yml"), &route("b", "one"));
    consumer.until_hosts(&[("a", "two"), ("b", "one")]);
    put(dir.path().join("deep/er/b.yml"), &route("b", "two"));
    consumer.until_hosts(&[("a", "two"), ("b", "two")]);
    fs::remove_file(dir.path().join("a.yaml")).unwrap();
    consumer.until_hosts(&[("b", "two")]);
    fs::remove_dir_all(dir.path().join("deep")).unwrap();
    consumer.until_hosts(&[]);
    assert!(consumer.failed.is_none());
}

#[test]
fn a_file_replaced_by_rename_is_read_and_never_missing() {
    let dir = folder();
    let file = dir.path().join("a.yaml");
    put(&file, &route("a", "v0"));
    let mut consumer = Consumer::patient(dir.path());
    for round in 1..20 {
        // As vim does: the old file goes away before the new one is there.
        fs::rename(&file, dir.path().join("a.yaml~")).unwrap();
        put(dir.path().join(".a.yaml.swp"), &route("a", &format!("v{round}")));
        fs::rename(dir.path().join(".a.yaml.swp"), &file).unwrap();
        let host = format!("v{round}");
        consumer.until("the new version", |consumer| {
            assert!(consumer.hosts.contains_key("a"), "never missing");
            consumer.hosts.get("a") == Some(&host)
        });
    }
}

#[test]
fn a_folder_swapped_by_a_link_is_one_change() {
    // As the kubelet mounts a ConfigMap.
    let dir = folder();
    let mount = dir.path();
    let fill = |version: &str| {
        let data = mount.join(format!("..{version}"));
        fs::create_dir(&data).unwrap();
        put(data.join("a.yaml"), &route("a", version));
        put(data.join("b.yaml"), &route("b", version));
    };
    let link = |from: &str, to: &str| std::os::unix::fs::symlink(from, mount.join(to)).unwrap();
    fill("v1");
    link("..v1", "..data");
    link("..data/a.yaml", "a.yaml");
    link("..data/b.yaml", "b.yaml");
    let mut consumer = Consumer::of(vec![mount.to_owned()]);
    consumer.until_hosts(&[("a", "v1"), ("b", "v1")]);
    for (old, new) in [("v1", "v2"), ("v2", "v3")] {
        let before = consumer.received;
        fill(new);
        link(&format!("..{new}"), "..data_tmp");
        fs::rename(mount.join("..data_tmp"), mount.join("..data")).unwrap();
        fs::remove_dir_all(mount.join(format!("..{old}"))).unwrap();
        consumer.until_hosts(&[("a", new), ("b", new)]);
        assert_eq!(consumer.received, before + 1, "both files change at once");
    }
}

#[test]
fn a_path_that_is_a_link_can_be_swapped() {
    let dir = folder();
    for version in ["v1", "v2"] {
        fs::create_dir(dir.path().join(version)).unwrap();
        put(dir.path().join(version).join("a.yaml"), &route("a", version));
    }
    let current = dir.path().join("current");
    std::os::unix::fs::symlink("v1", &current).unwrap();
    let mut consumer = Consumer::of(vec![current.clone()]);
    consumer.until_hosts(&[("a", "v1")]);
    std::os::unix::fs::symlink("v2", dir.path().join("next")).unwrap();
    fs::rename(dir.path().join("next"), &current).unwrap();
    consumer.until_hosts(&[("a", "v2")]);
    put(dir.path().join("v2/a.yaml"), &route("a", "v3"));
    consumer.until_hosts(&[("a", "v3")]);
}

#[test]
fn a_half_written_file_takes_nothing_away() {
    use std::io::Write as _;
    let dir = folder();
    let file = dir.path().join("a.yaml");
    let text = format!("{}---\n{}", route("a", "one"), route("b", "one"));
    put(&file, &text);
    let mut consumer = Consumer::patient(dir.path());
    let new = text.replace("one", "two");
    let mut writer = fs::File::create(&file).unwrap();
    for part in new.as_bytes().chunks(50) {
        writer.write_all(part).unwrap();
        writer.flush().unwrap();
    }
    drop(writer);
    consumer.until("the new version", |consumer| {
        assert_eq!(consumer.hosts.len(), 2, "nothing is taken away: {:?}", consumer.hosts);
        assert_eq!(consumer.problems.errors(), 0, "{:?}", consumer.problems);
        consumer.hosts.values().all(|host| host == "two")
    });
}

#[test]
fn a_broken_file_keeps_its_last_good_version_and_is_reported() {
    let dir = folder();
    let file = dir.path().join("a.yaml");
    put(&file, &route("a", "one"));
    let mut consumer = Consumer::of(vec![dir.path().to_owned()]);
    put(&file, &route("a", "two").replace("http", "htpt"));
    consumer.until("a problem", |consumer| consumer.problems.errors() > 0);
    assert_eq!(consumer.hosts.get("a").map(String::as_str), Some("one"));
    let report = consumer.problems.reports[0].to_string();
    assert!(report.contains("spec: one of http, tls and tcp must be set"), "{report}");
    put(&file, &route("a", "two"));
    consumer.until_hosts(&[("a", "two")]);
    consumer.until("no problem", |consumer| consumer.problems.errors() == 0);
}

#[test]
fn a_thousand_files_come_in_few_batches() {
    let dir = folder();
    for n in 0..1_000 {
        put(dir.path().join(format!("{n}.yaml")), &route(&format!("r{n}"), "one"));
    }
    let mut settings = FileSourceSettings::new(vec![dir.path().to_owned()]);
    // Long enough that pauses of a busy machine do not end a burst.
    (settings.timing.quiet, settings.timing.ceiling) = (Duration::from_millis(100), Duration::from_secs(60));
    let mut consumer = Consumer::with(settings);
    assert_eq!(consumer.hosts.len(), 1_000);
    let before = consumer.received;
    for n in 0..1_000 {
        put(dir.path().join(format!("{n}.yaml")), &route(&format!("r{n}"), "two"));
    }
    consumer.until("all changed", |consumer| consumer.hosts.values().all(|host| host == "two"));
    let batches = consumer.received - before;
    assert!(batches <= 200, "{batches} batches for 1,000 files");
    assert!(consumer.problems.reports.is_empty());
}

#[test]
fn a_folder_that_vanishes_keeps_everything_until_it_is_back() {
    let dir = folder();
    let root = dir.path().join("config");
    fs::create_dir(&root).unwrap();
    put(root.join("a.yaml"), &route("a", "one"));
    let mut consumer = Consumer::of(vec![root.clone()]);
    fs::remove_dir_all(&root).unwrap();
    consumer.until("a failure", |consumer| consumer.failed.is_some());
    assert_eq!(consumer.hosts.len(), 1);
    let staging = dir.path().join("staging");
    fs::create_dir(&staging).unwrap();
    put(staging.join("a.yaml"), &route("a", "two"));
    put(staging.join("b.yaml"), &route("b", "two"));
    fs::rename(&staging, &root).unwrap();
    consumer.until_hosts(&[("a", "two"), ("b", "two")]);
    consumer.until("recovery", |consumer| consumer.failed.is_none());
    put(root.join("a.yaml"), &route("a", "three"));
    consumer.until_hosts(&[("a", "three"), ("b", "two")]);
}

/// What can be done to a folder so that it is there no longer.
type Loss = fn(&Path);

#[test]
fn a_folder_that_cannot_be_read_keeps_everything_while_others_change() {
    let losses: [Loss; 3] = [
        |_| {},
        |root| put(root, "a file"),
        // A link that leads to itself: there, and not to be read.
        |root| std::os::unix::fs::symlink(root, root).unwrap(),
    ];
    for loss in losses {
        let dir = folder();
        let (root, other) = (dir.path().join("config"), dir.path().join("other"));
        for (folder, name) in [(&root, "a"), (&other, "b")] {
            fs::create_dir(folder).unwrap();
            put(folder.join("x.yaml"), &route(name, "one"));
        }
        let mut consumer = Consumer::unhurried(vec![root.clone(), other.clone()]);
        fs::remove_dir_all(&root).unwrap();
        loss(&root);
        consumer.until("a failure", |consumer| consumer.failed.is_some());
        // Its file went later than those of the root, so whatever comes of them has come by then.
        fs::remove_file(other.join("x.yaml")).unwrap();
        consumer.until_hosts(&[("a", "one")]);
        assert!(consumer.problems.reports.is_empty(), "{:?}", consumer.problems);
        let _ = fs::remove_file(&root);
        fs::create_dir(&root).unwrap();
        put(root.join("y.yaml"), &route("c", "two"));
        consumer.until_hosts(&[("c", "two")]);
        consumer.until("recovery", |consumer| consumer.failed.is_none());
    }
}

#[test]
fn a_file_whose_folder_vanishes_keeps_its_objects() {
    let dir = folder();
    let (gone, other) = (dir.path().join("gone"), dir.path().join("other"));
    for (folder, name) in [(&gone, "a"), (&other, "b")] {
        fs::create_dir(folder).unwrap();
        put(folder.join("x.yaml"), &route(name, "one"));
    }
    let mut consumer = Consumer::unhurried(vec![gone.join("x.yaml"), other.join("x.yaml")]);
    fs::remove_dir_all(&gone).unwrap();
    consumer.until("a failure", |consumer| consumer.failed.is_some());
    fs::remove_file(other.join("x.yaml")).unwrap();
    consumer.until_hosts(&[("a", "one")]);
}

#[test]
fn single_files_and_mesh_files_are_watched() {
    let dir = folder();
    let (file, mesh) = (dir.path().join("one.yaml"), dir.path().join("mesh"));
    put(&file, &route("a", "one"));
    put(dir.path().join("other.yaml"), &route("other", "one"));
    put(&mesh, "trustDomain: a\n");
    let settings =
        FileSourceSettings { mesh_config: Some(mesh.clone()), ..FileSourceSettings::new(vec![file.clone()]) };
    let mut consumer = Consumer::with(settings);
    consumer.until_hosts(&[("a", "one"), ("default", "a")]);
    put(&mesh, "trustDomain: b\n");
    consumer.until_hosts(&[("a", "one"), ("default", "b")]);
    fs::remove_file(&file).unwrap();
    consumer.until_hosts(&[("default", "b")]);
    put(&file, &route("a", "two"));
    consumer.until_hosts(&[("a", "two"), ("default", "b")]);
}

#[test]
fn changes_of_equal_size_in_quick_succession_all_count() {
    let dir = folder();
    let file = dir.path().join("a.yaml");
    put(&file, &route("a", "v000"));
    let mut consumer = Consumer::of(vec![dir.path().to_owned()]);
    for round in 0..50 {
        // Both are likely to happen in one tick of the file system's clock, with the first one being read
        // between them.
        for half in ["a", "b"] {
            put(&file, &route("a", &format!("v{round:02}{half}")));
        }
        consumer.until_hosts(&[("a", &format!("v{round:02}b"))]);
    }
}

#[test]
fn files_in_folders_made_that_moment_are_found() {
    let dir = folder();
    let mut consumer = Consumer::of(vec![dir.path().to_owned()]);
    for round in 0..20 {
        let deep = dir.path().join(format!("{round}/b/c/d/e"));
        fs::create_dir_all(&deep).unwrap();
        put(deep.join("x.yaml"), &route(&format!("r{round}"), "one"));
    }
    consumer.until("every file", |consumer| consumer.hosts.len() == 20);
}

#[test]
fn a_mesh_file_inside_of_the_folder_is_no_object() {
    let dir = folder();
    let mesh = dir.path().join("mesh.yaml");
    put(&mesh, "trustDomain: one\n");
    put(dir.path().join("a.yaml"), &route("a", "one"));
    let settings = FileSourceSettings {
        mesh_config: Some(mesh.clone()),
        ..FileSourceSettings::new(vec![dir.path().to_owned()])
    };
    let mut consumer = Consumer::with(settings);
    consumer.until_hosts(&[("a", "one"), ("default", "one")]);
    assert!(consumer.problems.reports.is_empty(), "{:?}", consumer.problems);
    put(&mesh, "trustDomain: two\n");
    consumer.until_hosts(&[("a", "one"), ("default", "two")]);
}

#[test]
fn a_broken_mesh_file_changes_nothing_until_it_is_mended() {
    let dir = folder();
    let (config, networks) = (dir.path().join("mesh"), dir.path().join("networks"));
    put(&config, "trustDomain: one\n");
    put(&networks, "networks: {a: {gateways: [{address: 1.1.1.1, port: 15443}]}}\n");
    let settings = FileSourceSettings {
        mesh_config: Some(config.clone()),
        mesh_networks: Some(networks.clone()),
        ..FileSourceSettings::new(Vec::new())
    };
    let mut consumer = Consumer::with(settings);
    put(&config, "trustDomain: [one\n");
    consumer.until("a problem", |consumer| consumer.problems.errors() == 1);
    put(&networks, "networks: {a: {gateways: [{address: 1.1.1.1, port: 0}]}}\n");
    consumer.until("two problems", |consumer| consumer.problems.errors() == 2);
    for report in &consumer.problems.reports {
        assert!(report.to_string().ends_with("the last good version stays in force"), "{report}");
    }
    assert_eq!(consumer.hosts.get("default").map(String::as_str), Some("one"));
    fs::remove_file(&config).unwrap();
    consumer.until("the file missed", |consumer| {
        consumer.problems.reports.iter().any(|report| report.message.ends_with("there is no such file"))
    });
    assert_eq!(consumer.hosts.get("default").map(String::as_str), Some("one"));
    put(&config, "trustDomain: two\n");
    put(&networks, "networks: {}\n");
    consumer.until("no problem", |consumer| consumer.problems.reports.is_empty());
    assert_eq!(consumer.hosts.get("default").map(String::as_str), Some("two"));
}

#[test]
fn what_cannot_be_watched_is_found_by_scanning() {
    let dir = folder();
    let mut settings = FileSourceSettings::new(vec![dir.path().to_owned()]);
    settings.timing.rescan = Duration::from_millis(20);
    let (sender, mut batches) = mpsc::channel(4);
    let outside = folder();
    put(outside.path().join("a.yaml"), &route("a", "one"));
    let _source = FileSource::open(settings).unwrap().spawn(sender).unwrap();
    assert!(matches!(batches.blocking_recv().unwrap().events[..], [SourceEvent::Listed]));
    std::os::unix::fs::symlink(outside.path().join("a.yaml"), dir.path().join("a.yaml")).unwrap();
    assert!(matches!(batches.blocking_recv().unwrap().events[..], [SourceEvent::Apply(_)]));
}

#[test]
fn what_is_wrong_at_the_start_is_reported() {
    let dir = folder();
    let missing = dir.path().join("nowhere");
    let error = FileSource::open(FileSourceSettings::new(vec![missing.clone()])).err().unwrap();
    assert!(matches!(&error, OpenError::Path { path, .. } if *path == missing), "{error}");
    let mesh = dir.path().join("mesh.yaml");
    put(&mesh, "connectTimeout: soon\n");
    let settings =
        FileSourceSettings { mesh_config: Some(mesh.clone()), ..FileSourceSettings::new(Vec::new()) };
    let error = FileSource::open(settings).err().unwrap().to_string();
    let expected = format!(
        "{}:1: MeshConfig default: connectTimeout: \"soon\" is not a duration, write it like 5s, 1.5s, 100ms or 1h30m; \
         this MeshConfig is not applied",
        mesh.display()
    );
    assert_eq!(error, expected);
}

#[test]
fn validation_counts_and_reports() {
    let dir = folder();
    put(dir.path().join("a.yaml"), &route("a", "one"));
    put(dir.path().join("b.yaml"), &route("b", "one").replace("http", "htpt"));
    let summary = validate_paths(&FileSourceSettings::new(vec![dir.path().to_owned()])).unwrap();
    assert_eq!(
        (summary.files, summary.objects.values().sum::<usize>(), summary.problems.errors()),
        (2, 1, 1)
    );
    assert!(!summary.is_ok());
}

/// A source that has nowhere to put its first batch.
fn blocked_source(dir: &Path) -> (RunningFileSource, mpsc::Receiver<SourceBatch>) {
    let (sender, batches) = mpsc::channel(1);
    sender.try_send(SourceBatch::default()).unwrap();
    let source = FileSource::open(FileSourceSettings::new(vec![dir.to_owned()])).unwrap();
    (source.spawn(sender).unwrap(), batches)
}

#[test]
fn a_batch_waits_for_room_in_the_channel() {
    let dir = folder();
    let (_source, mut batches) = blocked_source(dir.path());
    assert!(batches.blocking_recv().unwrap().is_empty(), "what filled the channel");
    assert!(matches!(batches.blocking_recv().unwrap().events[..], [SourceEvent::Listed]));
}

#[test]
fn a_source_ends_also_while_the_channel_is_full() {
    let dir = folder();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    for stop in [true, false] {
        let (mut source, batches) = blocked_source(dir.path());
        let mut batches = Some(batches);
        if stop {
            source.stop();
        } else {
            batches = None;
        }
        let ended = async { tokio::time::timeout(Duration::from_secs(20), source.ended()).await };
        assert_eq!(runtime.block_on(ended), Ok(true), "stopped: {stop}");
        drop(batches);
    }
}

#[test]
fn a_source_that_is_stopped_ends() {
    let dir = folder();
    let (sender, batches) = mpsc::channel(1);
    let mut source = FileSource::open(FileSourceSettings::new(vec![dir.path().to_owned()]))
        .unwrap()
        .spawn(sender)
        .unwrap();
    source.stop();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(runtime.block_on(source.ended()));
    drop(batches);
}

#[test]
fn a_link_to_a_folder_elsewhere_is_reported_and_not_walked_through() {
    let (dir, outside) = (folder(), folder());
    put(outside.path().join("a.yaml"), &route("a", "outside"));
    put(dir.path().join("b.yaml"), &route("b", "inside"));
    let link = dir.path().join("elsewhere");
    std::os::unix::fs::symlink(outside.path(), &link).unwrap();
    let consumer = Consumer::of(vec![dir.path().to_owned()]);
    assert_eq!(consumer.hosts, BTreeMap::from([("b".to_owned(), "inside".to_owned())]));
    let reports: Vec<_> = consumer.problems.reports.iter().map(ToString::to_string).collect();
    assert!(
        matches!(&reports[..], [report] if report.contains("elsewhere") && report.contains("a link to a folder outside")),
        "{reports:?}"
    );
}

/// Creates, under a name, something that is not a regular file.
type Put = fn(&Path);

#[test]
fn what_is_no_regular_file_is_a_problem_of_its_name_and_holds_up_nothing() {
    let pipe = |path: &Path| {
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .unwrap();
    };
    let cases: [(&str, Put); 6] = [
        ("a pipe", pipe),
        ("a pipe", |path| {
            let target = path.with_extension("fifo");
            rustix::fs::mknodat(
                rustix::fs::CWD,
                &target,
                rustix::fs::FileType::Fifo,
                rustix::fs::Mode::RWXU,
                0,
            )
            .unwrap();
            std::os::unix::fs::symlink(target, path).unwrap();
        }),
        ("a socket", |path| drop(std::os::unix::net::UnixListener::bind(path).unwrap())),
        ("a device", |path| std::os::unix::fs::symlink("/dev/zero", path).unwrap()),
        ("a file of the kernel", |path| std::os::unix::fs::symlink("/proc/kmsg", path).unwrap()),
        ("a file of the kernel", |path| std::os::unix::fs::symlink("/proc/self/mountinfo", path).unwrap()),
    ];
    let folder = folder();
    let (good, odd) = (folder.path().join("good.yaml"), folder.path().join("odd.yaml"));
    put(&good, &route("web", "first"));
    // Some are there at the start, the others come later.
    for (number, (kind, make)) in cases.into_iter().enumerate() {
        let at_start = number % 2 == 0;
        if at_start {
            make(&odd);
        }
        let mut consumer = Consumer::of(vec![folder.path().to_owned()]);
        if !at_start {
            make(&odd);
        }
        let named = format!("odd.yaml: cannot be read: is {kind}, not a regular file");
        consumer.until(&named, |consumer| {
            consumer.problems.reports.iter().any(|report| report.to_string().contains(&named))
        });
        let host = format!("host-{number}");
        put(&good, &route("web", &host));
        consumer.until_hosts(&[("web", &host)]);
        fs::remove_file(&odd).unwrap();
        consumer.until("end of the problem", |consumer| consumer.problems.reports.is_empty());
    }
}

/// A consumer of a source that takes a file away the moment that it counts as complete, so that nothing but
/// the rule keeps it.
fn hasty(path: &Path) -> Consumer {
    let mut settings = FileSourceSettings::new(vec![path.to_owned()]);
    settings.timing.settle = Duration::ZERO;
    Consumer::with(settings)
}

/// Waits until changes are noticed by events.
fn until_watched(consumer: &mut Consumer, dir: &Path, host: &str) {
    put(dir.join("other.yaml"), &route("other", host));
    consumer.until("watching", |consumer| consumer.hosts.get("other").is_some_and(|other| other == host));
}

/// A writer that has the file open, and what it wrote so far.
type Begin = fn(&Path) -> fs::File;

#[test]
fn nothing_of_a_file_is_taken_away_while_it_is_open_for_writing() {
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;
    let begins: [(&str, Begin); 5] = [
        ("emptied", |path| fs::File::create(path).unwrap()),
        ("half-written", |path| {
            let mut file = fs::File::create(path).unwrap();
            file.write_all(&route("web", "half").as_bytes()[..40]).unwrap();
            file
        }),
        ("emptied and its mode changed", |path| {
            let file = fs::File::create(path).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o640)).unwrap();
            file
        }),
        ("half-written and read by somebody", |path| {
            let mut file = fs::File::create(path).unwrap();
            file.write_all(b"kind: Vir").unwrap();
            fs::read(path).unwrap();
            file
        }),
        ("overwritten without being emptied", |path| {
            let mut file = fs::OpenOptions::new().write(true).open(path).unwrap();
            file.write_all(b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n---\n").unwrap();
            file
        }),
    ];
    for linked in [false, true] {
        let (dir, elsewhere) = (folder(), folder());
        let (web, other) = (dir.path().join("web.yaml"), dir.path().join("other.yaml"));
        let written = if linked { elsewhere.path().join("real") } else { web.clone() };
        put(&written, &route("web", "first"));
        if linked {
            std::os::unix::fs::symlink(&written, &web).unwrap();
        }
        let mut consumer = hasty(dir.path());
        until_watched(&mut consumer, dir.path(), "watched");
        let mut web_host = "first".to_owned();
        for (number, (name, begin)) in begins.into_iter().enumerate() {
            let mut file = begin(&written);
            // Later changes of another file are in force, and so would be this one.
            for round in 0..3 {
                let host = format!("{number}-{round}");
                put(&other, &route("other", &host));
                consumer.until_hosts(&[("other", &host), ("web", &web_host)]);
            }
            web_host = format!("web-{number}");
            let text = route("web", &web_host);
            file.set_len(0).unwrap();
            std::io::Seek::rewind(&mut file).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            let problems = &consumer.problems.reports;
            assert!(problems.is_empty(), "{name}, linked {linked}: {problems:?}");
            drop(file);
            consumer.until_hosts(&[("other", &format!("{number}-2")), ("web", &web_host)]);
        }
    }
}

#[test]
fn nothing_of_a_file_is_taken_away_when_another_program_closes_it() {
    use std::io::Write as _;
    /// The other program: it opens the file for writing, and closes it.
    type Other = fn(&Path);
    let others: [(&str, Other); 2] = [
        ("opened and closed", |path| drop(fs::OpenOptions::new().append(true).open(path).unwrap())),
        ("written to", |path| {
            fs::OpenOptions::new().append(true).open(path).unwrap().write_all(b"---\n").unwrap();
        }),
    ];
    let dir = folder();
    let (web, other) = (dir.path().join("web.yaml"), dir.path().join("other.yaml"));
    put(&web, &format!("{}---\n{}", route("web", "first"), route("shop", "first")));
    let mut settings = FileSourceSettings::new(vec![dir.path().to_owned()]);
    // Nothing but a close may end the wait.
    (settings.timing.settle, settings.timing.confirm) = (Duration::ZERO, Duration::from_secs(3_600));
    let mut consumer = Consumer::with(settings);
    until_watched(&mut consumer, dir.path(), "watched");
    for (number, (name, begin)) in others.into_iter().enumerate() {
        for (part, half) in [String::new(), route("web", "half")].into_iter().enumerate() {
            let mut file = fs::File::create(&web).unwrap();
            file.write_all(half.as_bytes()).unwrap();
            let host = format!("{number}-{part}");
            until_watched(&mut consumer, dir.path(), &host);
            begin(&web);
            for round in 0..3 {
                let host = format!("{host}-{round}");
                put(&other, &route("other", &host));
                consumer.until("other file", |consumer| {
                    assert_eq!(consumer.hosts.len(), 3, "{name}: {:?}", consumer.hosts);
                    consumer.hosts.get("other") == Some(&host)
                });
            }
            drop(file);
            put(&web, &format!("{}---\n{}", route("web", &host), route("shop", &host)));
            consumer.until_hosts(&[("other", &format!("{host}-2")), ("shop", &host), ("web", &host)]);
        }
    }
}

#[test]
fn a_file_that_stays_open_for_writing_is_a_problem_until_it_is_closed_or_replaced() {
    let dir = folder();
    let (web, temporary) = (dir.path().join("web.yaml"), dir.path().join("web.tmp"));
    for (number, is_closed) in [true, false].into_iter().enumerate() {
        put(&web, &route("web", "first"));
        let mut settings = FileSourceSettings::new(vec![dir.path().to_owned()]);
        settings.timing.write_timeout = Duration::from_millis(20);
        let mut consumer = Consumer::with(settings);
        let host = format!("web-{number}");
        until_watched(&mut consumer, dir.path(), &host);
        let file = fs::File::create(&web).unwrap();
        let named = "web.yaml: cannot be read: it has been open for writing for";
        consumer.until(named, |consumer| {
            let reports: Vec<_> = consumer.problems.reports.iter().map(ToString::to_string).collect();
            reports
                .iter()
                .any(|text| text.contains(named) && text.ends_with("the last good version stays in force"))
        });
        assert_eq!(consumer.hosts.get("web").map(String::as_str), Some("first"));
        if is_closed {
            std::io::Write::write_all(&mut &file, route("web", &host).as_bytes()).unwrap();
            drop(file);
        } else {
            put(&temporary, &route("web", &host));
            fs::rename(&temporary, &web).unwrap();
        }
        consumer.until_hosts(&[("other", &host), ("web", &host)]);
        consumer.until("end of the problem", |consumer| consumer.problems.reports.is_empty());
    }
}
