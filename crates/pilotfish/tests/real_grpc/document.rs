//! `docs/grpc.md`, word for word: its files, programs and commands, with only the ports changed.

use pilotfish_testkit::real::{Authority, Pilotfish, Tool, eventually, free_port};
use std::process::Stdio;
use tokio::net::TcpStream;
use tokio::process::Command;

const DOCUMENT: &str = include_str!("../../../../docs/grpc.md");

/// The n-th block of a language, with other ports.
fn block(language: &str, n: usize, port: u16) -> String {
    let begin = format!("```{language}\n");
    let text = DOCUMENT.split(begin.as_str()).nth(n + 1).expect("the document has the block");
    text.split("```").next().unwrap().replace("50051", &port.to_string())
}

/// Makes the bootstraps by the commands of a block.
async fn make_bootstraps(pilotfish: &Pilotfish, commands: &str) {
    let commands: Vec<_> = commands.lines().filter(|line| line.starts_with("pilotfish bootstrap")).collect();
    assert_eq!(commands.len(), 2, "{commands:?}");
    for line in commands {
        let (command, file) = line.split_once(" > ").unwrap();
        let output = Command::new(pilotfish.binary())
            .args(command.split_whitespace().skip(1))
            .args(["--xds-address", &format!("127.0.0.1:{}", pilotfish.xds_port())])
            .current_dir(pilotfish.folder())
            .output()
            .await
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::write(pilotfish.folder().join(file), output.stdout).unwrap();
    }
}

/// Starts the server, and gives what the client prints.
async fn run(pilotfish: &Pilotfish, port: u16) -> String {
    let python = Tool::Python.find().unwrap();
    let program = |name: &str| {
        let mut command = Command::new(&python);
        command.arg(format!("{name}.py")).env("GRPC_XDS_BOOTSTRAP", format!("{name}.json"));
        command.current_dir(pilotfish.folder()).stdin(Stdio::null()).kill_on_drop(true);
        command
    };
    let mut server = program("server").spawn().unwrap();
    eventually("the server listens", || TcpStream::connect(("127.0.0.1", port))).await;
    let output = program("client").output().await.unwrap();
    server.kill().await.unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_document_is_true_word_for_word() {
    if Tool::Python.find().is_none() {
        return;
    }
    let port = free_port();
    let service = block("yaml", 0, port);
    let pilotfish = Pilotfish::start(env!("CARGO_BIN_EXE_pilotfish"), &[("echo.yaml", &service)]).await;
    for (index, name) in ["server.py", "client.py"].iter().enumerate() {
        std::fs::write(pilotfish.folder().join(name), block("python", index, port)).unwrap();
    }
    make_bootstraps(&pilotfish, &block("sh", 0, port)).await;
    assert!(run(&pilotfish, port).await.starts_with("you said hello\n"));

    let authority = Authority::new();
    for (identity, folder) in [("echo", "server-certificates"), ("client", "client-certificates")] {
        let identity = format!("spiffe://cluster.local/ns/shop/sa/{identity}");
        authority.issue(&identity, &pilotfish.folder().join(folder));
    }
    make_bootstraps(&pilotfish, &block("sh", 1, port)).await;
    pilotfish.write("security.yaml", &block("yaml", 1, port));
    eventually("the policy is known", || async {
        let objects = pilotfish.page("/debug/configz").await?;
        if objects.contains("callers") { Ok(()) } else { Err(objects) }
    })
    .await;
    let output = run(&pilotfish, port).await;
    assert!(output.starts_with("you said hello\n"), "{output}");
    // Another caller is denied.
    authority
        .issue("spiffe://cluster.local/ns/shop/sa/other", &pilotfish.folder().join("client-certificates"));
    let output = run(&pilotfish, port).await;
    assert!(output.contains("PERMISSION_DENIED"), "{output}");
}
