//! DNS lookups of gateways between networks, with the resolver of the machine, which supports `/etc/hosts`,
//! several servers and timeouts.

use super::{ControlMessage, LookupResult};
use std::net::ToSocketAddrs;
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};

/// Limit on concurrent lookups, each of which blocks a thread until the resolver gives up.
const MOST_LOOKUPS: usize = 8;

/// Looks up names for the control loop with the resolver of the machine, and sends it the results. Runs until
/// the control loop ends.
pub async fn resolve_gateways(
    names: mpsc::UnboundedReceiver<Arc<str>>,
    answers: mpsc::Sender<ControlMessage>,
) {
    run(names, answers, system).await;
}

/// Runs until the control loop ends. A name is requested again only after its result, so at most one lookup
/// of a name is pending.
async fn run(
    mut names: mpsc::UnboundedReceiver<Arc<str>>,
    answers: mpsc::Sender<ControlMessage>,
    lookup: fn(&str) -> LookupResult,
) {
    let free = Arc::new(Semaphore::new(MOST_LOOKUPS));
    while let Some(name) = names.recv().await {
        // The semaphore is never closed.
        let Ok(permit) = free.clone().acquire_owned().await else { return };
        let answers = answers.clone();
        // The resolver of the C library blocks. The permit moves to the thread, and is released with it.
        tokio::task::spawn_blocking(move || {
            let result = lookup(&name);
            drop(permit);
            // A closed channel means that the process is ending.
            let _ = answers.blocking_send(ControlMessage::GatewayName { name, result });
        });
    }
}

/// Looks up a name with the machine's resolver.
fn system(name: &str) -> LookupResult {
    // A trailing dot keeps the resolver from appending search domains to a full name.
    let absolute =
        if name.contains('.') && !name.ends_with('.') { format!("{name}.") } else { name.to_owned() };
    let found = (absolute.as_str(), 0).to_socket_addrs().map_err(|error| error.to_string())?;
    Ok(found.map(|address| address.ip()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    async fn answer(answers: &mut mpsc::Receiver<ControlMessage>) -> (String, LookupResult) {
        match answers.recv().await {
            Some(ControlMessage::GatewayName { name, result }) => (name.to_string(), result),
            _ => panic!("no answer"),
        }
    }

    #[tokio::test]
    async fn every_name_is_answered_however_many_there_are() {
        fn fake(name: &str) -> LookupResult {
            let number: u8 = name.parse().map_err(|_| "no such host".to_owned())?;
            Ok(vec![IpAddr::from([192, 0, 2, number])])
        }
        let (ask, names) = mpsc::unbounded_channel();
        let (sender, mut answers) = mpsc::channel(1);
        let task = tokio::spawn(run(names, sender, fake));
        for number in 0..50 {
            ask.send(number.to_string().into()).unwrap();
        }
        ask.send("x".into()).unwrap();
        let mut got = std::collections::BTreeMap::new();
        for _ in 0..51 {
            let (name, result) = answer(&mut answers).await;
            got.insert(name, result);
        }
        assert_eq!(got.len(), 51);
        assert_eq!(got["7"], Ok(vec![IpAddr::from([192, 0, 2, 7])]));
        assert_eq!(got["x"], Err("no such host".to_owned()));
        drop(ask);
        task.await.unwrap();
    }

    #[test]
    fn the_machines_resolver_knows_this_machine_and_no_invalid_name() {
        let found = system("localhost").unwrap();
        assert!(!found.is_empty() && found.iter().all(IpAddr::is_loopback), "{found:?}");
        // RFC 6761: never anybody's name.
        assert!(system("gateway.invalid").is_err());
    }
}
