//! Hosts with their own networks: network namespaces that this process creates, without any connection to the
//! outside.

use super::{LIMIT, Program, Tool, eventually};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

pub struct Host {
    /// Keeps the namespace alive: ends on the end of its input.
    holder: Child,
    /// Runtime whose threads are in the namespace.
    runtime: Option<Runtime>,
}

impl Host {
    /// Creates a host without any network except for loopback. `None` where it is not permitted and not
    /// required; in CI that is a failure.
    ///
    /// # Panics
    /// When it cannot be created although `CI` is set.
    #[must_use]
    pub fn new() -> Option<Self> {
        Tool::Iptables.find()?;
        let mut unshare = Command::new("unshare");
        unshare.args(["--net", "--", "sh", "-c", "ip link set lo up && echo made && exec cat"]);
        let spawned = unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut holder = spawned.expect("util-linux has `unshare`");
        let mut line = String::new();
        let out = holder.stdout.take().expect("it is piped");
        // The end of the output means that it ended.
        let _ = BufReader::new(out).read_line(&mut line);
        if line != "made\n" {
            let _ = holder.wait();
            assert!(
                std::env::var_os("CI").is_none(),
                "network namespaces may not be made here: root with CAP_NET_ADMIN and CAP_SYS_ADMIN can"
            );
            return None;
        }
        let path = format!("/proc/{}/ns/net", holder.id());
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .on_thread_start(move || {
                let namespace = File::open(&path).expect("the namespace is held");
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(namespace.as_fd(), kind).expect("who made it may enter it");
            })
            .build();
        Some(Self { holder, runtime: Some(runtime.expect("threads can be had")) })
    }

    /// A command for this host, with iptables and iproute2 on its path.
    ///
    /// # Panics
    /// When the tools were removed since the host was created.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let tools = Tool::Iptables.find().expect("they were there before");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.holder.id())).arg("--").arg(program);
        command.env("PATH", format!("{}:{path}:/usr/sbin:/sbin", tools.display()));
        command
    }

    /// Runs a command line to its end and returns its output.
    ///
    /// # Panics
    /// When it fails.
    #[must_use]
    pub fn run(&self, line: &str) -> String {
        let mut words = line.split_whitespace();
        let output = self.command(words.next().unwrap_or("true")).args(words).output().expect("it runs");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// True if it has IPv6, with rules that change destinations. In CI a missing one is a failure.
    ///
    /// # Panics
    /// When it is missing although `CI` is set.
    #[must_use]
    pub fn has_ipv6(&self) -> bool {
        let rules = self.command("ip6tables").args(["-t", "nat", "-S"]).output().expect("it runs");
        let has = rules.status.success() && !self.run("ip -6 address show dev lo").is_empty();
        let why = String::from_utf8_lossy(&rules.stderr);
        assert!(has || std::env::var_os("CI").is_none(), "no IPv6 here, or no NAT for it: {why}");
        has
    }

    /// Connects it with another host by a virtual cable.
    pub fn connect(&self, other: &Self) {
        let _ = self.run(&format!("ip link add eth0 type veth peer name eth0 netns {}", other.holder.id()));
        for host in [self, other] {
            let _ = host.run("ip link set eth0 up");
        }
    }

    /// Adds an address such as `10.77.0.1/24` to a device (`lo`, or `eth0` for its end of the cable), and
    /// waits until it is usable.
    pub async fn give(&self, address: &str, device: &str) {
        // Without duplicate address detection for IPv6, which takes a while.
        let nodad = if address.contains(':') { " nodad" } else { "" };
        let _ = self.run(&format!("ip address add {address} dev {device}{nodad}"));
        // The kernel makes an IPv6 address usable later, and not before the link is up.
        eventually(&format!("{address} can be used"), || async {
            let waiting = self.run(&format!("ip -6 address show dev {device} scope global tentative"));
            if waiting.is_empty() { Ok(()) } else { Err(waiting) }
        })
        .await;
    }

    /// Starts a program on this host, with its output in a file.
    #[must_use]
    pub fn start(&self, program: &str, arguments: &[String], log: PathBuf) -> Program {
        let mut command = self.command(program);
        command.args(arguments);
        Program::start(&mut command.into(), log)
    }

    /// Runs a future in the network of this host.
    ///
    /// # Panics
    /// When it panics.
    pub async fn here<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        let runtime = self.runtime.as_ref().expect("it is there until the end");
        runtime.spawn(work).await.expect("it does not panic")
    }

    /// Runs a future in a network of its own, where all listeners and connections are isolated. Skipped where
    /// no host can be created and none is required.
    pub async fn alone(work: impl Future<Output = ()> + Send + 'static) {
        if let Some(host) = Self::new() {
            host.here(work).await;
        }
    }

    /// Requests `/path` of a URL's host over a connection of this host, and returns the whole response with
    /// its head.
    ///
    /// # Errors
    /// When there is no response.
    pub async fn ask(&self, address: &str, path: &str) -> Result<String, String> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        let address = address.to_owned();
        let exchange = async move {
            let mut stream = TcpStream::connect(&address).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            Ok::<_, std::io::Error>(String::from_utf8_lossy(&answer).into_owned())
        };
        let answer = self.here(timeout(LIMIT, exchange)).await;
        answer.map_err(|_| format!("no answer within {LIMIT:?}"))?.map_err(|error| error.to_string())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        // Fails if it has already ended.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
