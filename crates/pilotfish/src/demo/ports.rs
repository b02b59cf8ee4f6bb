//! Addresses of the demo, checked before anything is written or started.

use anyhow::{Result, bail};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};

/// Address that the demo listens on.
pub(super) struct Needed {
    /// Program that listens there: `Envoy`.
    pub(super) by: String,
    /// Address to listen on, as `HOST:PORT`.
    pub(super) address: String,
    /// Advice if the address is taken.
    pub(super) way_out: String,
}

/// Checks that every address is free. The demo binds them again afterwards.
///
/// # Errors
/// With all addresses that are taken, each with the program that needs it, and the advice.
pub(super) fn check(needed: &[Needed]) -> Result<()> {
    let taken: Vec<(&Needed, String)> =
        needed.iter().filter_map(|needed| Some((needed, failure(&needed.address)?))).collect();
    if taken.is_empty() {
        return Ok(());
    }
    let lines =
        taken.iter().map(|(needed, why)| format!("{} cannot listen on {}: {why}", needed.by, needed.address));
    let mut ways: Vec<&str> = Vec::new();
    for (needed, _) in &taken {
        if !ways.contains(&needed.way_out.as_str()) {
            ways.push(&needed.way_out);
        }
    }
    bail!("{}\nhint: {}", lines.collect::<Vec<_>>().join("\n"), ways.join("; "))
}

/// Reason why an address cannot be listened on. `None` for texts that are no address: the settings report
/// those.
fn failure(address: &str) -> Option<String> {
    let resolved: Vec<SocketAddr> = address.to_socket_addrs().ok()?.collect();
    let error = TcpListener::bind(&*resolved).err()?;
    Some(match error.kind() {
        ErrorKind::AddrInUse => "another program has this port".to_owned(),
        _ => error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed(by: &str, address: &str, way_out: &str) -> Needed {
        Needed { by: by.into(), address: address.into(), way_out: way_out.into() }
    }

    #[test]
    fn taken_addresses_are_named_together_with_the_flags_that_change_them() {
        let (one, other) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("0.0.0.0:0").unwrap());
        let one = one.local_addr().map(|address| (address.to_string(), one)).unwrap();
        let port = other.local_addr().unwrap().port();
        let wild = format!("127.0.0.1:{port}");
        let all = [
            needed("Envoy", &one.0, "--envoy-port names another port"),
            needed("xDS", "127.0.0.1:0", "unused"),
            needed("the admin API", &wild, "--admin-address names another address"),
            needed("a third", &wild, "--admin-address names another address"),
            needed("wrong", "nowhere", "unused"),
        ];
        let text = check(&all).unwrap_err().to_string();
        let expected = format!(
            "Envoy cannot listen on {}: another program has this port\n\
             the admin API cannot listen on {wild}: another program has this port\n\
             a third cannot listen on {wild}: another program has this port\n\
             hint: --envoy-port names another port; --admin-address names another address",
            one.0
        );
        assert_eq!(text, expected);
        assert!(check(&all[1..2]).is_ok());
        drop(other);
    }
}
