//! The process as its operator meets it: exit codes, mistakes reported at once, and a stop that ends streams
//! within the deadline.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pilotfish_bench::fleet::{Fleet, node};
use pilotfish_testkit::real::{LIMIT, Pilotfish, eventually, fetch, free_port};
use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};

const SERVICE: &str = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: a, namespace: n0}\nspec:\n  hosts: \
                       [a.example.com]\n  addresses: [10.1.1.1]\n  resolution: STATIC\n  ports: [{name: http, number: 80, \
                       protocol: HTTP}]\n  endpoints: [{address: 10.2.1.1}]\n";

fn pilotfish(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pilotfish")).args(arguments).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn all_wrong_settings_are_reported_at_once() {
    let output =
        pilotfish(&["serve", "/no/such/folder", "--xds-address", "nowhere", "--drain-deadline", "soon"]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    for part in ["3 settings are wrong", "/no/such/folder", "--xds-address", "--drain-deadline"] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
}

#[test]
fn a_taken_address_is_reported_with_the_flag_that_changes_it() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let output = pilotfish(&["serve", path, "--xds-address", &address, "--admin-address", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains(&address) && text.contains("--xds-address"), "{text}");
    assert!(text.starts_with(&format!("error: cannot listen on {address}")), "the message is first: {text}");
    assert!(text.ends_with("\nhint: --xds-address names another address\n"), "then the hint: {text}");
}

#[test]
fn unusable_rules_of_registration_are_not_blamed_on_the_address() {
    let folder = tempfile::tempdir().unwrap();
    let (path, rules) = (folder.path().to_str().unwrap(), folder.path().join("rules"));
    std::fs::write(&rules, "rules: [{identities: [x], actons: [read]}]").unwrap();
    let addresses = ["--xds-address", "--admin-address", "--registration-address"];
    let mut arguments =
        vec!["serve", path, "--data-dir", path, "--registration-rules", rules.to_str().unwrap()];
    arguments.extend(addresses.iter().flat_map(|flag| [*flag, "127.0.0.1:0"]));
    let output = pilotfish(&arguments);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("actons") && !text.contains("hint:"), "{text}");
}

#[test]
fn register_starts_no_program_with_files_that_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let (missing, started) = (folder.path().join("none"), folder.path().join("started"));
    let (missing, started) = (missing.to_str().unwrap(), started.to_str().unwrap());
    for flag in ["--token-file", "--ca-file"] {
        let output = pilotfish(&[
            "register",
            "--service",
            "web",
            "--port",
            "1",
            flag,
            missing,
            "--",
            "touch",
            started,
        ]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{flag}: {text}");
        assert!(text.contains(missing) && !std::path::Path::new(started).exists(), "{flag}: {text}");
    }
}

#[test]
fn settings_that_cannot_be_meant_are_refused() {
    for (arguments, message) in [
        (&["--xds-address", "localhost"][..], "--xds-address \"localhost\": port missing"),
        (&["--log", "verbose"], "\"verbose\" is not a level"),
        (&["--kubeconfig", "/no/such/file"], "--kubeconfig \"/no/such/file\""),
    ] {
        let output = pilotfish(&[&["serve", "."], arguments].concat());
        assert_eq!(output.status.code(), Some(2));
        let text = stderr(&output);
        assert!(text.contains(message), "{message:?} in {text}");
    }
}

#[test]
fn a_reader_that_has_enough_is_no_error() {
    for arguments in [&["crds"][..], &["bootstrap", "envoy"], &["inject", "--print-template"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilotfish"));
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command.args(arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()), "{arguments:?}");
    }
}

/// As where logs go to a file on a disk that is full.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_that_cannot_be_written_end_nothing() {
    let (folder, admin) = (tempfile::tempdir().unwrap(), free_port().to_string());
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_pilotfish"));
    command.arg("serve").arg(folder.path()).args(["--xds-address", "127.0.0.1:0", "--admin-address"]);
    let mut process =
        command.arg(format!("127.0.0.1:{admin}")).stderr(full).kill_on_drop(true).spawn().unwrap();
    let ready = format!("http://127.0.0.1:{admin}/ready");
    eventually("it is ready", || fetch(&ready)).await;
    assert_eq!(process.try_wait().unwrap(), None, "it goes on");
}

