//! The calls of the HTTP API, and the answers to them.

use crate::answer;
use crate::call::{Call, NoCall, Version};
use crate::calls::{NacosApi, is_of, not_found};
use crate::grpc;
use crate::params::{Params, is_form};
use crate::record::{Given, host};
use crate::service::Wanted;
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{Method, Response};
use pilotfish_nacos_wire::DEFAULT_CLUSTER;
use pilotfish_registration_server::{
    Adapter, AdapterAnswer, AdapterBody, AdapterClient, Credentials, Failure, GrpcAdapter, Protocol,
};
use serde_json::{Value, json};
use std::future::Future;
use std::pin::Pin;

/// Parameter and header with the token of a client.
const TOKEN: &str = "accessToken";
/// Lifetime of a login in the answer to clients, in seconds. The token stays valid for longer.
const TOKEN_TTL: u32 = 18_000;
/// Version for clients: that of the API that is served.
const VERSION: &str = "2.5.1";
/// Interval of a client's beats in milliseconds.
const BEAT_INTERVAL: u32 = 5_000;
/// Codes of answers to beats.
const BEAT_OK: u32 = 10_200;
const BEAT_NOT_FOUND: u32 = 20_404;
/// Number of names on a page of a list, if none is given.
const PAGE: usize = 20;

impl NacosApi {
    async fn call(&self, client: &AdapterClient, parts: &Parts, body: &[u8]) -> AdapterAnswer {
        let (version, call) = find(parts)?;
        let params = Params::read(parts, body);
        let data = match call {
            Call::Register => {
                self.0.register(client, &params.service()?, &params.instance()?).await?;
                json!("ok")
            }
            Call::Deregister => {
                self.0.deregister(client, &params.service()?, params.place()?).await?;
                json!("ok")
            }
            Call::Update => self.update(client, &params).await?,
            Call::Beat => self.beat(client, &params).await?,
            Call::GetInstance => self.instance(client, &params)?,
            Call::ListInstances => self.instances(client, version, &params)?,
            Call::ListServices => self.services(client, version, &params)?,
            Call::Metrics => {
                client.check_ready()?;
                json!({"status": "UP"})
            }
            Call::State => {
                json!({"version": VERSION, "standalone_mode": "standalone", "function_mode": "naming"})
            }
            Call::Login => json!({
                TOKEN: params.required("password")?,
                "tokenTtl": TOKEN_TTL,
                "globalAdmin": false,
                "username": params.text("username"),
            }),
        };
        answer::value(version, &data)
    }

    /// Changes an instance; parameters that are not there change nothing.
    async fn update(&self, client: &AdapterClient, params: &Params) -> Result<Value, Failure> {
        let (weight, enabled) = (params.parse("weight")?, params.enabled()?);
        let (healthy, metadata) = (params.parse("healthy")?, params.metadata()?);
        let change = |given: &mut Given| {
            given.weight = weight.unwrap_or(given.weight);
            given.enabled = enabled.unwrap_or(given.enabled);
            given.healthy = healthy.unwrap_or(given.healthy);
            if let Some(metadata) = &metadata {
                given.metadata.clone_from(metadata);
            }
        };
        self.0.change(client, &params.service()?, params.place()?, change).await?;
        Ok(json!("ok"))
    }

    /// Renews a lease. The instance is in the parameters, in the beat or in both.
    async fn beat(&self, client: &AdapterClient, params: &Params) -> Result<Value, Failure> {
        let given = params.get("beat").map_or(Ok(None), of_beat)?;
        let service = params.service()?;
        let place = match &given {
            Some(given) => (&*given.ip, given.port, &*given.cluster),
            None => params.place()?,
        };
        let renewed = self.0.beat(client, &service, place, given.as_ref()).await?;
        let code = if renewed { BEAT_OK } else { BEAT_NOT_FOUND };
        Ok(json!({"code": code, "clientBeatInterval": BEAT_INTERVAL, "lightBeatEnabled": true}))
    }

    fn instance(&self, client: &AdapterClient, params: &Params) -> Result<Value, Failure> {
        let service = params.service()?;
        let key = self.0.key(client, &service, params.place()?)?;
        let own = client.get(&key)?.filter(|view| is_of(view, &service));
        let found = own.and_then(|view| host(&view, &service)).ok_or_else(|| not_found(&key))?;
        Ok(json!({
            "service": found.service_name,
            "serviceName": found.service_name,
            "instanceId": found.instance_id,
            "ip": found.ip,
            "port": found.port,
            "clusterName": found.cluster_name,
            "weight": found.weight,
            "healthy": found.healthy,
            "metadata": found.metadata,
        }))
    }

