//! The API behind gRPC and JSON: validation, authorization, registrar.

use crate::access::{Access, Action, Denied, Grant};
use crate::convert;
use crate::failure::Failure;
use crate::identity::Who;
use crate::limits::{Limit, ServerLimits};
use crate::recorder::Recorder;
use pilotfish_admission::{KeyedSemaphore, TokenBuckets};
use pilotfish_registration::limits::MAX_PAGE;
use pilotfish_registration::{
    Caller, Deregister, Deregistered, Filter, Instance, InstanceKey, Register, Registered, Registrar,
    ServiceKey, SpecialAddress, Violations, WatchError, check_host, check_short_host, instance_key,
    service_key,
};
use pilotfish_registration_api::v1::{self, error::Code};
use prost::Message;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Default page size in instances.
const PAGE: usize = 100;
/// Size in bytes at which a page, or a part of a watch, is full: gRPC clients accept 4 MiB, and a record is
/// far smaller.
pub(crate) const RESPONSE_BYTES: usize = 1 << 20;

/// The API on a registrar.
pub(crate) struct Api {
    pub(crate) registrar: Registrar,
    pub(crate) access: Arc<Access>,
    pub(crate) limits: ServerLimits,
    pub(crate) bookmark_interval: Duration,
    pub(crate) rate: TokenBuckets<(Arc<str>, IpAddr)>,
    pub(crate) owner_streams: KeyedSemaphore<Arc<str>>,
    pub(crate) recorder: Arc<dyn Recorder>,
    /// Becomes true at shutdown.
    pub(crate) closing: watch::Receiver<bool>,
}

/// An authorized request item with its permission.
type Prepared<T> = Result<(T, Grant), Failure>;

impl Api {
    pub(crate) async fn register(
        &self,
        who: &Who,
        request: v1::RegisterRequest,
    ) -> Result<v1::RegisterResponse, Failure> {
        only(self.register_all(who, vec![request]).await)
    }

    pub(crate) async fn batch_register(
        &self,
        who: &Who,
        batch: v1::BatchRegisterRequest,
    ) -> v1::BatchRegisterResponse {
        let results =
            self.register_all(who, batch.requests).await.into_iter().map(|result| v1::RegisterResult {
                result: Some(match result {
                    Ok(response) => v1::register_result::Result::Response(response),
                    Err(failure) => v1::register_result::Result::Error(self.item(&failure)),
                }),
            });
        v1::BatchRegisterResponse { results: results.collect() }
    }

    pub(crate) async fn renew(
        &self,
        who: &Who,
        request: v1::RenewRequest,
    ) -> Result<v1::RenewResponse, Failure> {
        only(self.renew_all(who, vec![request]).await)
    }

    pub(crate) async fn batch_renew(
        &self,
        who: &Who,
        batch: v1::BatchRenewRequest,
    ) -> v1::BatchRenewResponse {
        let results = self.renew_all(who, batch.requests).await.into_iter().map(|result| v1::RenewResult {
            result: Some(match result {
                Ok(response) => v1::renew_result::Result::Response(response),
                Err(failure) => v1::renew_result::Result::Error(self.item(&failure)),
            }),
        });
        v1::BatchRenewResponse { results: results.collect() }
    }

    pub(crate) async fn deregister(
        &self,
        who: &Who,
        request: v1::DeregisterRequest,
    ) -> Result<v1::DeregisterResponse, Failure> {
        only(self.deregister_all(who, vec![request]).await)
    }

    pub(crate) async fn batch_deregister(
        &self,
        who: &Who,
        batch: v1::BatchDeregisterRequest,
    ) -> v1::BatchDeregisterResponse {
        let results =
            self.deregister_all(who, batch.requests).await.into_iter().map(|result| v1::DeregisterResult {
                result: Some(match result {
                    Ok(response) => v1::deregister_result::Result::Response(response),
                    Err(failure) => v1::deregister_result::Result::Error(self.item(&failure)),
                }),
            });
        v1::BatchDeregisterResponse { results: results.collect() }
    }