/// A pipe that is full, and its reader, which never reads.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    use std::io::Write;
    let (reader, mut writer) = std::io::pipe().unwrap();
    // Linux' default capacity of a pipe.
    writer.write_all(&[b' '; 65_536]).unwrap();
    (reader, writer)
}

/// As where the collector of logs is stalled: nothing waits for it, not even the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_that_nobody_reads_delays_no_push_no_page_and_no_stop() {
    let (folder, xds, admin) = (tempfile::tempdir().unwrap(), free_port(), free_port());
    std::fs::write(folder.path().join("a.yaml"), SERVICE).unwrap();
    let (_reader, writer) = full_pipe();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_pilotfish"));
    command.arg("serve").arg(folder.path()).args(["--log", "debug,h2=trace"]);
    command.arg("--xds-address").arg(format!("127.0.0.1:{xds}"));
    command.arg("--admin-address").arg(format!("127.0.0.1:{admin}"));
    let mut process = command.stderr(writer).kill_on_drop(true).spawn().unwrap();
    let page = |path: &str| format!("http://127.0.0.1:{admin}{path}");
    eventually("it is ready", || async { fetch(&page("/ready")).await }).await;
    let start = || Fleet::start(SocketAddr::from(([127, 0, 0, 1], xds)), vec![node(0, "n0"), node(1, "n0")]);
    eventually("lines are dropped", || async {
        start().synced(LIMIT).await.unwrap();
        let metrics = fetch(&page("/metrics")).await?;
        let none = metrics.contains("\npilotfish_log_lines_dropped 0\n");
        if none || !metrics.contains("\npilotfish_log_lines_dropped ") { Err(metrics) } else { Ok(()) }
    })
    .await;
    let fleet = start();
    fleet.synced(LIMIT).await.unwrap();
    let before = fleet.received();
    std::fs::write(folder.path().join("a.yaml"), SERVICE.replace("10.2.1.1", "10.2.1.2")).unwrap();
    eventually("the change is pushed", || async {
        if fleet.received() > before { Ok(()) } else { Err(before) }
    })
    .await;
    let endpoints = fetch(&page("/debug/endpointz")).await.unwrap();
    assert!(endpoints.contains("10.2.1.2"), "{endpoints}");
    let id = process.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let end = tokio::time::timeout(LIMIT, process.wait()).await;
    assert_eq!(end.expect("it ends").unwrap().code(), Some(0));
}

#[tokio::test]
async fn error_that_nobody_reads_does_not_keep_the_process() {
    let (_reader, writer) = full_pipe();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_pilotfish"));
    let mut process =
        command.args(["serve", "/no/such/folder"]).stderr(writer).kill_on_drop(true).spawn().unwrap();
    let end = tokio::time::timeout(LIMIT, process.wait()).await;
    assert_eq!(end.expect("it ends").unwrap().code(), Some(2));
}

