//! Forged tokens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::FutureExt;
use pilotfish_proto::ResourceType;

use crate::attacks::crowd;
use crate::dialer::{DELTA, Dialer};
use crate::wire::{Node, delta};
use crate::{Attack, Counts, Deadline, Tally, Target};

pub(super) const ATTACKS: &[Attack] = &[Attack {
    name: "junk-tokens",
    what: "Streams with tokens that nobody gave out, each another one: junk, and such as only an API server \
        can refuse",
    run: |target, deadline| junk_tokens(target, deadline).boxed(),
}];

/// Refused tokens of an address that reach the API server per second; the burst is as large.
const REVIEWS_PER_SECOND: u64 = 10;

fn token(number: u64) -> String {
    match number % 3 {
        0 => format!("junk-{number}"),
        form => {
            let audience = if form == 1 { "istio-ca" } else { "others" };
            let claims = serde_json::json!({
                "iss": "https://kubernetes.default.svc.cluster.local", "aud": [audience],
                "exp": 4_102_444_800_u64,
                "sub": format!("system:serviceaccount:bench:stranger-{number}"), "jti": number,
            });
            let encode = |text: String| URL_SAFE_NO_PAD.encode(text);
            let head = encode("{\"alg\":\"RS256\",\"kid\":\"x\"}".to_owned());
            format!("{head}.{}.{}", encode(claims.to_string()), encode("x".repeat(256)))
        }
    }
}

async fn junk_tokens(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    if target.webhook.is_none() {
        return Ok(Tally::skipped("there is no API server that could review tokens"));
    }
    let began = Instant::now();
    let (counts, dialer, next) = (Counts::new(), Dialer::nameless(&target)?, Arc::new(AtomicU64::new(0)));
    let shared = counts.clone();
    crowd(8, deadline, &counts, move |index| {
        let (counts, dialer, next) = (shared.clone(), dialer.clone(), next.clone());
        async move {
            let mut client = dialer.connect().await?;
            let first = delta(Some(&Node::numbered(index)), ResourceType::Cluster.type_url(), &[], &[]);
            for _ in 0..100 {
                let bearer = format!("Bearer {}", token(next.fetch_add(1, Ordering::Relaxed)));
                let mut stream = client.open(DELTA, &[("authorization", &bearer)]).await?;
                // A refused stream accepts no data.
                let _ = stream.send(&first);
                counts.sent(bearer.len());
                let words = stream.end().await;
                anyhow::ensure!(!words.is_empty() && words != "ended well", "a junk token was accepted");
                counts.refused(words);
            }
            Ok(())
        }
    })
    .await;
    let tally = counts.tally();
    let reviewed = tally.refusals.iter().filter(|(words, _)| words.contains("the token is not accepted"));
    let reviewed: u64 = reviewed.map(|(_, count)| count).sum();
    let allowed = REVIEWS_PER_SECOND * (began.elapsed().as_secs() + 2);
    anyhow::ensure!(
        reviewed <= allowed,
        "the API server was asked about {reviewed} junk tokens, not {allowed}"
    );
    Ok(tally)
}