    pub(crate) fn get(
        &self,
        who: &Who,
        request: &v1::GetInstanceRequest,
    ) -> Result<v1::GetInstanceResponse, Failure> {
        let key = self.key(&request.namespace, &request.service, &request.id)?;
        self.granted(who, Action::Read, &key)?;
        self.check_read()?;
        let view = self.registrar.get(&key);
        let view = view.ok_or_else(|| Failure::new(Code::NotFound, format!("{key} is not registered")))?;
        Ok(v1::GetInstanceResponse { record: Some(convert::record(&view)) })
    }

    pub(crate) fn list(
        &self,
        who: &Who,
        request: &v1::ListInstancesRequest,
    ) -> Result<v1::ListInstancesResponse, Failure> {
        let filter = self.filter(who, &request.namespace, &request.service)?;
        self.check_read()?;
        let after = page_token(&request.page_token)?;
        let size = match usize::try_from(request.page_size) {
            Ok(0) => PAGE,
            Ok(size) => size.min(MAX_PAGE),
            Err(_) => MAX_PAGE,
        };
        let page = self.registrar.list(&filter, after.as_ref(), size);
        let (mut records, mut next, mut bytes) = (Vec::new(), page.next, 0);
        for view in &page.instances {
            let key = &view.record.instance.key;
            if self.may_read(who, key) {
                let record = convert::record(view);
                bytes += record.encoded_len();
                records.push(record);
            }
            if bytes >= RESPONSE_BYTES && page.instances.last() != Some(view) {
                next = Some(key.clone());
                break;
            }
        }
        Ok(v1::ListInstancesResponse {
            records,
            next_page_token: next.map(|key| key.to_string()).unwrap_or_default(),
            revision: page.revision,
            epoch: self.registrar.epoch(),
        })
    }

    /// Returns an error before the store was read: until then it is unknown which instances are registered.
    pub(crate) fn check_read(&self) -> Result<(), Failure> {
        match self.registrar.is_ready() {
            true => Ok(()),
            false => Err(WatchError::NotReady.into()),
        }
    }

    /// Counts a request, or a message of a stream, against the client's rate.
    pub(crate) fn take_rate(&self, who: &Who) -> Result<(), Failure> {
        let key = (Arc::clone(&who.identity), who.address);
        self.rate.take(key, Instant::now()).map_err(|wait| {
            let message = format!("more than {} requests in a second", self.limits.requests_per_second);
            Failure { retry_after: Some(wait), ..Failure::limit(Limit::RequestsPerSecond, &message) }
        })
    }

    /// Returns the filter of a list or watch. Fails if the client may read none of its instances.
    pub(crate) fn filter(&self, who: &Who, namespace: &str, service: &str) -> Result<Filter, Failure> {
        if !self.access.allows_some(who, Action::Read) {
            return Err(denied(who, Action::Read, "anything", &Denied::Rule));
        }
        let some = |text: &str| (!text.is_empty()).then(|| Arc::from(text));
        if namespace.is_empty() {
            return Ok(Filter { namespace: None, service: some(service) });
        }
        // Any valid name does for an empty service.
        let named = if service.is_empty() { "any" } else { service };
        let key = service_key(namespace, named, self.domain())?;
        if service.is_empty() {
            return Ok(Filter { namespace: Some(key.namespace), service: None });
        }
        self.granted(who, Action::Read, &InstanceKey::new(key.namespace.clone(), key.service.clone(), ""))?;
        Ok(Filter { namespace: Some(key.namespace), service: Some(key.service) })
    }

    pub(crate) fn may_read(&self, who: &Who, key: &InstanceKey) -> bool {
        self.access.grant(who, Action::Read, key).is_ok()
    }

