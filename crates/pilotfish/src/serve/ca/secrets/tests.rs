use super::super::service::IDENTITY_CERTIFICATES;
use super::super::tests::{Service, WEB};
use super::*;
use parking_lot::Mutex;
use pilotfish_ca::{Authority, AuthorityPem, SelfSigned};
use pilotfish_control_plane::resources::Resources;
use pilotfish_identity::{Pem, spiffe_ids};
use pilotfish_proto::ResourceType;
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use pilotfish_registry::testing::Scene;
use pilotfish_translate::Translator;
use pilotfish_xds::{Fanout, NoRecorder, PeerInfo, Protocol, Stream, StreamLimits};
use rcgen::KeyPair;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use tempfile::TempDir;

const DAY: Duration = Duration::from_secs(86_400);

/// A control plane with an authority, without its task.
struct Plane {
    _folder: TempDir,
    secrets: Arc<WorkloadSecrets>,
    fanout: Arc<Fanout<Resources>>,
}

/// Stream of an Envoy that subscribes to its Secrets.
struct Envoy(Arc<Mutex<Stream<Resources>>>);

/// Contents of a response: the chain and key of `default`, and the roots.
#[derive(Default)]
struct Sent {
    certificate: Option<(String, String)>,
    roots: Option<String>,
}

impl Plane {
    async fn new() -> Self {
        let (service, folder) = Service::new().await.into_parts();
        let secrets = Arc::new(WorkloadSecrets::new(Arc::new(service)));
        let hooks: Vec<Box<dyn ConnectHook>> = vec![Box::new(WorkloadSecretsHook(secrets.clone()))];
        let resources = Arc::new(Resources::new(Arc::new(Translator::new()), true, hooks));
        resources.set_ready();
        let fanout = Fanout::new(resources, Arc::new(NoRecorder), StreamLimits::default());
        Self { _folder: folder, secrets, fanout }
    }

    fn connect(&self, identities: &[&str]) -> Envoy {
        let identities = identities.iter().map(|identity| (*identity).to_owned()).collect();
        let address = "127.0.0.1:4000".parse().unwrap();
        let peer = PeerInfo { address, identities, ..PeerInfo::default() };
        let stream = self.fanout.open(Protocol::Sotw, peer);
        let id = "sidecar~10.0.0.1~web-0.shop~shop.svc.cluster.local".to_owned();
        let request = DiscoveryRequest {
            node: Some(Node { id, ..Node::default() }),
            type_url: ResourceType::Secret.type_url().into(),
            resource_names: vec![ROOTS.into(), CERTIFICATE.into()],
            ..DiscoveryRequest::default()
        };
        stream.lock().on_message(&request.encode_to_vec(), Instant::now()).unwrap();
        Envoy(stream)
    }

    /// Makes the certificates that are due, and returns their number.
    fn make_until(&self, now: Instant) -> usize {
        let due = std::iter::from_fn(|| self.secrets.next(now));
        due.map(|order| self.secrets.make(&order, now, SystemTime::now())).count()
    }
}