    fn instances(&self, client: &AdapterClient, version: Version, params: &Params) -> Result<Value, Failure> {
        let service = params.service()?;
        let clusters = params.get("clusters").or(params.get("clusterName")).unwrap_or_default();
        let wanted = Wanted::read(clusters, params.parse("healthyOnly")?.unwrap_or(false))?;
        let mut info = self.0.instances(client, &service, &wanted)?;
        if version == Version::One {
            info.name = service.grouped();
        }
        serde_json::to_value(info).map_err(|error| Failure::invalid(error.to_string()))
    }

    fn services(&self, client: &AdapterClient, version: Version, params: &Params) -> Result<Value, Failure> {
        let page = params.parse("pageNo")?.unwrap_or(1);
        let size = params.parse("pageSize")?.unwrap_or(PAGE);
        let found = self.0.services(client, &params.scope()?, page, size)?;
        let names = if version == Version::One { "doms" } else { "services" };
        Ok(json!({"count": found.count, names: found.names}))
    }
}

fn find(parts: &Parts) -> Result<(Version, Call), Failure> {
    Call::parse(&parts.method, parts.uri.path()).map_err(|error| match error {
        NoCall::Path => {
            Failure::not_found("there is nothing at this path: naming is under /nacos/v1/ns and /nacos/v2/ns")
        }
        NoCall::Method => Failure::invalid(format!("this path has no {}", parts.method)),
        NoCall::Configuration => grpc::no_configuration(),
    })
}

/// Reads the instance of a beat; `None` for a beat without one.
fn of_beat(text: &str) -> Result<Option<Given>, Failure> {
    let beat: Value = serde_json::from_str(text)
        .map_err(|error| Failure::invalid(format!("Param 'beat' is illegal: {error}")))?;
    let text = |name: &str| beat.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let Some(ip) = text("ip") else { return Ok(None) };
    let port = beat.get("port").and_then(Value::as_u64).and_then(|port| u32::try_from(port).ok());
    let port = port.ok_or_else(|| Failure::invalid("Param 'beat' is illegal: it has no port"))?;
    let metadata = beat.get("metadata").and_then(Value::as_object).into_iter().flatten();
    let metadata = metadata.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    Ok(Some(Given {
        weight: beat.get("weight").and_then(Value::as_f64).unwrap_or(1.0),
        metadata: metadata.collect(),
        ..Given::new(ip, port, text("cluster").unwrap_or(DEFAULT_CLUSTER))
    }))
}

/// Returns the token of the query or of a header.
fn token(parts: &Parts) -> Option<String> {
    let query = parts.uri.query().unwrap_or_default();
    let given = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == TOKEN);
    let header = || Some(parts.headers.get(TOKEN)?.to_str().ok()?.to_owned());
    given.map(|(_, token)| token.into_owned()).or_else(header).filter(|token| !token.is_empty())
}

impl Adapter for NacosApi {
    fn protocol(&self) -> Protocol {
        Protocol::Nacos
    }

    fn method(&self, parts: &Parts) -> &'static str {
        grpc::label(parts.uri.path()).unwrap_or_else(|| match Call::parse(&parts.method, parts.uri.path()) {
            Ok((_, call)) => call.label(),
            Err(_) => "other",
        })
    }

    /// A login has the token as its password, and gives it back as the token of the calls that follow.
    fn credentials(&self, parts: &Parts, body: Option<&[u8]>) -> Credentials {
        let call = Call::parse(&parts.method, parts.uri.path()).ok().map(|(_, call)| call);
        if call.is_some_and(Call::is_open) {
            return Credentials::Unneeded;
        }
        let is_login = call == Some(Call::Login);
        let in_head = if is_login { None } else { token(parts) };
        match (in_head, body) {
            (Some(token), _) => Credentials::Token(Some(token)),
            (None, Some(body)) => {
                let params = Params::read(parts, body);
                let name = if is_login { "password" } else { TOKEN };
                Credentials::Token(params.get(name).map(str::to_owned))
            }
            (None, None) if is_login => Credentials::InBody,
            (None, None)
                if parts.method != Method::GET
                    && is_form(parts)
                    && !parts.headers.contains_key(AUTHORIZATION) =>
            {
                Credentials::InBody
            }
            (None, None) => Credentials::Token(None),
        }
    }

    fn refuse(&self, parts: &Parts, failure: &Failure) -> Option<Response<AdapterBody>> {
        Some(answer::failure(Call::version(parts.uri.path()), failure))
    }

    fn grpc(&self) -> Option<&dyn GrpcAdapter> {
        Some(self)
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
        self.0.refresh();
    }
}