    /// Counts a limit that a part of a request exceeded.
    pub(crate) fn note(&self, failure: &Failure) {
        if let Some(limit) = failure.limit {
            self.recorder.limit_exceeded(limit);
        }
    }

    fn item(&self, failure: &Failure) -> v1::Error {
        self.note(failure);
        failure.to_error()
    }

    pub(crate) fn key(&self, namespace: &str, service: &str, id: &str) -> Result<InstanceKey, Failure> {
        Ok(instance_key(namespace, service, id, self.domain())?)
    }

    pub(crate) fn domain(&self) -> &str {
        &self.access.around().domain
    }

    fn granted(&self, who: &Who, action: Action, key: &InstanceKey) -> Result<Grant, Failure> {
        self.access
            .grant(who, action, key)
            .map_err(|why| denied(who, action, &key.service_key().to_string(), &why))
    }

    /// Authorizes a registration. An instance that the client registered before an object defined the service
    /// stays its own.
    pub(crate) fn granted_registration(&self, who: &Who, key: &InstanceKey) -> Result<Grant, Failure> {
        match self.access.grant(who, Action::Register, key) {
            Ok(grant) => Ok(grant),
            Err(Denied::Owned(_)) if self.registered(who, key) => Ok(Grant { any_owner: false }),
            Err(why) => Err(denied(who, Action::Register, &key.service_key().to_string(), &why)),
        }
    }

    fn registered(&self, who: &Who, key: &InstanceKey) -> bool {
        self.registrar.get(key).is_some_and(|view| view.record.owner == who.identity)
    }

    /// Checks that need the mesh and the listener.
    fn check_place(&self, instance: &Instance) -> Result<(), Failure> {
        let around = self.access.around();
        let key = instance.key.service_key();
        let has_namespace = |namespace: &str| {
            let of_namespace = Filter { namespace: Some(namespace.into()), service: None };
            namespace == "default" || around.mesh.has_namespace(namespace) || self.has_any(&of_namespace)
        };
        check_short_host(&key, &around.domain, has_namespace)
            .map_err(|message| Failure::field("instance.service", message))?;
        let is_loopback = |address| SpecialAddress::of(address) == Some(SpecialAddress::Loopback);
        let foreign = instance.addresses.iter().position(|address| is_loopback(*address));
        if let (Some(index), false) = (foreign, around.is_loopback) {
            let message = "a loopback address: only a Pilotfish that listens on loopback itself takes those";
            return Err(Failure::field(format!("instance.addresses[{index}]"), message));
        }
        Ok(())
    }

    /// A host name with dots belongs to the first namespace that registers it.
    fn check_host_owner(&self, key: &ServiceKey) -> Result<(), Failure> {
        if !key.service.contains('.') {
            return Ok(());
        }
        let own =
            Filter { namespace: Some(Arc::clone(&key.namespace)), service: Some(Arc::clone(&key.service)) };
        let all = Filter { namespace: None, ..own.clone() };
        if self.has_any(&own) {
            return Ok(());
        }
        match self.registrar.list(&all, None, 1).instances.first() {
            None => Ok(()),
            Some(other) => {
                let (host, namespace) = (&key.service, &other.record.instance.key.namespace);
                let message =
                    format!("{host} is registered in namespace {namespace:?}: a host has one namespace");
                Err(Failure::new(Code::PermissionDenied, message))
            }
        }
    }

    fn has_any(&self, filter: &Filter) -> bool {
        !self.registrar.list(filter, None, 1).instances.is_empty()
    }

