//! Attacks on the admin address.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::config::multiplied_entry;
use super::http1::{answer, ask, get, post};
use super::{REST, crowd, from_address, from_elsewhere};
use crate::dialer::Dialer;
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
    Attack {
        name: "admin-questions",
        what: "60 clients that ask for plans of 1 MiB, for the ways of requests, records, histories and \
            profiles",
        run: |target, deadline| questions(target, deadline).boxed(),
    },
    Attack {
        name: "admin-multiplied-plans",
        what: "8 clients of this machine that ask for plans of ServiceEntries that multiply to 192,000 and \
            to 11,520,000 endpoints, and leave after a moment",
        run: |target, deadline| multiplied_plans(target, deadline).boxed(),
    },
    Attack {
        name: "admin-events",
        what: "60 clients that open streams of events for dashboards and do not take them",
        run: |target, deadline| events(target, deadline).boxed(),
    },
    Attack {
        name: "admin-other-sites",
        what: "What a page of another site can have a browser of this machine ask for: pages, plans, \
            profiles, and to turn the log off",
        run: |target, deadline| other_sites(target, deadline).boxed(),
    },
    Attack {
        name: "admin-forwarded",
        what: "Changes of the log's filter from other loopback addresses, and through proxies on this \
            machine",
        run: |target, deadline| forwarded(target, deadline).boxed(),
    },
    Attack {
        name: "several-hosts",
        what: "Requests with several Host headers at each port of HTTP/1, and answers that browsers could \
            take for another type",
        run: |target, deadline| several_hosts(target, deadline).boxed(),
    },
    Attack {
        name: "admin-limits",
        what: "The limits of heads, plans and filters of logs from both sides",
        run: |target, deadline| limits(target, deadline).boxed(),
    },
];

/// Number of clients: fewer than the 64 connections of an address, of which readiness checks need some.
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

const LARGEST_PLAN: usize = 8 << 20;
const LARGEST_FILTER: usize = 4 << 10;
const LARGEST_HEAD: usize = 32 << 10;

