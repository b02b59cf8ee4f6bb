//! A log output that is not read.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use futures::FutureExt;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};

use super::crowd;
use crate::dialer::Dialer;
use crate::own::{LIMIT, Own, Subscriber};
use crate::wire::contains;
use crate::{Attack, Counts, Deadline, Tally, Target};

pub(super) const ATTACKS: &[Attack] = &[Attack {
    name: "unread-log",
    what: "Clients that connect again and again, each of them many lines of a log whose pipe nobody reads",
    run: |target, deadline| unread_log(target, deadline).boxed(),
}];

const NAME: &str = "outbound|80||own.example.com";

/// Address of the endpoint in a version of the file.
fn address(version: usize) -> String {
    format!("192.0.2.{}", 100 + version % 100)
}

fn entry(version: usize) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: own, namespace: bench}}\n\
         spec:\n  hosts: [own.example.com]\n  resolution: STATIC\n  \
         ports: [{{number: 80, name: http, protocol: HTTP}}]\n  endpoints: [{{address: {}}}]\n",
        address(version)
    )
}

async fn unread_log(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let pipe = folder.path().join("log");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    // A reader that never reads. Without a reader, writing would fail instead of blocking.
    let _reader = open(&pipe, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    let commands = format!("exec 2>'{}'", pipe.display());
    let arguments = ["--log", "debug,h2=trace"];
    let own = Own::start(&target, folder.path(), &commands, &arguments, &entry(0)).await?;
    let (counts, dialer) = (Counts::new(), Dialer::at(own.xds()));
    let clients = crowd(4, Deadline::after(LIMIT), &counts, {
        let (counts, dialer) = (counts.clone(), dialer.clone());
        move |_| {
            let (counts, dialer) = (counts.clone(), dialer.clone());
            async move {
                counts.sent(NAME.len());
                Subscriber::connect(&dialer, &[NAME.to_owned()]).await?.next().await?;
                counts.answered();
                Ok(())
            }
        }
    });
    tokio::select! {
        served = is_served(&own, &dialer, deadline) => served?,
        () = clients => bail!("it dropped and counted no line of its log"),
    }
    own.stop().await?;
    Ok(counts.tally())
}

/// Checks that pages respond and changes arrive, also after lines were dropped, which is counted.
async fn is_served(own: &Own, dialer: &Dialer, deadline: Deadline) -> Result<()> {
    let mut subscriber = Subscriber::connect(dialer, &[NAME.to_owned()]).await?;
    for version in 1.. {
        let is_dropping = has_dropped(&own.page("/metrics").await?);
        own.page("/ready").await?;
        let address = address(version);
        own.write(&entry(version))?;
        subscriber.until("a change of a file", |message| contains(message, address.as_bytes())).await?;
        if is_dropping && deadline.passed() {
            break;
        }
    }
    Ok(())
}

/// True if lines were dropped.
fn has_dropped(metrics: &str) -> bool {
    let value = metrics.lines().find_map(|line| line.strip_prefix("pilotfish_log_lines_dropped "));
    value.and_then(|value| value.parse::<f64>().ok()).is_some_and(|lines| lines > 0.0)
}
