use super::files::AuthorityFiles;
use super::messages::{IstioCertificateRequest, IstioCertificateResponse};
use super::service::{ADDRESS_CERTIFICATES, IDENTITY_CERTIFICATES};
use super::*;
use crate::settings::{AdminArgs, CaArgs, RegistrationArgs, ServeArgs, SourceArgs, TlsArgs};
use pilotfish_admin_state::{AuthorityOperations, PrometheusRecorder};
use pilotfish_ca::SelfSigned;
use pilotfish_control_plane::control::Shared;
use pilotfish_identity::spiffe_ids;
use pilotfish_registry::RegistryTable;
use pilotfish_xds::UnaryMethod;
use prost::Message;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use tempfile::TempDir;
use tonic::{Code, Status};

pub(super) const WEB: &str = "spiffe://cluster.local/ns/shop/sa/web";

pub(super) fn settings(ca: &str, data: &Path) -> Settings {
    args(ca, data).check(RegistryTable::default()).unwrap()
}

fn args(ca: &str, data: &Path) -> ServeArgs {
    ServeArgs {
        ca: CaArgs { ca: Some(ca.to_owned()), ..CaArgs::default() },
        sources: SourceArgs { paths: vec![".".into()], ..SourceArgs::default() },
        registration: RegistrationArgs { data_dir: Some(data.to_owned()), ..RegistrationArgs::default() },
        tls: TlsArgs {
            secure_xds_address: Some("127.0.0.1:0".into()),
            ca_cert_files: vec!["Cargo.toml".into()],
            ..TlsArgs::default()
        },
        ..ServeArgs::default()
    }
}

async fn open(ca: &str, data: &Path) -> Result<(Arc<Ca>, CaReload)> {
    let metrics = Arc::new(Metrics::new("test").unwrap());
    open_with(ca, data, &metrics).await
}

/// Opens an authority in files.
async fn open_with(ca: &str, data: &Path, metrics: &Arc<Metrics>) -> Result<(Arc<Ca>, CaReload)> {
    let settings = settings(ca, data);
    let own = settings.ca.as_ref().unwrap();
    let now = SystemTime::now();
    let files = match &own.source {
        CaSource::SelfSigned(folder) => AuthorityFiles::self_signed(folder, now)?,
        CaSource::Files(folder) => AuthorityFiles::Folder(folder.clone()),
        CaSource::Secret | CaSource::Signer { .. } => unreachable!(),
    };
    Ca::with_source(&settings, own, (AuthoritySource::Files(files), None), metrics, now).await
}

async fn step(reload: &mut CaReload, now: SystemTime) {
    let read = reload.source.read(&FileReader::default()).await;
    reload.step(read, now);
}

fn write_key(path: &Path, key: &str) {
    fs::write(path, key).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

fn write(folder: &TempDir, made: &SelfSigned) {
    fs::write(folder.path().join("ca-cert.pem"), &made.certificate).unwrap();
    write_key(&folder.path().join("ca-key.pem"), &made.key);
}

fn names_in(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
fn processes_that_start_at_once_in_one_folder_share_a_root() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let start = std::sync::Barrier::new(4);
        let open = || {
            start.wait();
            let now = SystemTime::now();
            let texts = AuthorityFiles::self_signed(folder.path(), now).unwrap().read().unwrap();
            texts.authority(now).unwrap().roots_pem()
        };
        let roots = std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(open));
            BTreeSet::from(threads.map(|thread| thread.join().unwrap()))
        });
        assert_eq!(roots.len(), 1);
        assert_eq!(names_in(folder.path()), ["ca.lock", "ca.pem"]);
    }
}

#[test]
fn key_that_a_crash_left_is_removed_at_the_next_start() {
    let (folder, now) = (tempfile::tempdir().unwrap(), SystemTime::now());
    let unfinished = folder.path().join("ca.new");
    for _ in 0..2 {
        // Before there is a root, and at its replacement.
        write_key(&unfinished, "-----BEGIN PRIVATE KEY-----\n");
        AuthorityFiles::self_signed(folder.path(), now).unwrap().read().unwrap();
        assert_eq!(names_in(folder.path()), ["ca.lock", "ca.pem"]);
    }
}

