//! The client of an adapter's request.

use crate::api::{Api, closed, in_time};
use crate::failure::Failure;
use crate::identity::Who;
use crate::limits::Limit;
use pilotfish_admission::Permit;
use pilotfish_identity::is_this_machine;
use pilotfish_registration::{
    Caller, Deregister, Deregistered, Expected, InstanceKey, InstanceView, Register, Registered, Registrar,
    RegistrarError, Registration,
};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Maximum number of attempts for a change that depends on the current record.
const ROUNDS: usize = 4;

/// The client of a request: what it may do with the registrar.
#[derive(Clone)]
pub struct AdapterClient {
    pub(crate) api: Arc<Api>,
    pub(crate) who: Who,
}

/// Permission of a request to wait for a change, or of a stream to be open, until it is dropped.
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

    /// The identity that owns the client's registrations.
    #[must_use]
    pub fn identity(&self) -> &Arc<str> {
        &self.who.identity
    }

    /// Fails if a call takes too long.
    ///
    /// # Errors
    /// Those of the call, and the timeout.
    pub async fn in_time<R>(&self, call: impl Future<Output = Result<R, Failure>>) -> Result<R, Failure> {
        in_time(self.api.limits.request_timeout, call).await
    }

    /// Takes a permission to wait for a change, or to keep a stream open.
    ///
    /// # Errors
    /// When too many requests and streams of the client's identity wait.
    pub fn wait_permit(&self) -> Result<WaitPermit, Failure> {
        let owner = self.api.owner_streams.try_acquire(Arc::clone(&self.who.identity)).ok_or_else(|| {
            Failure::limit(Limit::OwnerStreams, "too many streams and waiting requests of this client")
        })?;
        Ok(WaitPermit { _owner: owner })
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
        let request = Deregister { key: key.clone(), expected: Expected::Any, drain: None };
        removed(self.registrar().deregister(&self.caller(grant.any_owner), vec![request]).await)
    }

    /// Deregisters an instance whose record still has this revision, for a client that registered it and
    /// has gone. The permission to register it is enough. While the store cannot record it, the instance
    /// stays as it is.
    ///
    /// # Errors
    /// Refusals by rules and the store, and a conflict with another revision.
    pub async fn withdraw(&self, key: &InstanceKey, revision: u64) -> Result<bool, Failure> {
        let grant = self.api.granted_renewal(&self.who, key)?;
        let request = Deregister { key: key.clone(), expected: Expected::Revision(revision), drain: None };
        let caller = self.caller(grant.any_owner);
        removed(self.registrar().deregister_recorded(&caller, vec![request]).await)
    }

    /// Fails if the client's token is not valid any more.
    ///
    /// # Errors
    /// When it is not.
    pub fn check_current(&self) -> Result<(), Failure> {
        self.api.check_stream(&self.who)
    }

    fn registrar(&self) -> &Registrar {
        &self.api.registrar
    }

    fn caller(&self, may_take_over: bool) -> Caller {
        Caller { identity: Arc::clone(&self.who.identity), may_take_over }
    }
}

/// Returns false if there was no instance to remove.
fn removed(gone: Vec<Result<Deregistered, RegistrarError>>) -> Result<bool, Failure> {
    match gone.into_iter().next() {
        Some(gone) => Ok(gone? != Deregistered::Absent),
        None => Err(Failure::internal("there is no result")),
    }
}
