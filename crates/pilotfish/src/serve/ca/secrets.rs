//! Workload certificates over SDS, for Envoys without an agent.
//!
//! A client that proved an identity of the mesh on the secure port is sent the Secrets `default`, with a key
//! and a certificate that are made for its stream, and `ROOTCA`, with the roots of the authority and the
//! mesh. Keys are in memory only, and
//! no view, record or dump has them.
//!
//! ```text
//! stream reads a Secret ─▶ queue by time ─▶ key and certificate ─▶ stream is woken
//!                               ▲                    │
//!                               └─ half of its life ─┘
//! ```

use super::CaService;
use super::issuer::Issuer;
use super::service::{Refused, identity};
use super::signer::{OF_IDENTITY, SIGNING_REQUESTS};
use super::trust_bundles::{Bundles, FurtherRoots};
use crate::serve::polled_files::POLL_INTERVAL;
use crate::serve::subsystem::{StopOrder, Subsystem};
use anyhow::Result;
use parking_lot::Mutex;
use pilotfish_admission::{KeyedSemaphore, LogLimit, Permit};
use pilotfish_ca::WorkloadCertificate;
use pilotfish_control_plane::resources::{ClientState, ConnectHook, ConnectingClient};
use pilotfish_model::World;
use pilotfish_proto::any;
use pilotfish_proto::envoy::config::core::v3::DataSource;
use pilotfish_proto::envoy::config::core::v3::data_source::Specifier;
use pilotfish_proto::envoy::extensions::transport_sockets::tls::v3 as tls;
use pilotfish_xds::{CertificateStatus, ConnectError, PrivateSecret, Resource, SecretsChanged};
use prost::Message;
use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// Secret with the key and certificate of a workload.
const CERTIFICATE: &str = "default";
/// Secret with the roots.
const ROOTS: &str = "ROOTCA";
/// Shortest time between two certificates of a client, and between two tries.
const SHORTEST: Duration = Duration::from_secs(1);

/// Secrets of all clients.
pub(crate) struct WorkloadSecrets {
    service: Arc<CaService>,
    clients: Mutex<Clients>,
    /// Notified when a client enters the queue.
    entered: Notify,
    /// Places of identities in front of the external signer.
    places: KeyedSemaphore<Arc<str>>,
    log: LogLimit,
    /// The warning that authorities of other meshes need lists of revoked certificates as well.
    warning_of_lists: Once,
}

/// Clients that have read a Secret.
struct Clients {
    by_number: HashMap<u64, Entry>,
    queue: Queue,
    next_number: u64,
    /// Authority that the Secrets are of.
    authority: Arc<Issuer>,
    roots: Roots,
}

/// The Secret `ROOTCA` with its origins, by which changes are found.
#[derive(Default)]
struct Roots {
    /// `None` before the first client, and while a trust bundle is being read for the first time.
    secret: Option<Arc<Resource>>,
    authority: Option<Arc<Issuer>>,
    /// Revision of the world.
    revision: u64,
    bundles: Arc<Bundles>,
    further: FurtherRoots,
}

impl Roots {
    /// Follows the roots of the authority and of the mesh; true if the Secret has changed.
    fn follow(&mut self, authority: &Arc<Issuer>, world: &World, bundles: &Arc<Bundles>) -> bool {
        let is_same_authority = self.authority.as_ref().is_some_and(|known| Arc::ptr_eq(known, authority));
        if is_same_authority && self.revision == world.revision() && Arc::ptr_eq(&self.bundles, bundles) {
            return false;
        }
        // While a bundle is read for the first time, the roots before stay.
        let Some(further) = FurtherRoots::of(world, bundles) else { return false };
        (self.revision, self.bundles) = (world.revision(), bundles.clone());
        if is_same_authority && self.further == further {
            return false;
        }
        let secret = Arc::new(secret_of_roots(authority, &further));
        let differs = self.secret.as_ref().is_none_or(|before| before.version != secret.version);
        (self.secret, self.authority, self.further) = (Some(secret), Some(authority.clone()), further);
        differs
    }
}