#[test]
fn state_that_was_changed_or_cannot_be_read_is_not_replaced() {
    let (folder, now) = (tempfile::tempdir().unwrap(), SystemTime::now());
    AuthorityFiles::self_signed(folder.path(), now).unwrap();
    let path = folder.path().join("ca.pem");
    let before = files::read_state(&path).unwrap();
    let after = before.begin(Duration::from_secs(60), now).unwrap();
    files::replace_state(&path, &before, &after).unwrap();
    let error = files::replace_state(&path, &before, &after).unwrap_err().to_string();
    assert!(error.contains("was changed in the meantime"), "{error}");
    fs::write(&path, "no authority").unwrap();
    files::replace_state(&path, &after, &before).unwrap_err();
    assert_eq!(fs::read_to_string(&path).unwrap(), "no authority");
    assert_eq!(names_in(folder.path()), ["ca.lock", "ca.pem"]);
}

#[tokio::test]
async fn self_signed_root_is_kept_for_this_user_only() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("new/data");
    let (first, _) = open("self-signed", &data).await.unwrap();
    let path = data.join("ca.pem");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(&data).unwrap().mode() & 0o777, 0o700);
    assert_eq!(names_in(&data), ["ca.lock", "ca.pem"]);
    let (second, _) = open("self-signed", &data).await.unwrap();
    assert_eq!(first.roots_pem(), second.roots_pem(), "a restart keeps the root");
    for mode in [0o640, 0o604, 0o660] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = format!("{:#}", open("self-signed", &data).await.err().unwrap());
        assert!(error.contains(&format!("(mode {mode:03o}): chmod 600")), "{error}");
    }
}

#[tokio::test]
async fn folder_has_the_names_of_istio_or_of_cert_manager() {
    let now = SystemTime::now();
    let made = SelfSigned::create(now).unwrap();
    for names in [["ca-cert.pem", "ca-key.pem", "root-cert.pem"], ["tls.crt", "tls.key", "ca.crt"]] {
        let folder = tempfile::tempdir().unwrap();
        let missing = open(&format!("files={}", folder.path().display()), folder.path()).await;
        let error = format!("{:#}", missing.err().unwrap());
        assert!(error.contains("neither ca-cert.pem and ca-key.pem nor tls.crt and tls.key"), "{error}");
        for (name, text) in names.into_iter().zip([&made.certificate, &made.key, &made.certificate]) {
            write_key(&folder.path().join(name), text);
        }
        let files = AuthorityFiles::Folder(folder.path().to_owned());
        let texts = files.read().unwrap();
        let der = |text: &str| CertificateDer::from_pem_slice(text.as_bytes()).unwrap();
        assert_eq!(der(&texts.authority(now).unwrap().roots_pem()), der(&made.certificate));
        for (mode, good) in [(0o400, true), (0o440, true), (0o640, true), (0o644, false), (0o460, false)] {
            let key = folder.path().join(names[1]);
            fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
            let read = files.read().map(|_| ()).map_err(|error| format!("{error:#}"));
            assert_eq!(read.is_ok(), good, "{mode:o}: {read:?}");
            let expected = format!("(mode {mode:03o}): chmod 640 {}, or defaultMode: 0440", key.display());
            assert!(read.is_ok() || read.unwrap_err().contains(&expected), "{mode:o}");
        }
    }
}

#[tokio::test]
async fn new_files_are_put_in_force_and_broken_ones_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    let (one, two) = (SelfSigned::create(now).unwrap(), SelfSigned::create(now).unwrap());
    write(&folder, &one);
    let (ca, mut reload) = open(&format!("files={}", folder.path().display()), folder.path()).await.unwrap();
    let (first, serving) = (ca.roots_pem(), format!("{:p}", ca.serving.as_ref().unwrap().current()));
    let mut state = async || {
        step(&mut reload, now).await;
        (
            ca.roots_pem(),
            format!("{:p}", ca.serving.as_ref().unwrap().current()),
            ca.metrics.ca.files_refused.get(),
        )
    };
    assert_eq!(state().await, (first.clone(), serving.clone(), 0), "nothing changed");
    write_key(&folder.path().join("ca-key.pem"), &two.key);
    assert_eq!(state().await, (first.clone(), serving.clone(), 0), "the certificate may follow");
    assert_eq!(state().await, (first.clone(), serving.clone(), 1));
    fs::write(folder.path().join("ca-cert.pem"), &two.certificate).unwrap();
    let (roots, renewed, refused) = state().await;
    assert!(roots != first && renewed != serving && refused == 0);
}