impl Envoy {
    /// The next response.
    fn next(&self) -> Option<Sent> {
        let frame = self.0.lock().poll_response(Instant::now())?.concat();
        let response = DiscoveryResponse::decode(&frame[5..]).unwrap();
        let mut sent = Sent::default();
        let text = |source: Option<DataSource>| match source.unwrap().specifier.unwrap() {
            Specifier::InlineBytes(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        };
        for resource in response.resources {
            let secret = tls::Secret::decode(&*resource.value).unwrap();
            match (secret.name.as_str(), secret.r#type.unwrap()) {
                (CERTIFICATE, tls::secret::Type::TlsCertificate(own)) => {
                    sent.certificate = Some((text(own.certificate_chain), text(own.private_key)));
                }
                (ROOTS, tls::secret::Type::ValidationContext(context)) => {
                    sent.roots = Some(text(context.trusted_ca));
                }
                other => panic!("{other:?}"),
            }
        }
        Some(sent)
    }
}

#[tokio::test]
async fn proven_client_is_sent_a_key_of_its_own_and_a_new_one_after_half_of_its_life() {
    let plane = Plane::new().await;
    let [one, two] = [plane.connect(&[WEB]), plane.connect(&[WEB])];
    assert!(one.next().is_none() && two.next().is_none(), "keys are not made on the streams' thread");
    let now = Instant::now();
    assert_eq!(plane.make_until(now), 2);
    let [first, other] = [&one, &two].map(|envoy| envoy.next().unwrap());
    assert_eq!(first.roots, Some(plane.secrets.service.ca().roots_pem()));
    let (chain, key) = first.certificate.unwrap();
    let leaf = CertificateDer::from_pem_slice(chain.as_bytes()).unwrap();
    assert_eq!(spiffe_ids(Some(&[leaf])).unwrap().identities, [WEB]);
    KeyPair::from_pem(&key).unwrap();
    assert_ne!(other.certificate.unwrap().1, key, "each stream has a key of its own");
    let status = one.0.lock().status().unwrap().certificate.unwrap();
    assert_eq!(&*status.identity, WEB);
    let left = status.expires.duration_since(SystemTime::now()).unwrap();
    assert!(left <= DAY && left > DAY - Duration::from_secs(600), "{left:?}");
    let half = now + DAY / 2;
    assert_eq!(plane.make_until(half - Duration::from_secs(2)), 0);
    assert_eq!(plane.make_until(half), 2);
    let renewed = one.next().unwrap();
    assert!(renewed.roots.is_none() && renewed.certificate.unwrap().1 != key);
    drop((one, two));
    assert_eq!(plane.make_until(half + DAY), 0, "clients that left are forgotten");
    assert!(plane.secrets.clients.lock().by_number.is_empty());
}

#[tokio::test]
async fn client_without_a_proven_identity_of_the_mesh_is_sent_nothing() {
    let plane = Plane::new().await;
    let other = "spiffe://other/ns/shop/sa/web";
    // Its node is trusted, as with `--trust-nodes`.
    for identities in [&[][..], &[other], &[WEB, WEB]] {
        let envoy = plane.connect(identities);
        assert_eq!(plane.make_until(Instant::now()), 0);
        let sent = envoy.next().unwrap();
        assert!(sent.certificate.is_none() && sent.roots.is_none(), "{identities:?}");
    }
}

#[tokio::test]
async fn certificate_that_cannot_be_made_is_made_later() {
    let plane = Plane::new().await;
    let envoy = plane.connect(&[WEB]);
    assert!(envoy.next().is_none());
    let now = Instant::now();
    let order = plane.secrets.next(now).unwrap();
    plane.secrets.make(&order, now, SystemTime::now() + DAY * 365 * 20);
    let sent = envoy.next().unwrap();
    assert!(sent.roots.is_some() && sent.certificate.is_none(), "the authority has expired by then");
    assert_eq!(plane.make_until(now), 0, "the next try waits");
    assert_eq!(plane.make_until(now + Duration::from_secs(10)), 1);
    assert!(envoy.next().unwrap().certificate.is_some());
}

#[tokio::test]
async fn client_waits_for_a_slow_signer() {
    let plane = Plane::new().await;
    let envoy = plane.connect(&[WEB]);
    assert!(envoy.next().is_none());
    let now = Instant::now();
    let order = plane.secrets.next(now).unwrap();
    let wait = Duration::from_secs(10);
    let late = Refused { status: tonic::Status::unavailable("not signed within 30 s"), wait };
    plane.secrets.made(&order, Err(late), now, SystemTime::now());
    assert!(envoy.next().is_none());
    assert_eq!(plane.make_until(now + wait), 1);
    assert!(envoy.next().unwrap().certificate.is_some());
}

// Each 5 ms bring another request.
#[tokio::test(start_paused = true)]
async fn certificates_over_sds_count_as_requests() {
    let plane = Plane::new().await;
    let service = &plane.secrets.service;
    let limited = (0..IDENTITY_CERTIFICATES * 20).find(|_| service.admit_identity(WEB).is_err());
    assert!(limited.is_some());
    let make = || service.workload(WEB, "192.0.2.1".parse().unwrap(), SystemTime::now());
    let refused = (0..1_000).find_map(|_| make().err()).unwrap();
    assert_eq!(refused.status.code(), tonic::Code::ResourceExhausted);
    assert!(refused.wait > Duration::ZERO);

    // A client beyond the limit waits: an answer without a certificate would be final for its listeners.
    // Tokens come back with time, so another one may be served first.
    let waits = (0..1_000).any(|_| {
        let envoy = plane.connect(&[WEB]);
        assert!(envoy.next().is_none());
        let now = Instant::now();
        let order = plane.secrets.next(now).unwrap();
        while service.admit_identity(WEB).is_ok() {}
        plane.secrets.make(&order, now, SystemTime::now());
        envoy.next().is_none()
    });
    assert!(waits);
}

/// Puts an authority in force that has these texts.
fn put_in_force(plane: &Plane, made: &SelfSigned, roots: &str) {
    let pem = |text| Pem { origin: "new", text };
    let texts = AuthorityPem {
        certificate: pem(made.certificate.as_bytes()),
        key: pem(made.key.as_bytes()),
        chain: None,
        roots: Some(pem(roots.as_bytes())),
    };
    let authority = Authority::from_pem(&texts, SystemTime::now()).unwrap();
    plane.secrets.service.ca().put_in_force(Issuer::Own(Box::new(authority)), SystemTime::now()).unwrap();
}

#[tokio::test]
async fn another_authority_replaces_roots_and_certificates() {
    let plane = Plane::new().await;
    let envoy = plane.connect(&[WEB]);
    assert!(envoy.next().is_none());
    let now = Instant::now();
    plane.secrets.follow_authority(now);
    plane.make_until(now);
    let first = envoy.next().unwrap();
    plane.secrets.follow_authority(now);
    assert!(envoy.next().is_none() && plane.make_until(now) == 0, "nothing changed");
    let made = SelfSigned::create(SystemTime::now()).unwrap();
    put_in_force(&plane, &made, &made.certificate);
    plane.secrets.follow_authority(now);
    let roots = envoy.next().unwrap();
    assert!(roots.roots == Some(plane.secrets.service.ca().roots_pem()) && roots.roots != first.roots);
    assert!(roots.certificate.is_none());
    assert_eq!(plane.make_until(now), 1);
    let renewed = envoy.next().unwrap().certificate.unwrap();
    assert_ne!(renewed.1, first.certificate.unwrap().1);

    // Further roots alone are no reason for a new key.
    let further = SelfSigned::create(SystemTime::now()).unwrap();
    put_in_force(&plane, &made, &(made.certificate.clone() + &further.certificate));
    plane.secrets.follow_authority(now);
    let sent = envoy.next().unwrap();
    assert!(sent.certificate.is_none() && sent.roots == Some(plane.secrets.service.ca().roots_pem()));
    assert_eq!(plane.make_until(now), 0);
    assert_eq!(plane.make_until(now + DAY / 2), 1, "the renewal is still due");
}

#[tokio::test]
async fn roots_of_the_mesh_are_sent_with_those_of_the_authority() {
    let plane = Plane::new().await;
    let [one, other] = [(); 2].map(|()| SelfSigned::create(SystemTime::now()).unwrap().certificate);
    let mut scene = Scene::default();
    let mut set = |authorities: serde_json::Value| {
        scene.set_mesh(&json!({"caCertificates": authorities}).to_string()).unwrap();
        scene.settle();
        plane.secrets.service.shared.publish(scene.world());
    };
    set(json!([{"pem": one}]));
    let envoy = plane.connect(&[WEB]);
    assert!(envoy.next().is_none());
    let now = Instant::now();
    assert_eq!(plane.make_until(now), 1);
    let own = plane.secrets.service.ca().roots_pem();
    assert_eq!(envoy.next().unwrap().roots, Some(format!("{own}{one}")));
    set(json!([{"pem": one}, {"pem": other}]));
    plane.secrets.follow_authority(now);
    let sent = envoy.next().unwrap();
    assert!(sent.certificate.is_none(), "no new key");
    assert_eq!(sent.roots, Some(format!("{own}{one}{other}")));
    // Until the first try to read a bundle has ended, the roots stay; a new proxy waits for it.
    set(json!([{"spiffeBundleUrl": "https://other.test/"}]));
    plane.secrets.follow_authority(now);
    assert!(envoy.next().is_none());
    set(json!([]));
    plane.secrets.follow_authority(now);
    assert_eq!(envoy.next().unwrap().roots, Some(own.clone()));
    // A proxy that is the first again is sent the roots of its time.
    drop(envoy);
    set(json!([{"pem": other}]));
    let envoy = plane.connect(&[WEB]);
    assert!(envoy.next().is_none());
    assert_eq!(plane.make_until(Instant::now()), 1);
    assert_eq!(envoy.next().unwrap().roots, Some(format!("{own}{other}")));
}

#[tokio::test]
async fn new_clients_are_ahead_of_renewals() {
    let plane = Plane::new().await;
    let old = [plane.connect(&[WEB]), plane.connect(&[WEB])];
    assert!(old.iter().all(|envoy| envoy.next().is_none()));
    let now = Instant::now();
    assert_eq!(plane.make_until(now), 2);
    let made = SelfSigned::create(SystemTime::now()).unwrap();
    put_in_force(&plane, &made, &made.certificate);
    plane.secrets.follow_authority(now);
    let new = plane.connect(&[WEB]);
    assert!(new.next().is_none());
    let later = Instant::now();
    let first = plane.secrets.next(later).unwrap();
    plane.secrets.make(&first, later, SystemTime::now());
    assert!(new.next().unwrap().certificate.is_some());
    assert_eq!(plane.make_until(later), old.len());
}

#[tokio::test]
async fn identity_has_a_part_of_the_turns_of_an_external_signer() {
    const CART: &str = "spiffe://cluster.local/ns/shop/sa/cart";
    let plane = Plane::new().await;
    let connect = |identity| {
        let envoy = plane.connect(&[identity]);
        assert!(envoy.next().is_none());
        envoy
    };
    let mut web: Vec<_> = (0..OF_IDENTITY + 3).map(|_| connect(WEB)).collect();
    let _cart = connect(CART);
    let now = Instant::now();
    let next = || plane.secrets.next_with_place(now).map(|(order, place)| (order.identity, place));
    let mut taken: Vec<_> = std::iter::from_fn(next).collect();
    let identities: Vec<_> = taken.iter().map(|(identity, _)| &**identity).collect();
    assert_eq!(identities, [&[WEB; OF_IDENTITY][..], &[CART]].concat(), "the others of one are held");
    // One of those that are held has gone, and is no turn.
    web.remove(OF_IDENTITY);
    let (identity, place) = taken.swap_remove(0);
    drop(place);
    plane.secrets.readmit(&identity);
    let (again, _place) = next().unwrap();
    assert_eq!(again, identity);
    assert!(next().is_none());
    plane.secrets.readmit(&identity);
    assert!(next().is_none(), "it is held again");
    drop(web);
    assert!(plane.secrets.clients.lock().queue.held.is_empty());
}

#[tokio::test]
async fn revocation_lists_are_sent_with_the_roots() {
    use rcgen::{
        BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer as Signer,
        KeyIdMethod, KeyUsagePurpose, date_time_ymd,
    };
    let plane = Plane::new().await;
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key).unwrap().pem();
    let list = CertificateRevocationListParams {
        this_update: date_time_ymd(2024, 1, 1),
        next_update: date_time_ymd(2090, 1, 1),
        crl_number: 1_u64.into(),
        issuing_distribution_point: None,
        revoked_certs: Vec::new(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let list = list.signed_by(&Signer::from_params(&params, &key)).unwrap().pem().unwrap();
    let private = key.serialize_pem();
    let pem = |text: &'static str| Pem { origin: "new", text: text.as_bytes() };
    let [certificate, private] = [certificate, private].map(|text| -> &'static str { text.leak() });
    let texts = AuthorityPem { certificate: pem(certificate), key: pem(private), chain: None, roots: None };
    let now = SystemTime::now();
    let plain = Issuer::Own(Box::new(Authority::from_pem(&texts, now).unwrap()));
    let plain = secret_of_roots(&plain, &FurtherRoots::default());
    let envoy = plane.connect(&[WEB]);
    assert!(envoy.next().is_none());
    let list = Pem { origin: "list", text: list.as_bytes() };
    let with_list = Authority::from_pem(&texts, now).unwrap().with_revocations(list, now).unwrap();
    plane.secrets.service.ca().put_in_force(Issuer::Own(Box::new(with_list)), now).unwrap();
    plane.secrets.follow_authority(Instant::now());
    let sent = plane.secrets.clients.lock().roots.secret.clone().unwrap();
    assert_ne!(sent.version, plain.version);
    let any = prost_types::Any::decode(&*sent.body).unwrap();
    let secret = tls::Secret::decode(&*any.value).unwrap();
    let Some(tls::secret::Type::ValidationContext(context)) = secret.r#type else { panic!("{secret:?}") };
    let Some(Specifier::InlineBytes(bytes)) = context.crl.unwrap().specifier else { panic!("not inline") };
    assert!(bytes.starts_with(b"-----BEGIN X509 CRL-----"));
}
