//! What a name server can do wrong: endpoints are lost only when it says so twice, and everything comes back
//! by itself.

use pilotfish_dns::DNS;
use pilotfish_testkit::real::{LiveRegistry, NameServer, RegistryState, eventually};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

const ZONE: &str = "web A 10.0.0.1\nweb A 10.0.0.2\nweb A 10.0.0.3\nweb A 10.0.0.4\n";
const OPTIONS: &str = "names=web.example.com:80&family=ipv4&minTtl=200ms&maxTtl=1s";

async fn has(registry: &LiveRegistry, count: usize) {
    let wanted =
        |state: &RegistryState| state.synced && state.failure.is_none() && state.addresses().len() == count;
    registry.until(&format!("{count} endpoints"), wanted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_gone_or_silent_takes_nothing_away() {
    let Some(mut server) = NameServer::start(ZONE).await else { return };
    let registry = LiveRegistry::start(&DNS, &format!("{}?{OPTIONS}&guardWait=1h", server.address()));
    has(&registry, 4).await;
    server.freeze().await;
    registry.fails("did not answer within 2 s").await;
    server.thaw().await;
    has(&registry, 4).await;
    server.kill().await;
    registry.fails("127.0.0.1").await;

    // It comes back with another zone, and is alone in saying that nothing is there.
    server.restart("").await;
    eventually("it is asked again", || async {
        let source = registry.report();
        if source.held.as_ref().is_some_and(|held| held.after == 0) { Ok(()) } else { Err(source) }
    })
    .await;
    server
        .update(&[
            "add web.example.com 1 A 10.0.0.1",
            "add web.example.com 1 A 10.0.0.2",
            "add web.example.com 1 A 10.0.0.5",
        ])
        .await;
    registry
        .until("changes arrive", |state| state.addresses() == ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.5:80"])
        .await;
    assert_eq!(registry.fewest_endpoints(), 3, "never fewer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_believed_when_it_is_said_twice() {
    let Some(server) = NameServer::start(ZONE).await else { return };
    let registry = LiveRegistry::start(&DNS, &format!("{}?{OPTIONS}&guardWait=2s", server.address()));
    has(&registry, 4).await;
    server.update(&["delete web.example.com A"]).await;
    has(&registry, 0).await;
    assert_eq!((registry.report().holds, registry.failures()), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_is_no_second_answer() {
    let Some(server) = NameServer::start(ZONE).await else { return };
    let proxy = Datagrams::before(server.port()).await;
    let registry = LiveRegistry::start(&DNS, &format!("127.0.0.1:{}?{OPTIONS}&guardWait=8s", proxy.port));
    has(&registry, 4).await;
    server.update(&["delete web.example.com A"]).await;
    let held = eventually("it is held back", || async {
        let source = registry.report();
        source.held.clone().ok_or(source)
    })
    .await;
    proxy.set(Fault::Code(2));
    // Sessions fail for longer than the guard waits.
    eventually("the wait is over", || async {
        let left = held.until.duration_since(SystemTime::now());
        left.map_or(Ok(()), Err)
    })
    .await;
    let before = registry.report().failures;
    eventually("sessions failed since", || async {
        let source = registry.report();
        if source.failures >= before + 2 { Ok(()) } else { Err(source) }
    })
    .await;
    assert_eq!(registry.fewest_endpoints(), 4);
    server
        .update(&[
            "add web.example.com 1 A 10.0.0.1",
            "add web.example.com 1 A 10.0.0.2",
            "add web.example.com 1 A 10.0.0.3",
        ])
        .await;
    proxy.set(Fault::None);
    has(&registry, 3).await;
    assert_eq!(registry.fewest_endpoints(), 3, "never fewer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_wrong_take_nothing_away() {
    let Some(server) = NameServer::start(ZONE).await else { return };
    let proxy = Datagrams::before(server.port()).await;
    let registry = LiveRegistry::start(&DNS, &format!("127.0.0.1:{}?{OPTIONS}&guardWait=1h", proxy.port));
    has(&registry, 4).await;
    for (fault, reason) in [
        (Fault::Drop, "did not answer within 2 s"),
        (Fault::Cut(40), "the answer cannot be read"),
        (Fault::Garble, "the answer cannot be read"),
        (Fault::Forge, "did not answer within 2 s"),
        (Fault::Code(2), "SERVFAIL"),
        (Fault::Code(5), "REFUSED"),
    ] {
        proxy.set(fault);
        registry.fails(reason).await;
        proxy.set(Fault::None);
        has(&registry, 4).await;
    }
    // Slow is no failure.
    let failures = registry.failures();
    proxy.set(Fault::Slow(Duration::from_millis(300)));
    server.update(&["add web.example.com 1 A 10.0.0.5"]).await;
    has(&registry, 5).await;
    assert_eq!(registry.failures(), failures);
    assert_eq!(registry.fewest_endpoints(), 4, "never fewer");
}

/// What is wrong with answers.
#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    /// They get lost.
    Drop,
    /// They end after so many bytes.
    Cut(usize),
    /// What follows the question is noise.
    Garble,
    /// Their number is another one, as of somebody who guesses.
    Forge,
    /// They come later.
    Slow(Duration),
    /// They have this code.
    Code(u8),
}

/// Passes datagrams on to a server and back. Ends when dropped.
struct Datagrams {
    port: u16,
    fault: watch::Sender<Fault>,
    task: JoinHandle<()>,
}

impl Datagrams {
    async fn before(server: u16) -> Self {
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").await.expect("loopback has a free port"));
        let port = socket.local_addr().expect("it is bound").port();
        let (fault, faults) = watch::channel(Fault::None);
        let task = tokio::spawn(async move {
            let mut question = [0; 2048];
            while let Ok((length, from)) = socket.recv_from(&mut question).await {
                let question = question[..length].to_vec();
                tokio::spawn(pass(socket.clone(), question, from, server, *faults.borrow()));
            }
        });
        Self { port, fault, task }
    }

    fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(socket: Arc<UdpSocket>, question: Vec<u8>, from: SocketAddr, server: u16, fault: Fault) {
    let upstream = UdpSocket::bind("127.0.0.1:0").await.expect("loopback has a free port");
    upstream.connect(("127.0.0.1", server)).await.expect("an address");
    upstream.send(&question).await.expect("it is sent");
    let mut answer = vec![0; 4096];
    let Ok(Ok(length)) = timeout(Duration::from_secs(5), upstream.recv(&mut answer)).await else { return };
    answer.truncate(length);
    match fault {
        Fault::None => {}
        Fault::Drop => return,
        Fault::Cut(length) => answer.truncate(length),
        Fault::Garble => answer.iter_mut().skip(question.len() - 11).for_each(|byte| *byte = !*byte),
        Fault::Forge => answer[0] = !answer[0],
        Fault::Slow(time) => sleep(time).await,
        Fault::Code(code) => answer[3] = (answer[3] & 0xf0) | code,
    }
    // Who asked may have given up.
    let _ = socket.send_to(&answer, from).await;
}
