//! What client commands do with a terminal.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails this way")]

#[path = "support/refusing.rs"]
mod refusing;

use pilotfish_testkit::real::{LIMIT, Pilotfish, eventually};
use refusing::refusing;
use std::path::Path;
use std::process::Stdio;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

const BINARY: &str = env!("CARGO_BIN_EXE_pilotfish");
const SERVICE: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: n0}\nspec: {clusterIP: 10.1.0.1, \
                       ports: [{name: http, port: 80}]}\n";
/// The width of the terminal, which the names and reasons below do not fit into.
const COLUMNS: usize = 50;

/// What a command printed, on stdout and stderr.
async fn ask(pilotfish: &Pilotfish, arguments: &[&str]) -> String {
    let mut command = Command::new(BINARY);
    command.args(arguments).env("PILOTFISH_ADMIN_ADDRESS", format!("127.0.0.1:{}", pilotfish.admin_port()));
    let output = command.output().await.unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_words_of_a_proxy_cannot_write_to_the_terminal_of_an_operator() {
    let pilotfish = Pilotfish::start(BINARY, &[("shop.yaml", SERVICE)]).await;
    let _refuser = refusing(&pilotfish, "n0", "\u{1b}]0;x\u{7}\u{1b}[2Jno such\u{9b}2J filter").await;
    eventually("the refusal is told", || async {
        let text = ask(&pilotfish, &["proxies"]).await;
        if text.contains("rejected") { Ok(()) } else { Err(text) }
    })
    .await;
    let is_raw = |c: char| c.is_control() && c != '\n';
    for arguments in [
        &["proxies"][..],
        &["proxies", "refuser.n0"],
        &["wait", "--timeout", "0s"],
        &["proxies", "refuser.n0", "-o", "json"],
        &["proxies", "refuser.n0", "-o", "yaml"],
    ] {
        let text = ask(&pilotfish, arguments).await;
        assert!(text.contains("no such") && !text.contains(is_raw), "{arguments:?}: {text:?}");
    }
    let json = ask(&pilotfish, &["proxies", "refuser.n0", "-o", "json"]).await;
    assert!(json.contains("\\u009b2J filter"), "it is all there: {json}");
    let error = ask(&pilotfish, &["proxies", "\u{1b}[2J"]).await;
    assert!(error.starts_with("error: ") && !error.contains(is_raw), "{error:?}");
    let printed = pilotfish.printed();
    assert!(!printed.contains(is_raw), "{printed:?}");
}

/// `pilotfish top` on a terminal of its own, with the id of its process in a file.
fn top(pilotfish: &Pilotfish, pid: &Path) -> Child {
    let line = format!(
        "stty cols {COLUMNS} rows 14; echo $$ > {}; exec {BINARY} top --every 100ms --admin-address 127.0.0.1:{}",
        pid.display(),
        pilotfish.admin_port()
    );
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"]).env("TERM", "xterm");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("util-linux is there")
}

/// Reads until a text is there.
async fn until(child: &mut Child, shown: &mut String, text: &str) {
    let read = async {
        let mut bytes = [0; 4_096];
        while !shown.contains(text) {
            let read = child.stdout.as_mut().unwrap().read(&mut bytes).await.unwrap();
            assert!(read > 0, "{text:?} is not in {shown:?}");
            shown.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
    };
    timeout(LIMIT, read).await.expect("it is shown in time");
}

/// Reads to the end, and returns the exit code.
async fn end(mut child: Child, shown: &mut String) -> Option<i32> {
    let mut bytes = Vec::new();
    timeout(LIMIT, child.stdout.take().unwrap().read_to_end(&mut bytes)).await.expect("it ends").unwrap();
    shown.push_str(&String::from_utf8_lossy(&bytes));
    child.wait().await.unwrap().code()
}

/// The columns of the longest line of a screen, without sequences.
fn widest(shown: &str) -> usize {
    let plain = |line: &str| {
        let mut parts = line.split('\u{1b}');
        let first = parts.next().unwrap_or_default().to_owned();
        // A sequence ends with a letter.
        let rest =
            parts.map(|part| part.split_once(|c: char| c.is_ascii_alphabetic()).map_or("", |(_, rest)| rest));
        (first + &rest.collect::<String>()).trim_end().chars().count()
    };
    shown.split("\u{1b}[H").flat_map(str::lines).map(plain).max().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_fits_the_terminal_and_gives_it_back() {
    let pilotfish = Pilotfish::start(BINARY, &[("shop.yaml", SERVICE)]).await;
    let words = "a reason that is much longer than a terminal of some columns is wide, and goes on";
    let _refuser = refusing(&pilotfish, "n0", words).await;
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");

    let (mut shown, mut quit) = (String::new(), top(&pilotfish, &pid));
    until(&mut quit, &mut shown, "1 rejected").await;
    until(&mut quit, &mut shown, "refuser.n0 clusters rejected").await;
    quit.stdin.as_mut().unwrap().write_all(b"q").await.unwrap();
    let code = end(quit, &mut shown).await;
    assert_eq!(code, Some(0), "{shown:?}");
    assert!(shown.trim_end().ends_with("\u{1b}[?25h\u{1b}[?1049l"), "the screen is given back: {shown:?}");
    assert!(shown.contains("a reason") && widest(&shown) == COLUMNS, "{}: {shown:?}", widest(&shown));

    let (mut shown, mut ended) = (String::new(), top(&pilotfish, &pid));
    until(&mut ended, &mut shown, "1 rejected").await;
    let id = std::fs::read_to_string(&pid).unwrap();
    assert!(Command::new("kill").args(["-TERM", id.trim()]).status().await.unwrap().success());
    let code = end(ended, &mut shown).await;
    assert_eq!(code, Some(0), "{shown:?}");
    assert!(shown.trim_end().ends_with("\u{1b}[?25h\u{1b}[?1049l"), "the screen is given back: {shown:?}");
}
