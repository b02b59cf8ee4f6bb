//! Attacks on the certificate service, by clients with and without an identity.

mod floods;
mod requests;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use futures::FutureExt;
use parking_lot::Mutex;

use super::crowd;
use crate::certificate::{Answer, ask, check};
use crate::dialer::Dialer;
use crate::wire::ACCOUNT;
use crate::{Attack, Counts, Deadline, Tally, Target};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "certificate-huge",
        what: "Certificate requests beyond the limit of bytes",
        run: |target, deadline| send(target, deadline, Case::of(requests::huge)).boxed(),
    },
    Attack {
        name: "certificate-messages",
        what: "Certificate requests that are compressed, cut, several, or announced as 4 MiB",
        run: |target, deadline| send(target, deadline, Case::of(requests::messages)).boxed(),
    },
    Attack {
        name: "certificate-malformed",
        what: "Certificate requests that are no PEM, no DER, no UTF-8 or no protobuf",
        run: |target, deadline| send(target, deadline, Case::of(requests::malformed)).boxed(),
    },
    Attack {
        name: "certificate-signatures",
        what: "Certificate requests that another key has signed, also for RSA of 8192 bits",
        run: |target, deadline| send(target, deadline, Case::of(requests::signatures)).boxed(),
    },
    Attack {
        name: "certificate-weak-keys",
        what: "Certificate requests for RSA of 1024 and 10240 bits, P-521 and Ed25519",
        run: |target, deadline| send(target, deadline, Case::of(requests::keys)).boxed(),
    },
    Attack {
        name: "certificate-costly-keys",
        what: "Certificate requests for RSA of 8192 bits, which are signed",
        run: |target, deadline| send(target, deadline, Case::of(requests::costly)).boxed(),
    },
    Attack {
        name: "certificate-names",
        what: "Certificate requests that claim 100 names, and identities of others",
        run: |target, deadline| send(target, deadline, Case::of(requests::names)).boxed(),
    },
    Attack {
        name: "certificate-extensions",
        what: "Certificate requests that claim to be an authority, with 60 further extensions",
        run: |target, deadline| send(target, deadline, Case::of(requests::extensions)).boxed(),
    },
    Attack {
        name: "certificate-lifetimes",
        what: "Certificate requests for a negative validity, and for one beyond the maximum",
        run: |target, deadline| send(target, deadline, Case::of(requests::lifetimes)).boxed(),
    },
    Attack {
        name: "certificate-impersonation",
        what: "Certificate requests for another identity in each form, also hidden behind an empty one",
        run: |target, deadline| send(target, deadline, Case::of(requests::impersonation)).boxed(),
    },
    Attack {
        name: "certificate-metadata",
        what: "Certificate requests with deep metadata, and with very many fields",
        run: |target, deadline| send(target, deadline, Case::of(requests::metadata)).boxed(),
    },
    Attack {
        name: "certificate-replays",
        what: "One certificate request, again and again",
        run: |target, deadline| send(target, deadline, Case::of(requests::good)).boxed(),
    },
    Attack {
        name: "certificate-paths",
        what: "Certificate requests to other methods, with other content types, and to the plaintext port",
        run: |target, deadline| {
            send(target, deadline, Case { senders: known_and_plaintext, calls: requests::paths }).boxed()
        },
    },
    Attack {
        name: "certificate-strangers",
        what: "Certificate requests without an identity, with junk tokens, and with certificates that are \
            expired, prove nothing or are of another trust domain",
        run: |target, deadline| {
            send(target, deadline, Case { senders: strangers, calls: requests::tokens }).boxed()
        },
    },
    Attack {
        name: "certificate-identity-flood",
        what: "Certificate requests of one identity from 16 addresses, beyond its rate",
        run: |target, deadline| floods::of_identity(target, deadline).boxed(),
    },
    Attack {
        name: "certificate-address-flood",
        what: "Certificate requests of 16 identities from one address, beyond its rate",
        run: |target, deadline| floods::of_address(target, deadline).boxed(),
    },
    Attack {
        name: "certificate-storm",
        what: "Certificate requests for RSA of 8192 bits, of 16 identities from 16 addresses",
        run: |target, deadline| floods::storm(target, deadline).boxed(),
    },
    Attack {
        name: "certificate-slow",
        what: "1,600 certificate requests of one identity from 10 addresses, byte by byte",
        run: |target, deadline| floods::slow(target, deadline).boxed(),
    },
    Attack {
        name: "certificate-half-open",
        what: "1,600 certificate requests of one identity from 10 addresses that never end",
        run: |target, deadline| floods::half_open(target, deadline).boxed(),
    },
    Attack {
        name: "certificate-unread",
        what: "1,600 certificates of one identity, from 10 addresses, that are not read",
        run: |target, deadline| floods::unread(target, deadline).boxed(),
    },
    Attack {
        name: "certificate-places",
        what: "1,600 watches of health by strangers from 10 addresses of the port for certificates",
        run: |target, deadline| floods::watches(target, deadline).boxed(),
    },
];

/// Number of concurrent attackers, and of their requests on a connection.
const SIZE: usize = 8;
const REQUESTS: usize = 20;
/// Last bytes of the attackers' addresses.
const ADDRESSES: u8 = 4;
const FIRST_ADDRESS: u8 = 100;

/// A request, and the beginning of its refusal; `None` if a certificate is signed.
#[derive(Clone)]
struct Call {
    path: &'static str,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
    refusal: Option<&'static str>,
}

/// A client with its service account. Its requests are refused with these words, or as each call says.
#[derive(Clone)]
struct Sender {
    dialer: Dialer,
    account: String,
    refusal: Option<&'static str>,
}