/// An authority, and lists of it that are valid until these years.
fn with_lists(years: [i32; 2]) -> (SelfSigned, [String; 2]) {
    use rcgen::{CertificateRevocationListParams, Issuer, KeyIdMethod, KeyUsagePurpose, date_time_ymd};
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::from_params(&params, &key);
    let lists = years.map(|year| {
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(year, 1, 1),
            crl_number: 1_u64.into(),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&issuer).unwrap().pem().unwrap()
    });
    (SelfSigned { certificate, key: key.serialize_pem() }, lists)
}

#[tokio::test]
async fn lists_that_expire_stay_in_force_and_are_a_failure_also_after_a_restart() {
    let (folder, metrics) = (tempfile::tempdir().unwrap(), Arc::new(Metrics::new("test").unwrap()));
    let (made, [expired, good]) = with_lists([2025, 2060]);
    write(&folder, &made);
    let path = folder.path().join("ca-crl.pem");
    fs::write(&path, &expired).unwrap();
    let source = format!("files={}", folder.path().display());
    let (ca, mut reload) = open_with(&source, folder.path(), &metrics).await.unwrap();
    let state = || (ca.view().failure, ca.metrics.ca.files_refused.get());
    let has_expired = |(failure, refused): (Option<String>, i64)| {
        assert!(failure.as_ref().is_some_and(|reason| reason.contains("a list has expired")), "{failure:?}");
        assert_eq!(refused, 1);
    };
    has_expired(state());
    let now = SystemTime::now();
    step(&mut reload, now).await;
    has_expired(state());
    fs::write(&path, &good).unwrap();
    step(&mut reload, now).await;
    assert_eq!(state(), (None, 0));
    // Nothing changes but the time.
    step(&mut reload, now + Duration::from_secs(40 * 366 * 86_400)).await;
    has_expired(state());
}

#[tokio::test]
async fn lists_that_are_removed_stay_in_force_until_a_restart() {
    let (folder, metrics) = (tempfile::tempdir().unwrap(), Arc::new(Metrics::new("test").unwrap()));
    let (made, [good, later]) = with_lists([2060, 2070]);
    write(&folder, &made);
    let path = folder.path().join("ca-crl.pem");
    fs::write(&path, &good).unwrap();
    let source = format!("files={}", folder.path().display());
    let (ca, mut reload) = open_with(&source, folder.path(), &metrics).await.unwrap();
    let now = SystemTime::now();
    fs::remove_file(&path).unwrap();
    for refused in [0, 1, 1] {
        step(&mut reload, now).await;
        assert_eq!(ca.trusted_pem().1.as_deref(), Some(&*good));
        let failure = ca.view().failure;
        assert_eq!(failure.is_some_and(|reason| reason.contains("ca-crl.pem is missing")), refused == 1);
        assert_eq!(ca.metrics.ca.files_refused.get(), refused, "it may be written in place");
    }
    // Other texts are followed, with the lists before.
    let further = SelfSigned::create(now).unwrap().certificate;
    fs::write(folder.path().join("root-cert.pem"), made.certificate.clone() + &further).unwrap();
    step(&mut reload, now).await;
    assert!(ca.roots_pem().ends_with(&further));
    assert_eq!(ca.trusted_pem().1.as_deref(), Some(&*good));
    // Also when these have expired.
    fs::write(folder.path().join("root-cert.pem"), &made.certificate).unwrap();
    step(&mut reload, now + Duration::from_secs(40 * 366 * 86_400)).await;
    assert!(!ca.roots_pem().contains(&further));
    assert_eq!(ca.trusted_pem().1.as_deref(), Some(&*good));
    fs::write(&path, &later).unwrap();
    step(&mut reload, now).await;
    assert_eq!(ca.trusted_pem().1.as_deref(), Some(&*later));
    assert_eq!((ca.view().failure, ca.metrics.ca.files_refused.get()), (None, 0));
    fs::remove_file(&path).unwrap();
    let (ca, _) = open_with(&source, folder.path(), &metrics).await.unwrap();
    assert_eq!(ca.trusted_pem().1, None);
}

