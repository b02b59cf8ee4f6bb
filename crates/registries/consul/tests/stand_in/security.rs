//! Tokens, rights and TLS.

use crate::support::{gone, instance, registry};
use pilotfish_consul::CONSUL;
use pilotfish_testkit::consul::{Acl, Consul, ConsulOptions, ConsulTls, Rights};
use pilotfish_testkit::real::{Authority, LiveRegistry};
use std::path::Path;

fn acl(hide_from_anonymous: bool) -> Option<Acl> {
    let tokens = [("all".to_owned(), Rights::management()), ("narrow".to_owned(), Rights::reader(&["web"]))];
    Some(Acl { tokens: tokens.into(), anonymous: Rights::default(), hide_from_anonymous })
}

fn write(file: &Path, text: &str) {
    std::fs::write(file, text).expect("the file can be written");
}

#[tokio::test]
async fn without_rights_nothing_is_in_sync_and_what_was_known_stays() {
    for hidden in [false, true] {
        let consul = Consul::plain().await;
        consul.register(&instance("web", 1));
        let before = registry(&consul, "wait=1s");
        before.until("it is there", |state| state.addresses() == ["10.0.0.1:8080"]).await;
        consul.set_acl(acl(hidden));
        before.fails("the token does not show everything").await;
        assert_eq!(before.fewest_endpoints(), 1);
        let after = registry(&consul, "");
        let state = after.fails("the token does not show everything").await;
        assert!(!state.synced, "an empty answer to a stranger is not all that there is");
        consul.set_acl(None);
        before.until("it is well again", |state| state.failure.is_none()).await;
        after.until("it is in sync", |state| state.synced && state.addresses() == ["10.0.0.1:8080"]).await;
    }
}

#[tokio::test]
async fn a_token_in_a_file_is_read_again() {
    let consul = Consul::start(ConsulOptions { acl: acl(false), ..ConsulOptions::default() }).await;
    consul.register(&instance("web", 1));
    consul.register(&instance("db", 2));
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("token");
    write(&file, "wrong\n");
    let registry = registry(&consul, &format!("wait=1s&tokenFile={}", file.display()));
    registry.fails("403 Forbidden: ACL not found").await;
    write(&file, "narrow\n");
    registry.until("what it may see", |state| state.synced && state.addresses() == ["10.0.0.1:8080"]).await;
    write(&file, "all\n");
    registry.until("everything", |state| state.addresses() == ["10.0.0.2:8080", "10.0.0.1:8080"]).await;
    let _ = registry.fewest_endpoints();
    // Back to the narrow one: what it does not show is not gone.
    write(&file, "narrow\n");
    registry.fails("the token does not show everything").await;
    assert_eq!(registry.fewest_endpoints(), 2);
    write(&file, "all\n");
    registry.until("it is well again", |state| state.failure.is_none()).await;
}

#[tokio::test]
async fn a_narrow_token_shows_what_goes() {
    let consul = Consul::start(ConsulOptions { acl: acl(false), ..ConsulOptions::default() }).await;
    for number in 1..=3 {
        consul.register(&instance("web", number));
    }
    consul.register(&instance("db", 9));
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("token");
    write(&file, "narrow");
    let registry = registry(&consul, &format!("tokenFile={}", file.display()));
    registry.until("it is there", |state| state.addresses().len() == 3).await;
    consul.deregister(&gone("web", 3));
    registry.until("one is gone", |state| state.addresses().len() == 2).await;
}

fn tls(authority: &Authority, (chain, key): (String, String), http2: bool, client: bool) -> ConsulTls {
    ConsulTls { chain, key, client_root: client.then(|| authority.root().to_owned()), http2 }
}

#[tokio::test]
async fn tls_with_and_without_a_certificate_of_the_client() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = |name: &str| folder.path().join(name);
    write(&file("ca.pem"), authority.root());
    let (cert, key) = authority.client("pilotfish");
    write(&file("cert.pem"), &cert);
    write(&file("key.pem"), &key);
    for http2 in [true, false] {
        let certificate = tls(&authority, authority.server(), http2, true);
        let consul =
            Consul::start(ConsulOptions { tls: Some(certificate), ..ConsulOptions::default() }).await;
        consul.register(&instance("web", 1));
        let ca = format!("caFile={}", file("ca.pem").display());
        let all =
            format!("{ca}&certFile={}&keyFile={}", file("cert.pem").display(), file("key.pem").display());
        let good = registry(&consul, &all);
        good.until("it is there", |state| state.addresses() == ["10.0.0.1:8080"]).await;
        consul.register(&instance("web", 2));
        good.until("it follows", |state| state.addresses().len() == 2).await;
        let stranger = registry(&consul, &ca);
        stranger.until("it is refused", |state| state.failure.is_some() && !state.synced).await;
        let distrustful = registry(&consul, "");
        distrustful.until("it refuses", |state| state.failure.is_some() && !state.synced).await;
        let plain = LiveRegistry::start(&CONSUL, &format!("http://{}", consul.address()));
        plain.until("it is no plain HTTP", |state| state.failure.is_some() && !state.synced).await;
    }
}

#[tokio::test]
async fn an_expired_certificate_takes_nothing_away() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().expect("a folder can be made");
    let ca = folder.path().join("ca.pem");
    write(&ca, authority.root());
    let good = tls(&authority, authority.server(), true, false);
    let mut consul =
        Consul::start(ConsulOptions { tls: Some(good.clone()), ..ConsulOptions::default() }).await;
    consul.register(&instance("web", 1));
    let registry = registry(&consul, &format!("caFile={}", ca.display()));
    registry.until("it is there", |state| state.addresses() == ["10.0.0.1:8080"]).await;
    consul.kill().await;
    consul.set_tls(&tls(&authority, authority.expired("spiffe://example.org/consul"), true, false));
    consul.resume().await;
    registry.fails("no TLS with").await;
    assert_eq!(registry.fewest_endpoints(), 1);
    consul.kill().await;
    consul.set_tls(&good);
    consul.resume().await;
    consul.register(&instance("web", 2));
    registry.until("it follows again", |state| state.failure.is_none() && state.addresses().len() == 2).await;
}