/// Clients by the time at which their certificate is made.
#[derive(Default)]
struct Queue {
    /// Those without a certificate: they cannot serve yet, so they come first.
    new: BTreeSet<(Instant, u64)>,
    /// Those with one, which is valid for as long again as it has been.
    renewals: BTreeSet<(Instant, u64)>,
    /// Clients that are due, whose identities have no place in front of the external signer.
    held: HashMap<Arc<str>, BTreeSet<(Instant, u64)>>,
}

impl Queue {
    fn of(&mut self, certificate: &PrivateSecret) -> &mut BTreeSet<(Instant, u64)> {
        match certificate {
            PrivateSecret::Is(_) => &mut self.renewals,
            PrivateSecret::NotYet | PrivateSecret::Absent => &mut self.new,
        }
    }

    /// Takes the first client that is due.
    fn pop(&mut self, now: Instant) -> Option<(Instant, u64)> {
        let first = |queue: &mut BTreeSet<(Instant, u64)>| match queue.first() {
            Some((due, _)) if *due <= now => queue.pop_first(),
            _ => None,
        };
        first(&mut self.new).or_else(|| first(&mut self.renewals))
    }

    fn remove(&mut self, entry: &Entry, number: u64) {
        let Some(place) = entry.due.map(|due| (due, number)) else { return };
        if self.of(&entry.certificate).remove(&place) {
            return;
        }
        if let Some(held) = self.held.get_mut(&entry.identity) {
            held.remove(&place);
            if held.is_empty() {
                self.held.remove(&entry.identity);
            }
        }
    }

    /// Takes the first client of an identity that is held.
    fn pop_held(&mut self, identity: &Arc<str>) -> Option<(Instant, u64)> {
        let held = self.held.get_mut(identity)?;
        let first = held.pop_first();
        if held.is_empty() {
            self.held.remove(identity);
        }
        first
    }

    /// Returns the earliest time.
    fn next(&self) -> Option<Instant> {
        [self.new.first(), self.renewals.first()].into_iter().flatten().map(|(due, _)| *due).min()
    }
}

impl Clients {
    /// Returns the order of a client that was taken out of the queue.
    fn order(&mut self, number: u64) -> Option<Order> {
        let entry = self.by_number.get_mut(&number)?;
        entry.due = None;
        Some(Order { number, identity: entry.identity.clone(), address: entry.address })
    }
}

struct Entry {
    identity: Arc<str>,
    address: IpAddr,
    changed: SecretsChanged,
    certificate: PrivateSecret,
    /// End of the certificate.
    expires: Option<SystemTime>,
    /// Place in the queue; `None` before the certificate is requested, and while it is being made.
    due: Option<Instant>,
    is_requested: bool,
}

/// Certificate that has to be made now.
#[derive(Debug)]
pub(super) struct Order {
    number: u64,
    identity: Arc<str>,
    address: IpAddr,
}

impl WorkloadSecrets {
    pub(crate) fn new(service: Arc<CaService>) -> Self {
        let authority = service.ca().authority.load_full();
        let clients = Clients {
            by_number: HashMap::new(),
            queue: Queue::default(),
            next_number: 0,
            roots: Roots::default(),
            authority,
        };
        Self {
            service,
            clients: Mutex::new(clients),
            entered: Notify::new(),
            places: KeyedSemaphore::new(OF_IDENTITY),
            log: LogLimit::default(),
            warning_of_lists: Once::new(),
        }
    }

    /// Returns the subsystem that makes certificates until the process ends.
    pub(crate) fn subsystem(self: Arc<Self>) -> Subsystem {
        Subsystem::new("workload certificates over SDS", StopOrder::Abort).task(|_| self.run())
    }

    async fn run(self: Arc<Self>) -> Result<()> {
        if self.service.is_external() {
            return self.run_signer().await;
        }
        loop {
            let now = Instant::now();
            self.follow_authority(now);
            let Some(order) = self.next(now) else {
                let wait = self.wait(now);
                tokio::select! {
                    () = self.entered.notified() => {}
                    () = tokio::time::sleep(wait) => {}
                }
                continue;
            };
            let turn = self.service.processors().for_sds().await?;
            let this = self.clone();
            let make = move || this.make(&order, Instant::now(), SystemTime::now());
            tokio::task::spawn_blocking(make).await?;
            drop(turn);
        }
    }

