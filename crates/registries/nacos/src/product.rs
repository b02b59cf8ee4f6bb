//! Sessions with a server.

use crate::api::{Api, ApiError, Done, Push};
use crate::credentials::Token;
use crate::follower::{Ask, Follower};
use crate::grpc::Grpc;
use crate::http_api::HttpApi;
use crate::settings::{ApiChoice, Settings};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use pilotfish_connect::{HttpClient, Server};
use pilotfish_runtime::Jitter;
use pilotfish_session::{CatalogWriter, Product, SessionError};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Maximum number of requests in flight.
const REQUESTS: usize = 32;
/// Interval of health checks on a connection. A server probes a connection after 20 s of silence.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Interval of gRPC checks of a polled server that may be a version 2.
const LOOK_FOR_GRPC: Duration = Duration::from_secs(60);
/// Minimum time between attempts to log in.
const LOGIN_AGAIN: Duration = Duration::from_secs(15);

/// The Nacos product: a server or a cluster.
pub(crate) struct Nacos {
    settings: Settings,
    http: HttpClient,
    follower: Follower,
    /// Index of the next server.
    turn: usize,
    jitter: Jitter,
}

impl Nacos {
    pub(crate) fn new(settings: Settings) -> Self {
        let follower = Follower::new(settings.mapping.clone(), settings.keep_empty, settings.scopes.clone());
        let http = HttpClient::new(settings.connector.clone(), REQUESTS);
        Self { settings, http, follower, turn: 0, jitter: Jitter::default() }
    }

    /// Returns the next server: each session uses another one.
    fn next_server(&mut self) -> Result<Server, SessionError> {
        let server = self.settings.servers.iter().cycle().nth(self.turn % self.settings.servers.len().max(1));
        self.turn = self.turn.wrapping_add(1);
        server.cloned().ok_or_else(|| SessionError::new("no server is configured"))
    }

    /// Connects with the API that the server supports. Returns `true` if the server may support gRPC later.
    async fn connect(
        &self,
        server: &Server,
        http: &HttpApi,
        token: Option<&str>,
    ) -> Result<(Api, bool), ApiError> {
        if self.settings.api == ApiChoice::Http {
            return Ok((Api::Http(Box::new(http.clone())), false));
        }
        let grpc_server = self.settings.grpc_server(server);
        let connector = &self.settings.connector;
        match Grpc::is_there(connector.clone(), &grpc_server).await {
            Ok(()) => {
                let namespaces = self.settings.namespaces().into_iter();
                let grpc = Grpc::open(connector, &grpc_server, namespaces, token).await?;
                Ok((Api::Grpc(grpc), false))
            }
            Err(error) if self.settings.api == ApiChoice::Grpc || error.is_refused() => Err(error),
            // A version 2 server whose gRPC port is down fails the session: its HTTP API is not that of
            // version 1.
            Err(error) => match http.version().await {
                Ok(Some(version)) if !version.starts_with("1.") && !version.starts_with("0.") => Err(error),
                Ok(version) => Ok((Api::Http(Box::new(http.clone())), version.is_none())),
                Err(_) => Err(error),
            },
        }
    }
}

impl Product for Nacos {
    async fn session(&mut self, catalog: &mut CatalogWriter) -> Result<Infallible, SessionError> {
        let server = self.next_server()?;
        let http = HttpApi::new(self.http.clone(), server.clone(), &self.settings.base);
        loop {
            let mut token = None;
            if let Some(credentials) = &self.settings.credentials {
                catalog.requested();
                token = Some(
                    credentials
                        .login(&http)
                        .await
                        .map_err(|error| SessionError::from(error).context("login"))?,
                );
            }
            let text = token.as_ref().map(|token| token.text.clone());
            let (api, may_have_grpc) = self.connect(&server, &http, text.as_deref()).await?;
            let is_polled = matches!(api, Api::Http(_));
            tracing::info!(
                server = %server,
                by = if is_polled { "HTTP" } else { "gRPC" },
                "reading Nacos"
            );
            self.follower.begin(is_polled);
            let mut session = Session {
                product: self,
                catalog,
                api,
                http: http.clone(),
                server: server.clone(),
                token,
                may_have_grpc,
                is_complete: false,
                on_their_way: FuturesUnordered::new(),
            };
            // Ends without an error if the server supports gRPC now, or asks its clients to reconnect.
            session.follow().await?;
        }
    }
}

struct Session<'a> {
    product: &'a mut Nacos,
    catalog: &'a mut CatalogWriter,
    api: Api,
    http: HttpApi,
    server: Server,
    token: Option<Token>,
    /// True if a polled server may support gRPC later.
    may_have_grpc: bool,
    /// True once the full catalog was published.
    is_complete: bool,
    on_their_way: FuturesUnordered<BoxFuture<'static, Done>>,
}

/// Next event of a session.
enum Event {
    Done(Done),
    Push(Result<Push, ApiError>),
    Refresh,
    KeepAlive,
    RenewToken,
    LookForGrpc,
}

