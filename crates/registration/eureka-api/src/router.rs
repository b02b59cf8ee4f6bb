//! The calls of the API, and the answers to them.

use crate::calls::{Beat, EurekaApi, not_found};
use crate::catalog::Entry;
use crate::path::{Call, NoCall};
use crate::record::Registered;
use crate::wire::{self, Form};
use crate::{answer, replication};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use pilotfish_eureka_wire::Status;
use pilotfish_registration::InstanceKey;
use pilotfish_registration_server::{Adapter, AdapterAnswer, AdapterClient, Credentials, Failure, Protocol};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

impl EurekaApi {
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
        let catalog = self.catalog();
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

/// Returns the password of basic authentication.
fn password(parts: &Parts) -> Option<String> {
    let (scheme, encoded) = parts.headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(BASE64_STANDARD.decode(encoded.trim()).ok()?).ok()?;
    decoded.split_once(':').map(|(_, password)| password.to_owned())
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
    fn credentials(&self, parts: &Parts, _: Option<&[u8]>) -> Credentials {
        Credentials::Token(password(parts))
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
        drop(self.catalog());
    }
}
