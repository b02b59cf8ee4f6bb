//! Attacks on the pages.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use tokio::io::AsyncWriteExt;

use super::http1::{ask, get};
use super::{crowd, from_elsewhere};
use crate::{Attack, Counts, Deadline, Tally, Target};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "admin-rebinding",
        what: "Debug pages under names that are not this machine's, as a web page would ask for them",
        run: |target, deadline| rebinding(target, deadline).boxed(),
    },
    Attack {
        name: "admin-pages",
        what: "60 clients that ask for dumps, lists of everything and metrics, one after the other",
        run: |target, deadline| pages(target, deadline).boxed(),
    },
    Attack {
        name: "admin-unread",
        what: "60 clients that ask for the largest pages and do not take them",
        run: |target, deadline| unread(target, deadline).boxed(),
    },
];

/// Clients; an address may have 64 connections, and somebody has to ask whether the control plane is ready.
const CLIENTS: usize = 60;

async fn rebinding(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    const HOSTS: [&str; 5] = [
        "rebound.example",
        "rebound.example:15014",
        "localhost.example",
        "127.0.0.1.example:1",
        "localhost:80:x",
    ];
    const PATHS: [&str; 4] = ["/debug/config_dump?proxyID=-", "/debug/configz", "/debug/adsz", "/"];
    let counts = Counts::new();
    for number in (0_usize..).take_while(|_| !deadline.passed()) {
        let host = HOSTS.get(number % HOSTS.len()).copied().unwrap_or_default();
        let path = PATHS.get(number / HOSTS.len() % PATHS.len()).copied().unwrap_or_default();
        let request = get(path, host);
        counts.sent(request.len());
        let socket = from_elsewhere(target.admin).await?;
        let Some(status) = deadline.cut(ask(socket, &request)).await else { break };
        let status = status?;
        ensure!(status == 403 || status == 400, "{path} is answered under the name {host}: {status}");
        counts.refused(status);
    }
    Ok(counts.tally())
}

const PAGES: [&str; 6] = [
    "/debug/configz",
    "/debug/endpointz",
    "/debug/registryz",
    "/debug/config_dump?proxyID=-&include_eds=true",
    "/debug/adsz",
    "/metrics",
];

async fn pages(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let (counts, address) = (Counts::new(), target.admin);
    let shared = counts.clone();
    crowd(CLIENTS, deadline, &counts, move |index| {
        let counts = shared.clone();
        async move {
            let request = get(PAGES.get(index % PAGES.len()).copied().unwrap_or_default(), "localhost");
            let socket = from_elsewhere(address).await?;
            counts.sent(request.len());
            match ask(socket, &request).await? {
                200 => counts.answered(),
                status => counts.refused(status),
            }
            Ok(())
        }
    })
    .await;
    Ok(counts.tally())
}

async fn unread(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let (counts, address) = (Counts::new(), target.admin);
    let shared = counts.clone();
    crowd(CLIENTS, deadline, &counts, move |index| {
        let counts = shared.clone();
        async move {
            let request = get(PAGES.get(index % PAGES.len()).copied().unwrap_or_default(), "localhost");
            let mut socket = from_elsewhere(address).await?;
            socket.write_all(&request).await.context("cannot send")?;
            counts.sent(request.len());
            // It may be closed by now.
            socket.readable().await.context("closed")?;
            counts.answered();
            tokio::time::sleep(Duration::from_secs(600)).await;
            Ok(())
        }
    })
    .await;
    Ok(counts.tally())
}