    /// Has the external signer make certificates until the process ends. One identity has a part of its
    /// turns only, so that it delays no other.
    async fn run_signer(self: Arc<Self>) -> Result<()> {
        let mut signing = JoinSet::new();
        loop {
            let now = Instant::now();
            self.follow_authority(now);
            let is_full = signing.len() >= SIGNING_REQUESTS;
            if let Some((order, place)) = (!is_full).then(|| self.next_with_place(now)).flatten() {
                let (this, identity) = (self.clone(), order.identity.clone());
                signing.spawn(async move {
                    this.request(order).await;
                    drop(place);
                    identity
                });
                continue;
            }
            let wait = if is_full { POLL_INTERVAL } else { self.wait(now) };
            tokio::select! {
                Some(ended) = signing.join_next() => self.readmit(&ended?),
                () = self.entered.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Takes the first certificate that is due out of the queue.
    pub(super) fn next(&self, now: Instant) -> Option<Order> {
        let mut clients = self.clients.lock();
        let (_, number) = clients.queue.pop(now)?;
        clients.order(number)
    }

    /// Takes the first certificate that is due, and whose identity has a place in front of the external
    /// signer. Those before it are held.
    pub(super) fn next_with_place(&self, now: Instant) -> Option<(Order, Permit)> {
        let mut clients = self.clients.lock();
        loop {
            let (due, number) = clients.queue.pop(now)?;
            let Some(identity) = clients.by_number.get(&number).map(|entry| entry.identity.clone()) else {
                continue;
            };
            if let Some(place) = self.places.try_acquire(identity.clone()) {
                return Some((clients.order(number)?, place));
            }
            clients.queue.held.entry(identity).or_default().insert((due, number));
        }
    }

    /// Returns one held client of an identity, which has a place again, to the queue.
    pub(super) fn readmit(&self, identity: &Arc<str>) {
        let mut clients = self.clients.lock();
        let Clients { by_number, queue, .. } = &mut *clients;
        if let Some((due, number)) = queue.pop_held(identity)
            && let Some(entry) = by_number.get(&number)
        {
            queue.of(&entry.certificate).insert((due, number));
        }
    }

    /// Returns the time until the queue or the authority has to be looked at again.
    fn wait(&self, now: Instant) -> Duration {
        let clients = self.clients.lock();
        let due = clients.queue.next().map(|due| due.saturating_duration_since(now));
        due.map_or(POLL_INTERVAL, |due| due.min(POLL_INTERVAL))
    }

    /// Requests a certificate from the external signer, and enters the client for the next one.
    async fn request(self: Arc<Self>, order: Order) {
        let made = self.service.requested_workload(&order.identity, order.address).await;
        self.made(&order, made, Instant::now(), SystemTime::now());
    }

    /// Makes a certificate, and enters the client for the next one. Blocks.
    pub(super) fn make(&self, order: &Order, now: Instant, wall_time: SystemTime) {
        let made = self.service.workload(&order.identity, order.address, wall_time);
        self.made(order, made, now, wall_time);
    }

    fn made(
        &self,
        order: &Order,
        made: Result<WorkloadCertificate, Refused>,
        now: Instant,
        wall_time: SystemTime,
    ) {
        if let Err(Refused { status, .. }) = &made
            && let Some(left_out) = self.log.allow(now)
        {
            let (identity, error) = (&*order.identity, status.message());
            tracing::warn!(
                identity,
                error,
                left_out,
                "no certificate was made for a proxy; it is tried again"
            );
        }
        let mut clients = self.clients.lock();
        let Clients { by_number, queue, .. } = &mut *clients;
        // It may have disconnected meanwhile.
        let Some(entry) = by_number.get_mut(&order.number) else { return };
        let wait = match made {
            Ok(made) => {
                entry.certificate = PrivateSecret::Is(Arc::new(certificate(&made)));
                entry.expires = Some(made.expires);
                made.expires.duration_since(wall_time).unwrap_or_default() / 2
            }
            // Beyond a limit, and while a signer does not answer, a client waits for its first certificate:
            // without it, Envoy would continue without certificates.
            Err(Refused { wait, status }) => {
                let waits =
                    matches!(status.code(), tonic::Code::ResourceExhausted | tonic::Code::Unavailable);
                if entry.certificate == PrivateSecret::NotYet && !waits {
                    entry.certificate = PrivateSecret::Absent;
                }
                wait
            }
        };
        let due = now + wait.max(SHORTEST);
        entry.due = Some(due);
        let changed = entry.changed.clone();
        queue.of(&entry.certificate).insert((due, order.number));
        drop(clients);
        changed.announce();
    }

    /// Follows the authority in force: announces changed roots, and has all certificates made again if it
    /// signs with another certificate or chain.
    pub(super) fn follow_authority(&self, now: Instant) {
        let authority = self.service.ca().authority.load_full();
        let mut clients = self.clients.lock();
        let Clients { by_number, queue, roots, authority: followed, .. } = &mut *clients;
        // The first client begins it: there is a world only then.
        let has_new_roots = !by_number.is_empty() && self.follow_roots(roots, &authority);
        if !has_new_roots && Arc::ptr_eq(&authority, followed) {
            return;
        }
        if !authority.has_chain_of(followed) {
            *queue = Queue::default();
            for (number, entry) in by_number.iter_mut() {
                if let Some(due) = &mut entry.due {
                    *due = now;
                    queue.of(&entry.certificate).insert((now, *number));
                }
            }
        }
        *followed = authority;
        let entries = by_number.values().filter(|_| has_new_roots);
        let changed: Vec<_> = entries.map(|entry| entry.changed.clone()).collect();
        drop(clients);
        changed.iter().for_each(SecretsChanged::announce);
    }

    fn follow_roots(&self, roots: &mut Roots, authority: &Arc<Issuer>) -> bool {
        let bundles = self.service.ca().bundles().current();
        let has_changed = roots.follow(authority, &self.service.shared.world(), &bundles);
        if has_changed && authority.revocations_pem().is_some() && !roots.further.is_empty() {
            self.warning_of_lists.call_once(|| {
                tracing::warn!(
                    "MeshConfig caCertificates: stock Envoys refuse certificates of authorities of other \
                     meshes that have no list in ca-crl.pem"
                );
            });
        }
        has_changed
    }

    fn enter(&self) -> u64 {
        let mut clients = self.clients.lock();
        clients.next_number += 1;
        clients.next_number
    }

    fn read(&self, client: &WorkloadClient, name: &str, changed: &SecretsChanged) -> PrivateSecret {
        let mut clients = self.clients.lock();
        let Clients { by_number, queue, roots, authority, .. } = &mut *clients;
        let entry = by_number.entry(client.number).or_insert_with(|| Entry {
            identity: client.identity.clone(),
            address: client.address,
            changed: changed.clone(),
            certificate: PrivateSecret::NotYet,
            expires: None,
            due: None,
            is_requested: false,
        });
        if name == ROOTS {
            if roots.secret.is_none() {
                self.follow_roots(roots, authority);
            }
            return roots.secret.clone().map_or(PrivateSecret::NotYet, PrivateSecret::Is);
        }
        if !std::mem::replace(&mut entry.is_requested, true) {
            let now = Instant::now();
            entry.due = Some(now);
            queue.of(&entry.certificate).insert((now, client.number));
            self.entered.notify_one();
        }
        entry.certificate.clone()
    }

    /// Returns the identity and expiry of the certificate that a client was sent.
    fn status(&self, number: u64) -> Option<CertificateStatus> {
        let clients = self.clients.lock();
        let entry = clients.by_number.get(&number)?;
        Some(CertificateStatus { identity: entry.identity.clone(), expires: entry.expires? })
    }

    fn leave(&self, number: u64) {
        let mut clients = self.clients.lock();
        if let Some(entry) = clients.by_number.remove(&number) {
            clients.queue.remove(&entry, number);
        }
        // Without clients, they are not followed.
        if clients.by_number.is_empty() {
            clients.roots = Roots::default();
        }
    }
}

/// Feature of clients: their Secrets.
pub(crate) struct WorkloadSecretsHook(pub(crate) Arc<WorkloadSecrets>);

impl ConnectHook for WorkloadSecretsHook {
    fn connect(
        &self,
        client: &mut ConnectingClient<'_>,
    ) -> Result<Option<Box<dyn ClientState>>, ConnectError> {
        // Not the identity of a trusted node: nothing proves that.
        let state: Box<dyn ClientState> = match identity(&client.peer.identities, client.world) {
            Ok(identity) => Box::new(WorkloadClient {
                secrets: self.0.clone(),
                number: self.0.enter(),
                identity: identity.into(),
                address: client.peer.address.ip(),
            }),
            Err(status) => Box::new(RefusedClient {
                secrets: self.0.clone(),
                node: client.proxy.id.clone(),
                reason: status.message().to_owned(),
            }),
        };
        Ok(Some(state))
    }

    fn private_secrets(&self) -> &'static [&'static str] {
        &[CERTIFICATE, ROOTS]
    }
}

/// Client with a proven identity.
struct WorkloadClient {
    secrets: Arc<WorkloadSecrets>,
    number: u64,
    identity: Arc<str>,
    address: IpAddr,
}

impl ClientState for WorkloadClient {
    fn has_certificate(&self) -> bool {
        true
    }

    fn private_secret(&self, name: &str, changed: &SecretsChanged) -> Option<PrivateSecret> {
        Some(self.secrets.read(self, name, changed))
    }

    fn workload_certificate(&self) -> Option<CertificateStatus> {
        self.secrets.status(self.number)
    }
}

impl Drop for WorkloadClient {
    fn drop(&mut self) {
        self.secrets.leave(self.number);
    }
}

/// Client for which no certificate is signed.
struct RefusedClient {
    secrets: Arc<WorkloadSecrets>,
    node: Arc<str>,
    reason: String,
}

impl ClientState for RefusedClient {
    fn private_secret(&self, name: &str, _: &SecretsChanged) -> Option<PrivateSecret> {
        if let Some(left_out) = self.secrets.log.allow(Instant::now()) {
            let (node, reason) = (&*self.node, &self.reason);
            tracing::warn!(node, name, reason, left_out, "a proxy is not sent a secret of its workload");
        }
        Some(PrivateSecret::Absent)
    }
}

/// Returns the Secret `default`.
fn certificate(made: &WorkloadCertificate) -> Resource {
    let secret = tls::TlsCertificate {
        certificate_chain: Some(inline(&made.chain)),
        private_key: Some(inline(&made.key)),
        ..tls::TlsCertificate::default()
    };
    resource(CERTIFICATE, tls::secret::Type::TlsCertificate(secret), &made.chain)
}

/// Returns the Secret `ROOTCA`.
fn secret_of_roots(authority: &Issuer, further: &FurtherRoots) -> Resource {
    let (roots, _) = further.joined(&authority.roots_pem());
    let revoked = authority.revocations_pem();
    let secret = tls::CertificateValidationContext {
        trusted_ca: Some(inline(&roots)),
        crl: revoked.map(inline),
        ..tls::CertificateValidationContext::default()
    };
    let public = roots + revoked.unwrap_or_default();
    resource(ROOTS, tls::secret::Type::ValidationContext(secret), &public)
}

fn inline(text: &str) -> DataSource {
    DataSource { specifier: Some(Specifier::InlineBytes(text.as_bytes().to_vec())), ..DataSource::default() }
}

/// `public` is the part of the content that the version depends on.
fn resource(name: &str, content: tls::secret::Type, public: &str) -> Resource {
    let secret = tls::Secret { name: name.to_owned(), r#type: Some(content) };
    let mut hasher = DefaultHasher::new();
    public.hash(&mut hasher);
    Resource {
        name: name.into(),
        version: hasher.finish().max(1),
        body: any(&secret).encode_to_vec().into(),
        changed_at: 0,
        stands_in: false,
    }
}

#[cfg(test)]
mod tests;