#[tokio::test]
async fn lists_that_are_removed_end_with_the_keys_of_their_authority() {
    let (folder, metrics) = (tempfile::tempdir().unwrap(), Arc::new(Metrics::new("test").unwrap()));
    let (made, [good, _]) = with_lists([2060, 2070]);
    write(&folder, &made);
    let lists = folder.path().join("ca-crl.pem");
    fs::write(&lists, &good).unwrap();
    let source = format!("files={}", folder.path().display());
    let (ca, mut reload) = open_with(&source, folder.path(), &metrics).await.unwrap();
    fs::remove_file(&lists).unwrap();
    let now = SystemTime::now();
    let other = SelfSigned::create(now).unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "renamed");
    let certificate = params.self_signed(&KeyPair::from_pem(&made.key).unwrap()).unwrap().pem();
    let renamed = SelfSigned { certificate, key: made.key.clone() };
    let roots = folder.path().join("root-cert.pem");
    // The root stays a root, or its key.
    for (new, further) in [(&other, made.certificate.as_str()), (&renamed, "")] {
        write(&folder, new);
        fs::write(&roots, new.certificate.clone() + further).unwrap();
        for _ in 0..2 {
            step(&mut reload, now).await;
        }
        let failure = ca.view().failure.unwrap();
        for part in ["do not verify with the revocation lists", "ca-crl.pem is missing"] {
            assert!(failure.contains(part), "{failure}");
        }
        assert_eq!(ca.trusted_pem().1.as_deref(), Some(&*good));
    }
    write(&folder, &other);
    fs::write(&roots, &other.certificate).unwrap();
    step(&mut reload, now).await;
    assert_eq!(ca.trusted_pem(), (other.certificate, None));
    assert_eq!((ca.view().failure, ca.metrics.ca.files_refused.get()), (None, 0));
}

#[test]
fn names_of_this_process_include_the_addresses_of_its_listeners() {
    let folder = tempfile::tempdir().unwrap();
    let mut args = args("self-signed", folder.path());
    args.tls.secure_xds_address = Some("192.0.2.1:15012".into());
    args.admin = AdminArgs { secure_admin_address: Some("192.0.2.2:15024".into()), ..AdminArgs::default() };
    let names = names(&args.check(RegistryTable::default()).unwrap());
    assert!(names.contains("192.0.2.1") && names.contains("192.0.2.2"), "{names:?}");
}

#[tokio::test]
async fn certificate_of_this_process_is_replaced_after_half_of_its_life() {
    let folder = tempfile::tempdir().unwrap();
    let (ca, mut reload) = open("self-signed", folder.path()).await.unwrap();
    let start = reload.renew - SERVING / 2;
    let first = ca.serving.as_ref().unwrap().current();
    for (after, renews) in [(SERVING / 2 - Duration::from_secs(1), false), (SERVING / 2, true)] {
        step(&mut reload, start + after).await;
        assert_eq!(!Arc::ptr_eq(&first, &ca.serving.as_ref().unwrap().current()), renews, "{after:?}");
    }
    assert_eq!(reload.renew, start + SERVING);
}

