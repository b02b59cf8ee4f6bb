//! Worlds for a proxy with three ports, connections to these, HTTP or not, and what an Envoy did with each.

use super::requests::{Done, Stage, holds, log};
use pilotfish_testkit::real::{Pilotfish, eventually, free_port, request};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::{self, Debug, Display, Formatter, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

/// The ports that a proxy listens on for clients.
#[derive(Clone, Copy)]
pub(crate) struct Ports {
    pub(crate) http: u16,
    pub(crate) tls: u16,
    pub(crate) tcp: u16,
}

impl Ports {
    pub(crate) fn free() -> Self {
        Self { http: free_port(), tls: free_port(), tcp: free_port() }
    }
}

/// Objects, and the ports that they are about.
pub(crate) struct World {
    pub(crate) number: u64,
    pub(crate) ports: Ports,
    pub(crate) yaml: String,
}

impl World {
    pub(crate) fn empty(number: u64, ports: Ports) -> Self {
        Self { number, ports, yaml: String::new() }
    }

    /// Adds an object of `networking.istio.io`.
    pub(crate) fn add(&mut self, kind: &str, name: &str, namespace: &str, spec: &str) {
        let _ = writeln!(
            self.yaml,
            "apiVersion: networking.istio.io/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {spec}\n---"
        );
    }

    /// A host that only this world has.
    pub(crate) fn marker_host(&self) -> String {
        format!("world-{}.test", self.number)
    }
}

/// One of the times that a world is asked something.
pub(crate) struct Call {
    world: u64,
    asked: usize,
    time: usize,
}

impl Display for Call {
    /// What a request has in its header `x-number`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.world, self.asked, self.time)
    }
}

impl Call {
    /// Where a connection of bytes comes from. A port would not tell one from another: it comes again for
    /// another port of the Envoy, and in another world.
    fn address(&self) -> Ipv4Addr {
        let byte = |number: usize| u8::try_from(number).unwrap();
        Ipv4Addr::new(127, 100 + u8::try_from(self.world).unwrap(), byte(self.asked), 1 + byte(self.time))
    }
}

/// What a client asks.
pub(crate) trait Asked: Debug {
    /// What it speaks.
    fn kind(&self) -> &'static str;

    /// Sends it, and gives what the line of the access log begins with; `None` where nothing takes the
    /// connection.
    async fn send(&self, call: &Call) -> Option<String>;

    async fn why(&self, pilotfish: &Pilotfish) -> Value;
}

/// How often what of each kind reached somebody or ended on its way.
pub(crate) type Outcomes = BTreeMap<String, usize>;

/// Sends everything that a world is asked so many times, and compares what the Envoy did with what `why`
/// says. `host` marks the world, which is served.
pub(crate) async fn check(
    stage: &Stage,
    world: &World,
    host: &str,
    (asked, times): (&[impl Asked], usize),
    outcomes: &mut Outcomes,
) {
    let file = stage.access_log();
    // It is read again and again: only lines of this world, and late ones of those before.
    std::fs::write(&file, "").unwrap();
    let mut sent = Vec::new();
    for (at, one) in asked.iter().enumerate() {
        let mut keys = Vec::new();
        for time in 0..times {
            keys.push(one.send(&Call { world: world.number, asked: at, time }).await);
        }
        sent.push((one, keys));
    }
    logged(world, host, &file).await;
    let says = |one: &dyn Debug, why: &Value, done: Option<&Done>| {
        connection_holds(why, done).unwrap_or_else(|error| {
            panic!("world {}: {error}\n{one:?}\nEnvoy: {done:?}\n{why:#}\n{}", world.number, world.yaml)
        });
    };
    let mut without_line = Vec::new();
    for (one, keys) in sent {
        let why = one.why(&stage.pilotfish).await;
        for key in keys {
            let done = done(&why, key.as_ref(), &file).await;
            says(one, &why, done.as_ref());
            without_line.extend(key.filter(|_| done.is_none()).map(|key| (key, one, why.clone())));
            let end = if why["reaches"] == true { "reaches" } else { "ends" };
            *outcomes.entry(format!("{} {end}", one.kind())).or_default() += 1;
        }
    }
    // The lines of streams may come late.
    let log = log(&file);
    for (key, one, why) in &without_line {
        log.get(key).into_iter().for_each(|done| says(one, why, Some(done)));
    }
}

/// Waits for the line of what arrives, and gives what the log says of anything else so far. `key`: what the
/// line begins with.
async fn done(why: &Value, key: Option<&String>, file: &Path) -> Option<Done> {
    let key = key?;
    if why["reaches"] == false {
        return log(file).remove(key);
    }
    let line = || async { log(file).remove(key).ok_or(()) };
    Some(eventually(&format!("the log tells of {key}, which arrives: {why:#}"), line).await)
}

/// As [`holds`], also for a connection that nothing takes: of it the log says nothing.
fn connection_holds(why: &Value, done: Option<&Done>) -> Result<(), String> {
    match done {
        Some(done) => holds(why, done),
        None if why["outcome"].as_str().unwrap().starts_with("the connection") => Ok(()),
        None => Err("nothing took it".to_owned()),
    }
}

/// Sends bytes and waits for the end; the client's address, or `None` where nothing listens.
pub(crate) async fn stream(call: &Call, port: u16, bytes: &[u8]) -> Option<String> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((call.address(), 0).into()).unwrap();
    let mut stream = socket.connect(SocketAddr::from(([127, 0, 0, 1], port))).await.ok()?;
    // The other side may close it before it has read. This side stays open: Envoy tells nothing of a client
    // that leaves before its server name was read.
    let _ = stream.write_all(bytes).await;
    let _ = stream.read_to_end(&mut Vec::new()).await;
    Some(call.address().to_string())
}

/// Waits until the access log tells of all that a world was asked so far: the lines of requests come in
/// order, so that of one more is the last.
async fn logged(world: &World, host: &str, file: &Path) {
    let last = format!("last-{}", world.number);
    let headers = [("host", host), ("x-number", last.as_str())];
    request("GET", &format!("http://127.0.0.1:{}/", world.ports.http), &headers).await.unwrap();
    eventually("the access log has all requests", || async {
        if log(file).contains_key(&last) { Ok(()) } else { Err(()) }
    })
    .await;
}