#[test]
fn help_has_settings_under_headings_and_logging_at_the_end() {
    let output = pilotfish(&["serve", "--help"]);
    let help = String::from_utf8(output.stdout).unwrap();
    let headings: Vec<_> = help
        .lines()
        .filter_map(|line| line.strip_suffix(':').filter(|heading| !heading.starts_with(' ')))
        .filter(|heading| *heading != "Examples" && !heading.starts_with("Registries with a source"))
        .collect();
    assert_eq!(
        headings,
        [
            "Arguments",
            "Options",
            "Sources",
            "xDS",
            "Admin",
            "Traces",
            "xDS over TLS",
            "Certificate authority",
            "Registration",
            "Registration by clients of Consul",
            "Registration by clients of Eureka",
            "Registration by clients of Nacos",
            "Registries",
            "Multi-cluster",
            "Auto-registration",
            "Status and addresses",
            "Switches of behaviour",
            "Webhooks and injection",
            "Gateways",
            "Logging"
        ],
        "{help}"
    );
    assert!(help.find("Logging:") < help.find("--log <"), "{help}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_folder_is_warned_of() {
    let mut pilotfish = Pilotfish::start(env!("CARGO_BIN_EXE_pilotfish"), &[]).await;
    pilotfish.program().terminate().await;
    assert_eq!(pilotfish.program().ended().await, Some(0));
    let printed = pilotfish.program().printed();
    assert!(printed.contains("there is not one object in the sources"), "{printed}");
}

/// Waits until the file has a line with all of these.
async fn logged(file: &std::path::Path, parts: &[&str]) {
    let has = |line: &str| parts.iter().all(|part| line.contains(part));
    eventually(&format!("{parts:?} in the log"), || async {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        if text.lines().any(has) { Ok(()) } else { Err(text) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_that_comes_later_can_be_waited_for() {
    let (folder, admin) = (tempfile::tempdir().unwrap(), free_port().to_string());
    let (later, log) = (folder.path().join("later"), folder.path().join("log"));
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_pilotfish"));
    command.arg("serve").arg(&later).args(["--wait-for-paths", "--xds-address", "127.0.0.1:0"]);
    command.arg("--admin-address").arg(format!("127.0.0.1:{admin}"));
    let _process = command.stderr(std::fs::File::create(&log).unwrap()).kill_on_drop(true).spawn().unwrap();
    logged(&log, &["waiting for a path that does not exist yet", "later"]).await;
    std::fs::create_dir(&later).unwrap();
    std::fs::write(later.join("a.yaml"), SERVICE).unwrap();
    let ready = format!("http://127.0.0.1:{admin}/ready");
    eventually("it is ready", || fetch(&ready)).await;
    let services = fetch(&format!("http://127.0.0.1:{admin}/debug/registryz")).await.unwrap();
    assert!(services.contains("a.example.com"), "{services}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_is_down_is_named_and_nothing_is_said_to_be_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let (config, log) = (folder.path().join("kubeconfig"), folder.path().join("log"));
    let server = format!("http://127.0.0.1:{}", free_port());
    let text = format!(
        "{{apiVersion: v1, kind: Config, current-context: a, clusters: [{{name: a, cluster: {{server: {server:?}}}}}], \
         users: [{{name: a, user: {{token: abc}}}}], contexts: [{{name: a, context: {{cluster: a, user: a}}}}]}}"
    );
    std::fs::write(&config, text).unwrap();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_pilotfish"));
    command.arg("serve").arg("--kubeconfig").arg(&config).args(["--xds-address", "127.0.0.1:0"]);
    command.args(["--admin-address", "127.0.0.1:0"]);
    let _process = command.stderr(std::fs::File::create(&log).unwrap()).kill_on_drop(true).spawn().unwrap();
    logged(&log, &["the source cannot be read yet", "cluster Kubernetes", &server, "refused"]).await;
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(!text.contains("stays in force") && !text.contains("client error"), "{text}");
}

#[test]
fn validate_reports_problems_by_its_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.yaml");
    let path = file.to_str().unwrap();
    std::fs::write(&file, SERVICE).unwrap();
    assert_eq!(pilotfish(&["validate", path]).status.code(), Some(0));
    std::fs::write(&file, SERVICE.replace("resolution", "resolutoin")).unwrap();
    let output = pilotfish(&["validate", path, "--output", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["errors"], 1, "{json}");
    assert_eq!(json["problems"][0]["path"], "spec.resolutoin");
}

/// What the reviewer of a mesh wrote: all of it valid, and all of it pointing at nothing.
const DANGLING: &str = "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: rule, namespace: n0}
spec:
  hosts: [a.example.com]
  gateways: [mesh, front]
  http:
  - route:
    - destination:
        host: b.example.com
    mirror: {host: a.example.com, subset: v3}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: dr, namespace: n0}
spec: {host: c.elsewhere.org}
";

#[test]
fn validate_reads_standard_input_as_one_more_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.yaml"), SERVICE).unwrap();
    let validate = |paths: &[&str], input: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_pilotfish"));
        command.arg("validate").args(paths).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, text) = validate(&["-"], &SERVICE.replace("resolution", "resolutoin"));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("error: standard input:") && text.contains("spec.resolutoin"), "{text}");
    let (code, text) = validate(&["-", folder.path().to_str().unwrap(), "--complete"], DANGLING);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("standard input:11: VirtualService n0/rule: spec.http[0].route[0]"), "{text}");
    assert!(text.contains("2 files, 3 good objects, 0 errors, 4 warnings"), "{text}");
    let (code, text) = validate(&["-"], "");
    assert!(code == Some(2) && text.contains("there is nothing to check in -"), "{code:?} {text}");
}

#[test]
fn validate_tells_of_what_points_at_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let validate = |more: &[&str]| {
        let output = pilotfish(&[&["validate", path], more].concat());
        assert_eq!(output.status.code(), Some(0), "warnings cost nothing");
        String::from_utf8(output.stdout).unwrap()
    };
    std::fs::write(folder.path().join("dangling.yaml"), DANGLING).unwrap();
    let alone = validate(&[]);
    assert!(alone.contains("note: these files have no services"), "{alone}");
    assert!(
        alone.contains("dangling.yaml:7: VirtualService n0/rule: spec.gateways[1]: there is no Gateway"),
        "{alone}"
    );
    std::fs::write(folder.path().join("a.yaml"), SERVICE).unwrap();
    let text = validate(&["--complete"]);
    for part in [
        "dangling.yaml:11: VirtualService n0/rule: spec.http[0].route[0].destination.host: no service has the host",
        "(did you mean \"a.example.com\"?) [IST0101]",
        "dangling.yaml:12: VirtualService n0/rule: spec.http[0].mirror.subset",
        "dangling.yaml:7: VirtualService n0/rule: spec.gateways[1]",
        "dangling.yaml:17: DestinationRule n0/dr: spec.host: no service has the host \"c.elsewhere.org\" [IST0174]",
        "2 files, 3 good objects, 0 errors, 4 warnings",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    let json: serde_json::Value = serde_json::from_str(&validate(&["-o", "json"])).unwrap();
    assert_eq!(json["problems"][0]["code"], "IST0101", "{json}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_points_at_nothing_is_told_while_it_does() {
    let files = [("a.yaml", SERVICE), ("dangling.yaml", DANGLING)];
    let mut pilotfish = Pilotfish::start(env!("CARGO_BIN_EXE_pilotfish"), &files).await;
    let codes = |problems: serde_json::Value| -> Vec<String> {
        let all = problems.as_array().cloned().unwrap_or_default();
        all.iter().filter_map(|problem| problem["code"].as_str().map(str::to_owned)).collect()
    };
    eventually("all is found", || async {
        let found = codes(pilotfish.json("/debug/problemz").await);
        let all = ["IST0174", "IST0101", "IST0101", "IST0101"];
        if found.len() == all.len() && all.iter().all(|code| found.iter().any(|one| one == code)) {
            Ok(())
        } else {
            Err(found)
        }
    })
    .await;
    let ready = pilotfish.json("/ready").await;
    assert_eq!(
        (ready["ready"].as_bool(), ready["problems"].as_array().unwrap().len()),
        (Some(true), 4),
        "{ready}"
    );
    let listed = pilotfish.json("/api/v1/problems?severity=warning&namespace=n0").await;
    assert_eq!(listed["total"], 4, "{listed}");
    pilotfish.write(
        "dangling.yaml",
        SERVICE.replace("name: a,", "name: b,").replace("a.example", "b.example").as_str(),
    );
    eventually("all is mended", || async {
        let found = codes(pilotfish.json("/debug/problemz").await);
        if found.is_empty() { Ok(()) } else { Err(found) }
    })
    .await;
    pilotfish.program().terminate().await;
    assert_eq!(pilotfish.program().ended().await, Some(0));
    let printed = pilotfish.program().printed();
    for part in
        ["spec.gateways[1]: there is no Gateway", "[IST0174]", "the analysis has no warnings any more"]
    {
        assert!(printed.contains(part), "{part:?} in {printed}");
    }
}

#[test]
fn definitions_are_printed_for_all_groups_or_for_one() {
    let output = pilotfish(&["crds", "-o", "json"]);
    assert_eq!(output.status.code(), Some(0));
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = list["items"].as_array().unwrap();
    assert_eq!((list["kind"].as_str(), all.len()), (Some("List"), 26));

    let output = pilotfish(&["crds", "--group", "security.istio.io"]);
    let yaml = String::from_utf8(output.stdout).unwrap();
    let parsed: Vec<serde_json::Value> = serde_saphyr::from_multiple(&yaml).unwrap();
    let of_group = all.iter().filter(|crd| crd["spec"]["group"] == "security.istio.io");
    assert_eq!(parsed, of_group.cloned().collect::<Vec<_>>(), "YAML and JSON say the same");

    let output = pilotfish(&["crds", "--group", "security.istio"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("security.istio.io"), "{}", stderr(&output));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_ends_streams_and_the_process_before_the_deadline() {
    let mut pilotfish = Pilotfish::start(env!("CARGO_BIN_EXE_pilotfish"), &[("a.yaml", SERVICE)]).await;
    let target = SocketAddr::from(([127, 0, 0, 1], pilotfish.xds_port()));
    let fleet = Fleet::start(target, (0..5).map(|n| node(n, "n0")).collect());
    fleet.synced(LIMIT).await.unwrap();
    pilotfish.program().terminate().await;
    assert_eq!(pilotfish.program().ended().await, Some(0));
    let printed = pilotfish.program().printed();
    assert!(!printed.contains("before the deadline") && !printed.contains("cut off"), "{printed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_finds_what_is_going_on() {
    let pilotfish = Pilotfish::start(env!("CARGO_BIN_EXE_pilotfish"), &[("a.yaml", SERVICE)]).await;
    let target = SocketAddr::from(([127, 0, 0, 1], pilotfish.xds_port()));
    let fleet = Fleet::start(target, vec![node(0, "n0")]);
    fleet.synced(LIMIT).await.unwrap();
    let registries = pilotfish.json("/debug/registryz?registries=true").await;
    assert!(registries.as_array().unwrap().iter().all(|registry| registry["synced"] == true), "{registries}");
    let services = pilotfish.json("/debug/registryz").await;
    assert_eq!(services[0]["hostname"], "a.example.com");
    let endpoints = pilotfish.json("/debug/endpointz?host=a.example").await;
    let endpoint = &endpoints["a.example.com"]["n0"]["Shards"]["ServiceEntry/Kubernetes"][0];
    assert_eq!(
        (&endpoint["Addresses"][0], &endpoint["Provenance"]["name"]),
        (&"10.2.1.1".into(), &"a".into())
    );
    let config = pilotfish.json("/debug/configz?kind=ServiceEntry").await;
    assert_eq!(config[0]["spec"]["hosts"][0], "a.example.com");
    let dump = pilotfish.json("/debug/config_dump?proxyID=client-0.n0&include_eds=true").await.to_string();
    for part in ["outbound|80||a.example.com", "virtualOutbound", "10.2.1.1"] {
        assert!(dump.contains(part), "{part:?} in the dump");
    }
    assert_eq!(pilotfish.json("/debug/syncz").await[0]["proxy"], "client-0.n0");
    assert_eq!(pilotfish.page("/healthz").await, Ok("ok\n".to_owned()));
    assert_eq!(pilotfish.page("/debug/config_dump?proxyID=nobody").await, Err("HTTP 404".to_owned()));
}