/// Clients and their requests.
#[derive(Clone, Copy)]
struct Case {
    senders: fn(&Target) -> Result<Vec<Sender>>,
    calls: fn() -> Result<Vec<Call>>,
}

impl Case {
    fn of(calls: fn() -> Result<Vec<Call>>) -> Self {
        Self { senders: |target| Ok(vec![stranger(target)?]), calls }
    }
}

/// Client with the certificate of `bench/stranger`.
fn stranger(target: &Target) -> Result<Sender> {
    Ok(Sender { dialer: Dialer::known(target)?, account: ACCOUNT.to_owned(), refusal: None })
}

fn known_and_plaintext(target: &Target) -> Result<Vec<Sender>> {
    let plaintext = Dialer::plaintext(target);
    Ok(vec![stranger(target)?, Sender { dialer: plaintext, account: String::new(), refusal: Some(STATUS) }])
}

/// Beginning of every refusal by a gRPC status.
const STATUS: &str = "grpc-status ";

fn strangers(target: &Target) -> Result<Vec<Sender>> {
    let sender = |dialer, refusal| Sender { dialer, account: String::new(), refusal: Some(refusal) };
    let with = |(chain, key): &(PathBuf, PathBuf)| {
        Dialer::with_certificate(target.tls_xds, &target.ca_certificate, chain, key)
    };
    let mut all = vec![
        // UNAUTHENTICATED, or UNAVAILABLE while tokens cannot be reviewed.
        sender(Dialer::nameless(target)?, "grpc-status 1"),
        sender(with(&target.foreign)?, "grpc-status 7"),
        // Its handshake fails.
        sender(with(&target.expired)?, "no gRPC status"),
    ];
    for unproven in &target.unproven {
        all.push(sender(with(unproven)?, "grpc-status 1"));
    }
    Ok(all)
}

/// Sends the requests of a case in turn from several addresses, and checks each response.
async fn send(target: Arc<Target>, deadline: Deadline, case: Case) -> Result<Tally> {
    let (counts, senders, calls) = (Counts::new(), (case.senders)(&target)?, (case.calls)()?);
    let wrong = Arc::new(Mutex::new(None));
    let shared = (counts.clone(), wrong.clone(), Arc::new((senders, calls)));
    crowd(SIZE, deadline, &counts, move |index| {
        let (counts, wrong, all) = shared.clone();
        async move {
            let (senders, calls) = &*all;
            let sender = senders.get(index % senders.len()).context("there are clients")?;
            let last = FIRST_ADDRESS + u8::try_from(index)? % ADDRESSES;
            let mut client = sender.dialer.clone().from(last).connect().await?;
            for call in calls.iter().cycle().take(REQUESTS.max(calls.len())) {
                counts.sent(call.body.len());
                let headers: Vec<_> =
                    call.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
                let answer = ask(&mut client, call.path, &headers, &call.body).await;
                let refusal = sender.refusal.or(call.refusal);
                if let Err(error) = judge(&answer, refusal, &sender.account) {
                    wrong.lock().get_or_insert(error);
                }
                match answer {
                    Ok(_) => counts.answered(),
                    // The connection is over.
                    Err(words) if !words.starts_with(STATUS) => bail!(words),
                    Err(words) => counts.refused(words),
                }
            }
            Ok(())
        }
    })
    .await;
    match wrong.lock().take() {
        Some(error) => Err(error),
        None => Ok(counts.tally()),
    }
}

/// Checks a response: a certificate for the client's own account, a refusal with these words, or one because
/// of a rate. Ends of a connection are no responses.
fn judge(answer: &Answer, refusal: Option<&str>, account: &str) -> Result<()> {
    match (answer, refusal) {
        (Ok(response), None) => check(response, account),
        (Ok(_), Some(words)) => Err(anyhow!("a certificate was signed, and {words:?} was expected")),
        (Err(words), _) if !words.starts_with(STATUS) || is_limited(words) => Ok(()),
        (Err(words), Some(expected)) if words.contains(expected) => Ok(()),
        (Err(words), expected) => Err(anyhow!("refused with {words:?}, and {expected:?} was expected")),
    }
}

/// True if a rate or a number of calls was the reason of a refusal.
fn is_limited(words: &str) -> bool {
    ["identity-certificates", "address-certificates", "identity-calls"]
        .iter()
        .any(|limit| words.contains(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unexpected_answers_are_found() {
        let limited = "grpc-status 8: too many (limit identity-certificates)".to_owned();
        let other = "grpc-status 3: not a certificate request".to_owned();
        let ended = "connection reset".to_owned();
        for (answer, refusal, is_fine) in [
            (Err(limited), None, true),
            (Err(other.clone()), Some("not a certificate"), true),
            (Err(ended), Some("not a certificate"), true),
            (Err(other.clone()), Some("malformed"), false),
            (Err(other), None, false),
            (Ok(vec![]), Some("malformed"), false),
            (Ok(vec![]), None, false),
        ] {
            assert_eq!(judge(&answer, refusal, "a").is_ok(), is_fine, "{answer:?}, {refusal:?}");
        }
    }

    #[test]
    fn each_request_can_be_made() {
        for calls in [
            requests::huge,
            requests::messages,
            requests::malformed,
            requests::signatures,
            requests::keys,
            requests::costly,
            requests::names,
            requests::extensions,
            requests::lifetimes,
            requests::impersonation,
            requests::metadata,
            requests::good,
            requests::paths,
            requests::tokens,
        ] {
            assert!(!calls().unwrap().is_empty());
        }
        assert!(ATTACKS.len() >= 20 && ATTACKS.iter().all(|attack| attack.name.starts_with("certificate-")));
    }
}
