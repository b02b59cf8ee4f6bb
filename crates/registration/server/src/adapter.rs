//! Protocols of other products in front of the registrar, each on a listener of its own.
//!
//! An adapter maps the calls of its protocol to registrations and reads of the directory. Connections,
//! identities, rules and limits are those of the registration API, and so is everything that a client may do.

use crate::api::{Api, closed};
use crate::failure::Failure;
use crate::grpc_adapter::GrpcAdapter;
use crate::identity::Who;
use crate::limits::Limit;
use crate::recorder::Protocol;
use bytes::Bytes;
use http::Response;
use http::request::Parts;
use http_body_util::combinators::UnsyncBoxBody;
use pilotfish_admission::Permit;
use pilotfish_identity::is_this_machine;
use pilotfish_registration::{
    Caller, Deregister, Deregistered, Expected, InstanceKey, InstanceView, Register, Registered, Registrar,
    RegistrarError, Registration,
};
use std::convert::Infallible;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of attempts for a change that depends on the current record.
const ROUNDS: usize = 4;

/// Body of an adapter's response.
pub type AdapterBody = UnsyncBoxBody<Bytes, Infallible>;
/// Response of an adapter, or the failure that the client is told.
pub type AdapterAnswer = Result<Response<AdapterBody>, Failure>;

/// Credentials of a request.
pub enum Credentials {
    /// The token from the head of the request, if there is one.
    Token(Option<String>),
    /// The token is in the body, which must be read first.
    InBody,
    /// The request needs no identity, and its answer depends on nothing that is registered.
    Unneeded,
}

/// A protocol of another product.
pub trait Adapter: Send + Sync + 'static {
    /// Returns the protocol, for metrics.
    fn protocol(&self) -> Protocol;

    /// Returns the metric label of a request's method, from a closed set.
    fn method(&self, parts: &Parts) -> &'static str;

    /// Returns the credentials of a request, from where the protocol has them. `body` is given after
    /// [`Credentials::InBody`].
    fn credentials(&self, parts: &Parts, body: Option<&[u8]>) -> Credentials;

    /// Returns the response for a failure in the form of the protocol; `None` for its text.
    fn refuse(&self, parts: &Parts, failure: &Failure) -> Option<Response<AdapterBody>> {
        let _ = (parts, failure);
        None
    }

    /// Returns the part of the protocol that is gRPC.
    fn grpc(&self) -> Option<&dyn GrpcAdapter> {
        None
    }

    /// Answers an authenticated request within its limits.
    fn answer<'a>(
        &'a self,
        client: AdapterClient,
        parts: &'a Parts,
        body: Bytes,
    ) -> Pin<Box<dyn Future<Output = AdapterAnswer> + Send + 'a>>;

    /// Called every second while the listener serves.
    fn refresh(&self);

    /// Returns how much longer the answer to a request may take than others: the time that it waits for a
    /// change.
    fn wait(&self, _parts: &Parts) -> Duration {
        Duration::ZERO
    }

    /// Runs while the listener serves. Does not return.
    fn run<'a>(&'a self) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(std::future::pending())
    }
}

/// The client of a request: what it may do with the registrar.
#[derive(Clone)]
pub struct AdapterClient {
    pub(crate) api: Arc<Api>,
    pub(crate) who: Who,
}

/// Permission of a request to wait for a change, until it is dropped.
#[derive(Debug)]
pub struct WaitPermit {
    _owner: Permit,
}

