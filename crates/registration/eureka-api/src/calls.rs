//! The calls of the API.

use crate::catalog::{Catalog, Entry};
use crate::path::{Call, NoCall, Target};
use crate::record::{Registered, encode_id, service_of};
use crate::wire::{self, Form};
use crate::{EurekaSettings, answer, replication};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use pilotfish_eureka_wire::{InstanceInfo, Status};
use pilotfish_registration::{InstanceKey, InstanceView, Registrar};
use pilotfish_registration_server::{Adapter, AdapterAnswer, AdapterClient, Failure, Protocol};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use tokio::time::Instant;

/// Eureka's server API on a registrar.
pub struct EurekaApi {
    pub(crate) settings: EurekaSettings,
    catalog: Mutex<Catalog>,
}

/// Result of a heartbeat.
pub(crate) enum Beat {
    Renewed,
    /// A peer knows an older state than this one.
    Older(Box<Entry>),
}

impl EurekaApi {
    /// The API on this registrar.
    #[must_use]
    pub fn new(registrar: Registrar, settings: EurekaSettings) -> Self {
        Self { catalog: Mutex::new(Catalog::new(registrar, settings.clone())), settings }
    }

    /// Returns the key of an instance; one that cannot be registered is not found.
    pub(crate) fn key(&self, client: &AdapterClient, target: &Target) -> Result<InstanceKey, Failure> {
        let service = service_of(&target.app, &self.settings);
        client.key(&self.settings.namespace, &service, &encode_id(&target.id)).map_err(|_| not_found(target))
    }

    pub(crate) async fn register(
        &self,
        client: &AdapterClient,
        app: &str,
        info: InstanceInfo,
    ) -> Result<(), Failure> {
        if !info.app.0.eq_ignore_ascii_case(app) {
            let message = format!("instance.app: {:?} is not the application of the path", info.app.0);
            return Err(Failure::invalid(message));
        }
        let id =
            info.id().ok_or_else(|| Failure::invalid("instance: it has neither instanceId nor hostName"))?;
        let (service, id) = (service_of(app, &self.settings), encode_id(id));
        let key = client.key(&self.settings.namespace, &service, &id)?;
        let given = Registered::new(info);
        let build = |current: Option<&InstanceView>| {
            let known = current.and_then(|view| Registered::of_record(&view.record, &self.settings));
            newer(given.clone(), known).registration(&service, &id, &self.settings)
        };
        client.write(&key, build).await.map(|_| ())
    }

    /// Changes a registered instance.
    pub(crate) async fn change(
        &self,
        client: &AdapterClient,
        target: &Target,
        change: impl Fn(&mut Registered),
    ) -> Result<(), Failure> {
        let key = self.key(client, target)?;
        let build = |current: Option<&InstanceView>| {
            let known = current.and_then(|view| Registered::of_record(&view.record, &self.settings));
            let mut registered = known.ok_or_else(|| not_found(target))?;
            change(&mut registered);
            registered.registration(&key.service, &key.id, &self.settings)
        };
        client.write(&key, build).await.map(|_| ())
    }

    /// Renews a lease. Not found asks the client to register again: the instance is unknown, or its client has
    /// changed it since.
    pub(crate) async fn heartbeat(
        &self,
        client: &AdapterClient,
        target: &Target,
        dirty: Option<u64>,
        is_peer: bool,
    ) -> Result<Beat, Failure> {
        let key = self.key(client, target)?;
        client.renew(&key).await?;
        let Some((dirty, view)) = dirty.zip(client.view(&key)) else { return Ok(Beat::Renewed) };
        let known = Registered::of_record(&view.record, &self.settings).and_then(|known| known.dirty());
        match known {
            Some(known) if dirty > known => {
                Err(Failure::not_found("the client has changed it since: register again"))
            }
            Some(known) if dirty < known && is_peer => {
                let entry = Entry::new(&view, &self.settings);
                Ok(entry.map_or(Beat::Renewed, |entry| Beat::Older(Box::new(entry))))
            }
            _ => Ok(Beat::Renewed),
        }
    }

    pub(crate) async fn cancel(&self, client: &AdapterClient, target: &Target) -> Result<(), Failure> {
        let key = self.key(client, target)?;
        if client.deregister(&key).await? { Ok(()) } else { Err(not_found(target)) }
    }

    pub(crate) async fn set_status(
        &self,
        client: &AdapterClient,
        target: &Target,
        status: Status,
    ) -> Result<(), Failure> {
        self.change(client, target, |registered| registered.overridden = status).await
    }

    /// Removes an operator's status. The instance has the given one until its client reports another.
    pub(crate) async fn remove_status(
        &self,
        client: &AdapterClient,
        target: &Target,
        status: Option<Status>,
    ) -> Result<(), Failure> {
        let change = |registered: &mut Registered| {
            registered.overridden = Status::Unknown;
            registered.own = status.unwrap_or(registered.own);
        };
        self.change(client, target, change).await
    }