    async fn register_all(
        &self,
        who: &Who,
        requests: Vec<v1::RegisterRequest>,
    ) -> Vec<Result<v1::RegisterResponse, Failure>> {
        let prepared: Vec<Prepared<Register>> =
            requests.into_iter().map(|request| self.prepare_register(who, request)).collect();
        let ttls: Vec<_> =
            prepared.iter().map(|one| one.as_ref().ok().and_then(|(one, _)| one.instance.ttl)).collect();
        let results = in_groups(&self.registrar, who, prepared, |registrar, caller, batch| async move {
            let answers = registrar.register(&caller, batch).await.into_iter();
            answers.map(|answer| answer.map_err(Failure::from)).collect()
        });
        let response = |(result, ttl): (Result<Registered, Failure>, Option<Duration>)| {
            result.map(|Registered { revision, changed }| v1::RegisterResponse {
                revision,
                changed,
                ttl: ttl.map(convert::duration),
            })
        };
        results.await.into_iter().zip(ttls).map(response).collect()
    }

    fn prepare_register(&self, who: &Who, request: v1::RegisterRequest) -> Prepared<Register> {
        let nested = |wrong: Violations| {
            let mut all = Violations::default();
            all.nest("instance", wrong);
            Failure::from(all)
        };
        let instance = request.instance.ok_or_else(|| Failure::field("instance", "is missing"))?;
        let instance = convert::read_instance(instance, self.domain()).map_err(nested)?;
        let grant = self.authorize(who, &instance)?;
        Ok((Register { instance, expected: convert::expected(request.expected_revision) }, grant))
    }

    /// Authorizes the registration of a valid instance.
    pub(crate) fn authorize(&self, who: &Who, instance: &Instance) -> Result<Grant, Failure> {
        self.check_place(instance)?;
        let grant = self.granted_registration(who, &instance.key)?;
        self.check_host_owner(&instance.key.service_key())?;
        self.access.check_instance(who, instance).map_err(|reason| {
            Failure::new(Code::PermissionDenied, format!("{} may not register it: {reason}", who.identity))
        })?;
        Ok(grant)
    }

    /// Authorizes reading an instance.
    pub(crate) fn granted_read(&self, who: &Who, key: &InstanceKey) -> Result<Grant, Failure> {
        self.granted(who, Action::Read, key)
    }

    /// Authorizes deregistering an instance.
    pub(crate) fn granted_deregistration(&self, who: &Who, key: &InstanceKey) -> Result<Grant, Failure> {
        self.granted(who, Action::Deregister, key)
    }

    /// Authorizes renewing a lease.
    pub(crate) fn granted_renewal(&self, who: &Who, key: &InstanceKey) -> Result<Grant, Failure> {
        match self.access.grant(who, Action::Register, key) {
            // An earlier registration: the registrar knows its owner.
            Err(Denied::Owned(_)) => Ok(Grant { any_owner: false }),
            granted => {
                granted.map_err(|why| denied(who, Action::Register, &key.service_key().to_string(), &why))
            }
        }
    }

    pub(crate) async fn renew_all(
        &self,
        who: &Who,
        requests: Vec<v1::RenewRequest>,
    ) -> Vec<Result<v1::RenewResponse, Failure>> {
        let prepare = |request: v1::RenewRequest| {
            let key = self.key(&request.namespace, &request.service, &request.id)?;
            check_host(&key.service_key(), self.domain())
                .map_err(|message| Failure::field("service", message))?;
            let grant = self.granted_renewal(who, &key)?;
            Ok((key, grant))
        };
        let prepared: Vec<Prepared<InstanceKey>> = requests.into_iter().map(prepare).collect();
        let results = in_groups(&self.registrar, who, prepared, |registrar, caller, batch| async move {
            let renewed = registrar.renew(&caller, batch).await.into_iter();
            renewed.map(|one| one.map(|()| v1::RenewResponse {}).map_err(Failure::from)).collect()
        });
        results.await
    }

