//! Users with a password, and TLS on both ends.

use crate::support::{Followed, leased};
use pilotfish_registration::Store;
use pilotfish_testkit::real::{Authority, Etcd, EtcdTls};
use std::path::{Path, PathBuf};

#[tokio::test]
async fn users_log_in_and_need_no_more_than_their_prefix() {
    let Some(etcd) = Etcd::start().await else { return };
    for arguments in [
        &["user", "add", "root:top"][..],
        &["role", "add", "registration"],
        &[
            "role",
            "grant-permission",
            "--prefix=true",
            "registration",
            "readwrite",
            "/pilotfish/registration/",
        ],
        &["user", "add", "pilot:secret"],
        &["user", "grant-role", "pilot", "registration"],
        &["user", "grant-role", "root", "root"],
        &["auth", "enable"],
    ] {
        etcd.ctl(arguments).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "wrong\n").unwrap();
    let address = format!("http://127.0.0.1:{}?user=pilot&passwordFile={}", etcd.port(0), file.display());
    let store = Followed::start(&address);
    let fails = |text: &'static str| {
        let store = &store;
        async move {
            let end = tokio::time::Instant::now() + crate::support::LIMIT;
            loop {
                let trouble = store.store.describe().trouble.unwrap_or_default();
                assert!(!trouble.contains("wrong"), "{trouble}");
                if trouble.contains(text) {
                    return;
                }
                assert!(tokio::time::Instant::now() < end, "{text}: {trouble}");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    };
    fails("authentication failed").await;
    assert_eq!(store.told().resets, 0);
    std::fs::write(&file, "secret\n").unwrap();
    store.until("it is open", |told| told.resets == 1).await;
    store.put(leased("a", 2)).await;
    store.until("it lapses", |told| told.lapsed.len() == 1).await;
    assert_eq!(store.renew("a").await, Ok(()));
    let elsewhere = Followed::start(&format!("{address}&prefix=/other"));
    let end = tokio::time::Instant::now() + crate::support::LIMIT;
    while !elsewhere.store.describe().trouble.is_some_and(|trouble| trouble.contains("permission denied")) {
        assert!(tokio::time::Instant::now() < end, "{:?}", elsewhere.store.describe());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

fn write(folder: &Path, name: &str, (certificate, key): &(String, String)) -> (PathBuf, PathBuf) {
    let (pem, private) = (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
    std::fs::write(&pem, certificate).unwrap();
    std::fs::write(&private, key).unwrap();
    (pem, private)
}

#[tokio::test]
async fn tls_proves_both_ends() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, authority.root()).unwrap();
    let server = write(folder.path(), "server", &authority.server());
    let client = write(folder.path(), "client", &authority.client("pilot"));
    let tls = EtcdTls { server, ca: ca.clone(), client: Some(client.clone()) };
    let Some(etcd) = Etcd::start_with(1, Some(tls), &[]).await else { return };
    let address = format!("https://127.0.0.1:{}?caFile={}", etcd.port(0), ca.display());
    let with = format!("{address}&certFile={}&keyFile={}", client.0.display(), client.1.display());
    let store = Followed::open(&with).await;
    store.put(leased("a", 60)).await;
    assert_eq!(store.renew("a").await, Ok(()));
    let without = Followed::start(&address);
    let end = tokio::time::Instant::now() + crate::support::LIMIT;
    while without.store.describe().trouble.is_none_or(|trouble| trouble.contains("not read yet")) {
        assert!(tokio::time::Instant::now() < end);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(without.told().resets, 0);
}