    async fn call(&self, client: &AdapterClient, parts: &Parts, body: &[u8]) -> AdapterAnswer {
        let found = Call::parse(&parts.method, parts.uri.path()).map_err(|error| match error {
            NoCall::Path => Failure::not_found("there is nothing at this path: the API is under /eureka"),
            NoCall::Method => Failure::invalid(format!("this path has no {}", parts.method)),
        })?;
        let query = Query::of(parts);
        match found {
            Call::Register(app) => {
                self.register(client, &app, wire::instance(&parts.headers, body)?).await?;
                return Ok(answer::empty(StatusCode::NO_CONTENT));
            }
            Call::Heartbeat(target) => {
                let is_peer = is_peer(&parts.headers);
                let beat =
                    self.heartbeat(client, &target, query.number("lastDirtyTimestamp"), is_peer).await?;
                if let Beat::Older(entry) = beat {
                    let mut response = answer::instance(&entry, Form::accepted(&parts.headers));
                    *response.status_mut() = StatusCode::CONFLICT;
                    return Ok(response);
                }
            }
            Call::Cancel(target) => self.cancel(client, &target).await?,
            Call::SetStatus(target) => {
                let status = query.status()?.ok_or_else(|| Failure::invalid("value: it is missing"))?;
                self.set_status(client, &target, status).await?;
            }
            Call::RemoveStatus(target) => self.remove_status(client, &target, query.status()?).await?,
            Call::SetMetadata(target) => {
                let change = |registered: &mut Registered| {
                    registered.info.metadata.0.extend(query.0.clone());
                };
                self.change(client, &target, change).await?;
            }
            Call::Replicate => return replication::answer(self, client, body).await,
            read => return self.read(client, parts, &read),
        }
        Ok(answer::empty(StatusCode::OK))
    }

    fn read(&self, client: &AdapterClient, parts: &Parts, call: &Call) -> AdapterAnswer {
        client.check_ready()?;
        let form = Form::accepted(&parts.headers);
        let mut catalog = self.catalog.lock();
        catalog.refresh(Instant::now());
        let may_read = |key: &InstanceKey| client.may_read(key);
        let nothing = |name: &str| Failure::not_found(format!("{name:?} is not registered"));
        let vips = |name: &str, is_secure: bool| {
            let name = name.to_lowercase();
            let selection = catalog.select(may_read, |_, entry| entry.has_vip(&name, is_secure));
            if selection.applications.is_empty() { Err(nothing(&name)) } else { Ok(selection) }
        };
        match call {
            Call::Delta => Ok(answer::applications(catalog.delta(may_read), form)),
            Call::App(app) => {
                let app = app.to_uppercase();
                let selection = catalog.select(may_read, |name, _| name == app);
                if selection.applications.is_empty() {
                    return Err(nothing(&app));
                }
                Ok(answer::application(selection, form))
            }
            Call::Vip(name) => Ok(answer::applications(vips(name, false)?, form)),
            Call::SecureVip(name) => Ok(answer::applications(vips(name, true)?, form)),
            Call::AnyInstance(id) => {
                let found = catalog.by_id(id, may_read).ok_or_else(|| nothing(id))?;
                Ok(answer::instance(&found, form))
            }
            Call::Instance(target) => {
                let key = self.key(client, target)?;
                let entry = client.get(&key)?.and_then(|view| Entry::new(&view, &self.settings));
                Ok(answer::instance(&entry.ok_or_else(|| not_found(target))?, form))
            }
            _ => Ok(answer::applications(catalog.select(may_read, |_, _| true), form)),
        }
    }
}

/// Returns the registration to write: a client's, with the status of an operator that it does not know, unless
/// a later one is known.
fn newer(given: Registered, known: Option<Registered>) -> Registered {
    let Some(known) = known else { return given };
    if known.dirty().zip(given.dirty()).is_some_and(|(known, given)| given < known) {
        return known;
    }
    match given.overridden {
        Status::Unknown => Registered { overridden: known.overridden, ..given },
        _ => given,
    }
}

fn not_found(target: &Target) -> Failure {
    Failure::not_found(format!("{}/{} is not registered", target.app, target.id))
}

/// True for a request of another server.
fn is_peer(headers: &HeaderMap) -> bool {
    headers.get("x-netflix-discovery-replication").is_some_and(|value| value == "true")
}

/// Parameters of a request.
struct Query(BTreeMap<String, String>);

impl Query {
    fn of(parts: &Parts) -> Self {
        let query = parts.uri.query().unwrap_or_default();
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name)?.parse().ok()
    }

    fn status(&self) -> Result<Option<Status>, Failure> {
        let Some(text) = self.0.get("value") else { return Ok(None) };
        match Status::parse(text) {
            Status::Unknown => Err(Failure::invalid(format!("value: {text:?} is no status"))),
            status => Ok(Some(status)),
        }
    }
}

impl Adapter for EurekaApi {
    fn protocol(&self) -> Protocol {
        Protocol::Eureka
    }

    fn method(&self, parts: &Parts) -> &'static str {
        Call::parse(&parts.method, parts.uri.path()).map_or("other", |call| call.label())
    }

    /// The password of basic authentication, which clients have from `http://USER:PASSWORD@HOST/eureka`.
    fn token(&self, parts: &Parts) -> Option<String> {
        let (scheme, encoded) = parts.headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let decoded = String::from_utf8(BASE64_STANDARD.decode(encoded.trim()).ok()?).ok()?;
        decoded.split_once(':').map(|(_, password)| password.to_owned())
    }

    fn answer<'a>(
        &'a self,
        client: AdapterClient,
        parts: &'a Parts,
        body: Bytes,
    ) -> Pin<Box<dyn Future<Output = AdapterAnswer> + Send + 'a>> {
        Box::pin(async move { self.call(&client, parts, &body).await })
    }

    fn refresh(&self) {
        self.catalog.lock().refresh(Instant::now());
    }
}
