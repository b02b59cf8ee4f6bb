//! TLS: identities of certificates, and tokens where there is no certificate.

use crate::harness::{Harness, deregister, eventually, instance, register};
use pilotfish_identity::{Authorities, Pem, ServerCertificate, Tls};
use pilotfish_registration::RegistrarSettings;
use pilotfish_registration_api::v1;
use pilotfish_registration_api::v1::registration_service_client::RegistrationServiceClient;
use pilotfish_registration_server::{ALPN, AccessFiles};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tonic::Code;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Certificate and key for a name.
    fn sign(&self, name: SanType) -> (String, String) {
        self.sign_with(name, CertificateParams::default())
    }

    fn sign_with(&self, name: SanType, mut params: CertificateParams) -> (String, String) {
        params.subject_alt_names = vec![name];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    fn spiffe(&self, id: &str) -> Identity {
        let (certificate, key) = self.sign(SanType::URI(id.try_into().unwrap()));
        Identity::from_pem(certificate, key)
    }
}

async fn start(authority: &Authority, access: AccessFiles) -> Harness {
    let (certificate, key) = authority.sign(SanType::DnsName("localhost".try_into().unwrap()));
    fn pem(text: &str) -> Pem<'_> {
        Pem { origin: "test", text: text.as_bytes() }
    }
    let certificate = ServerCertificate::from_pem(pem(&certificate), pem(&key)).unwrap();
    let root = authority.0.pem();
    let authorities = Authorities::from_pem(&[pem(&root)]).unwrap();
    let tls = Arc::new(Tls::new(certificate, authorities, ALPN).unwrap());
    Harness::with(RegistrarSettings::default(), |settings| {
        settings.tls = Some(tls);
        settings.access = access;
    })
    .await
}

async fn connect(
    harness: &Harness,
    authority: &Authority,
    identity: Option<Identity>,
) -> Result<RegistrationServiceClient<Channel>, String> {
    let mut tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(authority.0.pem()))
        .domain_name("localhost");
    if let Some(identity) = identity {
        tls = tls.identity(identity);
    }
    let endpoint =
        Endpoint::from_shared(format!("https://{}", harness.address)).unwrap().tls_config(tls).unwrap();
    let channel = endpoint.connect().await.map_err(|error| format!("{error:?}"))?;
    Ok(RegistrationServiceClient::new(channel))
}

#[tokio::test]
async fn certificates_are_identities() {
    let authority = Authority::new();
    let harness = start(&authority, AccessFiles::default()).await;
    let web = authority.spiffe("spiffe://cluster.local/ns/default/sa/web");
    let mut web = connect(&harness, &authority, Some(web)).await.unwrap();
    web.register(register("a")).await.unwrap();
    let key = v1::GetInstanceRequest { namespace: "default".into(), service: "web".into(), id: "a".into() };
    let record = web.get_instance(key).await.unwrap().into_inner().record.unwrap();
    assert_eq!(record.owner, "spiffe://cluster.local/ns/default/sa/web");

    let other = authority.spiffe("spiffe://cluster.local/ns/default/sa/other");
    let mut other = connect(&harness, &authority, Some(other)).await.unwrap();
    assert_eq!(other.deregister(deregister("a")).await.unwrap_err().code(), Code::PermissionDenied);

    let with_account = |account: &str| {
        let instance = v1::Instance { service_account: account.into(), ..instance("b") };
        v1::RegisterRequest { instance: Some(instance), expected_revision: None }
    };
    assert_eq!(
        other.register(with_account("web")).await.unwrap_err().code(),
        Code::PermissionDenied,
        "another's account"
    );
    other.register(with_account("other")).await.unwrap();
}