#[tokio::test]
async fn rotation_of_the_kept_root_goes_on_after_a_restart_and_ends_with_the_new_one() {
    let (folder, overlap) = (tempfile::tempdir().unwrap(), Duration::from_secs(3600));
    let (ca, mut reload) = open("self-signed", folder.path()).await.unwrap();
    let now = SystemTime::now();
    let old = ca.roots_pem();
    rotate::file(folder.path(), overlap, now).await.unwrap();
    let error = rotate::file(folder.path(), overlap, now).await.unwrap_err();
    assert!(format!("{error:#}").contains("a rotation of the root is under way"), "{error:#}");
    assert_eq!(fs::metadata(folder.path().join("ca.pem")).unwrap().mode() & 0o777, 0o600);
    assert_eq!(names_in(folder.path()), ["ca.lock", "ca.pem"]);
    let mut followed = ca.follow();
    step(&mut reload, now).await;
    let both = ca.roots_pem();
    assert!(both.starts_with(&old) && both.len() > old.len() && followed.has_changed().unwrap());
    assert_eq!(*followed.borrow_and_update().clone(), *both);
    let new = both[old.len()..].to_owned();
    let signing = |ca: &Ca| ca.view().certificates[0].serial.clone();
    let (first, stage) = (signing(&ca), |ca: &Ca| ca.view().rotation.map(|rotation| rotation.stage));
    assert_eq!(stage(&ca).as_deref(), Some("distributing"));

    // Another process goes on.
    let (ca, mut reload) = open("self-signed", folder.path()).await.unwrap();
    let mut at = async |time: SystemTime| {
        reload.advance(time).await;
        step(&mut reload, time).await;
        (stage(&ca), signing(&ca) == first, ca.roots_pem())
    };
    let distributing = (Some("distributing".to_owned()), true, both);
    assert_eq!(at(now + overlap).await, distributing, "certificates of the last second live on");
    let later = now + overlap * 2;
    assert_eq!(at(later).await, (Some("overlapping".to_owned()), false, format!("{new}{old}")));
    assert_eq!(at(later + overlap * 2).await, (None, false, new));
}

#[tokio::test]
async fn plug_in_authority_is_not_rotated() {
    let (folder, now) = (tempfile::tempdir().unwrap(), SystemTime::now());
    write(&folder, &SelfSigned::create(now).unwrap());
    let source = AuthoritySource::Files(AuthorityFiles::Folder(folder.path().to_owned()));
    let error = source.change(|_| Ok(None)).await.unwrap_err();
    assert!(error.to_string().contains("plug-in authority"), "{error}");
    let error = rotate::file(folder.path(), Duration::from_secs(60), now).await.unwrap_err();
    assert!(format!("{error:#}").contains("ca.pem is missing"), "{error:#}");
}

pub(super) struct Service {
    folder: TempDir,
    service: CaService,
    recorder: Arc<PrometheusRecorder>,
}

impl Service {
    pub(super) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let metrics = Arc::new(Metrics::new("test").unwrap());
        let (ca, _) = open_with("self-signed", folder.path(), &metrics).await.unwrap();
        let recorder = Arc::new(PrometheusRecorder::new(metrics));
        let service = CaService::new(ca, Arc::new(Shared::default()), recorder.clone());
        Self { folder, service, recorder }
    }

    /// Returns the service, and the folder of its authority.
    pub(super) fn into_parts(self) -> (CaService, TempDir) {
        (self.service, self.folder)
    }

    async fn call(
        &self,
        identities: &[&str],
        request: Vec<u8>,
    ) -> Result<Vec<CertificateDer<'static>>, Status> {
        let identities: Vec<_> = identities.iter().map(|&identity| identity.to_owned()).collect();
        let client = SocketAddr::from(([192, 0, 2, 1], 5));
        let answer = self.service.call(client, identities.into(), request.into()).await?;
        let chain = IstioCertificateResponse::decode(answer).unwrap().cert_chain;
        Ok(chain.iter().map(|text| CertificateDer::from_pem_slice(text.as_bytes()).unwrap()).collect())
    }

    /// Values of the metrics that count requests.
    fn counts(&self) -> String {
        let metrics = &self.recorder.metrics().ca;
        let errors =
            ["CSR_ERROR", "TTL_ERROR"].map(|error| metrics.sign_errors.with_label_values(&[error]).get());
        let (signed, refused, parsing) =
            (metrics.signed.get(), metrics.authentication_failures.get(), metrics.request_errors.get());
        format!("signed {signed}, refused {refused}, parsing {parsing}, CSR and TTL {errors:?}")
    }
}

fn request() -> IstioCertificateRequest {
    let csr = CertificateParams::default().serialize_request(&KeyPair::generate().unwrap()).unwrap();
    IstioCertificateRequest { csr: csr.pem().unwrap(), validity_duration: 3600, metadata: None }
}

