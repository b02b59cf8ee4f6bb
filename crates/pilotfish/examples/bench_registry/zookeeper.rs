//! ZooKeeper: a real one, with instances as Curator's service discovery writes them, by ZooKeeper's own
//! client.

use super::{Product, Seen, service};
use anyhow::{Context, Result, bail};
use pilotfish_testkit::real::{Java, Nodes, ZooKeeper};
use std::process::Stdio;
use std::time::Instant;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{Mutex, mpsc};

const MISSING: &str = "ZooKeeper or Java is missing: run `cargo xtask tools jdk zookeeper java-dubbo`";

pub(super) struct Server {
    zookeeper: ZooKeeper,
    /// One client: it writes one node after the other.
    nodes: Mutex<Nodes>,
}

impl Server {
    pub(super) async fn start() -> Result<Self> {
        let zookeeper = ZooKeeper::start().await.context(MISSING)?;
        let nodes = zookeeper.nodes(None).await.context(MISSING)?;
        Ok(Self { zookeeper, nodes: Mutex::new(nodes) })
    }
}

fn path(number: usize, index: usize) -> String {
    format!("/services/{}/instance-{index}", service(number))
}

impl Product for Server {
    fn registry(&self) -> String {
        format!("zookeeper=zk://{}", self.zookeeper.address())
    }

    async fn register(&self, number: usize, index: usize, address: &str) -> Result<()> {
        let (name, path) = (service(number), path(number, index));
        let payload = r#"{"instance_status":"UP","version":"v1"}"#;
        let data = format!(
            "{{\"name\":\"{name}\",\"id\":\"instance-{index}\",\"address\":\"{address}\",\"port\":8080,\
             \"payload\":{{\"metadata\":{payload}}},\"serviceType\":\"DYNAMIC\"}}"
        );
        self.nodes.lock().await.run(&format!("put {path} {data}")).await;
        Ok(())
    }

    async fn watch(&self) -> Result<Seen> {
        let java = Java::find("dubbo").context(MISSING)?;
        let mut command =
            java.command(&[("org.slf4j.simpleLogger.defaultLogLevel", "error")], "pilotfish.dubbo.Nodes");
        command.arg(self.zookeeper.address()).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("the client has no input or output");
        };
        input.write_all(format!("follow {}\n", path(0, 0)).as_bytes()).await?;
        let (say, seen) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut lines = BufReader::new(output).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if say.send((line, Instant::now())).is_err() {
                    break;
                }
            }
            // Its input ends with this task, and it with its input.
            drop((input, child));
        });
        Ok(seen)
    }
}