#[tokio::test]
async fn connections_end_when_the_certificate_of_their_client_expires() {
    let authority = Authority::new();
    let harness = start(&authority, AccessFiles::default()).await;
    let id = SanType::URI("spiffe://cluster.local/ns/default/sa/web".try_into().unwrap());
    let watching = async |seconds: u64| {
        let mut params = CertificateParams::default();
        let until = SystemTime::now() + Duration::from_secs(seconds);
        params.not_after = until.into();
        let (certificate, key) = authority.sign_with(id.clone(), params);
        let identity = Identity::from_pem(certificate, key);
        let mut client = connect(&harness, &authority, Some(identity)).await?;
        client.register(register("a")).await.map_err(|status| format!("{status:?}"))?;
        let watch = client.watch(v1::WatchRequest::default()).await;
        let watch = watch.map_err(|status| format!("{status:?}"))?.into_inner();
        Ok::<_, String>((client, watch))
    };
    // On a busy machine the first certificate may expire before the watch begins.
    let (_client, mut watch) = match watching(5).await {
        Ok(watching) => watching,
        Err(_) => watching(30).await.unwrap(),
    };
    let ended = loop {
        match watch.message().await {
            Ok(response) => assert!(response.is_some(), "it ends with a reason"),
            Err(status) => break status,
        }
    };
    assert_eq!(ended.code(), Code::Unavailable);
    assert!(ended.message().contains("has expired"), "{ended:?}");
    eventually("the connection is closed", || harness.heard.lock().connections == 0).await;
}

#[tokio::test]
async fn workloads_register_in_their_own_namespace_and_foreign_ones_nowhere() {
    let authority = Authority::new();
    let harness = start(&authority, AccessFiles::default()).await;
    let code = async |id: &str, namespace: &str, account: &str| {
        let mut client = connect(&harness, &authority, Some(authority.spiffe(id))).await.unwrap();
        let service_account = account.into();
        let instance = v1::Instance { namespace: namespace.into(), service_account, ..instance("a") };
        let request = v1::RegisterRequest { instance: Some(instance), expected_revision: None };
        client.register(request).await.map_or_else(|status| status.code(), |_| Code::Ok)
    };
    let web = "spiffe://cluster.local/ns/shop/sa/web";
    assert_eq!(code(web, "shop", "web").await, Code::Ok);
    assert_eq!(code(web, "default", "").await, Code::PermissionDenied);
    for foreign in ["spiffe://other.org/ns/shop/sa/web", "spiffe://cluster.local/shop/web"] {
        for account in ["", "web"] {
            assert_eq!(code(foreign, "shop", account).await, Code::PermissionDenied, "{foreign} {account:?}");
        }
    }
    assert_eq!(code("spiffe://cluster.local/ns/shop/sa/web?x=y", "shop", "").await, Code::Unauthenticated);
}

#[tokio::test]
async fn clients_without_a_certificate_need_a_token() {
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens.yaml");
    std::fs::write(&tokens, "tokens:\n- name: a\n  token: 0123456789abcdef\n").unwrap();
    let authority = Authority::new();
    let harness = start(&authority, AccessFiles { tokens: Some(tokens), rules: None }).await;
    let mut client = connect(&harness, &authority, None).await.unwrap();
    assert_eq!(client.register(register("a")).await.unwrap_err().code(), Code::Unauthenticated);
    let mut request = tonic::Request::new(register("a"));
    request.metadata_mut().insert("authorization", "Bearer 0123456789abcdef".parse().unwrap());
    client.register(request).await.unwrap();
}

#[tokio::test]
async fn certificates_of_strangers_and_plaintext_are_refused() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let harness = start(&authority, AccessFiles::default()).await;
    let identity = stranger.spiffe("spiffe://cluster.local/ns/default/sa/web");
    // TLS 1.3 tells a client of its refused certificate with the first answer.
    let refused = match connect(&harness, &authority, Some(identity)).await {
        Err(_) => true,
        Ok(mut client) => client.register(register("a")).await.is_err(),
    };
    assert!(refused);
    assert_eq!(harness.raw(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.status, 0);
    assert_eq!(harness.registrar.stats().counts.instances(), 0);
}