    async fn deregister_all(
        &self,
        who: &Who,
        requests: Vec<v1::DeregisterRequest>,
    ) -> Vec<Result<v1::DeregisterResponse, Failure>> {
        let prepare = |request: v1::DeregisterRequest| {
            let key = self.key(&request.namespace, &request.service, &request.id)?;
            let drain = convert::drain(request.drain)?;
            let grant = self.granted(who, Action::Deregister, &key)?;
            Ok((Deregister { key, expected: convert::expected(request.expected_revision), drain }, grant))
        };
        let prepared: Vec<Prepared<Deregister>> = requests.into_iter().map(prepare).collect();
        let results = in_groups(&self.registrar, who, prepared, |registrar, caller, batch| async move {
            let gone = registrar.deregister(&caller, batch).await.into_iter();
            gone.map(|one| one.map(deregistered).map_err(Failure::from)).collect()
        });
        results.await
    }
}

fn deregistered(gone: Deregistered) -> v1::DeregisterResponse {
    match gone {
        Deregistered::Absent => v1::DeregisterResponse::default(),
        Deregistered::Removed { revision } => v1::DeregisterResponse { found: true, revision, drain: None },
        Deregistered::Draining { revision, drain } => {
            v1::DeregisterResponse { found: true, revision, drain: Some(convert::duration(drain)) }
        }
    }
}

/// Executes authorized items, separately for those that may change other owners' instances and those that may
/// not. Results are in the order of the items.
async fn in_groups<T, R, F>(
    registrar: &Registrar,
    who: &Who,
    prepared: Vec<Prepared<T>>,
    call: impl Fn(Registrar, Caller, Vec<T>) -> F,
) -> Vec<Result<R, Failure>>
where
    F: Future<Output = Vec<Result<R, Failure>>>,
{
    let mut results: Vec<Option<Result<R, Failure>>> = prepared.iter().map(|_| None).collect();
    let (mut own, mut any) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
    for ((index, place), one) in results.iter_mut().enumerate().zip(prepared) {
        match one {
            Ok((item, grant)) => {
                let (indexes, items) = if grant.any_owner { &mut any } else { &mut own };
                indexes.push(index);
                items.push(item);
            }
            Err(failure) => *place = Some(Err(failure)),
        }
    }
    for (may_take_over, (indexes, items)) in [(false, own), (true, any)] {
        if !items.is_empty() {
            let caller = Caller { identity: Arc::clone(&who.identity), may_take_over };
            for (index, result) in indexes.into_iter().zip(call(registrar.clone(), caller, items).await) {
                if let Some(place) = results.get_mut(index) {
                    *place = Some(result);
                }
            }
        }
    }
    let missing = || Err(Failure::new(Code::Internal, "there is no result"));
    results.into_iter().map(|result| result.unwrap_or_else(missing)).collect()
}

fn only<R>(results: Vec<Result<R, Failure>>) -> Result<R, Failure> {
    results.into_iter().next().unwrap_or_else(|| Err(Failure::new(Code::Internal, "there is no result")))
}

fn denied(who: &Who, action: Action, what: &str, why: &Denied) -> Failure {
    let action = match action {
        Action::Register => "register",
        Action::Deregister => "deregister",
        Action::Read => "read",
    };
    Failure::new(Code::PermissionDenied, format!("{} may not {action} {what}: {why}", who.identity))
}

/// Parses a page token: the last instance of the previous page.
fn page_token(text: &str) -> Result<Option<InstanceKey>, Failure> {
    if text.is_empty() {
        return Ok(None);
    }
    let mut parts = text.splitn(3, '/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(namespace), Some(service), Some(id)) => Ok(Some(InstanceKey::new(namespace, service, id))),
        _ => Err(Failure::field("pageToken", "it is not that of a page")),
    }
}

/// Waits until the server begins to shut down.
pub(crate) async fn closed(closing: &mut watch::Receiver<bool>) {
    // An error means that the server was dropped.
    let _ = closing.wait_for(|closing| *closing).await;
}

/// Fails if an answer takes too long.
pub(crate) async fn in_time<R>(
    limit: Duration,
    answer: impl Future<Output = Result<R, Failure>>,
) -> Result<R, Failure> {
    let late = || Failure::new(Code::DeadlineExceeded, "the store did not answer in time: try again");
    tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| Err(late()))
}