/// A plan request of that size, filled with copies of the text.
fn plan(bytes: usize, text: &str) -> Vec<u8> {
    let (head, tail) = (r#"{"files":[{"name":"a.yaml","text":""#, r#""}]}"#);
    let room = bytes.saturating_sub(head.len() + tail.len());
    let text = format!("{}{}", text.repeat(room / text.len()), " ".repeat(room % text.len()));
    [head, &text, tail].concat().into_bytes()
}

/// A Service manifest as part of a JSON string.
const SERVICE: &str = concat!(
    r"apiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: attack}\n",
    r"spec: {ports: [{port: 80}]}\n---\n"
);

async fn questions(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let (counts, address) = (Counts::new(), target.admin);
    let plan = plan(1 << 20, SERVICE);
    let all: [Arc<[u8]>; 6] = [
        [post("/api/v1/plan", plan.len()), plan].concat().into(),
        get("/api/v1/why?proxy=honest-1.bench&to=svc-1.bench&path=/", "localhost").into(),
        get("/api/v1/record", "localhost").into(),
        get("/api/v1/history?endpoints=true&limit=5000", "localhost").into(),
        get("/api/v1/profile?seconds=30", "localhost").into(),
        get("/api/v1/map", "localhost").into(),
    ];
    let shared = counts.clone();
    crowd(CLIENTS, deadline, &counts, move |index| {
        let (counts, request) = (shared.clone(), all.get(index % all.len()).cloned());
        async move {
            let request = request.context("there are six")?;
            let socket = from_elsewhere(address).await?;
            counts.sent(request.len());
            counts.status(ask(socket, &request).await?);
            Ok(())
        }
    })
    .await;
    Ok(counts.tally())
}

async fn multiplied_plans(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    /// Time after which every second client disconnects.
    const PATIENCE: Duration = Duration::from_millis(300);
    let (counts, address) = (Counts::new(), target.admin);
    let plan = |entries: usize| -> Arc<[u8]> {
        let text: String = (0..entries).map(|entry| multiplied_entry(entry, 0)).collect();
        let file = serde_json::json!({"files": [{"name": "a.yaml", "text": text}]}).to_string();
        [post("/api/v1/plan", file.len()), file.into_bytes()].concat().into()
    };
    let all = [plan(1), plan(60)];
    let shared = counts.clone();
    crowd(8, deadline, &counts, move |index| {
        let (counts, request) = (shared.clone(), all.get(index / 2 % 2).cloned());
        async move {
            let request = request.context("there are two")?;
            let socket = from_elsewhere(address).await?;
            counts.sent(request.len());
            let answer = ask(socket, &request);
            if index.is_multiple_of(2) {
                counts.status(answer.await?);
            } else if let Ok(status) = tokio::time::timeout(PATIENCE, answer).await {
                counts.status(status?);
            }
            Ok(())
        }
    })
    .await;
    Ok(counts.tally())
}

async fn events(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let (counts, address) = (Counts::new(), target.admin);
    let shared = counts.clone();
    crowd(CLIENTS, deadline, &counts, move |_| {
        let counts = shared.clone();
        async move {
            let mut socket = from_elsewhere(address).await?;
            let request = get("/api/v1/events", "localhost");
            socket.write_all(&request).await.context("cannot send")?;
            counts.sent(request.len());
            let mut head = [0; 12];
            socket.read_exact(&mut head).await.context("closed")?;
            match head.ends_with(b"200") {
                true => counts.answered(),
                false => bail!("{}", String::from_utf8_lossy(&head)),
            }
            tokio::time::sleep(Duration::from_secs(600)).await;
            Ok(())
        }
    })
    .await;
    Ok(counts.tally())
}

async fn other_sites(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    const SAID: [&str; 3] =
        ["sec-fetch-site: cross-site", "sec-fetch-site: same-site", "origin: http://localhost:3000"];
    const ASKED: [(&str, &str); 6] = [
        ("GET", "/debug/configz"),
        ("GET", "/api/v1/profile?seconds=30"),
        ("GET", "/api/v1/events"),
        ("GET", "/metrics"),
        ("POST", "/api/v1/plan"),
        ("POST", "/api/v1/log"),
    ];
    let counts = Counts::new();
    for number in (0_usize..).take_while(|number| *number < SAID.len() * ASKED.len() || !deadline.passed()) {
        let said = SAID.get(number % SAID.len()).copied().unwrap_or_default();
        let (method, path) = ASKED.get(number / SAID.len() % ASKED.len()).copied().unwrap_or_default();
        let body = r#"{"filter":"off"}"#;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\n{said}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        counts.sent(request.len());
        let status = ask(from_elsewhere(target.admin).await?, request.as_bytes()).await?;
        ensure!(status == 403, "{method} {path} of a page that says {said:?} is answered: {status}");
        counts.refused(status);
    }
    Ok(counts.tally())
}

async fn forwarded(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    /// Last byte of the source address, and headers added by a proxy. 127.0.0.6 is the source address of
    /// Istio's inbound listeners for remote clients.
    const SAID: [(u8, &str); 8] = [
        (6, ""),
        (66, ""),
        (1, "x-forwarded-for: 192.0.2.1\r\n"),
        (1, "x-forwarded-for: 127.0.0.1\r\n"),
        (1, "forwarded: for=192.0.2.1\r\n"),
        (1, "via: 1.1 proxy\r\n"),
        (1, "x-real-ip: 192.0.2.1\r\n"),
        (1, "x-envoy-external-address: 192.0.2.1\r\n"),
    ];
    let counts = Counts::new();
    for number in (0_usize..).take_while(|number| *number < SAID.len() || !deadline.passed()) {
        let (last, said) = SAID.get(number % SAID.len()).copied().unwrap_or_default();
        let body = r#"{"filter":"off"}"#;
        let request = format!(
            "POST /api/v1/log HTTP/1.1\r\nhost: localhost\r\n{said}connection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        counts.sent(request.len());
        let status = ask(from_address(last, target.admin).await?, request.as_bytes()).await?;
        ensure!(status == 403, "the log is changed by 127.0.0.{last} with {said:?}: {status}");
        counts.refused(status);
        tokio::time::sleep(REST).await;
    }
    Ok(counts.tally())
}

async fn several_hosts(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    const HOSTS: [[&str; 2]; 3] =
        [["localhost", "rebound.example"], ["rebound.example", "localhost"], ["localhost", "localhost"]];
    const PAGES: [&str; 5] = ["/ready", "/metrics", "/debug/list", "/api/v1/problems", "/nothing"];
    const HEADERS: [&str; 2] =
        ["x-content-type-options: nosniff", "cross-origin-resource-policy: same-origin"];
    let counts = Counts::new();
    let ports = [Some(Dialer::at(target.admin)), target.registration.map(Dialer::at)];
    let webhook = target.webhook.map(Dialer::unchecked).transpose()?;
    let ports: Vec<Dialer> = ports.into_iter().chain([webhook]).flatten().collect();
    for number in (0_usize..).take_while(|number| *number < 4 * HOSTS.len() || !deadline.passed()) {
        let [first, second] = HOSTS.get(number % HOSTS.len()).copied().unwrap_or_default();
        let request = format!(
            "GET /v1/instances HTTP/1.1\r\nhost: {first}\r\nhost: {second}\r\nconnection: close\r\n\r\n"
        );
        for (index, port) in ports.iter().enumerate() {
            counts.sent(request.len());
            let status = ask(port.dial().await?, request.as_bytes()).await?;
            ensure!(status == 400, "port {index} answers the hosts {first} and {second}: {status}");
            counts.refused(status);
        }
        let page = PAGES.get(number % PAGES.len()).copied().unwrap_or_default();
        let (_, head) = answer(from_address(1, target.admin).await?, &get(page, "localhost")).await?;
        let missing = HEADERS.iter().find(|header| !head.contains(**header));
        ensure!(missing.is_none(), "{page} is answered without {}", missing.unwrap_or(&""));
        counts.answered();
        tokio::time::sleep(REST).await;
    }
    Ok(counts.tally())
}

/// A request with a head of that size.
fn head_of(bytes: usize) -> Vec<u8> {
    let (begin, end) =
        ("GET /version HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-more: ", "\r\n\r\n");
    format!("{begin}{}{end}", "a".repeat(bytes.saturating_sub(begin.len() + end.len()))).into_bytes()
}

/// A request of that size with an invalid log filter: it is parsed and refused.
fn filter_of(bytes: usize) -> Vec<u8> {
    let (begin, end) = (r#"{"filter":"=="#, r#""}"#);
    format!("{begin}{}{end}", "=".repeat(bytes.saturating_sub(begin.len() + end.len()))).into_bytes()
}

async fn limits(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let counts = Counts::new();
    let with = |path: &str, body: Vec<u8>| [post(path, body.len()), body].concat();
    // At the limit, the plan may be refused in favour of another page.
    let cases: [(Vec<u8>, &[u16]); 6] = [
        (head_of(LARGEST_HEAD - 1_024), &[200]),
        (head_of(2 * LARGEST_HEAD), &[431]),
        (with("/api/v1/plan", plan(LARGEST_PLAN, "#")), &[200, 503]),
        (with("/api/v1/plan", plan(LARGEST_PLAN + 1, "#")), &[413]),
        (with("/api/v1/log", filter_of(LARGEST_FILTER)), &[400]),
        (with("/api/v1/log", filter_of(LARGEST_FILTER + 1)), &[413]),
    ];
    loop {
        for (request, statuses) in &cases {
            counts.sent(request.len());
            // Log filters can only be changed from this machine.
            let status = ask(from_address(1, target.admin).await?, request).await?;
            let line = String::from_utf8_lossy(request.get(..40).unwrap_or_default()).into_owned();
            ensure!(statuses.contains(&status), "{} bytes of {line:?}: {status}", request.len());
            counts.status(status);
        }
        if deadline.passed() {
            return Ok(counts.tally());
        }
        tokio::time::sleep(REST).await;
    }
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
            counts.status(ask(socket, &request).await?);
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