impl AdapterClient {
    /// Returns the address of the client, or of the last proxy before it; 127.0.0.1 for `::1`, too.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        match self.who.address.to_canonical() {
            address if is_this_machine(address) => Ipv4Addr::LOCALHOST.into(),
            address => address,
        }
    }

    /// Takes a permission to wait for a change.
    ///
    /// # Errors
    /// When too many requests and streams of the client's identity wait.
    pub fn wait_permit(&self) -> Result<WaitPermit, Failure> {
        let owner = self.api.owner_streams.try_acquire(Arc::clone(&self.who.identity)).ok_or_else(|| {
            Failure::limit(Limit::OwnerStreams, "too many requests of this client wait for a change")
        })?;
        Ok(WaitPermit { _owner: owner })
    }

    /// Checks that the client is still authenticated, after it has waited.
    ///
    /// # Errors
    /// When its token is not valid any more.
    pub fn check_current(&self) -> Result<(), Failure> {
        self.api.check_stream(&self.who)
    }

    /// Resolves when the server begins to shut down.
    pub async fn closing(&self) {
        closed(&mut self.api.closing.clone()).await;
    }

    /// Fails before the store was read: until then it is unknown which instances are registered.
    ///
    /// # Errors
    /// With a status that asks for another attempt.
    pub fn check_ready(&self) -> Result<(), Failure> {
        self.api.check_read()
    }

    /// True if the client may read the instance.
    #[must_use]
    pub fn may_read(&self, key: &InstanceKey) -> bool {
        self.api.may_read(&self.who, key)
    }

    /// Returns the key of an instance.
    ///
    /// # Errors
    /// When a name is invalid.
    pub fn key(&self, namespace: &str, service: &str, id: &str) -> Result<InstanceKey, Failure> {
        self.api.key(namespace, service, id)
    }

    /// Returns an instance that the client may read.
    ///
    /// # Errors
    /// When the client may not read it, or the store was not read yet.
    pub fn get(&self, key: &InstanceKey) -> Result<Option<InstanceView>, Failure> {
        self.api.granted_read(&self.who, key)?;
        self.api.check_read()?;
        Ok(self.api.registrar.get(key))
    }

    /// Returns an instance for a decision about a call that was authorized; never for an answer.
    #[must_use]
    pub fn view(&self, key: &InstanceKey) -> Option<InstanceView> {
        self.registrar().get(key)
    }

    /// Checks that the client may register this instance.
    ///
    /// # Errors
    /// When no rule allows it.
    pub fn check_registration(&self, key: &InstanceKey) -> Result<(), Failure> {
        self.api.granted_registration(&self.who, key).map(|_| ())
    }

    /// Checks that the client may deregister this instance, if it is registered.
    ///
    /// # Errors
    /// When no rule allows it, or another identity registered it.
    pub fn check_deregistration(&self, key: &InstanceKey) -> Result<(), Failure> {
        let grant = self.api.granted_deregistration(&self.who, key)?;
        match self.registrar().get(key).map(|view| Arc::clone(&view.record.owner)) {
            Some(owner) if owner != self.who.identity && !grant.any_owner => {
                Err(RegistrarError::NotOwner(owner).into())
            }
            _ => Ok(()),
        }
    }

    /// Writes the registration that `build` makes of the current record, again where another write came
    /// between. An instance that is registered keeps its owner.
    ///
    /// # Errors
    /// Those of `build`, and refusals by validation, rules, limits and the store.
    pub async fn write(
        &self,
        key: &InstanceKey,
        build: impl Fn(Option<&InstanceView>) -> Result<Registration, Failure>,
    ) -> Result<Registered, Failure> {
        self.api.check_read()?;
        // Before `build`, whose errors tell what is registered.
        self.check_registration(key)?;
        let mut round = 1;
        loop {
            let current = self.registrar().get(key);
            let instance = build(current.as_ref())?.validate(self.api.domain())?;
            let grant = self.api.authorize(&self.who, &instance)?;
            let caller = match &current {
                Some(view) if grant.any_owner => {
                    Caller { identity: Arc::clone(&view.record.owner), may_take_over: false }
                }
                _ => Caller { identity: Arc::clone(&self.who.identity), may_take_over: grant.any_owner },
            };
            let expected = current.map_or(Expected::Absent, |view| Expected::Revision(view.record.revision));
            let written = self.registrar().register(&caller, vec![Register { instance, expected }]).await;
            match written.into_iter().next() {
                Some(Err(RegistrarError::Conflict { .. })) if round < ROUNDS => round += 1,
                Some(written) => return Ok(written?),
                None => return Err(Failure::internal("there is no result")),
            }
        }
    }

    /// Renews the lease of an instance.
    ///
    /// # Errors
    /// As in the API: not found asks the client to register again.
    pub async fn renew(&self, key: &InstanceKey) -> Result<(), Failure> {
        let grant = self.api.granted_renewal(&self.who, key)?;
        let renewed = self.registrar().renew(&self.caller(grant.any_owner), vec![key.clone()]).await;
        match renewed.into_iter().next() {
            Some(renewed) => Ok(renewed?),
            None => Err(Failure::internal("there is no result")),
        }
    }

    /// Deregisters an instance at once or with its drain time. Returns false if there was none.
    ///
    /// # Errors
    /// Refusals by rules and the store.
    pub async fn deregister(&self, key: &InstanceKey) -> Result<bool, Failure> {
        let grant = self.api.granted_deregistration(&self.who, key)?;
        self.remove(key, Expected::Any, grant.any_owner).await
    }

    /// Deregisters an instance whose record still has this revision, for a client that registered it and
    /// has gone. The permission to register it is enough.
    ///
    /// # Errors
    /// Refusals by rules and the store, and a conflict with another revision.
    pub async fn withdraw(&self, key: &InstanceKey, revision: u64) -> Result<bool, Failure> {
        let grant = self.api.granted_renewal(&self.who, key)?;
        self.remove(key, Expected::Revision(revision), grant.any_owner).await
    }

    async fn remove(&self, key: &InstanceKey, expected: Expected, any_owner: bool) -> Result<bool, Failure> {
        let request = Deregister { key: key.clone(), expected, drain: None };
        let gone = self.registrar().deregister(&self.caller(any_owner), vec![request]).await;
        match gone.into_iter().next() {
            Some(gone) => Ok(gone? != Deregistered::Absent),
            None => Err(Failure::internal("there is no result")),
        }
    }

    fn registrar(&self) -> &Registrar {
        &self.api.registrar
    }

    fn caller(&self, may_take_over: bool) -> Caller {
        Caller { identity: Arc::clone(&self.who.identity), may_take_over }
    }
}