impl Session<'_> {
    async fn follow(&mut self) -> Result<(), SessionError> {
        let now = Instant::now();
        let mut refresh_at = self.next_refresh();
        let (mut keep_alive_at, mut look_at) = (now + KEEP_ALIVE, now + LOOK_FOR_GRPC);
        loop {
            self.ask();
            let renew_at = self.token.as_ref().map(|token| token.renew_at);
            let event = tokio::select! {
                Some(done) = self.on_their_way.next(), if !self.on_their_way.is_empty() => Event::Done(done),
                push = self.api.push() => Event::Push(push),
                () = sleep_until(refresh_at) => Event::Refresh,
                () = sleep_until(keep_alive_at) => Event::KeepAlive,
                () = sleep_until(renew_at.unwrap_or(keep_alive_at)), if renew_at.is_some() => {
                    Event::RenewToken
                }
                () = sleep_until(look_at), if self.may_have_grpc => Event::LookForGrpc,
            };
            match event {
                Event::Done(Done::HasGrpc(true)) => return Ok(()),
                Event::Done(done) => self.take(done)?,
                // A server that resets connections before the first full read is a failure.
                Event::Push(Err(ApiError::Reset(_))) if self.is_complete => return Ok(()),
                Event::Push(push) => self.pushed(&push?),
                Event::Refresh => {
                    refresh_at = self.next_refresh();
                    self.refresh();
                }
                Event::KeepAlive => {
                    keep_alive_at = Instant::now() + KEEP_ALIVE;
                    self.keep_alive();
                }
                Event::RenewToken => self.log_in(),
                Event::LookForGrpc => {
                    look_at = Instant::now() + LOOK_FOR_GRPC;
                    self.look_for_grpc();
                }
            }
            self.tell();
        }
    }

    /// Returns the next refresh time: up to a quarter earlier than the interval, so that many processes
    /// spread out.
    fn next_refresh(&mut self) -> Instant {
        Instant::now() + self.product.settings.refresh.mul_f64(1.0 - self.product.jitter.fraction() / 4.0)
    }

    fn text(&self) -> Option<Arc<str>> {
        self.token.as_ref().map(|token| token.text.clone())
    }

    /// Sends queued requests, up to the limit.
    fn ask(&mut self) {
        while self.on_their_way.len() < REQUESTS {
            let Some(ask) = self.product.follower.next() else { return };
            self.send(ask);
        }
    }

    fn send(&mut self, ask: Ask) {
        self.catalog.requested();
        self.on_their_way.push(self.api.ask(ask, self.text()));
    }

    /// Over HTTP everything is polled, so one round must end before the next one.
    fn refresh(&mut self) {
        let is_polled = matches!(self.api, Api::Http(_));
        if !is_polled || self.product.follower.is_settled() {
            self.product.follower.refresh();
        }
    }

    fn keep_alive(&mut self) {
        if let Api::Grpc(grpc) = &self.api {
            for question in grpc.keep_alive(self.text().as_ref()) {
                self.catalog.requested();
                self.on_their_way.push(question);
            }
        }
    }

    /// Requests a new token; the current one stays valid for a while.
    fn log_in(&mut self) {
        let (Some(token), Some(credentials)) = (&mut self.token, self.product.settings.credentials.clone())
        else {
            return;
        };
        token.renew_at = Instant::now() + LOGIN_AGAIN;
        self.catalog.requested();
        let http = self.http.clone();
        self.on_their_way.push(Box::pin(async move { Done::LoggedIn(credentials.login(&http).await) }));
    }

    fn look_for_grpc(&mut self) {
        self.catalog.requested();
        let server = self.product.settings.grpc_server(&self.server);
        let connector = self.product.settings.connector.clone();
        self.on_their_way
            .push(Box::pin(async move { Done::HasGrpc(Grpc::is_there(connector, &server).await.is_ok()) }));
    }

    fn pushed(&mut self, push: &Push) {
        self.catalog.requested();
        self.product.follower.pushed(&push.namespace, &push.info);
    }

    fn take(&mut self, done: Done) -> Result<(), SessionError> {
        let follower = &mut self.product.follower;
        match done {
            Done::Listed(scope, page, answer) => follower.listed(&scope, page, &answer?),
            Done::Service(name, Ok(info)) => follower.answered(&name, &info),
            // The token is at fault, not the service: a new session logs in again.
            Done::Service(name, Err(error)) if error.is_refused() && !error.is_denied() => {
                let reason = SessionError::from(error).context(&name);
                follower.refused(&name).map_err(|_| reason.clone())?;
                self.catalog.failing(reason);
            }
            Done::Service(name, Err(error)) => return Err(SessionError::from(error).context(name)),
            Done::Healthy(answer) => answer?,
            Done::LoggedIn(Ok(token)) => self.token = Some(token),
            Done::LoggedIn(Err(error)) => self.catalog.failing(SessionError::from(error).context("login")),
            Done::Unsubscribed => follower.unsubscribed(),
            Done::HasGrpc(_) => {}
        }
        Ok(())
    }

    /// Publishes the full catalog once all is read, and changes from then on.
    fn tell(&mut self) {
        let follower = &mut self.product.follower;
        if !self.is_complete && !follower.is_settled() {
            return;
        }
        let changes = follower.take_changes();
        if !self.is_complete {
            self.is_complete = true;
            self.catalog.replace(changes.set);
        } else if changes.set.is_empty() && changes.removed.is_empty() {
            if follower.is_settled() && !follower.has_refused() {
                self.catalog.answered();
            }
        } else {
            self.catalog.apply(changes.set, changes.removed);
        }
    }
}