fn impersonating(value: prost_types::value::Kind) -> IstioCertificateRequest {
    let value = prost_types::Value { kind: Some(value) };
    let fields = [("ImpersonatedIdentity".to_owned(), value)].into();
    IstioCertificateRequest { metadata: Some(prost_types::Struct { fields }), ..request() }
}

#[tokio::test]
async fn certificate_is_for_the_proven_identity() {
    use prost_types::value::Kind;
    let service = Service::new().await;
    let none = impersonating(Kind::StringValue(String::new()));
    for request in [request(), none, IstioCertificateRequest { validity_duration: 0, ..request() }] {
        let chain = service.call(&[WEB], request.encode_to_vec()).await.unwrap();
        assert_eq!(chain.len(), 2);
        assert_eq!(spiffe_ids(Some(&chain)).unwrap().identities, [WEB]);
    }
    assert_eq!(service.counts(), "signed 3, refused 0, parsing 0, CSR and TTL [0, 0]");
}

#[tokio::test]
async fn errors_have_istiods_codes_and_metrics() {
    use prost_types::value::Kind;
    let service = Service::new().await;
    let long = IstioCertificateRequest { validity_duration: 91 * 86_400, ..request() };
    let bad = IstioCertificateRequest { csr: "no request".into(), ..request() };
    let admin = impersonating(Kind::StringValue("spiffe://cluster.local/ns/kube-system/sa/admin".into()));
    let odd = impersonating(Kind::NumberValue(1.0));
    let good = request().encode_to_vec();
    for (identities, request, code, text) in [
        (&[WEB][..], vec![0xff], Code::InvalidArgument, "malformed request"),
        (&[WEB], bad.encode_to_vec(), Code::InvalidArgument, "not a certificate request"),
        (&[WEB], long.encode_to_vec(), Code::InvalidArgument, "longer than the maximum"),
        (&[WEB], admin.encode_to_vec(), Code::PermissionDenied, "other identities"),
        (&[WEB], odd.encode_to_vec(), Code::PermissionDenied, "other identities"),
        (&[], good.clone(), Code::PermissionDenied, "exactly one identity"),
        (&[WEB, WEB], good.clone(), Code::PermissionDenied, "exactly one identity"),
        (
            &["spiffe://cluster.local/web"],
            good.clone(),
            Code::PermissionDenied,
            "is not the identity of a workload",
        ),
        (
            &["spiffe://other/ns/shop/sa/web"],
            good,
            Code::PermissionDenied,
            "other is not a trust domain of the mesh",
        ),
    ] {
        let status = service.call(identities, request).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(text), "{status}");
    }
    assert_eq!(service.counts(), "signed 0, refused 6, parsing 1, CSR and TTL [1, 1]");
}

#[tokio::test(start_paused = true)]
async fn requests_of_an_identity_and_of_an_address_are_limited() {
    let service = Service::new().await;
    // Refused after the limit, and before any signature.
    let request = IstioCertificateRequest { validity_duration: i64::MAX, ..request() }.encode_to_vec();
    let mut codes = Vec::new();
    for _ in 0..IDENTITY_CERTIFICATES * 10 + 1_000 {
        codes.push(service.call(&[WEB], request.clone()).await.unwrap_err().code());
    }
    let limited = codes.iter().position(|code| *code == Code::ResourceExhausted);
    assert!(limited.is_some_and(|first| first >= IDENTITY_CERTIFICATES as usize * 10), "{limited:?}");
    let other = service.call(&["spiffe://cluster.local/ns/shop/sa/cart"], request).await.unwrap_err();
    assert_eq!(other.code(), Code::InvalidArgument, "another identity is not limited");

    let admit = |address: &str| service.service.admit(address.parse().unwrap());
    let refused = (0..ADDRESS_CERTIFICATES * 10 + 1_000).find_map(|_| admit("2001:db8::1").err()).unwrap();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().ends_with("(limit address-certificates)"), "{refused}");
    assert!(admit("2001:db8:0:1::1").is_ok());
}
